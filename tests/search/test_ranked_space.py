"""A space that ranks by signals, over a store in this process: blends, missing numbers, faults, and its schema."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psycopg
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode

from kinstream.learners.ranking.blend import Blend
from kinstream.learners.registry import create
from kinstream.processors.base.id_table import name_hashes
from kinstream.search.stores import kinds
from kinstream.search.stores.base import Asked, Candidates, Place, StoreAway, StoreCandidates, signals_of
from kinstream.search.stores.words import item_vector, query_vector, words
from kinstream.streams.errors import SettingsError
from kinstream.streams.settings import load
from kinstream.streams.signals import REMEMBERED
from tests.learners.ranking.world import World
from tests.search.store_service import Gateway, Memory, bilinear, running, section, served
from tests.search.test_openapi import CHECKS
from tests.support.postgres import postgres

NAMES = ["a", "b", "c", "d"]
X = np.array([[1.0], [-2.0], [3.0], [0.5]])
TEXTS = ["red fox", "red", "", "blue fox"]
AGES = [1.0, None, float("nan"), float("inf")]


class Signals(Memory):
    """All items are candidates of every query."""

    def __init__(self, place: Place) -> None:
        super().__init__(NAMES, X)
        self.place = place
        self.questions: list[Asked] = []

    def candidates(self, asked: Sequence[Asked], n: int, where: Any) -> StoreCandidates:
        if self.away is not None:
            raise StoreAway(self.away)
        self.questions += asked
        return StoreCandidates([self._found(one) for one in asked], "7")

    def _found(self, asked: Asked) -> Candidates:
        rows = []
        for x, text, age in zip(X[:, 0], TEXTS, AGES, strict=True):
            plain, mapped = (None if v is None else float(v[0]) * x for v in (asked.plain, asked.mapped))
            shared = float(len(set(words(text)) & set(words(asked.text or ""))))
            rows.append([plain, mapped, shared, age])
        return Candidates(NAMES, [{}] * len(NAMES), signals_of(self.place, asked, rows))


OWN = {"text": "words", "signals": ["age"]}


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with running({"docs": section(**OWN)}, create=lambda _, place: Signals(place)) as found:
        yield found


@pytest.fixture(scope="module")
def client(gateway: Gateway) -> Iterator[httpx.Client]:
    with served(gateway) as base, httpx.Client(base_url=base) as found:
        yield found


def store_of(gateway: Gateway) -> Signals:
    found = gateway.space()._store
    assert isinstance(found, Signals)
    return found


def test_half_and_half_is_the_ranking_before_anything_is_learned(
    gateway: Gateway, client: httpx.Client
) -> None:
    found = client.post("/search", json={"vectors": [1.0], "texts": "fox", "explain": True}).json()
    near = {one["id"]: one for one in found["results"][0]["neighbours"]}
    # By similarity c, a, d, b over 5; by text a and d before b and c.
    assert list(near) == ["a", "d", "c", "b"]
    assert near["a"]["value"] == pytest.approx(0.5 * (1 - 0.625) / 5 + 0.5 * 0.5)
    assert near["a"]["signals"] == {"similarity": 1.0, "text": 1.0, "age": 1.0}
    assert near["a"]["terms"].keys() == {"similarity", "text"}
    for name in ("b", "c", "d"):
        assert near[name]["signals"]["age"] is None


def test_a_model_of_its_own_blend_ranks_by_it_and_another_adapts_the_similarity(
    gateway: Gateway, client: httpx.Client
) -> None:
    learner = bilinear(1, 3)
    asked = {"vectors": [2.0], "texts": "red", "explain": True}
    gateway.announced.announce("docs", learner, 1)
    gateway.settle()
    (result,) = client.post("/search", json=asked).json()["results"]
    mapped = float(2.0 * learner.W[0, 0])
    for one in result["neighbours"]:
        x = X[NAMES.index(one["id"]), 0]
        assert one["signals"]["adapted"] == pytest.approx(mapped * x)
        assert one["signals"]["similarity"] == 2.0 * x and one["similarity"] == one["signals"]["adapted"]
        assert one["terms"].keys() == {"adapted", "text"}
    learner = bilinear(1, 4)
    learner.blend = Blend(("age", "bm25", "text"), np.array([0.2, 3.0, 1.0]))
    gateway.announced.announce("docs", learner, 2)
    gateway.settle()
    (result,) = client.post("/search", json=asked).json()["results"]
    assert [one["id"] for one in result["neighbours"]] == ["a", "b", "c", "d"]
    for one in result["neighbours"]:
        # What no candidate has adds nothing.
        assert one["terms"].keys() == {"age", "bm25", "text"} and one["terms"]["bm25"] == 0.0
    assert store_of(gateway).questions[-1].mapped is not None


@pytest.mark.parametrize(
    ("names", "weights", "says"),
    [
        (
            ("bm25", "similarity"),
            [3.0, 1.0],
            "weighs 'bm25', which the space does not have.*has 'age', 'text'",
        ),
        (
            ("age", "bm25", "text"),
            [1.0, -3.0, 1.0],
            "weighs 'bm25', which.*add a column.*to serve.spaces.docs.signals",
        ),
        (("age", "bm25", "text"), [1.0, 0.0, 1.0], None),
        (("adapted", "text"), [1.0, 1.0], None),
    ],
)
def test_a_weight_that_the_space_has_no_signal_for_is_told_by_its_page_and_once_by_the_log(
    caplog: pytest.LogCaptureFixture, names: tuple[str, ...], weights: list[float], says: str | None
) -> None:
    with (
        running({"docs": section(**OWN)}, create=lambda _, place: Signals(place)) as gateway,
        served(gateway) as base,
        httpx.Client(base_url=base) as client,
    ):
        assert "notes" not in client.get("/readyz").json()
        for step in (1, 2):
            learner = bilinear(1, step)
            learner.blend = Blend(names, np.array(weights) * step)
            gateway.announced.announce("docs", learner, step)
            gateway.settle()
            for _ in range(3):
                assert client.post("/search", json={"vectors": [2.0], "texts": "red"}).status_code == 200
        page = client.get("/readyz")
        assert page.status_code == 200
        gateway.announced.announce("docs", bilinear(1, 3), 3)
        gateway.settle()
        assert "notes" not in client.get("/readyz").json()
    logged = [one.getMessage() for one in caplog.records if "lost" in one.getMessage()]
    if says is None:
        assert "notes" not in page.json() and not logged
    else:
        (note,), (line,) = page.json()["notes"], logged
        assert re.search(says, note) and re.search(says, line) and "'docs'" in note


@pytest.mark.parametrize(
    ("asked", "each"),
    [
        ({"vectors": [[2.0], [1.0]], "texts": ["red", "fox"]}, 2 * 300),
        ({"vectors": [[2.0], [1.0]]}, 300),
        ({"texts": ["red", "fox"]}, 300),
        ({"texts": ["red", "fox"], "k": 900}, 900),
        ({"vectors": [[2.0], [1.0]], "texts": ["red", "fox"], "k": 900}, 2 * 900),
    ],
)
def test_a_request_is_counted_by_the_candidates_that_it_holds(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], each: int
) -> None:
    taken: list[int] = []
    monkeypatch.setattr("kinstream.search.service.clients.take", taken.append)
    own = section(**OWN, candidates=300)
    with running({"docs": own}, create=lambda _, place: Signals(place)) as gateway, served(gateway) as base:
        assert httpx.post(f"{base}/search", json=asked).status_code == 200
    assert taken == [2 * each]


class Exact(Memory):
    """Items of length 1, by inner products, with a text rank that is known for every query."""

    def __init__(self, place: Place, world: World) -> None:
        super().__init__([str(row) for row in range(len(world.items))], world.items)
        self.place, self.world = place, world

    def candidates(self, asked: Sequence[Asked], n: int, where: Any) -> StoreCandidates:
        return StoreCandidates([self._found(one) for one in asked], "7")

    def _found(self, asked: Asked) -> Candidates:
        text = self.world.signals["text"][int(asked.text or 0)].tolist()
        age = self.world.signals["age"][0].tolist()
        plain, mapped = (
            [None] * len(text) if v is None else (self.world.items @ v).tolist()
            for v in (asked.plain, asked.mapped)
        )
        rows = [list(row) for row in zip(plain, mapped, text, age, strict=True)]
        names = [str(row) for row in range(len(text))]
        return Candidates(names, [{}] * len(names), signals_of(self.place, asked, rows))


@pytest.mark.parametrize("length", [1.0, 7.0])
def test_what_ranking_has_learned_is_served_as_it_ranks_itself(length: float) -> None:
    """Whatever lengths queries and the map have: its signals are cosines, and the store's inner products."""
    world = World(300)
    learner: Any = create("ranking", start={"similarity": 0.5, "text": 0.5}, remember=1_000)
    for block in world.blocks():
        learner.learn(block)
    docs = section(text="words", signals=["age"], distance="inner-product")
    with (
        running({"docs": docs}, create=lambda _, place: Exact(place, world)) as gateway,
        served(gateway) as base,
    ):
        gateway.announced.announce("docs", learner, 1)
        gateway.settle()
        known, often = 0, 0
        for number in range(20):
            query = length * world.queries[number]
            asked = {"vectors": query.tolist(), "texts": str(number), "k": 300, "explain": True}
            (result,) = httpx.post(f"{base}/search", json=asked).json()["results"]
            signals = {name: one[0] for name, one in learner.signals(query[None], world.items).items()}
            signals |= {name: one[number] for name, one in world.signals.items()}
            blend, recalled = learner.blend, learner.remembered.recall(query)
            if recalled is not None:
                rates = recalled.rates(name_hashes([str(row) for row in range(300)]))
                blend, signals = learner.known_blend, signals | {REMEMBERED: rates}
                known += 1
            values = blend(signals)
            assert blend.names != learner.start.names
            found = {int(one["id"]): one for one in result["neighbours"]}
            assert [found[row]["value"] for row in range(300)] == pytest.approx(values.tolist(), abs=1e-4)
            assert found[7]["signals"]["adapted"] == pytest.approx(float(signals["adapted"][7]), abs=1e-5)
            # Clients send the signals back as scores, and learners compute this one.
            assert REMEMBERED not in found[7]["signals"]
            assert (REMEMBERED in found[7]["terms"]) == (recalled is not None)
            if recalled is None:
                assert "chosen" not in found[7]
            else:
                best = max(range(300), key=lambda row: rates[row])
                (times,) = recalled.times(name_hashes([str(best)])).tolist()
                assert found[best]["chosen"] == round(times)
                often = max(often, found[best]["chosen"])
    assert known > 10 and often >= 2


