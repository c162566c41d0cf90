"""The page of the service is walked: from an empty table to better rankings; its store and its recipes work."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinstream.search.queries.model import QueryModel
from kinstream.search.stores.base import Place
from tests.docs.pages import ROOT, blocks
from tests.support.embeddings import of_langchain, of_llama_index

PAGE = ROOT / "docs" / "serving.md"
X = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)


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
    from langchain_core.vectorstores import InMemoryVectorStore

    scope: dict[str, Any] = {}
    exec(python("recipe: langchain"), scope)

    own = of_langchain(vector)
    for made, swapped in ((own, False), (scope["AdaptedEmbeddings"](own, adapter), True)):
        store = InMemoryVectorStore.from_texts([str(n) for n in range(20)], made)
        (found,) = store.as_retriever(search_kwargs={"k": 1}).invoke("5")
        assert found.page_content == best(swapped)
    assert best(True) != best(False)


@pytest.mark.long
def test_the_recipe_for_llamaindex(adapter: QueryModel) -> None:
    from llama_index.core import VectorStoreIndex
    from llama_index.core.schema import TextNode

    # Its classes resolve their types in the module that defines them.
    module = type(sys)("recipe")
    sys.modules["recipe"] = module
    try:
        exec(python("recipe: llamaindex"), module.__dict__)
    finally:
        del sys.modules["recipe"]

    own = of_llama_index(vector)
    nodes = [TextNode(id_=str(n), text=str(n)) for n in range(20)]
    index = VectorStoreIndex(nodes, embed_model=own)
    adapted = module.__dict__["AdaptedEmbedding"](embedding=own, adapter=adapter)
    for made, swapped in ((own, False), (adapted, True)):
        (found,) = index.as_retriever(embed_model=made, similarity_top_k=1).retrieve("5")
        assert found.node.get_content() == best(swapped)
