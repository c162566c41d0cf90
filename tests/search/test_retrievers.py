"""The retrievers, with LangChain and LlamaIndex themselves, ask a service and say what became of its lists."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from kinstream import SearchClient
from kinstream.search.client.client import FeedbackRefused
from tests.search.test_feedback_service import NAMES, Q, Recording, items_of, recording
from tests.support.embeddings import of_langchain, of_llama_index

pytestmark = pytest.mark.long
#: Queries are the numbers of rows.
TEXTS = {name: f"the text of {name}" for name in NAMES}


@pytest.fixture
def service() -> Iterator[Recording]:
    with recording() as found:
        yield found


def client_of(service: Recording) -> SearchClient:
    return SearchClient(str(service.client.base_url))


def vector(text: str) -> list[float]:
    found: list[float] = Q[int(text)].tolist()
    return found


def langchain(service: Recording, **more: Any) -> Any:
    from kinstream.search.client.langchain import LangChainRetriever

    return LangChainRetriever(
        client=client_of(service), embeddings=of_langchain(vector), content=TEXTS, k=4, **more
    )


def llama_index(service: Recording, **more: Any) -> Any:
    from kinstream.search.client.llama_index import LlamaIndexRetriever

    return LlamaIndexRetriever(client_of(service), of_llama_index(vector), content=TEXTS, k=4, **more)


def test_langchain_retrieves_and_says_what_was_useful(service: Recording) -> None:
    retriever = langchain(service, asked={"user": "u-1"})
    documents = retriever.invoke("1")
    wanted = items_of(service.ask(Q[1:2])[0])
    assert [one.id for one in documents] == list(wanted)
    assert [one.page_content for one in documents] == [TEXTS[name] for name in wanted]
    assert len({one.metadata["list_id"] for one in documents}) == 1
    scores = [one.metadata["score"] for one in documents]
    assert scores == sorted(scores, reverse=True)
    retriever.feedback(documents[2], "cited", key="task-1")
    (written,) = service.brokers.feedback
    assert (written.item, written.action, written.key) == (wanted[2], "cited", "task-1")
    assert written.list_id == documents[0].metadata["list_id"]
    assert next(one.user for one in service.brokers.shown if one.list_id == written.list_id) == "u-1"


def test_langchain_retrieves_within_chains_in_batches_and_without_blocking(service: Recording) -> None:
    from langchain_core.documents import Document
    from langchain_core.runnables import RunnableLambda

    retriever = langchain(service)
    one, other = retriever.batch(["0", "2"])
    assert [d.id for d in one] == list(items_of(service.ask(Q[:1])[0]))
    assert one[0].metadata["list_id"] != other[0].metadata["list_id"]
    # What a chain passes on as JSON is enough for feedback.
    chain = retriever | RunnableLambda(lambda found: [d.model_dump() for d in found])

    async def act() -> None:
        found = [Document(**fields) for fields in await chain.ainvoke("0")]
        await retriever.afeedback(found[0], "cited")

    asyncio.run(act())
    assert [f.item for f in service.brokers.feedback] == [one[0].id]
    with pytest.raises(FeedbackRefused, match="not recorded"):
        retriever.feedback(Document("from elsewhere", id="a"))


def test_llama_index_retrieves_and_says_what_was_useful(service: Recording) -> None:
    from llama_index.core.schema import MetadataMode, QueryBundle

    retriever = llama_index(service)
    nodes = retriever.retrieve("1")
    wanted = items_of(service.ask(Q[1:2])[0])
    assert [one.node_id for one in nodes] == list(wanted)
    assert [one.node.get_content() for one in nodes] == [TEXTS[name] for name in wanted]
    assert nodes[0].score > nodes[3].score
    # A prompt has the text alone.
    assert "list_id" not in nodes[0].node.get_content(MetadataMode.LLM)
    retriever.feedback(nodes[2], "cited")
    (written,) = service.brokers.feedback
    assert (written.item, written.action) == (wanted[2], "cited")
    # A query may bring its embedding.
    bundle = QueryBundle("of no number", embedding=np.asarray(Q[1]).tolist())
    assert [one.node_id for one in retriever.retrieve(bundle)] == list(wanted)


def test_llama_index_retrieves_within_engines_and_without_blocking(service: Recording) -> None:
    from llama_index.core.llms import MockLLM
    from llama_index.core.query_engine import RetrieverQueryEngine

    retriever = llama_index(service)
    answer = RetrieverQueryEngine.from_args(retriever, llm=MockLLM()).query("0")
    assert [one.node_id for one in answer.source_nodes] == list(items_of(service.ask(Q[:1])[0]))

    async def act() -> None:
        nodes = await retriever.aretrieve("2")
        await retriever.afeedback(nodes[1], "cited")

    asyncio.run(act())
    retriever.feedback(answer.source_nodes[0], "cited")
    assert [f.item for f in service.brokers.feedback] == [
        items_of(service.ask(Q[2:3])[0])[1],
        answer.source_nodes[0].node_id,
    ]
