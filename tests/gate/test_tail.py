"""The gate tells queries that come again from those that do not, and promotes nothing that loses at the latter."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinstream.gate.agent import GateMachine, returned
from kinstream.gate.core import SpaceGate
from kinstream.gate.lists.list_id import Impression, list_id_of, mark_of, read
from kinstream.gate.metrics import Board, GateCollector
from kinstream.gate.tail import Tail
from kinstream.gate.values import Decision, Fate, List, Options
from kinstream.search.drafts.drafts import Drafts
from kinstream.search.drafts.serving_choice import Deciding
from kinstream.search.models.model import Name
from kinstream.streams.records.gate import UNADAPTED, Verdict, Version
from kinstream.streams.records.values import Click, ItemClick, Table
from tests.gate.gates import ITEMS, KEYS, MODEL, back, block, decision, drafted
from tests.gate.test_gate import chosen

LOSS, WIN = 0, 1
FREE: dict[str, Any] = {"per_item": 0, "every_minutes": 0, "min_sessions": 100, "max_sessions": 1_200}
#: Queries that come again have these numbers; others are of their list alone.
AGAIN = 10
#: A click on the item of both sides, which says nothing.
TIE = (0, 1)


def played(
    gate: SpaceGate, lists: int, head: float, tail: float, share: float, seed: int = 1
) -> list[Decision]:
    """Play lists until a comparison ends.

    Parameters
    ----------
    head, tail : probability that the challenger wins a list of a query that comes again, and of another one.
    share : of the lists whose query does not come again.
    """
    draw, made = np.random.default_rng(seed), list[Decision]()
    for query in range(AGAIN):
        gate.tail.note(List("", ("any",), None, None, query=query))
    for n in range(lists):
        new = draw.random() < share
        query = AGAIN + n if new else int(draw.integers(AGAIN))
        place = WIN if draw.random() < (tail if new else head) else LOSS
        found = gate.take(back(drafted(n), place)._replace(query=query), 0)
        made += [one for one in found if one.verdict is not Verdict.CHALLENGE]
        if made:
            break
    return made


@pytest.mark.parametrize(
    ("head", "tail", "share", "verdict"),
    [
        (0.75, 0.75, 0.5, "promote"),
        (0.75, 0.55, 0.5, "promote"),
        # All queries come again, as in a closed set: nothing can be lost at others.
        (0.75, 0.0, 0.0, "promote"),
        # Few new queries lose little, whatever they lose.
        (0.75, 0.4, 0.02, "promote"),
        (0.75, 0.4, 0.5, "hold"),
        (0.9, 0.3, 0.3, "retire"),
        (1.0, 0.45, 0.5, "hold"),
    ],
)
def test_a_model_that_wins_where_queries_come_again_and_loses_elsewhere_is_not_promoted(
    head: float, tail: float, share: float, verdict: str
) -> None:
    gate = SpaceGate("docs", KEYS, chosen(**FREE))
    (made,) = played(gate, 1_200, head, tail, share)
    assert made.verdict == verdict, made
    if verdict != "promote" and made.verdict is Verdict.HOLD:
        assert made.evidence.better() and "do not come again" in made.reason


@pytest.mark.long
def test_the_bound_holds_over_all_looks_and_comparisons() -> None:
    """Challengers that win everywhere else and lose one vote in sixty-six at new queries, half of all: 1.5 % there."""
    promoted = 0
    for seed in range(12):
        gate = SpaceGate("docs", KEYS, chosen(**{**FREE, "max_sessions": 400}))
        for first in range(3):
            gate.tail.note(List("", ("any",), None, None, query=0))
            draw = np.random.default_rng([seed, first])
            for n in range(400):
                new = draw.random() < 0.5
                place = WIN if draw.random() < (0.47 if new else 0.95) else LOSS
                version = Version(1, 0, 100 + first)
                list_id = drafted(1_000 * first + n, version)
                one = back(list_id, place)._replace(query=1 + 1_000 * first + n if new else 0)
                made = gate.take(one, 0)
                if any(found.verdict is not Verdict.CHALLENGE for found in made):
                    break
        promoted += gate.serving != UNADAPTED
    assert promoted <= 1


def test_votes_of_the_tail_are_counted_apart_and_shown() -> None:
    gate = SpaceGate("docs", KEYS, chosen(**FREE, bought_votes=0.0))
    gate.tail.note(List("", ("any",), None, None, query=1))
    for n, (place, query) in enumerate(
        [((WIN,), 1), ((LOSS,), 1), ((WIN,), 7), ((LOSS,), 8), (TIE, 9), ((WIN,), None)]
    ):
        gate.take(back(drafted(n), *place)._replace(query=query), 0)
    found = gate.tail.measured()
    assert (found["tail_wins"], found["tail_losses"], found["tail_ties"], found["tail_votes"]) == (
        2,
        1,
        1,
        4.0,
    )
    assert (gate.evidence.wins, gate.evidence.losses, gate.evidence.ties) == (3, 2, 1)
    board = Board({"docs": 0.2})
    board.put(0, "docs", gate)
    shown = {
        (sample.name, *sample.labels.values()): sample.value
        for family in GateCollector(board).collect()
        for sample in family.samples
    }
    assert shown["kinstream_gate_tail_decided_lists", "docs", "challenger"] == 2
    assert shown["kinstream_gate_tail_decided_lists", "docs", "serving"] == 1
    assert shown["kinstream_gate_tail_log_e_value", "docs"] == found["tail_log_e"]
    assert shown["kinstream_gate_tail_log_e_value_needed", "docs"] == pytest.approx(np.log(20))
    assert shown["kinstream_gate_learned_lists", "docs"] == 7
    (made,) = gate.order(_promotion(), 0)
    assert {name: made.checks[name] for name in found} == found


def _promotion() -> Any:
    from kinstream.streams.records.gate import GateOrder, Order

    return GateOrder("docs", Order.PROMOTE, 0)


# ---- which queries come again -----------------------------------------------------------------------------------


def asked(list_id: str, *places: int, vector: list[float] | None = None, item: str | None = None) -> Click:
    clicks = tuple(ItemClick(ITEMS[n], 5) for n in places)
    table = () if vector is None else (Table("x", np.array([vector], np.float32)),)
    shown = tuple(range(len(ITEMS)))
    return Click("docs", list_id, ITEMS, shown, clicks, 5, None, "u", query_item=item, query_vector=table)


def test_a_query_is_its_vector_bit_for_bit_or_its_item() -> None:
    def of(record: Any) -> list[int | None]:
        return [one.query for one, _ in returned(record)]

    one, other = of(asked("a", vector=[1.0, 2.0])), of(asked("b", vector=[1.0, 2.0000002]))
    assert one == of(asked("c", WIN, vector=[1.0, 2.0])) != other
    assert of(asked("d", item="i1")) != of(asked("e", item="i2")) != [None]
    assert of(asked("f")) == [None]
    many = block([("a", (0,)), ("b", ()), ("c", (1,))])
    vectors = Table("x", np.array([[1.0, 2.0]], np.float32))
    from dataclasses import replace

    many = replace(
        many,
        query_vectors=(vectors,),
        query_row=np.array([0, -1, -1], np.int32),
        query=np.array([-1, 1, -1], np.int32),
    )
    assert of(many) == [*one, *of(asked("g", item=ITEMS[1])), None]


def test_any_clicked_list_of_the_space_makes_a_query_one_that_comes_again() -> None:
    gate = SpaceGate("docs", KEYS, chosen(**FREE))
    machine = object.__new__(GateMachine)
    machine._gate, machine._deleted = lambda name: gate, lambda name: False  # type: ignore[method-assign]
    machine._emit = machine.refuse = lambda *_: None  # type: ignore[method-assign, assignment]
    from kinstream.streams.records.message import Message

    message = Message("kinstream.events", 0, 1, 0, b"docs", b"", (), 0)

    def wins(record: Click) -> int:
        machine._drafted("docs", record, message)
        return gate.tail.wins

    q, r = [1.0, 2.0], [3.0, 4.0]
    # A list that nobody clicked teaches nothing; one with a click does, drafted or not.
    assert wins(asked("of another kind", vector=q)) == 0
    assert wins(asked(drafted(1), WIN, vector=q)) == 1
    assert wins(asked(drafted(2), WIN, vector=q)) == 1
    assert wins(asked("of another kind", LOSS, vector=r)) == 1
    assert wins(asked(drafted(3), WIN, vector=r)) == 1
    # First shown without a click, then clicked: its own query is not one that was asked before.
    assert wins(asked(drafted(4), vector=[5.0, 6.0])) == 1
    assert wins(asked(drafted(4), WIN, vector=[5.0, 6.0])) == 2
    assert (gate.evidence.wins, gate.tail.learned) == (4, 5)


def test_queries_are_remembered_in_bounded_memory_those_asked_last_the_longest() -> None:
    tail = Tail(most=3)
    for query in (1, 2, 3, 1, 4):
        tail.note(List("", ("a",), None, None, query=query))
    known = [query for query in range(6) if tail.comes_again(List("", (), None, None, query=query))]
    assert known == [1, 3, 4]
    fresh = Tail(most=3)
    fresh.restore(tail.state(), json.loads(json.dumps(tail.plain())))
    for one in (tail, fresh):
        one.note(List("", ("a",), None, None, query=5))
    assert fresh.state()["asked"].tolist() == tail.state()["asked"].tolist() == [1, 4, 5]  # type: ignore[union-attr]


# ---- which model challenges -------------------------------------------------------------------------------------


def test_no_model_challenges_before_so_many_clicked_lists() -> None:
    assert Options().min_learned == 300
    gate = SpaceGate("docs", KEYS, chosen(**FREE, min_learned=5))
    for _ in range(3):
        gate.tail.note(List("", ("any",), None, None))
        gate.tail.note(List("", (), None, None))
    assert gate.take(back(drafted(0), WIN), 0) == [] == gate.take(back(drafted(1), WIN), 0)
    assert (gate.fates[Fate.PAUSED], gate.evidence.wins) == (2, 0)
    (made,) = gate.take(back(drafted(2), WIN), 0)
    assert (made.verdict, made.challenger) == (Verdict.CHALLENGE, MODEL)
    # A generation that follows has the count; another epoch begins it anew.
    heir = SpaceGate("docs", KEYS, chosen(**FREE, min_learned=5))
    heir.inherit(gate.state(), None)
    assert heir.tail.learned == gate.tail.learned == 6


def with_newer(number: int, candidate: Version, newest: Version | None) -> str:
    marks, picks = tuple(mark_of("docs", item) for item in ITEMS), tuple(n % 2 for n in range(len(ITEMS)))
    shown: Any = Impression(0, UNADAPTED, candidate, marks, picks, newest=newest)  # type: ignore[arg-type]
    return list_id_of(KEYS, "docs", shown, number.to_bytes(6, "big"))


@pytest.mark.parametrize(
    ("newest", "renewed"),
    [
        (Version(1, 0, 200), True),
        (Version(2, 0, 1), True),
        (Version(1, 0, 199), False),
        (Version(1, 0, 50), False),
        (Version(1, 3, 900), False),
        (None, False),
    ],
)
def test_a_challenger_is_renewed_when_the_learner_has_moved_on(newest: Version | None, renewed: bool) -> None:
    gate = SpaceGate("docs", KEYS, chosen(**{**FREE, "every_minutes": 30}))
    made = list[Decision]()
    for n in range(99):
        made += gate.take(back(with_newer(n, MODEL, newest), n % 2), 0)
    assert [one.verdict for one in made] == [Verdict.CHALLENGE]
    made = gate.take(back(with_newer(99, MODEL, newest), WIN), 0)
    assert [one.verdict.value for one in made] == (["hold", "challenge"] if renewed else [])
    assert gate.challenger == (newest if renewed else MODEL)
    assert gate.impressions == (0 if renewed else 100)
    if renewed:
        assert ("moved on" in made[0].reason and made[0].floor == UNADAPTED) or made[1].floor == MODEL


def test_one_that_is_about_to_win_is_not_renewed() -> None:
    gate = SpaceGate("docs", KEYS, chosen(**{**FREE, "min_sessions": 8}))
    made = list[Decision]()
    for n in range(20):
        made += gate.take(back(with_newer(n, MODEL, Version(1, 0, 10_000)), WIN), 0)
    assert [one.verdict.value for one in made] == ["challenge", "promote"]
    assert gate.serving == MODEL


def test_an_id_names_a_newer_model_and_is_the_old_one_without() -> None:
    newer = Version(3, 17, 123_456)
    found = read(KEYS, "docs", with_newer(1, MODEL, newer))
    assert found is not None and (found.candidate, found.newest) == (MODEL, newer)
    plain = read(KEYS, "docs", with_newer(1, MODEL, None))
    assert plain is not None and plain.newest is None and with_newer(1, MODEL, None) == drafted(1)


@pytest.mark.parametrize(
    ("challenger", "own", "named"),
    [(3, 30, True), (30, 30, False), (30, 3, False), (None, 30, False), (3, None, False)],
)
def test_a_service_names_its_newest_model_where_the_challenger_is_older(
    challenger: int | None, own: int | None, named: bool
) -> None:
    def model(step: int) -> Any:
        return SimpleNamespace(name=Name(1, 0, step), learned=True)

    held = SimpleNamespace(
        get=lambda version: model(version.step),
        candidate=None if own is None else model(own),
        subscription=SimpleNamespace(serving=model(5)),
    )
    decided = decision(1, UNADAPTED, None if challenger is None else Version(1, 0, challenger))
    feed: Any = SimpleNamespace(hold=lambda *_: held, decided=lambda space: (decided, UNADAPTED))
    now = Deciding("docs", "adapter", feed).now()
    assert now.newest == (Version(1, 0, 30) if named else None)
    first, second = (UNADAPTED, ["a", "b"]), (Version(1, 0, 3), ["b", "c"])
    shown = read(KEYS, "docs", Drafts("docs", KEYS, 1.0).shown(first, second, 2, now.newest).list_id)
    assert shown is not None and shown.newest == now.newest


# ---- state ------------------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.integers(0, 60),
        st.sampled_from([MODEL, Version(1, 0, 250)]),
        st.sampled_from([(), (0,), (1,), (1,)]),
        st.sampled_from([None, 1, 2, 3, 4]),
        st.sampled_from([None, None, Version(1, 0, 250), Version(1, 0, 900)]),
    ),
    max_size=100,
)


@settings(deadline=None, max_examples=15)
@given(STEPS, st.integers(0, 100))
def test_restored_anywhere_it_decides_the_same(steps: list[Any], cut: int) -> None:
    options = chosen(error=0.4, every_minutes=0, min_sessions=4, max_sessions=15, min_learned=3)
    whole, parts = (SpaceGate("docs", KEYS, options) for _ in range(2))
    for n, (number, candidate, places, query, newest) in enumerate(steps):
        if n == cut:
            fresh = SpaceGate("docs", KEYS, options)
            fresh.restore(parts.state())
            parts = fresh
        one = back(with_newer(number, candidate, newest), *places)._replace(query=query)
        assert whole.take(one, n) == parts.take(one, n)
    for name, value in whole.state().items():
        np.testing.assert_array_equal(np.asarray(value), np.asarray(parts.state()[name]), err_msg=name)


def test_the_state_of_gate_6_goes_on_without_a_tail() -> None:
    old = SpaceGate("docs", KEYS, chosen(**FREE))
    old.take(back(drafted(1), WIN)._replace(query=3), 0)
    plain = json.loads(str(old.state()["gate"]))
    del plain["tail"]
    state = {name: value for name, value in old.state().items() if not name.startswith("tail.")}
    state["gate"] = json.dumps(plain)
    for how in ("restore", "inherit"):
        new = SpaceGate("docs", KEYS, chosen(**FREE))
        new.restore(state) if how == "restore" else new.inherit(state, None)
        assert (new.tail.learned, new.tail.wins, new.serving) == (0, 0, UNADAPTED)
