"""Clicks that cannot be bought: caps and bursts, checked against a transcription of their rules."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinstream.gate.bursts import Bursts, is_burst
from kinstream.gate.core import SpaceGate
from kinstream.gate.limits import USUAL, LimitKind
from kinstream.gate.values import Fate, Options
from kinstream.streams.checkpoints.state_bytes import to_bytes
from tests.gate.gates import ITEMS, KEYS, back, drafted

MINUTE = 60_000


def poisson_tail(n: int, mean: float) -> float:
    """P(X >= n) of a Poisson number, by its sum."""
    below = math.fsum(math.exp(-mean + k * math.log(mean) - math.lgamma(k + 1)) for k in range(n))
    return max(0.0, 1.0 - below)


@pytest.mark.parametrize("mean", [1.0, 3.0, 10.0, 40.0])
def test_what_is_called_a_burst_is_rarer_than_one_in_a_million(mean: float) -> None:
    first = next(n for n in itertools.count(1) if is_burst(n, mean))
    assert poisson_tail(first, mean) <= 1e-6
    # Chernoff's bound is not far from the truth: two thirds of the excess are no such rarity.
    assert poisson_tail(math.ceil(mean + 2 * (first - mean) / 3), mean) > 1e-6
    assert all(is_burst(n, mean) for n in range(first, 3 * first))


class Rule:
    """The rules of docs/gate.md, written anew: everything is remembered, nothing is bounded."""

    def __init__(self, caps: dict[str, int], minutes: int) -> None:
        self.caps, self.window = caps, minutes * MINUTE
        self.counted: list[tuple[int, list[tuple[str, str]]]] = []

    def fate(self, now: int, who: list[tuple[str, str]]) -> str:
        for one in who:
            this_hour = [
                1 for at, some in self.counted if at // (60 * MINUTE) == now // (60 * MINUTE) and one in some
            ]
            if 0 < self.caps[one[0]] <= len(this_hour):
                return f"capped_{one[0]}"
        for one in who:
            windows = Counter(at // self.window for at, some in self.counted if one in some)
            this = now // self.window
            before = sum(windows[this - k] for k in range(1, 7)) / 6
            mean = max({"user": 1, "session": 1, "address": 3, "item": 10}[one[0]], before)
            n = windows[this] + 1
            if n > mean and math.exp(n - mean - n * math.log(n / mean)) <= 1e-6:
                return f"burst_{one[0]}"
        self.counted.append((now, who))
        return "counted"


@pytest.mark.long
@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000))
def test_caps_and_bursts_follow_their_rules(seed: int) -> None:
    rng = np.random.default_rng(seed)
    caps = {kind.value: int(rng.choice([0, 12, 40])) for kind in LimitKind}
    options = Options(
        every_minutes=0,
        min_learned=0,
        min_sessions=1_000,
        late_minutes=1_000,
        burst_minutes=10,
        **{f"per_{kind}": n for kind, n in caps.items()},
    )
    gate, rule = SpaceGate("docs", KEYS, options), Rule(caps, 10)
    now, wanted = 10 * 60 * MINUTE, Counter[str]()
    for n in range(250):
        if n == 120:
            fresh = SpaceGate("docs", KEYS, options)
            fresh.restore(gate.state())
            gate = fresh
        now += int(rng.choice([0, 1_000, 30_000, 9 * MINUTE], p=[0.6, 0.25, 0.1, 0.05]))
        names = {
            kind: f"{kind}{rng.integers(4)}" if rng.random() < 0.8 else None
            for kind in ("user", "session", "address")
        }
        place = int(rng.integers(3))
        who = [(kind, name) for kind, name in names.items() if name] + [("item", ITEMS[place])]
        before = Counter(gate.fates)
        gate.take(back(drafted(n, time_ms=now), place, **names), now)
        (fate,) = (gate.fates - before).elements()
        wanted[rule.fate(now, who)] += 1
        assert str(fate) in ("won", "lost") or "_" in str(fate)
        got = Counter({name: count for name, count in gate.fates.items() if "_" in name and count})
        assert got == Counter({name: count for name, count in wanted.items() if name != "counted"})
    assert gate.evidence.wins + gate.evidence.losses == wanted["counted"]
    assert {kind.value: USUAL[kind] for kind in LimitKind} == {
        "user": 1,
        "session": 1,
        "address": 3,
        "item": 10,
    }


def test_an_own_rate_that_is_higher_allows_more() -> None:
    minute, quiet, busy = Bursts(MINUTE, 1.0), 1, 2
    for n in range(6 * 8):
        minute.add(busy, n * MINUTE // 8)
    now = 6 * MINUTE
    allowed = []
    for key in (quiet, busy):
        count = 0
        while not minute.full(key, now):
            minute.add(key, now)
            count += 1
        allowed.append(count)
    # Of a mean of 1 the tenth list is a burst, of a mean of 8 the 27th.
    assert allowed == [9, 26]
    # Held back in this window, and free again in the next one, but not by the burst itself.
    assert minute.full(quiet, now) and not minute.full(quiet, now + MINUTE)


def test_memory_of_bursts_is_bounded_and_forgets_who_was_counted_the_longest_ago() -> None:
    bursts = Bursts(MINUTE, 1.0, most=2)
    for key in (1, 2, 1, 3):
        bursts.add(key, 0)
    assert np.asarray(bursts.state()["keys"]).tolist() == [1, 3]


def test_without_addresses_the_caps_of_addresses_leave_no_trace_in_a_state() -> None:
    states = []
    for cap in (60, 1):
        gate = SpaceGate("docs", KEYS, Options(per_address=cap, every_minutes=0, min_learned=0))
        for n in range(20):
            gate.take(back(drafted(n), n % 2, user=f"u{n}", session=f"s{n}"), 0)
        states.append(gate.state())
    assert to_bytes(states[0]) == to_bytes(states[1])
    assert not any("address" in name for name in states[0])


def test_a_state_from_before_addresses_and_bursts_is_restored() -> None:
    gate = SpaceGate("docs", KEYS, Options(every_minutes=0, min_learned=0))
    for n in range(5):
        gate.take(back(drafted(n), 1, user="u"), 0)
    old = {name: value for name, value in gate.state().items() if not name.startswith(("burst", "votes"))}
    fresh = SpaceGate("docs", KEYS, Options(every_minutes=0, min_learned=0))
    fresh.restore(old)
    assert fresh.evidence == gate.evidence
    fresh.take(back(drafted(9), 1, user="u"), 0)
    assert fresh.fates[Fate.WON] == 6


@pytest.mark.parametrize("known", ["address", "item"])
def test_a_fifth_of_the_sessions_in_bursts_promotes_nothing(known: str) -> None:
    """A model loses 54 of 100 honest lists. A burst in each hour, a quarter as large, clicks what it alone shows."""
    rng = np.random.default_rng(6)

    def verdict(options: dict[str, Any]) -> str:
        # Without a burst among the first lists, the model would be given up before one comes.
        gate = SpaceGate("docs", KEYS, Options(min_learned=0, late_minutes=60, min_sessions=800, **options))
        number = itertools.count()
        for hour in range(10, 14):
            shown = [(rng.integers(60 * MINUTE), False) for _ in range(640)]
            shown += [(30 * MINUTE + rng.integers(5 * MINUTE), True) for _ in range(160)]
            for minute, bought in sorted(shown):
                now, n = hour * 60 * MINUTE + int(minute), next(number)
                items = [f"i{k}" for k in rng.permutation(400)[:10]]
                if bought:
                    items[1] = "sponsored" if known == "item" else items[1]
                    address = "farm" if known == "address" else None
                    place = 1
                else:
                    place, address = int(rng.random() < 0.46), f"home {n % 300}"
                one = back(
                    drafted(n, items=items, time_ms=now), session=f"s{n}", user=f"u{n}", address=address
                )
                for made in gate.take(one._replace(clicked=(items[place],)), now):
                    if made.verdict.value != "challenge":
                        return made.verdict.value
        return "open"

    votes: dict[str, Any] = {"bought_votes": 0, "user_votes": 0, "address_votes": 0}
    assert verdict(votes | {"per_address": 0, "per_item": 0, "burst_minutes": 0}) == "promote"
    assert verdict(votes) in ("retire", "hold", "open")
