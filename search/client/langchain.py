"""The service as a retriever of LangChain."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from kinstream.search.client.client import FoundList, SearchClient
from kinstream.search.client.content import LIST_ID, content_of, metadata_of, score_of
from kinstream.streams.extras import importing

with importing("LangChainRetriever"):
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.retrievers import BaseRetriever


class LangChainRetriever(BaseRetriever):  # type: ignore[misc, unused-ignore]
    """A retriever whose documents remember their list, so that `feedback` says what became of them.

    Parameters
    ----------
    client : of the service's space.
    embeddings : of queries; None asks by text alone.
    text : whether the space is searched by words too.
    content : the column that is the text of a document, or texts by id.
    k : documents of a list.
    asked : further fields of each request, such as `user`, `session` and `filter`.
    """

    client: SearchClient
    embeddings: Embeddings | None = None
    text: bool = False
    content: str | Mapping[str, str] = "text"
    k: int = 10
    asked: dict[str, Any] = Field(default_factory=dict)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        vector = None if self.embeddings is None else self.embeddings.embed_query(query)
        return self._documents(self._search(query, vector))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun
    ) -> list[Document]:
        vector = None if self.embeddings is None else await self.embeddings.aembed_query(query)
        return self._documents(await asyncio.to_thread(self._search, query, vector))

    def feedback(self, document: Document, action: str | None = None, **more: Any) -> None:
        """Say what was done with a document that this retriever has found, as `SearchClient.feedback`."""
        self.client.feedback(document.metadata.get(LIST_ID), document.id, action, **more)

    async def afeedback(self, document: Document, action: str | None = None, **more: Any) -> None:
        """The same, without blocking."""
        await asyncio.to_thread(self.feedback, document, action, **more)

    def _search(self, query: str, vector: list[float] | None) -> FoundList:
        by_text = query if self.text or vector is None else None
        return self.client.search(vector, by_text, self.k, **self.asked)

    def _documents(self, found: FoundList) -> list[Document]:
        return [
            Document(
                content_of(one, self.content),
                id=one["id"],
                metadata=metadata_of(one, self.content) | {LIST_ID: found.list_id, "score": score_of(one)},
            )
            for one in found.neighbours
        ]
