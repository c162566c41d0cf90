"""How many drafted lists the gate needs to promote a better model, and how rarely it promotes another one.

Models of a wanted quality are made by going part of the way to a map that is known to be better, or away from it, until
NDCG@10 over all queries has changed by the wanted share; each run draws its own queries, users and ids. Every list goes
through the id, the machine and the checks of `kinstream.search.gate.core`, which looks at the test after each; the log
advances by a tenth of a second a list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.studies.gate.corpora import DEPTH, SHOWN, Corpus, Ranking, opened
from benchmarks.studies.gate.people import Users
from kinstream.search.gate.core import List, Options, SpaceGate
from kinstream.search.interleaving.impression import Keys, show
from kinstream.streams.records.gate import UNADAPTED, Verdict, Version

MODEL: Final = Version(1, 0, 1)
_STEP_MS: Final = 100


@dataclass(frozen=True, slots=True)
class Case:
    """Challengers of one kind.

    Parameters
    ----------
    change : of NDCG@10, by share; None: an equally good ranking.
    runs, lists : how many runs, and lists of a run at most.
    """

    change: float | None
    runs: int
    lists: int
    users: Users = field(default_factory=Users)


CASES: Final[Mapping[str, Case]] = {
    "25 % better": Case(0.25, 20, 1_500),
    "10 % better": Case(0.10, 20, 6_000),
    "6 % worse": Case(-0.06, 100, 6_000),
    # As many lists as a comparison has at most by default.
    "equal": Case(None, 400, 3_000),
    "6 % worse, a fifth of the lists poisoned": Case(-0.06, 100, 6_000, Users(poisoned=0.2)),
    "6 % worse, a fifth by 20 accounts that know the candidate's picks": Case(
        -0.06, 100, 6_000, Users(knowing=0.2)
    ),
    "10 % better, clicks by position alone": Case(0.10, 20, 6_000, Users(random=True)),
}


def measured(corpus: str, case: str, seed: int, file: Path) -> dict[str, Any]:
    """The verdict of a run and after how many lists; "open" where there was none."""
    found, of = opened(corpus, file), CASES[case]
    serving, candidate = _rankings(corpus, of.change, file)
    if of.change is None:
        serving, candidate = _exchangeable(serving, seed)
    verdict, lists = compared(found, serving, candidate, seed, of)
    return {"verdict": verdict, "lists": lists}


@cache
def _rankings(corpus: str, change: float | None, file: Path) -> tuple[Ranking, Ranking]:
    return opened(corpus, file).of_quality(change or 0.0)


def compared(corpus: Corpus, serving: Ranking, candidate: Ranking, seed: int, case: Case) -> tuple[str, int]:
    """Draft lists of both rankings until the gate decides."""
    draw = np.random.default_rng([seed, 1])
    keys = Keys(f"the secret of run {seed:08}")
    gate = SpaceGate("docs", keys, Options(max_sessions=case.lists, per_item=0))
    for session in range(case.lists):
        q = int(draw.integers(len(serving)))
        own, other = ([str(item) for item in ranking[q]] for ranking in (serving, candidate))
        rankings = ((UNADAPTED, own), (MODEL, other))
        now, nonce = session * _STEP_MS, session.to_bytes(6, "big")
        shown = show(keys, "docs", rankings, SHOWN, time_ms=now, nonce=nonce)
        items = np.array([int(item) for item in shown.items])
        answers = corpus.answers(np.array([q]), items)
        only = ~np.isin(items, serving[q, :SHOWN])
        user, taken = case.users.clicks(answers, only, draw, session)
        clicked = tuple(str(item) for item in items[taken])
        for made in gate.take(List(shown.list_id, clicked, user, user), now):
            if made.verdict is not Verdict.CHALLENGE:
                return made.verdict.value, session + 1
    return "open", case.lists


def _exchangeable(base: Ranking, seed: int) -> tuple[Ranking, Ranking]:
    """Two different rankings that are equally good: one, with noise drawn in the same way for both."""
    draw = np.random.default_rng([seed, 2])

    def noisy() -> Ranking:
        order = np.argsort(np.arange(DEPTH) + draw.normal(0.0, 3.0, base.shape), axis=1)
        found: Ranking = np.take_along_axis(base, order, axis=1)
        return found

    return noisy(), noisy()


def row(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Runs, and how they ended: cells of the table."""
    verdicts = [one["verdict"] for one in found]
    promoted, retired = verdicts.count("promote"), verdicts.count("retire")
    decided = [one["lists"] for one in found if one["verdict"] == ("promote" if promoted else "retire")]
    return [
        str(len(found)),
        str(promoted),
        str(retired),
        str(len(found) - promoted - retired),
        f"{int(np.median(decided)):,}" if decided else "-",
        f"{max(decided):,}" if decided else "-",
    ]


HEADER: Final = ("corpus", "challenger", "runs", "promoted", "retired", "held", "lists, median", "most")
