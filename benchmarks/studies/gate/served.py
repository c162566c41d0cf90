"""What users are served while a learner learns from all their clicks and the gate decides which of its models serves.

A session asks a query and sees ten items. Half of the queries are asked again and again, and the learner learns their
clicks; the other half are never learned, and stand for queries that nobody has asked before. A share of the sessions
gets drafted lists of the serving model and of the challenger, or of the newest model while there is none. The others
see the serving model. After every `EVERY` sessions the learner has learned their clicks, through the builder `clicks`,
and announces a model; services obey decisions then. NDCG@10 is the mean of both kinds of queries. Ids, drafts, gate,
builder and learners are Kinstream's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.studies.gate.corpora import DEPTH, SHOWN, Corpus, Ranking, Rows, opened, ranked
from benchmarks.studies.gate.people import Users
from kinstream.gate.core import SpaceGate
from kinstream.gate.lists.list_id import Keys, show
from kinstream.gate.values import List, Options
from kinstream.learners.registry import create
from kinstream.processors.base.builder import Origin
from kinstream.processors.clicks.clicks import Clicks
from kinstream.producers.simulated.searchers import Searches, catalogue, click_blocks
from kinstream.producers.simulated.settings import START_MS
from kinstream.streams.records.gate import UNADAPTED, Version
from kinstream.streams.records.values import LIST_RULE, ClickBlock, ConstraintBlock, ItemBlock

SPACE: Final = "docs"
#: Sessions between two announced models, and milliseconds between two sessions: ten a minute.
EVERY, STEP_MS = 100, 6_000
#: Sessions of a run; the first look, and how many follow it.
SESSIONS, FIRST_LOOK, LOOKS = 20_000, 2_000, 20
#: Share of the sessions that get drafted lists: all, since ten a minute are few.
SHARE: Final = 1.0
#: Share of the sessions whose query is one that is asked again.
REPEATED: Final = 0.5


@dataclass(frozen=True, slots=True)
class Learning:
    """What learns: kind and settings of the learner, and the builder's rule."""

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    rule: str = LIST_RULE


GOOD: Final = Learning("adapter")


def losing(aggressiveness: float) -> Learning:
    """Steps that are too long."""
    settings = {"aggressiveness": aggressiveness, "unit": "published", "dtype": "float32"}
    return Learning("oasis", settings, "click-skip-above")


#: By corpus, chosen on another seed. With the first, the newest model is more often worse than no adaptation in the end
#: than better. In the synthetic corpus no step is too long: with 0.03 to 1 it gains 24 % or more, if nobody poisons it.
LOSING: Final = {"documents": losing(0.03), "synthetic": losing(0.03)}


@dataclass(frozen=True, slots=True)
class Case:
    """A run.

    Parameters
    ----------
    learning : who learns; None: the losing settings of the corpus.
    share : of the sessions that get drafted lists.
    lists_per_day : of one user that the builder uses; 0: all.
    """

    learning: Learning | None
    users: Users = field(default_factory=Users)
    sessions: int = SESSIONS
    share: float = SHARE
    lists_per_day: int = 0


CASES: Final[Mapping[str, Case]] = {
    "losing": Case(None),
    "losing, a fifth poisoned": Case(None, Users(poisoned=0.2)),
    "good": Case(GOOD),
    "good, a fifth poisoned": Case(GOOD, Users(poisoned=0.2)),
    "good, a fifth poisoned, ten lists a day of a user": Case(GOOD, Users(poisoned=0.2), lists_per_day=10),
    "good, half of the lists drafted": Case(GOOD, share=0.5),
    "good, twice as long": Case(GOOD, sessions=2 * SESSIONS),
    "losing, clicks by position alone": Case(None, Users(random=True)),
    "good, clicks by position alone": Case(GOOD, Users(random=True)),
}


def measured(corpus: str, case: str, seed: int, file: Path, **options: Any) -> dict[str, Any]:
    """Changes of NDCG@10 against no adaptation: of what serves at every look, and of the newest model in the end.

    Each is of both kinds of queries together, of those that are asked again, and of those that are never learned.
    """
    of = CASES[case]
    return Live(opened(corpus, file), of, of.learning or LOSING[corpus], seed, Options(**options)).run()