@pytest.mark.parametrize("length", [1.0, 7.0])
def test_what_was_chosen_counts_in_front_of_a_store_that_ranks_by_vectors_alone(length: float) -> None:
    """Its one similarity counts for both; queries that are not remembered are answered as the store answers."""
    world = World(300)
    learner: Any = create("ranking", remember=1_000)
    for block in world.blocks(names=()):
        learner.learn(block)
    ids = [str(row) for row in range(300)]
    store, again, others = Memory(ids, world.items), 0, 0
    with running({"docs": section()}, create=lambda *_: store) as gateway, served(gateway) as base:
        gateway.announced.announce("docs", learner, 1)
        gateway.settle()
        for query in (*world.queries[:20], *-world.queries[:5]):
            asked = {"vectors": (length * query).tolist(), "k": 5}
            (result,) = httpx.post(f"{base}/search", json=asked).json()["results"]
            similarity = learner.signals(query[None], world.items)["adapted"][0].astype(np.float64)
            best = np.argsort(-similarity, kind="stable")
            recalled = learner.remembered.recall(query)
            if recalled is None:
                others += 1
            else:
                again, best = again + 1, best[:100]
                rates = recalled.rates(name_hashes([ids[row] for row in best]))
                own = {name: similarity[best] for name in ("adapted", "similarity")}
                best = best[np.argsort(-learner.known_blend(own | {REMEMBERED: rates}), kind="stable")]
            assert [one["id"] for one in result["neighbours"]] == [ids[row] for row in best[:5]]
    assert again > 5 and others > 2


