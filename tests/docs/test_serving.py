"""The page of the service is walked: from an empty table to better rankings; its store and its recipes work."""

from __future__ import annotations

import re
import sys
import urllib.request
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import psycopg
import pytest

from kinstream.search.queries.model import QueryModel
from kinstream.search.stores.base import Place
from tests.docs.pages import ROOT, blocks
from tests.docs.terminals import Walk, walk
from tests.docs.test_tutorial import free_port

PAGE = ROOT / "docs" / "serving.md"
X = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)


def graded(page: Walk, grade: str) -> tuple[int, bool]:
    ((right, adapted),) = re.findall(
        r"^(\d+) of 500 are of the topic; adapted: (\w+)", page.done(grade), re.M
    )
    return int(right), adapted == "True"


@pytest.mark.timeout(500)
def test_from_an_empty_table_to_better_rankings() -> None:
    # Root's database runs as another user, who may not enter pytest's folder.
    with TemporaryDirectory(prefix="kinstream-walk-", ignore_cleanup_errors=True) as folder:
        ends_where_it_says(Path(folder))


def ends_where_it_says(tmp_path: Path) -> None:
    shown = [int(n) for block in blocks(PAGE, "text") for n in re.findall(r"^(\d+) of 500", block.text, re.M)]
    port = free_port()
    with walk(PAGE, tmp_path, {"KINSTREAM_SERVE__HTTP_PORT": str(port)}) as page:

        def here(name: str) -> str:
            # The port of the page may be taken on this machine.
            return page.commands(name).replace(":8088", f":{port}")

        def ready() -> bool:
            try:
                return bool(urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz").status == 200)
            except OSError:
                return False

        page.write_files()
        page.start("database")
        url = tmp_path / "database.url"
        page.until(url.exists, "the database is there")
        page.done(here("make"))
        page.start_agents("up", ready=3)
        page.until(ready, "the service is ready")
        before, adapted = graded(page, here("grade"))
        assert not adapted
        rows = contents(url.read_text())
        page.done(here("clicks"))
        page.until(lambda: graded(page, here("grade")) > (470, False), "the rankings are better")
        assert graded(page, here("grade"))[1]
        assert contents(url.read_text()) == rows
    assert len(shown) == 2
    assert abs(before - shown[0]) <= 15
    assert shown[1] > 470


def contents(url: str) -> list[Any]:
    with psycopg.connect(url) as connection:
        return connection.execute("select xmin::text, * from docs order by id").fetchall()


def python(mark: str) -> str:
    """The Python example below a mark."""
    (found,) = [block.text for block in blocks(PAGE, "python") if block.before == f"<!-- {mark} -->"]
    return found


def test_the_store_of_ones_own_answers(tmp_path: Path) -> None:
    scope: dict[str, Any] = {}
    exec(python("file: brute/store.py"), scope)
    file = tmp_path / "items.npz"
    np.savez(file, ids=np.array([f"i{n}" for n in range(20)]), vectors=X)
    store = scope["Brute"](Place("", str(file), "inner-product"))
    assert store.check() == 6
    (hits,) = store.search(X[:1], 3, None).hits
    order = np.argsort(-(X[0] @ X.T))[:3]
    assert [hit.id for hit in hits] == [f"i{n}" for n in order]
    store.close()


@pytest.fixture
def adapter() -> QueryModel:
    """A map that puts the features in the other order."""
    from kinstream.learners.models.query_map import QueryMap

    return QueryModel("adapter", query_map=QueryMap({"W": np.eye(6)[::-1]}))


def vector(text: str) -> list[float]:
    found: list[float] = X[int(text)].tolist()
    return found


def best(swapped: bool) -> str:
    query = X[5][::-1] if swapped else X[5]
    near = X @ query / np.linalg.norm(X, axis=1)
    return str(int(np.argmax(near)))


@pytest.mark.long
def test_the_recipe_for_langchain(adapter: QueryModel) -> None:
    from langchain_core.embeddings import Embeddings
    from langchain_core.vectorstores import InMemoryVectorStore

    scope: dict[str, Any] = {}
    exec(python("recipe: langchain"), scope)

    class Own(Embeddings):  # type: ignore[misc, unused-ignore]
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [vector(text) for text in texts]

        def embed_query(self, text: str) -> list[float]:
            return vector(text)

    for made, swapped in ((Own(), False), (scope["AdaptedEmbeddings"](Own(), adapter), True)):
        store = InMemoryVectorStore.from_texts([str(n) for n in range(20)], made)
        (found,) = store.as_retriever(search_kwargs={"k": 1}).invoke("5")
        assert found.page_content == best(swapped)
    assert best(True) != best(False)


@pytest.mark.long
def test_the_recipe_for_llamaindex(adapter: QueryModel) -> None:
    from llama_index.core import VectorStoreIndex
    from llama_index.core.embeddings import BaseEmbedding
    from llama_index.core.schema import TextNode

    # Its classes resolve their types in the module that defines them.
    module = type(sys)("recipe")
    sys.modules["recipe"] = module
    try:
        exec(python("recipe: llamaindex"), module.__dict__)
    finally:
        del sys.modules["recipe"]

    class Own(BaseEmbedding):  # type: ignore[misc, unused-ignore]
        def _get_text_embedding(self, text: str) -> list[float]:
            return vector(text)

        def _get_query_embedding(self, query: str) -> list[float]:
            return vector(query)

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return vector(query)

    nodes = [TextNode(id_=str(n), text=str(n)) for n in range(20)]
    index = VectorStoreIndex(nodes, embed_model=Own())
    adapted = module.__dict__["AdaptedEmbedding"](embedding=Own(), adapter=adapter)
    for made, swapped in ((Own(), False), (adapted, True)):
        (found,) = index.as_retriever(embed_model=made, similarity_top_k=1).retrieve("5")
        assert found.node.get_content() == best(swapped)
