"""How many drafted lists the gate needs to promote a better model, and how rarely it promotes another one.

Models of a wanted quality are made by going part of the way to a map that is known to be better, or away from it, until
NDCG@10 over all queries has changed by the wanted share; each run draws its own queries, users and ids. Every list goes
through the id, the machine and the checks of `kinstream.gate.core` with its defaults, but for `min_learned`,
since these models learn nothing here; it looks at the test after each. Ten lists come in a minute of the log. When a
comparison ends without a promotion, a newer model of the same quality challenges after the pause, as the next one of a
learner would. Queries are drawn with replacement, so more and more of them come again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.studies.gate.corpora import DEPTH, SHOWN, Ranking, opened
from benchmarks.studies.gate.people import Flags, Users
from kinstream.gate.core import SpaceGate
from kinstream.gate.lists.list_id import Keys, show
from kinstream.gate.values import Decision, List, Options
from kinstream.streams.records.gate import UNADAPTED, Verdict, Version

#: Milliseconds of the log between two lists.
STEP_MS: Final = 6_000
#: Standard deviation, in places, of the noise that makes two different rankings of one.
_NOISE: Final = 3.0


@dataclass(frozen=True, slots=True)
class Case:
    """Challengers of one kind.

    Parameters
    ----------
    change : of NDCG@10, by share; None: equally good rankings, different for every list.
    runs, lists : how many runs, and lists of a run at most, those of pauses included.
    once : whether the first comparison is the only one.
    """

    change: float | None
    runs: int
    lists: int
    users: Users = field(default_factory=Users)
    once: bool = False


CASES: Final[Mapping[str, Case]] = {
    "25 % better": Case(0.25, 20, 1_500),
    "10 % better": Case(0.10, 20, 6_000),
    "6 % worse": Case(-0.06, 100, 6_000),
    "equal": Case(None, 400, 6_000, once=True),
    "equal, one after the other": Case(None, 100, 6_000),
    "6 % worse, a fifth of the lists poisoned": Case(-0.06, 100, 6_000, Users(poisoned=0.2)),
    "6 % worse, a fifth by 20 accounts that know the candidate's picks": Case(
        -0.06, 100, 6_000, Users(knowing=0.2)
    ),
    "10 % better, clicks by position alone": Case(0.10, 20, 6_000, Users(random=True)),
}


def measured(corpus: str, case: str, seed: int, file: Path) -> dict[str, Any]:
    """After how many lists a challenger was promoted (None: never), and how comparisons ended, by verdict."""
    found, of = opened(corpus, file), CASES[case]
    serving, candidate = _rankings(corpus, of.change, file)
    noise = np.random.default_rng([seed, 2]) if of.change is None else None

    def answer(q: int, items: Ranking, only: Flags, draw: np.random.Generator, number: int) -> Answer:
        user, taken = of.users.clicks(found.answers(np.array([q]), items), only, draw, number)
        return Answer(taken, user, user)

    series = Series(serving, candidate, answer, seed, Options(min_learned=0), STEP_MS, noise)
    promoted, ended = series.played(of.lists, of.once)
    return {"promoted": promoted, "ended": dict(ended)}


@cache
def _rankings(corpus: str, change: float | None, file: Path) -> tuple[Ranking, Ranking]:
    return opened(corpus, file).of_quality(change or 0.0)


class Answer(NamedTuple):
    """What a user does with a list: which places are clicked, and who it was."""

    taken: Flags
    user: str
    session: str
    address: str | None = None


def answers(right: NDArray[np.int64]) -> Callable[[int, Ranking, Flags, np.random.Generator, int], Answer]:
    """What `Series` asks for, by the usual users, of queries that one item each answers: `right` (q,)."""
    users = Users()

    def answer(q: int, items: Ranking, only: Flags, draw: np.random.Generator, number: int) -> Answer:
        user, taken = users.clicks(items == right[q], only, draw, number)
        return Answer(taken, user, user)

    return answer


class Series:
    """Lists of the un-adapted ranking and of a candidate, one model of it after the other.

    Parameters
    ----------
    serving, candidate : (q, `DEPTH`) rankings.
    answer : of a query's number, the items shown, which of them serving would not show, a generator, and the number of
        the list.
    noise : of places, drawn for each list and each side in the same way; None for none.
    """

    def __init__(
        self,
        serving: Ranking,
        candidate: Ranking,
        answer: Callable[[int, Ranking, Flags, np.random.Generator, int], Answer],
        seed: int,
        options: Options,
        step_ms: int,
        noise: np.random.Generator | None = None,
    ) -> None:
        self._rankings, self._answer, self._step_ms, self._noise = (
            (serving, candidate),
            answer,
            step_ms,
            noise,
        )
        self._draw = np.random.default_rng([seed, 1])
        self._keys = Keys(f"the secret of run {seed:08}")
        self.gate = SpaceGate("docs", self._keys, options)
        #: Lists up to now.
        self.lists = 0

    def verdicts(self, lists: int) -> Iterator[str]:
        """The verdict of each comparison as it ends, in so many lists at most."""
        ended = 0
        while self.lists < lists:
            for made in self._next(Version(1, 0, ended + 1)):
                if made.verdict is not Verdict.CHALLENGE:
                    ended += 1
                    yield made.verdict.value

    def played(self, lists: int, once: bool = False) -> tuple[int | None, Counter[str]]:
        """After how many lists a challenger was promoted (None: never), and how comparisons ended, by verdict.

        Parameters
        ----------
        once : whether the first comparison is the only one.
        """
        ended: Counter[str] = Counter()
        for verdict in self.verdicts(lists):
            ended[verdict] += 1
            if once or verdict == Verdict.PROMOTE:
                break
        return self.lists if ended[Verdict.PROMOTE] else None, ended

    def _next(self, model: Version) -> list[Decision]:
        number, self.lists = self.lists, self.lists + 1
        q = int(self._draw.integers(len(self._rankings[0])))
        own, other = (self._noisy(ranking[q]) for ranking in self._rankings)
        rankings = (UNADAPTED, [str(item) for item in own]), (model, [str(item) for item in other])
        now, nonce = number * self._step_ms, number.to_bytes(6, "big")
        shown = show(self._keys, "docs", rankings, SHOWN, time_ms=now, nonce=nonce)
        items = np.array([int(item) for item in shown.items])
        taken, user, session, address = self._answer(
            q, items, ~np.isin(items, own[:SHOWN]), self._draw, number
        )
        clicked = tuple(str(item) for item in items[taken])
        return self.gate.take(List(shown.list_id, clicked, session, user, address, q), now)

    def _noisy(self, ranking: Ranking) -> Ranking:
        if self._noise is None:
            return ranking
        return ranking[np.argsort(np.arange(DEPTH) + self._noise.normal(0.0, _NOISE, DEPTH))]


def row(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Cells of the table."""
    lists = [one["promoted"] for one in found if one["promoted"]]
    ended = sum((Counter(one["ended"]) for one in found), Counter[str]())
    return [
        str(len(found)),
        str(len(lists)),
        f"{int(np.median(lists)):,}" if lists else "-",
        f"{max(lists):,}" if lists else "-",
        f"{ended.total():,}",
        f"{ended[Verdict.RETIRE]:,}",
    ]


HEADER: Final = (
    "corpus",
    "challenger",
    "runs",
    "promoted",
    "lists until then, median",
    "most",
    "comparisons",
    "retired",
)
