"""What was shown and clicked: every figure against a count of the whole log, written from the definitions."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from kinstream.gate.agent import gate_spec
from kinstream.gate.core import SpaceGate
from kinstream.gate.exposure.counts import Exposed, Exposure
from kinstream.gate.exposure.items import ItemCounts
from kinstream.gate.exposure.lists import ListKind, Served, served
from kinstream.gate.lists.list_id import Keys
from kinstream.gate.lists.randomisation import randomise
from kinstream.gate.values import Options
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.gate import UNADAPTED
from kinstream.streams.records.randomised_id import DrawKind
from kinstream.streams.records.values import (
    Action,
    Click,
    ClickBlock,
    Control,
    ItemBlock,
    ItemClick,
    LoadPosition,
)
from kinstream.streams.settings import Settings
from tests.gate.gates import ITEMS, KEYS, SECRET, block, click, drafted, gate_of, respelled
from tests.support.equal import same_states
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@dataclass(frozen=True)
class Event:
    """One event of a log: a list of some items that was served, or items that enter or leave the catalogue."""

    time_ms: int
    shown: tuple[str, ...] = ()
    clicked: tuple[int, ...] = ()
    list_id: str = ""
    enter: tuple[str, ...] = ()
    leave: tuple[str, ...] = ()


def log_of(seed: int, n: int = 1500, items: int = 40) -> list[Event]:
    """Some days of a shop; some lists come back twice, the second time with more clicks."""
    rng, events, time_ms = random.Random(seed), [], 0
    names = [f"item {k}" for k in range(items)]
    for number in range(n):
        time_ms += int(rng.expovariate(1 / (10 * 60_000)))
        if rng.random() < 0.05:
            some = tuple(rng.sample(names, 3))
            events.append(Event(time_ms, enter=some) if rng.random() < 0.7 else Event(time_ms, leave=some))
            continue
        before = [e for e in events if e.shown]
        if before and rng.random() < 0.2:
            old = rng.choice(before)
            more = rng.sample(range(len(old.shown)), 2)
            events.append(replace(old, time_ms=time_ms, clicked=tuple(sorted({*old.clicked, *more}))))
            continue
        weights = [1 / (k + 1) for k in range(items)]
        shown = tuple(dict.fromkeys(rng.choices(names, weights, k=30)))
        places = tuple(sorted(rng.sample(range(len(shown)), rng.choice((0, 1, 2)))))
        events.append(Event(time_ms, shown, places, f"list {number}"))
    return events


def played(events: list[Event], exposure: Exposure | None = None) -> Exposure:
    exposure = exposure or Exposure()
    for one in events:
        play(exposure, one)
    return exposure


def play(exposure: Exposure, one: Event) -> None:
    if one.enter or one.leave:
        exposure.catalogue(ItemBlock("shop", one.enter, (), one.time_ms, one.leave), one.time_ms)
    else:
        clicks = tuple(ItemClick(one.shown[place], one.time_ms) for place in one.clicked)
        record = Click("shop", one.list_id, one.shown, tuple(range(len(one.shown))), clicks, one.time_ms)
        for each in served(record):
            exposure.show(each, ListKind.RANKED, one.time_ms)


def mean_difference(values: list[int]) -> float:
    """The Gini coefficient from its definition: half of the relative mean absolute difference."""
    x = np.array(values, np.float64)
    return float(np.abs(x[:, None] - x[None, :]).mean() / (2 * x.mean()))


def counted(events: list[Event]) -> Exposed:
    """The same figures from all events, with nothing but lists and sets."""
    now = max(e.time_ms for e in events)
    half = 12 * HOUR_MS
    since = (now // half - 1) * half
    born: dict[str, int] = {}
    kinds: Counter[str] = Counter(new=0, known=0, unlisted=0)
    impressions, clicks, recent = [0] * 21, [0] * 21, Counter[str]()
    clicks_of: dict[str, set[int]] = {}
    for one in events:
        for name in one.enter:
            born.setdefault(name, one.time_ms)
        for name in one.leave:
            born.pop(name, None)
        if not one.shown:
            continue
        if one.list_id not in clicks_of:
            clicks_of[one.list_id] = set()
            for place, name in enumerate(one.shown):
                impressions[min(place, 20)] += 1
                recent[name] += one.time_ms >= since
                young = name in born and one.time_ms - born[name] < 7 * DAY_MS
                kinds["unlisted" if name not in born else "new" if young else "known"] += 1
        for place in set(one.clicked) - clicks_of[one.list_id]:
            clicks_of[one.list_id].add(place)
            clicks[min(place, 20)] += 1
    everything = set(born) | {name for name, count in recent.items() if count}
    concentration = mean_difference([recent[name] for name in everything])
    covered = [name for name in born if recent[name]]
    lists = {str(kind): len(clicks_of) * (kind == "ranked") for kind in ListKind}
    return Exposed(
        lists,
        dict(kinds),
        tuple(impressions),
        tuple(clicks),
        len(born),
        len(covered) / len(born),
        concentration,
        1.0,
    )


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_the_figures_are_those_of_the_whole_log(seed: int) -> None:
    events = log_of(seed)
    for end in (200, 700, len(events)):
        mine, theirs = played(events[:end]).exposed(), counted(events[:end])
        assert replace(mine, gini=None) == replace(theirs, gini=None)
        assert mine.gini == pytest.approx(theirs.gini, abs=1e-12)
    assert theirs.items["known"] and theirs.items["new"] and theirs.items["unlisted"]
    assert sum(theirs.clicks) > len(events) / 2


def test_a_restored_state_goes_on_as_if_nothing_had_happened() -> None:
    events = log_of(5, 600)
    whole, other = Exposure(), Exposure()
    for one in events:
        play(whole, one)
        play(other, one)
        fresh = Exposure()
        fresh.restore(other.state())
        other = fresh
    assert other.exposed() == whole.exposed()
    assert same_states({"shop": other.state()}, {"shop": whole.state()})


def test_after_a_day_without_lists_nothing_is_covered() -> None:
    exposure = Exposure()
    exposure.catalogue(ItemBlock("shop", ("a", "b"), (), 0), 0)
    exposure.show(Served("1", 1, ("a", "b"), (0, 1), frozenset()), ListKind.RANKED, HOUR_MS)
    assert exposure.exposed().coverage == 1.0
    exposure.show(Served("2", 2, ("a",), (0,), frozenset()), ListKind.RANKED, 13 * HOUR_MS)
    assert exposure.exposed().coverage == 1.0
    assert exposure.exposed().gini == pytest.approx(1 / 6)
    exposure.show(Served("3", 3, ("a",), (0,), frozenset()), ListKind.RANKED, 25 * HOUR_MS)
    assert exposure.exposed().coverage == 0.5
    exposure.catalogue(ItemBlock("shop", ("a",), (), 0), 60 * HOUR_MS)
    assert (exposure.exposed().coverage, exposure.exposed().gini) == (0.0, None)


def test_beyond_the_bound_the_figures_are_from_a_sample_of_the_items() -> None:
    rng = random.Random(2)
    counts, exact = ItemCounts(2_000), Counter[str]()
    names = [f"item {n}" for n in range(30_000)]
    for name in names:
        counts.put(name, 0)
    for _ in range(200_000):
        name = names[int(30_000 * rng.random() ** 3)]
        exact[name] += 1
        counts.show(name, 0)
    # A hash leaves out half of the items four times: 30,000 / 16 are fewer than 2,000, or three and then one more.
    assert counts.followed in (1 / 16, 1 / 32)
    assert len(counts.state()["keys"]) <= 2_000  # type: ignore[arg-type]
    covered = len(exact) / 30_000
    x = np.sort([exact[name] for name in names])
    whole = float((2 * np.arange(1, 30_001) - 30_001) @ x / (30_000 * x.sum()))
    assert counts.catalogue == pytest.approx(30_000, rel=0.1)
    assert counts.coverage == pytest.approx(covered, abs=0.05)
    assert counts.concentration == pytest.approx(whole, abs=0.02)
    fresh = ItemCounts(2_000)
    fresh.restore(counts.state())
    assert same_states({"shop": fresh.state()}, {"shop": counts.state()})
    assert (fresh.concentration, fresh.coverage) == (counts.concentration, counts.coverage)


def test_a_list_that_was_forgotten_is_counted_again() -> None:
    exposure = Exposure(most_lists=3)
    for key in (1, 2, 1, 3, 4, 1):
        exposure.show(Served(str(key), key, ("a",), (0,), frozenset({0})), ListKind.RANKED, 0)
    assert exposure.exposed().lists["ranked"] == 5
    assert exposure.exposed().clicks[0] == 5


def test_positions_are_those_served_and_not_places_in_the_record() -> None:
    record = Click("shop", "1", ("c", "a", "b"), (30, 3, 4), (ItemClick("b", 0), ItemClick("c", 0)), 0)
    (one,) = served(record)
    assert (one.items, one.positions, one.clicked) == (("a", "b", "c"), (3, 4, 30), frozenset({1, 2}))
    exposure = Exposure()
    exposure.show(one, ListKind.RANKED, 0)
    found = exposure.exposed()
    assert [n for n, count in enumerate(found.impressions) if count] == [3, 4, 20]
    assert [n for n, count in enumerate(found.clicks) if count] == [4, 20]


def kind_of(record: Click | ClickBlock, keys: Keys = KEYS, space: str = "docs") -> ListKind:
    (one,) = served(record)
    return one.kind(keys, space)


def test_the_kind_of_a_list_says_whether_its_probabilities_are_known() -> None:
    whole = click(drafted(1))
    assert kind_of(whole) is ListKind.DRAFTED
    assert kind_of(block([(drafted(1), ())])) is ListKind.DRAFTED
    assert kind_of(click("an id of a service")) is ListKind.RANKED
    assert kind_of(whole, Keys("the secret of another system")) is ListKind.UNREADABLE
    assert kind_of(whole, space="shop") is ListKind.UNREADABLE
    assert kind_of(click("ki1.made-up")) is ListKind.UNREADABLE
    seen = replace(whole, items=ITEMS[:4], positions=(0, 1, 2, 3))
    assert kind_of(seen) is ListKind.DRAFTED
    assert kind_of(replace(whole, positions=tuple(range(1, len(ITEMS) + 1)))) is ListKind.DRAFTED
    assert kind_of(replace(whole, items=ITEMS[::-1])) is ListKind.CHANGED
    assert kind_of(replace(whole, items=(*ITEMS[:-1], "an advert"))) is ListKind.CHANGED
    for broken in (
        {"positions": (0, 1)},
        {"positions": (0,) * 10},
        {"items": (ITEMS[0],) * 10},
        {"positions": range(-1, 9)},
    ):
        assert kind_of(replace(whole, **broken)) is ListKind.INVALID


@pytest.mark.parametrize("prefix", ["ki1.", "ki2."])
def test_other_spellings_of_an_id_prove_nothing_and_are_no_further_lists(prefix: str) -> None:
    exposure = Exposure()
    list_id = drafted(1)
    if prefix == "ki2.":
        fair = DrawKind.FAIR_PAIRS
        shown = randomise(KEYS, "docs", UNADAPTED, ITEMS, 10, kind=fair, depth=9, time_ms=7, nonce=b"nonce!")
        list_id = shown.list_id
    others = {
        text
        for text in respelled(list_id, prefix)
        if text.isascii() and "%" not in text and prefix * 2 not in text
    }
    assert len(others) > 10
    for text in (list_id, *others):
        (one,) = served(click(text, 3))
        kind = one.kind(KEYS, "docs")
        assert (kind is ListKind.UNREADABLE) == (text != list_id)
        exposure.show(one, kind, 0)
    found = exposure.exposed()
    assert (sum(found.lists.values()), found.impressions[0], sum(found.clicks)) == (1, 1, 1)


def test_ids_of_two_loads_are_different_lists() -> None:
    one = replace(click("17"), load=LoadPosition("may", 0))
    keys = [
        next(served(replace(one, load=load))).key
        for load in (one.load, LoadPosition("may", 5), LoadPosition("june", 0), None)
    ]
    assert keys[0] == keys[1]
    assert len({keys[0], *keys[2:]}) == 3


# ---- in the agent -----------------------------------------------------------------------------------------------


def agent_of(root: Path) -> tuple[MemoryLog, Agent]:
    settings = Settings.model_validate({"gate": {"docs": {}}, "gate_key": SECRET})
    log = MemoryLog(partitions=1)
    return log, Agent(gate_spec(settings), settings, log, root)


def items(*names: str) -> ItemBlock:
    from kinstream.streams.records.values import Table

    return ItemBlock("docs", names, (Table("x", np.zeros((len(names), 2), np.float32)),), 0)


def test_the_gate_counts_every_list_of_its_spaces(tmp_path: Path) -> None:
    log, agent = agent_of(tmp_path)
    for record in (
        items(*ITEMS, "never shown"),
        click("ordinary", 3),
        click(drafted(1), 2),
        click(drafted(1), 2),
        block([(drafted(2), (0,)), ("also ordinary", ())]),
        click("ki1.forged", 1),
    ):
        log.append("kinstream.events", b"docs", encode(record))
    agent.run()
    found = gate_of(agent).exposure.exposed()
    counts = {"ranked": 2, "drafted": 2, "randomised": 0, "unreadable": 1, "changed": 0, "invalid": 0}
    assert found.lists == counts
    assert found.coverage == 10 / 11
    assert found.items == {"new": 50, "known": 0, "unlisted": 0}
    assert found.clicks[:4] == (1, 1, 1, 1)


def test_a_reset_begins_anew_and_a_deleted_space_counts_nothing(tmp_path: Path) -> None:
    log, agent = agent_of(tmp_path)
    for record in (items("i0"), click("1"), Control("docs", Action.RESET, 5), click("2"), click("3")):
        log.append("kinstream.events", b"docs", encode(record))
    agent.run()
    found = gate_of(agent).exposure.exposed()
    assert (found.lists["ranked"], found.coverage) == (2, None)
    for record in (Control("docs", Action.DELETE, 5), click("4"), items("i0")):
        log.append("kinstream.events", b"docs", encode(record))
    agent.run()
    found = gate_of(agent).exposure.exposed()
    assert (found.lists["ranked"], found.coverage) == (0, None)


def test_a_checkpoint_of_an_earlier_version_and_a_new_generation() -> None:
    gate = SpaceGate("docs", KEYS, Options())
    played(log_of(1, 50), gate.exposure)
    old = {name: value for name, value in gate.state().items() if not name.startswith("exposure.")}
    fresh = SpaceGate("docs", KEYS, Options())
    fresh.restore(old)
    assert fresh.exposure.exposed() == Exposure().exposed()
    heir = SpaceGate("docs", KEYS, Options(error=0.01))
    heir.inherit(gate.state(), None)
    assert heir.exposure.exposed() == gate.exposure.exposed()


def test_without_randomised_lists_a_state_does_not_name_them() -> None:
    """The states of logs from before there were any keep their bits."""
    assert "randomised" not in str(Exposure().state()["counts"])
    assert Exposure().exposed().lists["randomised"] == 0