def test_the_order_of_equals_is_that_of_their_ids(client: httpx.Client) -> None:
    (result,) = client.post("/search", json={"texts": "zebra", "k": 3}).json()["results"]
    assert [one["value"] for one in result["neighbours"]] == sorted(
        (one["value"] for one in result["neighbours"]), reverse=True
    )
    assert [one["id"] for one in result["neighbours"]] == ["a", "b", "c"]


def test_a_store_that_is_away_is_503(gateway: Gateway, client: httpx.Client) -> None:
    store = store_of(gateway)
    store.away = "fetching coffee"
    told = client.post("/search", json={"texts": "fox"})
    assert (told.status_code, told.json()["reason"]) == (503, "store") and "coffee" in told.text
    store.away = None
    gateway.wait(lambda: gateway.service.ready, "ready again")


def test_a_space_of_one_vector_has_no_texts_and_explains_nothing() -> None:
    store = Memory(NAMES, X)
    with running({"docs": section()}, create=lambda *_: store) as plain, served(plain) as base:
        for body, place in (
            ({"texts": "fox"}, "texts"),
            ({"vectors": [1.0], "texts": "fox"}, "texts"),
            ({"vectors": [1.0], "explain": True}, "explain"),
        ):
            told = httpx.post(f"{base}/search", json=body)
            assert (told.status_code, told.json()["place"]) == (422, place)
        (one, *_) = httpx.post(f"{base}/search", json={"vectors": [1.0]}).json()["results"][0]["neighbours"]
        assert one == {"id": "c", "similarity": 3.0, "fields": {}}


