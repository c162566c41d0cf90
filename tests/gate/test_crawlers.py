"""Lists that nobody clicks end no comparison, whoever sends them and however many: they count as their votes would."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinstream.gate.agent import gate_spec
from kinstream.gate.core import SpaceGate
from kinstream.gate.limits import Actors
from kinstream.gate.lists.draft import Side
from kinstream.gate.lists.list_id import show
from kinstream.gate.values import Fate, Options
from kinstream.gate.votes import MOST_UNCLICKED, Sessions, Votes
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.gate import UNADAPTED, Verdict
from kinstream.streams.settings import Settings
from tests.gate.gates import ITEMS, KEYS, MODEL, SECRET, back, click, drafted
from tests.support.crashes import letters
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent

MINUTE = 60_000
LISTS = 3_000
Who = Callable[[int], dict[str, Any]]
CRAWLERS: dict[str, Who] = {
    "one user": lambda n: {"user": "crawler"},
    "one session": lambda n: {"session": "crawler"},
    "one address": lambda n: {"address": "crawler"},
    "one address with ever new users": lambda n: {"user": f"c{n}", "session": f"c{n}", "address": "crawler"},
    "one user at ever new addresses": lambda n: {"user": "crawler", "session": f"c{n}", "address": f"c{n}"},
    "ten users": lambda n: {"user": f"c{n % 10}", "address": f"c{n % 10}"},
    "ever new sessions": lambda n: {"session": f"c{n}"},
    "nobody": lambda n: {},
}
#: A list a second, which no limit leaves out, or one in three minutes, which the limits know.
PACES = {"without limits": 1_000, "slowly": 3 * MINUTE}


def options(pace: str, **changes: Any) -> Options:
    free = {"per_user": 0, "per_session": 0, "per_address": 0, "per_item": 0, "burst_minutes": 0}
    return Options(**{"min_learned": 0, **(free if pace == "without limits" else {}), **changes})


def verdicts(gate: SpaceGate) -> list[str]:
    return [verdict for verdict, count in gate.verdicts.items() if count]


@pytest.mark.long
@pytest.mark.parametrize("pace", PACES)
@pytest.mark.parametrize("crawler", CRAWLERS)
def test_whoever_looks_and_never_clicks_ends_no_comparison(crawler: str, pace: str) -> None:
    gate = SpaceGate("docs", KEYS, options(pace))
    for n in range(LISTS):
        at = n * PACES[pace]
        gate.take(back(drafted(n, time_ms=at), **CRAWLERS[crawler](n)), at)
    assert (gate.challenger, verdicts(gate)) == (MODEL, ["challenge"])
    # Those who click are heard as if nobody else had been there.
    for n in range(200):
        at = LISTS * PACES[pace] + n * MINUTE
        gate.take(back(drafted(LISTS + n, time_ms=at), 1, user=f"u{n}"), at)
    assert gate.serving == MODEL


def test_whoever_clicks_only_what_both_rankings_show_ends_none_either() -> None:
    gate = SpaceGate("docs", KEYS, options("without limits"))
    ranking = list(ITEMS)
    for n in range(LISTS):
        shown = show(
            KEYS, "docs", ((UNADAPTED, ranking), (MODEL, ranking)), 10, time_ms=n, nonce=n.to_bytes(6)
        )
        gate.take(back(shown.list_id, 0, user="crawler"), n)
    assert (gate.fates[Fate.TIED], verdicts(gate)) == (LISTS, ["challenge"])


@pytest.mark.long
@pytest.mark.parametrize("share", [0.53, 0.62])
@pytest.mark.parametrize("crawler", ["one user", "one address with ever new users", "nobody"])
def test_a_crawler_among_users_changes_nothing(crawler: str, share: float) -> None:
    """It sends two lists for each one of a user; a third of the users click, for the challenger by that share."""

    def ended(crawls: bool) -> tuple[str, int]:
        draw = np.random.default_rng(7)
        gate = SpaceGate("docs", KEYS, options("without limits"))
        for n in range(20_000):
            places = (int(draw.random() < share),) if draw.random() < 0.33 else ()
            made = gate.take(back(drafted(3 * n), *places, user=f"u{n}"), 0)
            for k in (1, 2) if crawls else ():
                made += gate.take(back(drafted(3 * n + k), **CRAWLERS[crawler](3 * n + k)), 0)
            for one in made:
                if one.verdict is not Verdict.CHALLENGE:
                    return one.verdict.value, n
        raise AssertionError("the comparison did not end")

    (calm, after), (crawled, later) = ended(False), ended(True)
    assert crawled == calm
    assert abs(later - after) <= 10


def test_what_a_crawler_is_shown_fails_no_check() -> None:
    """Its queries find nothing with the candidate."""
    gate = SpaceGate("docs", KEYS, options("without limits"))
    for n in range(1_000):
        gate.take(back(drafted(n, empty=frozenset({Side.CANDIDATE})), user="crawler"), 0)
    for n in range(1_000, 1_200):
        gate.take(back(drafted(n), 1, user=f"u{n}"), 0)
    assert gate.serving == MODEL


def test_people_who_do_not_click_still_end_a_comparison() -> None:
    """Two rankings are equally good: lists that nobody clicked say how many clicks are still to come."""
    draw = np.random.default_rng(3)
    gate = SpaceGate("docs", KEYS, options("without limits"))
    for n in range(4_000):
        places = (int(draw.random() < 0.5),) if draw.random() < 0.2 else ()
        made = gate.take(back(drafted(n), *places, user=f"u{n}", address=f"a{n}"), 0)
        if made and made[-1].verdict is Verdict.HOLD:
            break
    assert verdicts(gate) == ["challenge", "hold"]
    assert made[-1].impressions < 2_000
    assert made[-1].checks["sessions"] == pytest.approx(made[-1].impressions)


def test_with_few_clicks_few_of_the_others_count() -> None:
    sessions = Sessions(Votes(1, 1))
    for n in range(1_000):
        sessions.show(Actors(f"u{n}", None, None), whole=False)
    assert sessions.total == MOST_UNCLICKED
    for n in range(50):
        sessions.click(1.0, 0.5, before=1.0)
        assert sessions.total == n + 1 + MOST_UNCLICKED * (n + 2)
    fresh = Sessions(Votes(1, 1))
    fresh.restore(sessions.state())
    assert fresh.total == sessions.total


def test_a_list_counts_once_whether_its_click_comes_at_once_or_later() -> None:
    totals = []
    for later in (False, True):
        gate = SpaceGate("docs", KEYS, options("without limits"))
        for n in range(30):
            who = {"user": f"u{n % 20}"}
            if later:
                gate.take(back(drafted(n), **who), 0)
            gate.take(back(drafted(n), 1, **who), 0)
        totals.append((gate.sessions.total, gate.impressions, gate.evidence))
    assert totals[0] == totals[1]
    total, impressions, _ = totals[0]
    assert (total, impressions) == (30.0, 30)


def test_limits_leave_out_lists_that_nobody_clicked_and_they_are_kept(tmp_path: Path) -> None:
    section = {"min_learned": 0, "per_user": 5, "user_votes": 0, "address_votes": 0}
    changes: dict[str, Any] = {"gate": {"docs": section}, "gate_key": SECRET}
    config = Settings(**changes)
    log = MemoryLog(partitions=1)
    for n in range(8):
        log.append("kinstream.events", b"docs", encode(click(drafted(n), user="crawler")))
    for n in range(8, 38):
        record = click(drafted(n), user=f"c{n}", address="crawler")
        log.append("kinstream.events", b"docs", encode(record))
    # Clicks have limits of their own: one who looks a lot may click as often as before.
    for n in range(5):
        log.append("kinstream.events", b"docs", encode(click(drafted(100 + n), 1, user="crawler")))
    agent = Agent(gate_spec(config), config, log, tmp_path)
    agent.run()
    space = agent.runners[0].machine.find("docs")
    assert space is not None and isinstance(space.core, SpaceGate)
    gate = space.core
    reasons = [reason for _, _, reason, _ in letters(log)]
    assert sorted(reasons, key=str) == [b"burst-address"] * 14 + [b"capped-user"] * 3
    assert (gate.fates[Fate.SHOWN], gate.fates[Fate.WON], gate.impressions) == (21, 5, 26)
