"""A log's time that was wrong for a while leaves nothing behind in the gate, and what it left out can come again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinstream.gate.agent import gate_spec
from kinstream.gate.bursts import Bursts
from kinstream.gate.core import SpaceGate
from kinstream.gate.exposure.counts import Exposure
from kinstream.gate.exposure.items import NEW_MS, PERIOD_MS
from kinstream.gate.exposure.lists import ListKind, Served
from kinstream.gate.memory import Entry, ListState, Seen
from kinstream.gate.values import Fate, Options
from kinstream.streams.agents.letter import redrive
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.gate import UNADAPTED, GateOrder, Order, Version
from kinstream.streams.records.values import ItemBlock
from kinstream.streams.settings import Settings
from tests.gate.gates import KEYS, MODEL, SECRET, back, click, drafted, gate_of
from tests.support.crashes import letters
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent

MINUTE = 60_000
HOUR = 60 * MINUTE
NOW = 1_790_000_000_000
AHEAD = 200 * HOUR
OPTIONS = Options(min_learned=0, min_sessions=10_000, max_sessions=100_000)


def counted(gate: SpaceGate, since: int, first: int, number: int = 60, **who: str) -> int:
    """How many lists of as many users count, shown and clicked one a minute from then on."""
    before = gate.evidence.wins
    for n in range(number):
        time = since + n * MINUTE
        one = back(drafted(first + n, time_ms=time), 1, **({"user": f"later {n}"} | who))
        gate.take(one, time + MINUTE)
    return gate.evidence.wins - before


@pytest.mark.parametrize("services", [0, AHEAD], ids=["services are right", "services are ahead as well"])
@pytest.mark.parametrize("what", ["lists", "orders", "a reset"])
@pytest.mark.parametrize("then", ["the same gate", "restored", "a new generation"])
def test_six_records_of_a_time_that_was_ahead_leave_nothing_behind(
    what: str, services: int, then: str
) -> None:
    gate = SpaceGate("docs", KEYS, OPTIONS)
    assert counted(gate, NOW, 0, 10) == 10
    for n in range(6):
        at = NOW + 10 * MINUTE + AHEAD + n
        if what == "lists":
            gate.take(back(drafted(100 + n, time_ms=at - AHEAD + services), 1, user="u"), at)
        elif what == "orders":
            order = Order.RESUME if gate.pinned else Order.PIN
            gate.order(GateOrder("docs", order, 0, UNADAPTED if order is Order.PIN else None), at)
        else:
            gate.begin(at)
    if then != "the same gate":
        fresh = SpaceGate("docs", KEYS, OPTIONS)
        fresh.restore(gate.state()) if then == "restored" else fresh.inherit(gate.state(), None)
        gate = fresh
    # A comparison that an order has ended begins anew after the pause, as after every order.
    first = NOW + 11 * MINUTE
    counted(gate, first, 200, 1)
    candidate = Version(1, 0, 200) if what == "orders" else MODEL
    gate.take(back(drafted(300, candidate, time_ms=first + 31 * MINUTE), 1, user="v"), first + 32 * MINUTE)
    before = gate.evidence.wins
    for n in range(60):
        time = first + (33 + n) * MINUTE
        gate.take(back(drafted(400 + n, candidate, time_ms=time), 1, user=f"w{n}"), time + MINUTE)
    assert gate.evidence.wins - before == 60
    assert all(one["time_ms"] < NOW + 2 * HOUR or one["time_ms"] > NOW + AHEAD for one in gate.decided)


JUMPS = st.lists(st.tuples(st.integers(-300, 300), st.integers(1, 12), st.booleans()), max_size=4)


@settings(deadline=None, max_examples=40)
@given(JUMPS, st.booleans())
def test_whatever_a_log_s_time_did_an_hour_after_it_is_right_every_list_counts(
    jumps: list[tuple[int, int, bool]], same_people: bool
) -> None:
    """Jumps in hours, each over some records, with the clocks of the services or without them."""
    options = Options(min_learned=0, min_sessions=10_000, max_sessions=100_000, bought_votes=0)
    gate = SpaceGate("docs", KEYS, options)
    time, number = NOW, 0
    for hours, records, services in jumps:
        for _ in range(records):
            time, number = time + MINUTE, number + 1
            log = time + hours * HOUR
            shown = log if services else time
            gate.take(back(drafted(number, time_ms=shown), 1, user="u", address="a"), log)
        counted(gate, time, 1_000 + 10 * number, 2)
        time += 2 * MINUTE
    time += HOUR
    # The first list after a pause may begin the comparison.
    counted(gate, time, 50_000, 1)
    who = {"user": "u", "address": "a"} if same_people else {}
    wanted = 8 if same_people else 60
    assert counted(gate, time + HOUR, 60_000, wanted, **who) == wanted


def test_ids_of_a_time_that_was_ahead_neither_fill_a_memory_nor_raise_what_it_accepts() -> None:
    seen = Seen(most=3)
    for key in range(3):
        seen.note(key, Entry(NOW + AHEAD, ListState.COUNTED, 1.0), NOW + AHEAD - HOUR, NOW + AHEAD)
    for key in range(10, 14):
        seen.note(key, Entry(NOW + key, ListState.COUNTED, 1.0), NOW - HOUR, NOW + key)
    assert (len(seen), seen.horizon_ms) == (3, NOW + 10)
    # Even one that was raised while all clocks were ahead falls when they are back.
    for key in range(20, 30):
        seen.note(key, Entry(NOW + AHEAD, ListState.COUNTED, 1.0), NOW, NOW + AHEAD)
    assert seen.horizon_ms == NOW + AHEAD
    seen.turn(NOW + MINUTE)
    assert seen.horizon_ms == NOW + MINUTE


def test_a_burst_of_a_time_that_was_ahead_is_none_when_it_is_back() -> None:
    bursts = Bursts(10 * MINUTE, 1.0)
    while not bursts.full(1, NOW + AHEAD):
        bursts.add(1, NOW + AHEAD)
    assert not bursts.full(1, NOW)


def test_figures_of_exposure_go_on_when_the_time_is_back() -> None:
    exposure, plain = Exposure(), Exposure()
    items = tuple(f"i{n}" for n in range(20))

    def play(one: Exposure, at: int, n: int) -> None:
        one.show(Served(f"l{n}", n, items[:10], tuple(range(10)), frozenset()), ListKind.RANKED, at)

    exposure.catalogue(ItemBlock("docs", items, (), 0), NOW + AHEAD)
    play(exposure, NOW + AHEAD, 0)
    plain.catalogue(ItemBlock("docs", items, (), 0), NOW)
    for n, at in enumerate(range(NOW, NOW + NEW_MS + 2 * PERIOD_MS, PERIOD_MS), 1):
        play(exposure, at, n)
        play(plain, at, n)
    found, wanted = exposure.exposed(), plain.exposed()
    assert (found.coverage, found.gini) == (wanted.coverage, wanted.gini) == (0.5, 0.5)
    # Items that came while the time was ahead are new for a week from when it was back.
    assert found.items["known"] == wanted.items["known"] > 0


# ---- what was left out is kept --------------------------------------------------------------------------------------


def config(**changes: Any) -> Settings:
    section = {"min_learned": 0, "min_sessions": 400, "max_sessions": 400}
    return Settings(**{"gate": {"docs": section}, "gate_key": SECRET, **changes})


def append(log: MemoryLog, record: Any, at: int) -> None:
    log.append("kinstream.events", b"docs", encode(record))
    stamped(log, at)


def stamped(log: MemoryLog, at: int) -> None:
    """The record appended last was appended at that time."""
    entries = log.entries["kinstream.events", 0]
    entries[-1] = entries[-1]._replace(timestamp_ms=at)


@pytest.mark.parametrize(
    ("log_ahead", "service_ahead", "reason", "fate"),
    [
        (AHEAD, 0, b"late-list", Fate.LATE),
        (0, -2 * HOUR, b"late-list", Fate.LATE),
        (-AHEAD, 0, b"ahead-of-log", Fate.AHEAD),
        (0, AHEAD, b"ahead-of-log", Fate.AHEAD),
    ],
)
def test_lists_that_a_wrong_clock_left_out_are_kept_and_count_once_when_they_come_again(
    log_ahead: int, service_ahead: int, reason: bytes, fate: Fate, tmp_path: Path
) -> None:
    log = MemoryLog(partitions=1)
    append(log, click(drafted(0, time_ms=NOW), 1, user="first"), NOW)
    for n in range(1, 7):
        record = click(drafted(n, time_ms=NOW + service_ahead), 1, user=f"u{n % 2}")
        append(log, record, NOW + MINUTE + log_ahead)
    # A client that sends one of them again makes another letter of the same list.
    append(log, click(drafted(6, time_ms=NOW + service_ahead), 1, user="u0"), NOW + MINUTE + log_ahead)
    agent = Agent(gate_spec(config()), config(), log, tmp_path)
    agent.run()
    gate = gate_of(agent)
    assert (gate.fates[fate], gate.evidence.wins) == (7, 1)
    assert [found for _, _, found, _ in letters(log)] == [reason] * 7
    later = NOW + max(0, service_ahead) + 3 * MINUTE
    for _ in range(2):
        for letter in log.read("kinstream.dead-letters", 0, 0)[:7]:
            again = redrive(letter)
            log.append("kinstream.events", again.key, again.value, again.headers, again.partition)
            stamped(log, later)
    agent.run()
    # Nobody has said that they are honest: votes of one user count as ever.
    assert (gate.evidence.wins, gate.impressions) == (7, 7)
    assert gate.evidence.votes == pytest.approx(1 + 2 * (1 + 1 / 4 + 1 / 9))
    assert gate.fates[Fate.REPEATED] == 1
