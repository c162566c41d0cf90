"""Embeddings of LangChain and LlamaIndex that are a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Vector = Callable[[str], list[float]]


def of_langchain(vector: Vector) -> Any:
    """Embeddings whose vectors are those of `vector`."""
    from langchain_core.embeddings import Embeddings

    class Own(Embeddings):  # type: ignore[misc, unused-ignore]
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [vector(text) for text in texts]

        def embed_query(self, text: str) -> list[float]:
            return vector(text)

    return Own()


def of_llama_index(vector: Vector) -> Any:
    """An embedding whose vectors are those of `vector`, also where it is awaited."""
    from llama_index.core.embeddings import BaseEmbedding

    class Own(BaseEmbedding):  # type: ignore[misc, unused-ignore]
        def _get_text_embedding(self, text: str) -> list[float]:
            return vector(text)

        def _get_query_embedding(self, query: str) -> list[float]:
            return vector(query)

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return vector(query)

    return Own()
