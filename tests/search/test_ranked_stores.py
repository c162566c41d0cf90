"""A ranking over all that a store says: its order, values and signals are those of a scan over all items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from tests.opensearch.node import OpenSearchNode, opensearch
from tests.search.scenery import (
    ITEMS,
    MOST,
    SETTINGS,
    D,
    fill_opensearch,
    fill_postgres,
    filled_qdrant,
    names,
    queries,
    scanned,
)
from tests.search.store_service import Gateway, bilinear, running, section, served
from tests.support.postgres import postgres

#: Of scores in float32 by what a signal spans over the candidates.
ROUNDING = 2e-5


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with postgres() as server:
        fill_postgres(server)
        yield server.url


@pytest.fixture(scope="module")
def node() -> Iterator[OpenSearchNode]:
    with opensearch() as found:
        fill_opensearch(found)
        yield found


def space(kind: str, request: pytest.FixtureRequest, **more: Any) -> dict[str, Any]:
    """The settings of a space over a real store."""
    own = {
        **SETTINGS,
        "candidates": MOST[kind],
        "text": "words",
        "collection": "ranked",
        "distance": "cosine",
        **more,
    }
    if kind == "pgvector":
        return section(backend=kind, connection=request.getfixturevalue("url"), **own)
    if kind == "opensearch":
        node = request.getfixturevalue("node")
        return section(backend=kind, connection=node.url, options={"exact": True}, **own)
    client = filled_qdrant()
    request.getfixturevalue("monkeypatch").setattr(
        "kinstream.search.stores.qdrant.connected", lambda place: client
    )
    options = {"vector": "embedding", "exact": True}
    return section(backend=kind, connection="http://memory", options=options, **own)


#: Qdrant's local mode ranks a hundred queries in seconds, and on a busy machine in a minute.
PATIENT: dict[str, Any] = {"request_seconds": 600.0}
#: Texts that no item has a word of.
NOTHING = (
    "",
    "  ",
    "the zebra's",
    "'; drop table ranked; --",
    "zq & !zr | (zs:*) <-> \\' \"",
    "+zq -zr~ /z./",
)
KINDS = ["pgvector", "qdrant", pytest.param("opensearch", marks=pytest.mark.long)]


def agrees(kind: str, result: dict[str, Any], *asked: Any, k: int = 10, **more: Any) -> bool:
    """Check values and signals of a result, and return whether its order is that of the scan.

    Items whose exact values differ by less than the rounding of float32 may stand in either order.
    """
    order, values, signals = scanned(kind, *asked, **more)
    ids = names(kind)
    near = result["neighbours"]
    place = {ids[item]: at for at, item in enumerate(order)}
    found = [place[one["id"]] for one in near]
    assert len(set(found)) == len(near) == min(k, len(order))
    np.testing.assert_allclose(values[found], values[: len(near)], rtol=0, atol=ROUNDING)
    np.testing.assert_allclose([one["value"] for one in near], values[found], rtol=0, atol=ROUNDING)
    for name, exact in signals.items():
        told = [one["signals"][name] for one in near]
        told = [np.nan if x is None else x for x in told]
        np.testing.assert_allclose(told, exact[found], rtol=1e-5, atol=1e-6, err_msg=name)
    for one in near:
        assert set(one["signals"]) == set(signals)
        assert sum(one["terms"].values()) == pytest.approx(one["value"], abs=1e-12)
    return found == list(range(len(near)))


def ask(client: httpx.Client, body: dict[str, Any]) -> dict[str, Any]:
    answer = client.post("/search", json={"explain": True, **body}, timeout=600)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize("number", [50, pytest.param(1_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", KINDS)
def test_order_and_values_are_those_of_a_scan(request: pytest.FixtureRequest, kind: str, number: int) -> None:
    # The node of the tests is slow: it has one small heap, and compiles little.
    number = min(number, 200) if kind == "opensearch" else number
    learner = bilinear(D, 3, scaler="unit")
    Q, texts = queries(number)
    mapped = Q.astype(np.float64) @ learner.W.astype(np.float64)
    with (
        running({"docs": space(kind, request)}, **PATIENT) as gateway,
        served(gateway) as base,
        httpx.Client(base_url=base) as client,
    ):
        for adapted in (False, True):
            if adapted:
                gateway.announced.announce("docs", learner, 5)
                gateway.settle()
            equal = 0
            for rows in np.split(np.arange(number), 10):
                body = {"vectors": Q[rows].tolist(), "texts": [texts[row] for row in rows]}
                answer = ask(client, body)
                assert answer["model"]["adapted"] is adapted
                for row, result in zip(rows, answer["results"], strict=True):
                    equal += agrees(kind, result, Q[row], mapped[row] if adapted else None, texts[row])
            assert equal == number


@pytest.mark.parametrize("kind", KINDS)
def test_queries_of_one_sort_filters_and_texts_without_words(
    request: pytest.FixtureRequest, kind: str
) -> None:
    Q, texts = queries(4, 9)
    filters: dict[str, dict[str, Any]] = {
        "pgvector": {"lang": "de"},
        "qdrant": {"must": [{"key": "lang", "match": {"value": "de"}}]},
        "opensearch": {"bool": {"filter": [{"term": {"lang": "de"}}]}},
    }
    german = np.arange(ITEMS) % 3 == 1
    with (
        running({"docs": space(kind, request)}, **PATIENT) as gateway,
        served(gateway) as base,
        httpx.Client(base_url=base) as client,
    ):
        for row, result in enumerate(ask(client, {"texts": texts})["results"]):
            assert agrees(kind, result, None, None, texts[row])
            assert all(one["similarity"] is None for one in result["neighbours"])
        for row, result in enumerate(ask(client, {"vectors": Q.tolist()})["results"]):
            assert agrees(kind, result, Q[row], None, None)
        both = {"vectors": Q.tolist(), "texts": texts, "filter": filters[kind], "k": 200}
        for row, result in enumerate(ask(client, both)["results"]):
            own = scanned(kind, Q[row], None, texts[row], allowed=german)[0]
            assert result["fewer"] == "filter" and {
                one["fields"]["lang"] for one in result["neighbours"]
            } == {"de"}
            assert len(result["neighbours"]) == min(200, german.sum()) >= len(own)
        # Nothing of these is an operator, and no item has the words.
        for text in NOTHING:
            (result,) = ask(client, {"texts": text})["results"]
            assert result == {"neighbours": [], "fewer": "store"}
            (result,) = ask(client, {"texts": text, "vectors": Q[0].tolist()})["results"]
            near = [one["id"] for one in result["neighbours"]]
            plain = scanned(kind, Q[0], None, None)[0]
            assert near == [names(kind)[item] for item in plain[:10]]
            assert {one["signals"]["text"] for one in result["neighbours"]} == {0.0}
        odd = f"{texts[0]} !& | '\" \\ (" + "\u2603" * 50
        assert agrees(kind, ask(client, {"texts": odd})["results"][0], None, None, texts[0])


@pytest.mark.parametrize("kind", KINDS)
def test_a_signal_that_is_a_vector_is_compared_with_the_querys_own(
    request: pytest.FixtureRequest, kind: str
) -> None:
    Q, texts = queries(3, 12)
    T, _ = queries(3, 13)
    images = queries(3, 14)[0][:, :-3]
    with (
        running({"docs": space(kind, request)}, **PATIENT) as gateway,
        served(gateway) as base,
        httpx.Client(base_url=base) as client,
    ):
        own: dict[str, Any] = {"title": T, "image": images}
        for names_of in (["title", "image"], ["image"], ["title"]):
            some = {name: own[name] for name in names_of}
            vectors = {name: rows.tolist() for name, rows in {"x": Q, **some}.items()}
            for row, result in enumerate(ask(client, {"vectors": vectors, "texts": texts})["results"]):
                one = {name: rows[row] for name, rows in some.items()}
                assert agrees(kind, result, Q[row], None, texts[row], own=one)
                assert ("image" in result["neighbours"][0]["signals"]) == ("image" in some)
        # Without a vector of the query, further ones rank what its text has found.
        body = {"vectors": {"image": images.tolist()}, "texts": texts}
        for row, result in enumerate(ask(client, body)["results"]):
            assert agrees(kind, result, None, None, texts[row], own={"image": images[row]})
        one_row = {"vectors": {"x": Q[0].tolist(), "image": images[0].tolist()}, "texts": texts[0]}
        assert agrees(
            kind, ask(client, one_row)["results"][0], Q[0], None, texts[0], own={"image": images[0]}
        )
        faults: list[tuple[dict[str, Any], str, str]] = [
            ({"image": images.tolist()}, "vectors.x", "required"),
            ({"x": Q.tolist(), "sound": Q.tolist()}, "vectors.sound", "the space has x, age, title, image"),
            ({"x": Q.tolist(), "image": images[:2].tolist()}, "vectors.image", "2 vectors, and 3 queries"),
            ({"x": Q.tolist(), "image": Q.tolist()}, "vectors", "8 numbers; ranked.image has 5"),
            ({"x": Q.tolist(), "age": Q.tolist()}, "vectors", "ranked.age is no column of vectors"),
            ({"x": Q.tolist(), "image": [[1e300] * 5] * 3}, "vectors.image[0][0]", "above"),
        ]
        for given, place, why in faults:
            told = client.post("/search", json={"vectors": given}, timeout=600)
            assert (told.status_code, told.json()["place"]) == (422, place), told.text
            assert why in told.json()["detail"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_request_cannot_have_is_refused(request: pytest.FixtureRequest, kind: str) -> None:
    Q, texts = queries(2, 9)
    every: dict[str, dict[str, Any]] = {
        "pgvector": {"script": "x"},
        "qdrant": {"lang": "de"},
        "opensearch": {"script": {"script": "while (true) {}"}},
    }
    faults: list[tuple[dict[str, Any], str]] = [
        ({}, "vectors"),
        ({"texts": [texts[0]], "vectors": Q.tolist()}, "texts"),
        ({"texts": "a" * 1_000_000}, "texts[0]"),
        ({"texts": "a\x00b"}, "texts[0]"),
        ({"texts": 5}, "texts"),
        ({"texts": []}, "texts"),
        ({"texts": ["a"] * 257}, "texts"),
        ({"texts": [None]}, "texts[0]"),
        ({"vectors": Q[:, :3].tolist(), "texts": texts}, "vectors[0]"),
        ({"texts": texts, "filter": every[kind]}, "filter"),
    ]
    with (
        running({"docs": space(kind, request)}, **PATIENT) as gateway,
        served(gateway) as base,
        httpx.Client(base_url=base) as client,
    ):
        for body, place in faults:
            told = client.post("/search", json=body, timeout=600)
            assert (told.status_code, told.json()["place"]) == (422, place), (body, told.text)
        assert gateway.service.ready


def test_lists_of_two_models_do_not_show_whose_pick_an_item_is(request: pytest.FixtureRequest) -> None:
    Q, texts = queries(6, 10)
    gate = {"docs": {"share": 1.0}}
    with running({"docs": space("pgvector", request)}, gate=gate) as gateway, served(gateway) as base:
        gateway.announced.announce("docs", bilinear(D, 3, scaler="unit"), 5)
        gateway.wait(lambda: compared(gateway), "a challenger is known")
        with httpx.Client(base_url=base) as client:
            answer = ask(client, {"vectors": Q.tolist(), "texts": texts})
    assert answer["candidate"]["adapted"] and not answer["model"]["adapted"]
    learner = bilinear(D, 3, scaler="unit")
    others = set()
    for row, result in enumerate(answer["results"]):
        own = set(scanned("pgvector", Q[row], None, texts[row])[0][:10])
        both = own | set(scanned("pgvector", Q[row], Q[row] @ learner.W, texts[row])[0][:10])
        items = {names("pgvector").index(one["id"]) for one in result["neighbours"]}
        assert result["list_id"] and items <= both
        others |= items - own
        for one in result["neighbours"]:
            assert one["value"] is None and one["similarity"] is None and "terms" not in one
            assert set(one["signals"]) == {"similarity", "text", "age", "title"}
    assert others


def compared(gateway: Gateway) -> bool:
    pair = gateway.space().pair()
    return pair.candidate is not None


def test_candidates_are_as_many_as_the_list_needs(request: pytest.FixtureRequest) -> None:
    Q, _ = queries(1, 11)
    own = space("pgvector", request)
    with running({"docs": own}) as gateway, served(gateway) as base, httpx.Client(base_url=base) as client:
        (result,) = ask(client, {"vectors": Q.tolist(), "k": 2 * MOST["pgvector"]})["results"]
    assert len(result["neighbours"]) == 2 * MOST["pgvector"] and "fewer" not in result
