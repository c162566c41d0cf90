"""A space with a store obeys the gate: who serves, which queries get a drafted list, and what a client sees of it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from kinstream.gate.lists.draft import Side
from kinstream.gate.lists.list_id import Impression, mark_of, read
from kinstream.learners.models.query_map import QueryMap
from kinstream.search.drafts.drafts import Drafts
from kinstream.search.drafts.serving_choice import Decided
from kinstream.search.models.model import Model, Name
from kinstream.search.queries.model import QueryModel
from kinstream.search.queries.query_pair import ModelPair
from kinstream.search.service.service import Service
from kinstream.search.stores.base import BadFilter, Hit, StoreHits
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.gate import UNADAPTED, Verdict, Version
from kinstream.streams.settings import Settings, load
from tests.gate.gates import KEYS, SECRET, decision, draft_of, head_of
from tests.search.store_service import Gateway, Memory, bilinear, section, served

X = np.random.default_rng(4).normal(size=(60, 5)).astype(np.float32)
NAMES = [f"item-{n}" for n in range(60)]
Q = np.random.default_rng(5).normal(size=(4, 5)).astype(np.float32)
NOW = 1_234_567


def exact(query: NDArray[Any], k: int, learner: Any = None) -> list[str]:
    """The scan in float64 under q^T W x, or q^T x without a learner."""
    wide, items = np.asarray(query, np.float64), X.astype(np.float64)
    scores = items @ (wide if learner is None else wide @ learner.W.astype(np.float64))
    return [NAMES[i] for i in np.argsort(-scores, kind="stable")[:k]]


def ids(result: dict[str, Any]) -> list[str]:
    return [one["id"] for one in result["neighbours"]]


class Gated:
    """A gateway with a gate, and a client of it."""

    def __init__(self, gateway: Gateway, client: httpx.Client) -> None:
        self.gateway, self.client = gateway, client
        self.learners: dict[Version, Any] = {}

    def announce(self, step: int, *, epoch: int = 0) -> Version:
        version = Version(1, epoch, step)
        self.learners[version] = bilinear(5, step)
        self.gateway.announced.announce("docs", self.learners[version], step, epoch=epoch)
        self.gateway.wait(lambda: self.gateway.announced.handled, "it is announced")
        newest = self.gateway.space("docs")
        self.gateway.wait(lambda: tuple(newest.newest.name) >= version, "it is loaded")
        return version

    def decide(self, *arguments: Any, **more: Any) -> None:
        self.gateway.announced.decisions.take(decision(*arguments, **more))

    def search(self, **body: Any) -> dict[str, Any]:
        told = self.client.post("/search", json={"space": "docs", "vectors": Q.tolist(), "k": 6, **body})
        assert told.status_code == 200, told.text
        found: dict[str, Any] = told.json()
        return found

    def space(self) -> dict[str, Any]:
        (found,) = [one for one in self.client.get("/spaces").json()["spaces"] if one["space"] == "docs"]
        return dict(found)

    def series(self, name: str) -> float:
        text = self.client.get("/metrics").text
        (line,) = [line for line in text.splitlines() if line.startswith(f"kinstream_serve_{name}{{")]
        return float(line.split()[-1])

    def shown(self, result: dict[str, Any]) -> Impression:
        found = read(KEYS, "docs", result["list_id"])
        assert found is not None
        return found

    def check(
        self, row: int, result: dict[str, Any], serving: Version, candidate: Version, k: int = 6
    ) -> None:
        """A result is the draft of the rankings of both models, and its id holds that draft."""
        one = self.shown(result)
        assert (one.serving, one.candidate) == (serving, candidate)
        first, second = (exact(Q[row], k, self.learners.get(version)) for version in (serving, candidate))
        assert head_of(result["list_id"])[:6] == one.time_ms.to_bytes(6, "big")
        wanted = draft_of("docs", result["list_id"], first, second, k)
        assert tuple(ids(result)) == wanted.items
        assert one.picks == wanted.picks
        assert one.marks == tuple(mark_of("docs", item) for item in wanted.items)


@pytest.fixture
def store() -> Memory:
    return Memory(NAMES, X)


@contextmanager
def gating(store: Memory, share: float, before: Callable[[Gateway], None] | None = None) -> Iterator[Gated]:
    spaces = {"docs": section(), "free": section()}
    made = Gateway(spaces, create=lambda *_: store, gate={"docs": {"share": share}})
    if before is not None:
        before(made)
    made.service.start()
    try:
        made.wait(lambda: made.service.ready, "ready")
        with served(made) as url, httpx.Client(base_url=url, timeout=10) as client:
            yield Gated(made, client)
    finally:
        made.service.stop()


@pytest.fixture
def all_drafted(store: Memory) -> Iterator[Gated]:
    with gating(store, 1.0) as found:
        yield found


def test_before_a_decision_the_newest_model_only_picks_in_drafted_lists(all_drafted: Gated) -> None:
    plain = all_drafted.search()
    assert plain["model"]["adapted"] is False and plain["candidate"] is None
    assert [one["list_id"] for one in plain["results"]] == [None] * 4
    newest = all_drafted.announce(7)
    found = all_drafted.search()
    assert found["model"] == plain["model"]
    assert found["candidate"] == {
        "learner": "adapter",
        "generation": 1,
        "epoch": 0,
        "step": 7,
        "digest": f"{7:064x}",
        "adapted": True,
    }
    assert found["gate"] == {"decided": "un-adapted", "missing": False, "challenger": None, "pinned": False}
    for row, result in enumerate(found["results"]):
        all_drafted.check(row, result, UNADAPTED, newest)
    assert len({one["list_id"] for one in found["results"]}) == 4
    picks = {pick for one in found["results"] for pick in all_drafted.shown(one).picks}
    assert picks >= {Side.SERVING, Side.CANDIDATE}
    assert all_drafted.series("drafted_lists_total") == 4.0
    mapped = all_drafted.client.post("/map", json={"space": "docs", "vectors": Q.tolist()}).json()
    np.testing.assert_array_equal(np.array(mapped["vectors"], np.float32), Q)


def test_the_client_cannot_see_whose_pick_an_item_is(all_drafted: Gated) -> None:
    all_drafted.announce(7)
    found = all_drafted.search()
    for result in found["results"]:
        assert set(result) == {"neighbours", "list_id"}
        # A similarity would show it: the two models have other scales.
        assert all(one == {"id": one["id"], "similarity": None, "fields": {}} for one in result["neighbours"])
    # The same list and the same models a second time, in another order of picks, has an id as long.
    again = all_drafted.search()
    for one, other in zip(found["results"], again["results"], strict=True):
        assert one["list_id"] != other["list_id"] and len(one["list_id"]) == len(other["list_id"])


def test_the_store_is_asked_for_both_rankings_at_the_same_time_with_the_filter() -> None:
    seen: list[Any] = []
    both = threading.Barrier(2)

    class Noting(Memory):
        def search(self, queries: NDArray[np.float32], k: int, where: Any) -> StoreHits:
            seen.append((len(queries), k, where))
            # It breaks, and the answer is an error, if the second request waits for the first.
            both.wait(30)
            return super().search(queries, k, where)

    with gating(Noting(NAMES, X), 1.0) as gated:
        gated.announce(7)
        gated.search(filter={"lang": "en"}, k=3)
    assert seen == [(4, 3, {"lang": "en"})] * 2


def test_the_share_of_the_queries_is_drafted_and_always_the_same_ones(store: Memory) -> None:
    many = np.random.default_rng(8).normal(size=(200, 5)).astype(np.float32)
    with gating(store, 0.3) as gated:
        newest = gated.announce(7)
        first = gated.search(vectors=many.tolist())
        drafted = [one["list_id"] is not None for one in first["results"]]
        assert drafted == [KEYS.chosen("docs", query.astype("<f4").tobytes(), 0.3) for query in many]
        assert 30 < sum(drafted) < 90
        second = [gated.search(vectors=[query])["results"][0]["list_id"] for query in many[:20].tolist()]
        assert [one is not None for one in second] == drafted[:20]
        for query, result in zip(many, first["results"], strict=True):
            if result["list_id"] is None:
                assert ids(result) == exact(query, 6)
                assert all(isinstance(one["similarity"], float) for one in result["neighbours"])
            else:
                assert gated.shown(result).candidate == newest
        for number in range(20):
            named = gated.search(query_id=f"session-{number}")
            chosen = KEYS.chosen("docs", f"id/session-{number}".encode(), 0.3)
            assert [one["list_id"] is not None for one in named["results"]] == [chosen] * 4
            assert (named["candidate"] is not None) is chosen


def test_a_decision_is_obeyed_and_not_the_newest_model(store: Memory) -> None:
    with gating(store, 0.0) as gated:
        first = gated.announce(3)
        gated.announce(5)
        gated.decide(1, UNADAPTED, first)
        gated.announce(9)
        assert gated.search()["model"]["adapted"] is False
        gated.decide(2, first)
        found = gated.search()
        assert found["model"]["step"] == 3 and found["candidate"] is None
        assert [ids(one) for one in found["results"]] == [exact(q, 6, gated.learners[first]) for q in Q]
        assert found["gate"]["decided"] == "1.0.3"
        space = gated.space()
        assert space["model"]["step"] == 3 and not space["behind"] and space["announced"] == "1.0.9"
        assert [gated.series(f"decided_{name}") for name in ("generation", "epoch", "step", "missing")] == [
            1.0,
            0.0,
            3.0,
            0.0,
        ]
        gated.decide(1, UNADAPTED)  # an older decision that arrives late
        assert gated.search()["model"]["step"] == 3
        gated.decide(3, UNADAPTED, verdict=Verdict.ROLLBACK, before=first)
        assert gated.search()["model"]["adapted"] is False


def test_the_challenger_picks_although_newer_models_are_there(all_drafted: Gated) -> None:
    first = all_drafted.announce(3)
    second = all_drafted.announce(5)
    all_drafted.announce(9)
    all_drafted.decide(1, UNADAPTED, first)
    found = all_drafted.search()
    assert found["candidate"]["step"] == 3 and found["gate"]["challenger"] == "1.0.3"
    all_drafted.check(0, found["results"][0], UNADAPTED, first)
    all_drafted.decide(2, first, before=UNADAPTED)
    all_drafted.decide(3, first, second)
    all_drafted.gateway.wait(lambda: all_drafted.search()["candidate"]["step"] == 5, "it is loaded")
    found = all_drafted.search()
    assert (found["model"]["step"], found["candidate"]["step"]) == (3, 5)
    for row, result in enumerate(found["results"]):
        all_drafted.check(row, result, first, second)


def test_no_list_is_drafted_that_the_gate_would_leave_out(all_drafted: Gated) -> None:
    def none() -> None:
        found = all_drafted.search()
        assert found["candidate"] is None and all(one["list_id"] is None for one in found["results"])

    first = all_drafted.announce(3)
    all_drafted.decide(1, UNADAPTED, first)
    assert all_drafted.search()["candidate"]["step"] == 3
    all_drafted.decide(2, UNADAPTED, verdict=Verdict.RETIRE)
    none()  # the newest has lost
    second = all_drafted.announce(5)
    assert all_drafted.search()["candidate"]["step"] == 5
    all_drafted.decide(3, second, verdict=Verdict.PROMOTE)
    none()  # the newest serves
    all_drafted.decide(4, UNADAPTED, verdict=Verdict.ROLLBACK, before=second)
    none()  # people took it back
    all_drafted.announce(9)
    assert all_drafted.search()["candidate"]["step"] == 9
    all_drafted.decide(5, UNADAPTED, verdict=Verdict.PIN, pinned=True)
    none()
    all_drafted.decide(6, UNADAPTED, verdict=Verdict.RESUME)
    assert all_drafted.search(k=255)["candidate"]["step"] == 9
    assert all_drafted.search(k=256)["candidate"] is None  # an id holds 255 places
    all_drafted.decide(1, UNADAPTED, verdict=Verdict.BEGIN, epoch=8)
    none()  # the newest is of the epoch before
    all_drafted.announce(2, epoch=8)
    assert all_drafted.search()["candidate"]["epoch"] == 8


def test_a_decided_model_that_is_missing_is_not_replaced_by_another_learned_one(all_drafted: Gated) -> None:
    all_drafted.announce(9)
    gone = Version(1, 0, 4)
    all_drafted.decide(1, gone)
    all_drafted.gateway.wait(lambda: all_drafted.search()["gate"]["missing"], "it was tried")
    found = all_drafted.search()
    assert found["model"]["adapted"] is False and found["candidate"] is None
    assert [ids(one) for one in found["results"]] == [exact(q, 6) for q in Q]
    assert found["gate"] == {"decided": "1.0.4", "missing": True, "challenger": None, "pinned": False}
    assert all_drafted.space()["gate"]["missing"] and all_drafted.space()["behind"]
    assert all_drafted.series("decided_missing") == 1.0
    failures = 'model_failures_total{learner="adapter",reason="missing",space="docs"} '
    all_drafted.gateway.wait(
        lambda: f"{failures}0.0" not in all_drafted.client.get("/metrics").text, "the attempt is counted"
    )
    # Its announcement arrives after all.
    all_drafted.learners[gone] = bilinear(5, 4)
    all_drafted.gateway.announced.announce("docs", all_drafted.learners[gone], 4)
    all_drafted.gateway.wait(lambda: not all_drafted.space()["gate"]["missing"], "it is loaded")
    found = all_drafted.search()
    assert (found["model"]["step"], found["candidate"]["step"]) == (4, 9)
    assert all_drafted.series("decided_missing") == 0.0


def test_after_a_start_the_first_answer_is_of_the_decided_model(store: Memory) -> None:
    def before(gateway: Gateway) -> None:
        gateway.announced.decisions.take(decision(1, Version(1, 0, 3)))
        for step in (3, 9):
            gateway.announced.announce("docs", bilinear(5, step), step)

    with gating(store, 0.0, before) as gated:
        assert gated.search()["model"]["step"] == 3


def test_after_a_restart_no_list_is_drafted_with_a_model_that_has_lost(store: Memory) -> None:
    lost, other = Version(1, 0, 9), bilinear(5, 12)

    def before(gateway: Gateway) -> None:
        # Compaction has left the newest decision alone, and no model has come since.
        gateway.announced.decisions.take(decision(8, UNADAPTED, verdict=Verdict.HOLD, floor=lost))
        gateway.announced.announce("docs", bilinear(5, 9), 9)

    with gating(store, 1.0, before) as gated:
        gated.gateway.wait(lambda: gated.gateway.space("docs").newest.name.step == 9, "it is loaded")
        found = gated.search()
        assert found["candidate"] is None
        assert [one["list_id"] for one in found["results"]] == [None] * len(Q)
        gated.gateway.announced.announce("docs", other, 12)
        gated.gateway.wait(lambda: gated.search()["candidate"] is not None, "a newer one picks")
        assert gated.search()["candidate"]["step"] == 12


def test_a_candidate_of_another_dimension_does_not_pick(all_drafted: Gated) -> None:
    all_drafted.gateway.announced.announce("docs", bilinear(4, 1), 3)
    space = all_drafted.gateway.space("docs")
    all_drafted.gateway.wait(lambda: space.newest.name.step == 3, "it is loaded")
    found = all_drafted.search()
    assert found["candidate"] is None and [ids(one) for one in found["results"]] == [exact(q, 6) for q in Q]
    assert all_drafted.space()["behind"]
    all_drafted.decide(1, Version(1, 0, 3))
    assert all_drafted.search()["gate"]["missing"]


def scaled(factor: float) -> ModelPair:
    """The un-adapted features against a candidate that multiplies queries."""
    map_ = QueryMap({"W": np.eye(5) * factor})
    return ModelPair(
        QueryModel("adapter"), QueryModel("adapter", Name(1, 0, 7), "ab", map_), Decided(Model())
    )


class Picky(Memory):
    """A store that does not take large numbers."""

    def search(self, queries: NDArray[np.float32], k: int, where: Any) -> StoreHits:
        if where is not None or np.abs(queries).max() > 100.0:
            raise BadFilter("out of range")
        return super().search(queries, k, where)


@pytest.mark.parametrize("factor", [1e300, 1e6])
@pytest.mark.filterwarnings("ignore:overflow")
def test_a_candidate_whose_vectors_cannot_be_asked_does_not_harm_the_serving_model(
    factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Picky(NAMES, X)
    with gating(store, 1.0) as gated:
        space = gated.gateway.space("docs")
        monkeypatch.setattr(space, "pair", lambda: scaled(factor))
        found = gated.search()
        assert found["candidate"] is None and [one["list_id"] for one in found["results"]] == [None] * 4
        assert [ids(one) for one in found["results"]] == [exact(q, 6) for q in Q]
        assert [len(asked) for asked in store.asked] == [4]
        monkeypatch.setattr(space, "pair", lambda: scaled(2.0))
        assert all(one["list_id"] is not None for one in gated.search()["results"])
        body = {"space": "docs", "vectors": Q.tolist(), "filter": {"lang": "en"}}
        told = gated.client.post("/search", json=body)
        assert (told.status_code, told.json()["place"]) == (422, "filter")


class Odd(Memory):
    """A store with its own similarity for the candidate."""

    def __init__(self, similarity: float) -> None:
        super().__init__(NAMES, X)
        self._similarity = similarity

    def search(self, queries: NDArray[np.float32], k: int, where: Any) -> StoreHits:
        similarity = 0.5 if np.array_equal(queries, Q[:1]) else self._similarity
        return StoreHits([[Hit("a", similarity, {}), Hit("b", math.nan, {})]], "7")


@pytest.mark.parametrize(("similarity", "drafted"), [(0.7, True), (math.inf, False)])
def test_similarities_without_numbers_are_not_drafted(
    similarity: float, drafted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gating(Odd(similarity), 1.0) as gated:
        monkeypatch.setattr(gated.gateway.space("docs"), "pair", lambda: scaled(2.0))
        found = gated.search(vectors=Q[:1].tolist())
        (result,) = found["results"]
        assert [one["id"] for one in result["neighbours"]] == ["a"]
        assert (found["candidate"] is not None, result["list_id"] is not None) == (drafted, drafted)
        assert (result["neighbours"][0]["similarity"] is None) is drafted


def test_a_vector_of_zeros_and_an_empty_store_give_lists(all_drafted: Gated, store: Memory) -> None:
    all_drafted.announce(7)
    store.names, store.X = [], np.zeros((0, 5), np.float32)
    (result,) = all_drafted.search(vectors=[Q[0].tolist()])["results"]
    assert result["neighbours"] == []
    assert all_drafted.shown(result).empty == {Side.SERVING, Side.CANDIDATE}


def test_a_query_id_has_a_limit(all_drafted: Gated) -> None:
    told = all_drafted.client.post(
        "/search", json={"space": "docs", "vectors": [[1] * 5], "query_id": "x" * 257}
    )
    assert (told.status_code, told.json()["place"]) == (422, "query_id")


def test_the_draft_is_a_function_of_key_time_and_nonce(store: Memory) -> None:
    with gating(store, 1.0) as gated:
        gated.announce(7)
        space = gated.gateway.space("docs")
        space.drafts = Drafts("docs", KEYS, 1.0, now_ms=lambda: NOW, nonce=lambda: b"random")
        one, two = gated.search(), gated.search()
        assert one == two
        assert gated.shown(one["results"][0]).time_ms == NOW


def test_a_gate_without_a_key_is_refused_with_the_fix(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kinstream.toml"
    file.write_text(
        '[serve.spaces.docs]\nlearner = "adapter"\nbackend = "pgvector"\ncollection = "docs"\n[gate.docs]\n'
    )
    with pytest.raises(SettingsError, match=r"needs a key .* set KINSTREAM_GATE_KEY, or gate_key_file"):
        load(file)
    monkeypatch.setenv("KINSTREAM_GATE_KEY", SECRET)
    assert load(file).gate["docs"].share == 0.2


def test_a_gate_over_a_model_of_a_file_is_refused(store: Memory, tmp_path: Any) -> None:
    from kinstream.learners.models.export import encode, export
    from kinstream.streams.records.values import ModelVersion

    version = ModelVersion("docs", "taste", "oasis/1", 2, 5, 70, "t", 0, 9, "", "ab" * 32, 1)
    (tmp_path / "m.npz").write_bytes(encode(export(bilinear(5, 2), version, {}), "npz"))
    spaces = {"docs": section(model=str(tmp_path / "m.npz")) | {"learner": None}}
    settings = Settings.model_validate(
        {"serve": {"spaces": spaces}, "gate": {"docs": {}}, "gate_key": SECRET}
    )
    with pytest.raises(SettingsError, match=r"serve\.spaces\.docs: model pins a file, and \[gate\.docs\]"):
        Service(settings, create=lambda *_: store)


def test_every_answer_is_of_the_decision_that_it_names_while_decisions_change(store: Memory) -> None:
    with gating(store, 0.5) as gated:
        versions = [gated.announce(step) for step in (3, 5, 7)]
        order = [UNADAPTED, *versions]
        named = set()
        for number in range(1, 60):
            serving, challenger = order[number % 4], order[(number + 1) % 4]
            before = Version.parse(gated.search()["gate"]["decided"])
            gated.decide(number, serving, None if challenger == UNADAPTED else challenger)
            # A model that is still being loaded does not leave the space un-adapted: the one before serves.
            deadline = time.monotonic() + 20.0
            while True:
                found = gated.search(query_id=str(number))
                decided, model = Version.parse(found["gate"]["decided"]), found["model"]
                assert decided in (before, serving) and not found["gate"]["missing"]
                assert Version(model["generation"], model["epoch"], model["step"]) == decided
                if decided == serving:
                    break
                assert found["candidate"] is None and time.monotonic() < deadline
            for row, result in enumerate(found["results"]):
                if result["list_id"] is None:
                    assert ids(result) == exact(Q[row], 6, gated.learners.get(serving))
                else:
                    candidate = found["candidate"]
                    other = Version(candidate["generation"], candidate["epoch"], candidate["step"])
                    gated.check(row, result, serving, other)
                    named.add((serving, other))
        assert len(named) >= 3
