"""One user or address counts little in a comparison, and a few decide nothing: the rules of docs/gate.md, anew."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kinstream.gate.core import SpaceGate
from kinstream.gate.limits import Actors
from kinstream.gate.lists.evidence import decisive
from kinstream.gate.values import Options
from kinstream.gate.votes import Votes
from kinstream.streams.records.gate import UNADAPTED, Version
from tests.gate.gates import KEYS, MODEL, back, drafted

NAMES = st.one_of(st.none(), st.sampled_from(["a", "b", "c"]))
LISTS = st.lists(st.tuples(NAMES, NAMES, NAMES), max_size=40)


def wanted(
    lists: list[tuple[str | None, str | None, str | None]], of_user: int, of_address: int
) -> list[float]:
    """The n-th list of a user, or of a session without one, counts (v / n)^2 at most, and so does one of an address."""
    users, addresses = Counter[str](), Counter[str]()
    found = []
    for user, session, address in lists:
        weights = [1.0]
        who = f"user {user}" if user else f"session {session}" if session else None
        for name, whole, counts in ((who, of_user, users), (address, of_address, addresses)):
            if name is not None and whole > 0:
                counts[name] += 1
                weights.append((whole / counts[name]) ** 2)
        found.append(min(weights))
    return found


@given(LISTS, st.integers(0, 3), st.integers(0, 3), st.integers(0, 40))
def test_further_lists_of_one_user_or_address_count_less(
    lists: list[tuple[str | None, str | None, str | None]], of_user: int, of_address: int, cut: int
) -> None:
    votes, found = Votes(of_user, of_address), []
    for n, (user, session, address) in enumerate(lists):
        if n == cut:
            fresh = Votes(of_user, of_address)
            fresh.restore(votes.state())
            votes = fresh
        found.append(votes.weigh(Actors(user, session, address)))
    assert found == pytest.approx(wanted(lists, of_user, of_address))
    votes.clear()
    assert votes.weigh(Actors("a", None, "b")) == 1.0
    # A session that is named like a user is not that user.
    assert votes.weigh(Actors(None, "a", None)) == 1.0


@pytest.mark.parametrize("whole", [1, 2, 5])
def test_however_many_lists_there_are_they_count_less_than_twice_those_that_count_whole(whole: int) -> None:
    votes = Votes(whole, 0)
    total = math.fsum(votes.weigh(Actors("u", None, None)) for _ in range(5_000))
    assert whole < total < 2 * whole


def test_the_gate_counts_votes() -> None:
    gate = SpaceGate("docs", KEYS, Options(every_minutes=0, burst_minutes=0, user_votes=2, min_learned=0))
    for n, user in enumerate("aaab"):
        gate.take(back(drafted(n), 1, user=user), 0)
    assert gate.evidence.votes == pytest.approx(3 + 4 / 9)
    # A list that nobody clicks is no vote; one that a person sends again counts whole.
    gate.take(back(drafted(8), user="c"), 0)
    gate.take(back(drafted(9), 1, user="a"), 0, again=True)
    assert gate.evidence.votes == pytest.approx(4 + 4 / 9)


@pytest.mark.long
@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10_000), st.sampled_from([6, 12]), st.booleans())
@example(seed=2281, accounts=6, first=False)
def test_fewer_votes_than_may_be_bought_promote_nothing_that_honest_users_would_not(
    seed: int, accounts: int, first: bool
) -> None:
    """Honest users find both rankings equally good; bought lists come first, or among the others."""
    draw = np.random.default_rng(seed)
    bought = accounts * math.pi**2 / 6
    many: dict[str, Any] = {
        "per_user": 0,
        "per_session": 0,
        "per_item": 0,
        "burst_minutes": 0,
        "every_minutes": 0,
        "min_learned": 0,
        "max_sessions": 10_000,
    }
    gate = SpaceGate("docs", KEYS, Options(**many, bought_votes=bought))
    # The evidence of honest users alone: a comparison that is never judged.
    honest = SpaceGate("docs", KEYS, Options(**many, bought_votes=0, min_sessions=10_000))
    order = [True] * 300 + [False] * 300
    if not first:
        order = draw.permutation(order).tolist()
    enough = decisive(gate.options.error, gate.stake)
    for n, by_account in enumerate(order):
        if by_account:
            one = back(drafted(n), 1, user=f"account {n % accounts}")
        else:
            one = back(drafted(n), int(draw.integers(2)), user=f"user {n}")
            honest.take(one, 0)
        gate.take(one, 0)
        if gate.challenger is None:
            # By chance, at most as often as `error` says: then it was honest users who showed it.
            assert gate.serving == UNADAPTED or honest.log_e_for >= enough
            return
        assert gate.log_e_for <= honest.log_e_for + 1e-9


def test_a_few_accounts_decide_nothing_and_many_people_do() -> None:
    found = {}
    for case, users in (("accounts", 6), ("people", 400)):
        gate = SpaceGate(
            "docs", KEYS, Options(per_item=0, per_user=0, burst_minutes=0, every_minutes=0, min_learned=0)
        )
        for n in range(400):
            model = Version(1, 0, 200) if gate.serving == MODEL else MODEL
            gate.take(back(drafted(n, model, gate.serving), 1, user=f"{case} {n % users}"), 0)
        found[case] = gate.verdicts["promote"]
    assert found["accounts"] == 0 and found["people"] > 0
