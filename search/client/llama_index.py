"""The service as a retriever of LlamaIndex."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from kinstream.search.client.client import FoundList, SearchClient
from kinstream.search.client.content import LIST_ID, content_of, metadata_of, score_of
from kinstream.streams.extras import importing

with importing("LlamaIndexRetriever"):
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.callbacks import CallbackManager
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode


class LlamaIndexRetriever(BaseRetriever):  # type: ignore[misc, unused-ignore]
    """A retriever whose nodes remember their list, so that `feedback` says what became of them.

    Parameters
    ----------
    client, text, content, k, asked : as of `kinstream.search.client.langchain.LangChainRetriever`.
    embed_model : of queries; None asks by text alone, or with the embedding that a query brings.
    """

    def __init__(
        self,
        client: SearchClient,
        embed_model: BaseEmbedding | None = None,
        *,
        text: bool = False,
        content: str | Mapping[str, str] = "text",
        k: int = 10,
        asked: Mapping[str, Any] | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        super().__init__(callback_manager=callback_manager)
        self._client, self._embed_model, self._text = client, embed_model, text
        self._content, self._k, self._asked = content, k, dict(asked or {})

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        vector = query_bundle.embedding
        if vector is None and self._embed_model is not None:
            vector = self._embed_model.get_agg_embedding_from_queries(query_bundle.embedding_strs)
        return self._nodes(self._search(query_bundle, vector))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        vector = query_bundle.embedding
        if vector is None and self._embed_model is not None:
            vector = await self._embed_model.aget_agg_embedding_from_queries(query_bundle.embedding_strs)
        return self._nodes(await asyncio.to_thread(self._search, query_bundle, vector))

    def feedback(self, node: NodeWithScore, action: str | None = None, **more: Any) -> None:
        """Say what was done with a node that this retriever has found, as `SearchClient.feedback`."""
        self._client.feedback(node.metadata.get(LIST_ID), node.node_id, action, **more)

    async def afeedback(self, node: NodeWithScore, action: str | None = None, **more: Any) -> None:
        """The same, without blocking."""
        await asyncio.to_thread(self.feedback, node, action, **more)

    def _search(self, query: QueryBundle, vector: list[float] | None) -> FoundList:
        by_text = query.query_str if self._text or vector is None else None
        return self._client.search(vector, by_text, self._k, **self._asked)

    def _nodes(self, found: FoundList) -> list[NodeWithScore]:
        nodes = []
        for one in found.neighbours:
            node = TextNode(
                id_=one["id"],
                text=content_of(one, self._content),
                metadata=metadata_of(one, self._content) | {LIST_ID: found.list_id},
                # A language model has no use for it, and an embedding less.
                excluded_llm_metadata_keys=[LIST_ID],
                excluded_embed_metadata_keys=[LIST_ID],
            )
            nodes.append(NodeWithScore(node=node, score=score_of(one)))
        return nodes