def test_a_store_of_vectors_alone_is_refused_where_text_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    class Plain:
        def __init__(self, place: Place) -> None:
            pass

    monkeypatch.setattr(kinds._KINDS, "class_of", lambda kind: Plain)
    kinds.create("plain", Place("", "docs", "cosine"))
    with pytest.raises(SettingsError, match="plain ranks by vectors alone"):
        kinds.create("plain", Place("", "docs", "cosine", text="words"))


def test_numbers_that_are_none_or_not_finite_are_missing_and_rows_without_text_have_no_words() -> None:
    with postgres() as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(
                "create table odd (id int, embedding vector(2), body text, price numeric, age float8,"
                " words tsvector generated always as (to_tsvector('english', body)) stored)"
            )
            connection.execute(
                "insert into odd values (1, '[1,0]', 'red fox', 'NaN', 1), (2, '[1,1]', null, 2.5, 'infinity'),"
                " (3, null, 'the red dog''s \\ ball', null, '-infinity'), (4, '[0,0]', 'dog', 3, null)"
            )
        place = Place(server.url, "odd", "cosine", ("body",), text="words", signals=("price", "age"))
        store: Any = kinds.create("pgvector", place)
        assert store.check() == 2
        query = Asked(np.array([1.0, 0.5], np.float32), None, "RED dog's | !ball & '\\")
        (one,) = store.candidates([query], 10, None).found
        found = {name: dict(zip(one.ids, column, strict=True)) for name, column in one.signals.items()}
        assert sorted(one.ids) == ["1", "2", "3", "4"]
        missing = {name: {at for at, x in column.items() if np.isnan(x)} for name, column in found.items()}
        assert missing == {
            "similarity": {"3", "4"},
            "price": {"1", "3"},
            "age": {"2", "3", "4"},
            "text": set(),
        }
        assert found["text"]["2"] == 0.0 < found["text"]["1"] < found["text"]["3"]
        # A row that has neither a similarity nor a word is no candidate.
        (near,) = store.candidates([Asked(query.plain)], 10, None).found
        assert set(near.ids) == {"1", "2"} and "text" not in near.signals
        store.close()
        for change, text in (
            ({"text": "body"}, "of the type text, not tsvector"),
            ({"text": "no"}, "has no column no"),
            ({"signals": ("body",)}, "invalid input syntax|cannot cast"),
            ({"signals": ("no",)}, "does not exist"),
        ):
            given: dict[str, Any] = {"connection": server.url, "collection": "odd", "distance": "cosine"}
            store = kinds.create("pgvector", Place(**given, **change))
            with pytest.raises(StoreAway, match=text):
                store.check()
                store.candidates([query], 10, None)
            store.close()


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ("blend = {similarity = 1}", "set text or signals"),
        ("candidates = 5", "set text or signals"),
        ('text = "w"\nblend = {age = 1}', "there is no signal 'age'; there are similarity, text"),
        ('text = "w"\nblend = {text = 0}', "one of them is not zero"),
        ('text = "w"\nblend = {text = nan}', "finite numbers"),
        ('signals = ["text"]', "none similarity, adapted, remembered or text"),
        ('signals = ["a", "a"]', "names each column once"),
        ('signals = [""]', "each has a name"),
        ('text = "w"\ncandidates = 1001', "candidates"),
    ],
)
def test_settings_that_cannot_rank_are_named(tmp_path: Path, lines: str, text: str) -> None:
    file = tmp_path / "kinstream.toml"
    head = '[serve.spaces.docs]\nlearner = "adapter"\nbackend = "pgvector"\ncollection = "docs"\n'
    file.write_text(head + lines + "\n")
    with pytest.raises(SettingsError, match=text):
        load(file)


def test_words_are_folded_and_counted() -> None:
    places, values = query_vector("Straße, STRASSE x_1 x_1")
    assert len(places) == 2 and values == [1.0, 1.0] and places == sorted(places)
    assert query_vector(" .,; ") == ([], [])
    # BM25 of a word that stands twice in an item of the mean length.
    places, values = item_vector("a a", 2.0)
    assert places == query_vector("A")[0] and values == [pytest.approx(2 * 2.2 / (2 + 1.2))]


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_every_answer_is_in_the_schema(gateway: Gateway, client: httpx.Client, mode: GenerationMode) -> None:
    operation = schemathesis.openapi.from_url(f"{client.base_url}/openapi.json")["/search"]["POST"]
    seen: list[int] = []

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=60,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def drive(case: Any) -> None:
        seen.append(case.call_and_validate(checks=CHECKS).status_code)

    drive()
    assert 500 not in seen
    assert 200 in seen if mode.is_positive else any(status >= 400 for status in seen)