class Live:
    """One run."""

    def __init__(
        self,
        corpus: Corpus,
        of: Case,
        learning: Learning,
        seed: int,
        options: Options,
    ) -> None:
        sessions = of.sessions
        self._corpus, self._users, self._share, self._sessions = corpus, of.users, of.share, sessions
        self._draw = np.random.default_rng([seed, 4])
        self._order = np.concatenate(
            [self._draw.permutation(len(corpus.asked)) for _ in range(-(-sessions // len(corpus.asked)))]
        )
        self._keys = Keys(f"the secret of run {seed:08}")
        self._gate = SpaceGate(SPACE, self._keys, options)
        self._learner: Any = create(learning.kind, **learning.settings)
        self._builder = Clicks(rules=(learning.rule,), seed=seed, max_lists_per_day=of.lists_per_day)
        self._offset = self._listened = 0
        self._newest = UNADAPTED
        #: Those that serve, challenge or are newest.
        self._maps: dict[Version, NDArray[Any] | None] = {UNADAPTED: None}
        self._measured: dict[Version, NDArray[np.float64]] = {}

    def run(self) -> dict[str, Any]:
        """All sessions, with a look at so many places."""
        at = np.linspace(FIRST_LOOK, self._sessions, LOOKS).round(-2).astype(int).tolist()
        for block in catalogue(SPACE, np.asarray(self._corpus.items, np.float32)):
            self._learn(block, START_MS)
        served = []
        for first in range(0, self._sessions, EVERY):
            self._segment(first)
            if first + EVERY in at:
                served.append(self._change(self._gate.serving))
        return {
            "served": served,
            "newest": self._change(self._newest),
            "promotions": self._gate.verdicts["promote"],
        }

    def _segment(self, first: int) -> None:
        corpus, gate, draw = self._corpus, self._gate, self._draw
        serving, candidate = gate.serving, gate.challenger or self._newest
        repeated = draw.random(EVERY) < REPEATED
        drafted = (draw.random(EVERY) < self._share) & (candidate != serving)
        query = draw.integers(len(corpus.tested), size=EVERY)
        query[repeated] = self._order[self._listened : self._listened + int(repeated.sum())]
        vectors = np.where(
            repeated[:, None], corpus.asked[query * repeated], corpus.tested[query * ~repeated]
        )
        own, other = (
            ranked(self._mapped(version, vectors), corpus.items, DEPTH) for version in (serving, candidate)
        )
        lists = own[:, :SHOWN].copy()
        clicked, accounts = np.zeros(lists.shape, np.bool_), np.full(EVERY, -1, np.int64)
        for n in np.flatnonzero(repeated | drafted).tolist():
            session = first + n
            now, list_id = START_MS + session * STEP_MS, ""
            if drafted[n]:
                rankings = (serving, list(map(str, own[n]))), (candidate, list(map(str, other[n])))
                nonce = session.to_bytes(6, "big")
                newest = self._newest if self._newest > candidate else None
                shown = show(self._keys, SPACE, rankings, SHOWN, time_ms=now, nonce=nonce, newest=newest)
                lists[n], list_id = [int(item) for item in shown.items], shown.list_id
            answers = corpus.answers if repeated[n] else corpus.tested_answers
            only = ~np.isin(lists[n], own[n, :SHOWN])
            user, clicked[n] = self._users.clicks(answers(query[n : n + 1], lists[n]), only, draw, session)
            if user.startswith("account"):
                accounts[n] = int(user.removeprefix("account "))
            if list_id:
                taken = tuple(map(str, lists[n][clicked[n]].tolist()))
                gate.take(
                    List(list_id, taken, user, user, None, self._name(repeated[n], query[n], session)), now
                )
            elif clicked[n].any():
                gate.tail.note(List("", ("any",), None, None, None, int(query[n])))
        learned = np.flatnonzero(repeated)
        found = Searches(query[learned], lists[learned], clicked[learned], accounts[learned])
        for block in click_blocks(SPACE, found, np.asarray(corpus.asked, np.float32), first=self._listened):
            self._learn(_timed(block, first + learned), START_MS + (first + EVERY) * STEP_MS)
        self._listened += len(learned)
        self._announce(first // EVERY + 1)

    @staticmethod
    def _name(repeated: bool, query: int, session: int) -> int:
        """What tells a query from others: one that is never learned is asked once."""
        return int(query) if repeated else -1 - session

    def _learn(self, event: ItemBlock | ClickBlock, now: int) -> None:
        for block in self._constraints(event, now):
            self._learner.learn(block)

    def _constraints(self, event: ItemBlock | ClickBlock, now: int) -> Iterator[ConstraintBlock]:
        yield from self._builder.process(event, Origin(offset=self._offset, append_ms=now)).blocks
        self._offset += 1

    def _announce(self, step: int) -> None:
        self._newest = Version(1, 0, step)
        # A learner that has seen nothing has no map.
        W = None if self._learner.dimension is None else np.array(self._learner.W)
        self._maps[self._newest] = (
            None if W is None else np.asarray(self._learner.scale(np.eye(len(W))) @ W, np.float32)
        )
        kept = {UNADAPTED, self._newest, self._gate.serving, self._gate.challenger}
        self._maps = {version: map_ for version, map_ in self._maps.items() if version in kept}

    def _mapped(self, version: Version, queries: Rows) -> Rows:
        map_ = self._maps[version]
        return queries if map_ is None else np.asarray(queries @ map_)

    def _change(self, version: Version) -> list[float]:
        for one in (UNADAPTED, version):
            if one not in self._measured:
                corpus = self._corpus
                again = corpus.ndcg_asked(self._mapped(one, corpus.asked[: len(corpus.tested)]))
                never = corpus.ndcg(self._mapped(one, corpus.tested))
                self._measured[one] = np.array([REPEATED * again + (1 - REPEATED) * never, again, never])
        found: list[float] = (self._measured[version] / self._measured[UNADAPTED] - 1).tolist()
        return found


def _timed(block: ClickBlock, sessions: Ranking) -> ClickBlock:
    """The same lists at the times of their sessions."""
    shown = START_MS + STEP_MS * sessions.astype(np.int64)
    row = block.clicked // SHOWN
    return replace(block, shown_at_ms=shown, click_ms=shown[row] + 1 + block.clicked % SHOWN)


HEADER: Final = (
    "corpus",
    "learner, users",
    "runs",
    "newest model, asked again / never asked",
    "served, asked again / never asked",
    "served, worst of all looks",
    "never asked, worst of all looks",
    "share of the gain",
    "promotions",
)


def row(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Cells of the table: means of the changes at the last look, and the worst at any."""
    served = np.array([one["served"] for one in found])
    gained, again, never = np.mean([one["newest"] for one in found], axis=0)
    whole, served_again, served_never = served[:, -1].mean(axis=0)
    return [
        str(len(found)),
        f"{again:+.1%} / {never:+.1%}",
        f"{served_again:+.1%} / {served_never:+.1%}",
        f"{served[:, :, 0].min():+.2%}",
        f"{served[:, :, 2].min():+.2%}",
        f"{whole / gained:.0%}" if gained > 0.01 else "-",
        f"{np.mean([one['promotions'] for one in found]):.1f}",
    ]
