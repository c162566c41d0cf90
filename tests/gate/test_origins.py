"""Whatever ends a comparison is in votes: what one user, address or query adds is bounded, however many its lists."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinstream.gate.core import SpaceGate
from kinstream.gate.limits import Actors
from kinstream.gate.lists.draft import Side
from kinstream.gate.lists.evidence import Evidence
from kinstream.gate.lists.list_id import show
from kinstream.gate.values import List, Options
from kinstream.gate.votes import FIRST_DAYS, LISTS_PER_VOTE, Growth, Sessions, Votes
from kinstream.streams.records.gate import UNADAPTED, Verdict, Version
from tests.gate.gates import KEYS, MODEL, back, drafted
from tests.gate.test_tail import with_newer

MINUTE, HOUR, DAY = 60_000, 3_600_000, 24 * 3_600_000
SERVING, CHALLENGER = 0, 1
#: What all lists of one origin count: as votes, and as sessions.
VOTES, SESSIONS = math.pi**2 / 6, 19.6
Who = Callable[[int], dict[str, Any]]
Clicks = Callable[[int, np.random.Generator], tuple[int, ...]]


class End(NamedTuple):
    """How a comparison ended, after how many lists; `open`: it did not."""

    verdict: str
    lists: int
    votes: float
    sessions: float


ONE: dict[str, Who] = {
    "one user": lambda n: {"user": "u"},
    "one session": lambda n: {"session": "s"},
    "one user with ever new addresses": lambda n: {"user": "u", "address": f"a{n}"},
    "ever new users at one address": lambda n: {"user": f"u{n}", "session": f"s{n}", "address": "a"},
    "ten users at one address": lambda n: {"user": f"u{n % 10}", "address": "a"},
    "nobody, always the same query": lambda n: {},
}
CLICKS: dict[str, Clicks] = {
    "none": lambda n, draw: (),
    "the serving model's": lambda n, draw: (SERVING,),
    "the challenger's": lambda n, draw: (CHALLENGER,),
    "either by a coin": lambda n, draw: (int(draw.integers(2)),),
    "both": lambda n, draw: (SERVING, CHALLENGER),
    "all": lambda n, draw: tuple(range(10)),
    "every other list": lambda n, draw: (int(draw.integers(2)),) if n % 2 else (),
}
#: Without limits, within them, and in bursts, which they cut.
PACES = {"one an hour": HOUR, "one in three minutes": 3 * MINUTE, "one a second": 1_000}


def options(**changes: Any) -> Options:
    return Options(**{"min_learned": 0, "per_item": 0, "late_minutes": 24 * 60, **changes})


def played(
    who: Who, clicks: Clicks, lists: int, pace: int, newest: Version | None = None, **changes: Any
) -> End:
    """Play so many lists, or until a comparison ends."""
    gate, draw = SpaceGate("docs", KEYS, options(**changes)), np.random.default_rng(11)
    for n in range(lists):
        at = n * pace
        list_id = drafted(n, time_ms=at) if newest is None else with_newer(n, MODEL, newest)
        for made in gate.take(back(list_id, *clicks(n, draw), **who(n)), at if newest is None else 0):
            if made.verdict is not Verdict.CHALLENGE:
                return End(made.verdict.value, n + 1, made.evidence.votes, made.checks["sessions"])
    return End("open", lists, gate.evidence.votes, gate.sessions.total)


# ---- one origin -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clicks", CLICKS)
def test_one_user_who_clicks_once_an_hour_ends_nothing(clicks: str) -> None:
    end = played(ONE["one user"], CLICKS[clicks], 450, HOUR)
    assert end.verdict == "open", end
    assert end.votes < VOTES and end.sessions < SESSIONS + VOTES


@pytest.mark.long
@pytest.mark.parametrize("pace", PACES)
@pytest.mark.parametrize("clicks", CLICKS)
@pytest.mark.parametrize("who", ONE)
def test_one_origin_ends_nothing_however_many_lists_it_sends(who: str, clicks: str, pace: str) -> None:
    end = played(ONE[who], CLICKS[clicks], 1_000, PACES[pace])
    assert end.verdict == "open", end
    assert end.votes < VOTES and end.sessions < SESSIONS + VOTES


@pytest.mark.parametrize("clicks", [name for name in CLICKS if name != "none"])
def test_one_origin_renews_no_challenger(clicks: str) -> None:
    free = {"per_user": 0, "burst_minutes": 0}
    end = played(ONE["one user"], CLICKS[clicks], 300, 0, newest=Version(1, 0, 900), **free)
    assert end.verdict == "open", end


def test_an_account_that_clicks_and_a_crawler_end_nothing_together() -> None:
    """The crawler keeps no cookies: each list is of a new session, and nobody knows its address."""

    def who(n: int) -> dict[str, Any]:
        return {"user": "u"} if n % 3 == 0 else {"session": f"c{n}"}

    end = played(who, lambda n, draw: (SERVING,) if n % 3 == 0 else (), 1_000, 10 * MINUTE)
    assert end.verdict == "open" and end.sessions < SESSIONS + 9 * (VOTES + 1), end


@pytest.mark.parametrize("clicks", CLICKS)
def test_six_accounts_at_six_addresses_have_less_than_the_votes_that_may_be_bought(clicks: str) -> None:
    def who(n: int) -> dict[str, Any]:
        return {"user": f"u{n % 6}", "address": f"a{n % 6}"}

    end = played(who, CLICKS[clicks], 600, 3 * MINUTE)
    assert end.verdict == "open" and end.votes < 10.0, end


@pytest.mark.parametrize(
    ("clicks", "verdict", "lists"),
    [
        ("none", "open", 1_000),
        ("both", "hold", 100),
        ("all", "hold", 100),
        ("the serving model's", "retire", 100),
        ("the challenger's", "promote", 100),
    ],
)
def test_a_thousand_users_of_whom_no_address_is_known_are_a_thousand_people(
    clicks: str, verdict: str, lists: int
) -> None:
    """What it does not stop: nothing tells them from a thousand people who do the same."""
    end = played(lambda n: {"user": f"u{n % 1_000}"}, CLICKS[clicks], 1_000, 3 * MINUTE)
    assert (end.verdict, end.lists) == (verdict, lists), end
    # At one address they are one.
    end = played(lambda n: {"user": f"u{n % 1_000}", "address": "a"}, CLICKS[clicks], 500, 3 * MINUTE)
    assert end.verdict == "open", end


@given(
    st.lists(st.tuples(st.sampled_from([None, "a", "b"]), st.sampled_from([-0.5, 0.0, 1.0])), max_size=200),
    st.integers(1, 3),
)
def test_what_an_origin_adds_is_bounded_in_every_sum(
    lists: list[tuple[str | None, float]], whole: int
) -> None:
    """A stranger is there or is not: no sum that ends a comparison differs by more than the stated bound."""

    def sums(without: str) -> tuple[Evidence, Sessions]:
        votes, evidence, sessions = Votes(whole, whole), Evidence(), Sessions(Votes(whole, whole))
        for user, credit in lists:
            actors = Actors(user or "c", None, None)
            if actors.user == without:
                continue
            if user is None:
                sessions.show(actors, whole=False)
                continue
            weight = votes.weigh(actors)
            evidence = evidence.after(credit, weight)
            sessions.click(weight, credit, 0.0)
        return evidence, sessions

    (all_, every), (rest, others) = sums(""), sums("a")
    for name in ("votes", "decided", "squares", "credit"):
        assert abs(getattr(all_, name) - getattr(rest, name)) < 2 * whole
    # Its own sessions, and those of lists without a click that its votes let count.
    bound = 2 * LISTS_PER_VOTE * whole + 9 * 2 * whole
    assert -1e-9 <= every.total - others.total < bound


# ---- an origin among people -------------------------------------------------------------------------------------


@pytest.mark.parametrize("clicks", CLICKS)
@pytest.mark.parametrize("share", [0.5, 0.7, 0.25])
def test_what_people_decide_is_decided_as_if_one_more_were_not_there(share: float, clicks: str) -> None:
    """The challenger wins that share of the lists of people; another sends a list after each of theirs."""

    def ended(stranger: bool) -> tuple[str, int]:
        gate = SpaceGate("docs", KEYS, options(per_user=0, per_address=0, burst_minutes=0))
        draw, other = np.random.default_rng(2), np.random.default_rng(4)
        for n in range(3_000):
            place = CHALLENGER if draw.random() < share else SERVING
            made = gate.take(back(drafted(2 * n), place, user=f"p{n}", address=f"p{n}"), 0)
            if stranger:
                own = CLICKS[clicks](n, other)
                made += gate.take(back(drafted(2 * n + 1), *own, user="u", address="a"), 0)
            for one in made:
                if one.verdict is not Verdict.CHALLENGE:
                    return one.verdict.value, n
        raise AssertionError("the comparison did not end")

    (calm, after), (crowded, later) = ended(False), ended(True)
    assert crowded == calm
    # When an equally good one is given up is chance in any case.
    assert share == 0.5 or abs(later - after) <= max(21, 0.15 * after)


def test_lists_that_one_origin_is_shown_fail_no_check() -> None:
    """It clicks where the candidate finds nothing."""
    gate = SpaceGate("docs", KEYS, options(per_user=0, burst_minutes=0))
    for n in range(200):
        nothing = frozenset({Side.CANDIDATE})
        gate.take(back(drafted(2 * n, empty=nothing), SERVING, user="u", address="a"), 0)
        gate.take(back(drafted(2 * n + 1), CHALLENGER, user=f"p{n}"), 0)
        if gate.challenger is None:
            break
    assert gate.serving == MODEL


def test_a_list_kept_from_before_gives_up_no_challenger() -> None:
    """Services draft with the challenger. A list of another candidate says something only if it was drafted since."""
    gate = SpaceGate("docs", KEYS, options())
    other = drafted(1, Version(1, 0, 200), time_ms=0)
    gate.take(back(drafted(0, time_ms=0), CHALLENGER, user="p"), 0)
    assert gate.take(back(other, SERVING, user="u"), 45 * MINUTE) == []
    assert gate.challenger == MODEL
    # Nor does a list that comes again keep one that no service drafts with.
    gate.take(back(drafted(0, time_ms=0), CHALLENGER, user="p"), 50 * MINUTE)
    moved = drafted(2, Version(1, 0, 200), time_ms=55 * MINUTE)
    made = gate.take(back(moved, SERVING, user="v"), 55 * MINUTE)
    assert [one.verdict.value for one in made] == ["hold", "challenge"]


# ---- few people -------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_few_people_with_many_lists_reach_a_decision() -> None:
    """Twenty people search twenty times a day."""

    def end(share: float, **changes: Any) -> tuple[str, float]:
        def clicks(n: int, draw: np.random.Generator) -> tuple[int, ...]:
            return (CHALLENGER if draw.random() < share else SERVING,)

        found = played(lambda n: {"user": f"p{n % 20}"}, clicks, 20_000, DAY // 400, **changes)
        return found.verdict, found.lists / 400

    shares = (0.9, 0.8, 0.5, 0.0)
    found = [end(share) for share in shares]
    assert [verdict for verdict, _ in found] == ["promote", "hold", "hold", "retire"]
    # Twenty people have 33 votes, of which ten may be bought: they have to agree, or it takes six days.
    assert [days < most for (_, days), most in zip(found, (0.5, 6.1, 6.1, 0.5), strict=True)] == [True] * 4
    # Where all lists count whole, as documented for people one knows.
    whole = {"bought_votes": 0.0, "user_votes": 0, "address_votes": 0}
    found = [end(share, **whole) for share in shares]
    assert [verdict for verdict, _ in found] == ["promote", "promote", "hold", "retire"]
    assert max(days for _, days in found) < 3


@pytest.mark.parametrize(("people", "every_days", "most"), [(7, 1, 7), (7, 7, 49), (60, 1, 7), (60, 7, 25)])
def test_people_who_have_all_voted_are_not_waited_for(people: int, every_days: int, most: int) -> None:
    """Some of their clicks are for the challenger: too few to promote it, too many to give it up."""
    gate = SpaceGate("docs", KEYS, options(bought_votes=10.0))
    pace = every_days * DAY // people
    for n in range(people * most):
        at = n * pace
        place = SERVING if n % 20 < 9 else CHALLENGER
        for made in gate.take(back(drafted(n, time_ms=at), place, user=f"p{n % people}"), at):
            if made.verdict is not Verdict.CHALLENGE:
                assert made.verdict is Verdict.HOLD and at < most * DAY
                return
    raise AssertionError(f"nothing after {at / DAY:.0f} days")


@given(st.floats(0.5, 40.0), st.integers(1, 60))
def test_a_site_is_waited_for_while_new_people_come(a_day: float, days: int) -> None:
    growth = Growth()
    growth.begin(0)
    assert not any(growth.ended(int(n * DAY / a_day), n) for n in range(1, int(days * a_day)))


@pytest.mark.parametrize("begins", range(0, 7 * 24, 6))
def test_a_site_that_rests_at_weekends_is_waited_for(begins: int) -> None:
    growth, votes = Growth(), 0.0
    growth.begin(begins * HOUR)
    for hour in range(begins + 1, begins + 60 * 24):
        votes += 1.0 if hour // 24 % 7 < 5 else 0.1
        assert not growth.ended(hour * HOUR, votes), (hour - begins) / 24


def test_few_records_of_a_wrong_time_end_nothing() -> None:
    growth = Growth()
    growth.begin(0)
    for n in range(FIRST_DAYS):
        assert not growth.ended((2 * n + 1) * 1_000 * DAY, 5.0)
        assert not growth.ended(n * MINUTE, 5.0)


@settings(deadline=None)
@given(st.lists(st.integers(-30, 30), max_size=40), st.integers(0, 40))
def test_growth_goes_on_as_it_was(days: list[int], cut: int) -> None:
    whole, parts = Growth(), Growth()
    for one in (whole, parts):
        one.begin(0)
    now = 0
    for n, step in enumerate(days):
        if n == cut:
            fresh = Growth()
            fresh.restore(parts.plain())
            parts = fresh
        now += step * DAY
        assert whole.ended(now, n) == parts.ended(now, n)
    assert whole.plain() == parts.plain()


# ---- sites that name nobody -------------------------------------------------------------------------------------


def nameless(number: int, serving: int, challenger: int) -> tuple[str, str, str]:
    """A list of two rankings that begin with these items, by a coin; and its first item of either side."""
    rankings = [f"s{serving}", *"abc"], [f"c{challenger}", *"cba"]
    versions = ((UNADAPTED, rankings[0]), (MODEL, rankings[1]))
    shown = show(KEYS, "docs", versions, 4, time_ms=0, nonce=number.to_bytes(6))
    assert set(shown.items[:2]) == {rankings[0][0], rankings[1][0]}
    return shown.list_id, rankings[0][0], rankings[1][0]


def test_lists_that_name_nobody_have_a_vote_for_each_query() -> None:
    """Whatever the event says of its query: the signed id has the first items of both rankings."""
    gate, weights = SpaceGate("docs", KEYS, options(bought_votes=0.0)), []
    for n, (serving, challenger) in enumerate([(1, 1), (1, 2), (1, 1), (2, 1), (1, 1), (1, 1)]):
        before = gate.evidence.votes
        list_id, _, clicked = nameless(n, serving, challenger)
        gate.take(List(list_id, (clicked,), None, None, None, query=n), 0)
        weights.append(gate.evidence.votes - before)
    assert weights == pytest.approx([1, 1, 1 / 4, 1, 1 / 9, 1 / 16])
    # Where users are not told apart, neither is nobody.
    gate = SpaceGate("docs", KEYS, options(user_votes=0))
    for n in range(5):
        gate.take(back(drafted(n), CHALLENGER), 0)
    assert gate.evidence.votes == 5.0


def test_a_site_that_names_nobody_decides_by_its_many_queries() -> None:
    gate, draw = SpaceGate("docs", KEYS, options(burst_minutes=0)), np.random.default_rng(3)
    for n in range(2_000):
        query = int(draw.zipf(1.3)) % 10_000
        list_id, lost, won = nameless(n, query, query // 2)
        gate.take(List(list_id, (won if draw.random() < 0.8 else lost,), None, None), 0)
        if gate.serving != UNADAPTED:
            break
    assert gate.serving == MODEL and n < 700
