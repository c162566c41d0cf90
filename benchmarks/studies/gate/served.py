"""What users are served while a learner learns from all their clicks and the gate decides which of its models serves.

A session asks a query and sees ten items. A share of the sessions gets drafted lists of the serving model and of the
challenger, or of the newest model while there is none; the others see the serving model. After every `EVERY` sessions
the learner has learned their clicks, through the builder `clicks`, and announces a model; services obey decisions then.
Ids, drafts, gate, builder and learners are Kinstream's own.
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
from kinstream.learners.registry import create
from kinstream.processors.clicks.clicks import Clicks
from kinstream.processors.shared.base import Origin
from kinstream.producers.simulated.searchers import Searches, catalogue, click_blocks
from kinstream.producers.simulated.settings import START_MS
from kinstream.search.gate.core import List, Options, SpaceGate
from kinstream.search.interleaving.impression import Keys, show
from kinstream.streams.records.gate import UNADAPTED, Version
from kinstream.streams.records.values import LIST_RULE, ClickBlock, ConstraintBlock, ItemBlock

SPACE: Final = "docs"
#: Sessions between two announced models, and milliseconds between two sessions: ten a minute.
EVERY, STEP_MS = 100, 6_000
#: Sessions of a run; the first look, and how many follow it.
SESSIONS, FIRST_LOOK, LOOKS = 20_000, 2_000, 20
SHARE: Final = 0.5


@dataclass(frozen=True, slots=True)
class Learning:
    """What learns: kind and settings of the learner, and the builder's rule."""

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    rule: str = LIST_RULE


GOOD: Final = Learning("adapter")
LOSING: Final = Learning(
    "oasis", {"aggressiveness": 0.3, "unit": "published", "dtype": "float32"}, "click-skip-above"
)


@dataclass(frozen=True, slots=True)
class Case:
    """A run: who learns, and who clicks."""

    learning: Learning
    users: Users = field(default_factory=Users)


CASES: Final[Mapping[str, Case]] = {
    "losing": Case(LOSING),
    "losing, a fifth poisoned": Case(LOSING, Users(poisoned=0.2)),
    "good": Case(GOOD),
    "losing, clicks by position alone": Case(LOSING, Users(random=True)),
    "good, clicks by position alone": Case(GOOD, Users(random=True)),
}


def measured(corpus: str, case: str, seed: int, file: Path, **options: Any) -> dict[str, Any]:
    """Changes of NDCG@10 against no adaptation, of what serves and of the newest model, at every look."""
    return Live(opened(corpus, file), CASES[case], seed, Options(**options)).run()


class Live:
    """One run."""

    def __init__(self, corpus: Corpus, case: Case, seed: int, options: Options, share: float = SHARE) -> None:
        self._corpus, self._case, self._share = corpus, case, share
        self._draw = np.random.default_rng([seed, 4])
        self._order = np.concatenate(
            [self._draw.permutation(len(corpus.asked)) for _ in range(-(-SESSIONS // len(corpus.asked)))]
        )
        self._keys = Keys(f"the secret of run {seed:08}")
        self._gate = SpaceGate(SPACE, self._keys, options)
        settings = dict(case.learning.settings)
        self._learner: Any = create(case.learning.kind, **settings)
        self._builder = Clicks(rules=(case.learning.rule,), seed=seed)
        self._offset = 0
        self._newest = UNADAPTED
        #: Those that serve, challenge or are newest.
        self._maps: dict[Version, NDArray[Any] | None] = {UNADAPTED: None}
        self._measured: dict[Version, float] = {}

    def run(self) -> dict[str, Any]:
        """All sessions, with a look at so many places."""
        at = np.linspace(FIRST_LOOK, SESSIONS, LOOKS).round(-2).astype(int).tolist()
        for block in catalogue(SPACE, np.asarray(self._corpus.items, np.float32)):
            self._learn(block, START_MS)
        served, newest = [], []
        for first in range(0, SESSIONS, EVERY):
            self._segment(first)
            if first + EVERY in at:
                served.append(self._change(self._gate.serving))
                newest.append(self._change(self._newest))
        decided = [(one["verdict"], one["impressions"], one["serving"]) for one in self._gate.decided]
        return {"served": served, "newest": newest, "decided": decided}

    def _segment(self, first: int) -> None:
        corpus, gate = self._corpus, self._gate
        serving, candidate = gate.serving, gate.challenger or self._newest
        asked = self._order[first : first + EVERY]
        own, other = (
            ranked(self._mapped(version, corpus.asked[asked]), corpus.items, DEPTH)
            for version in (serving, candidate)
        )
        lists = own[:, :SHOWN].copy()
        clicked = np.zeros(lists.shape, np.bool_)
        accounts = np.full(EVERY, -1, np.int64)
        drafted = (self._draw.random(EVERY) < self._share) & (candidate != serving)
        for n in range(EVERY):
            session = first + n
            now = START_MS + session * STEP_MS
            list_id = ""
            if drafted[n]:
                list_id = self._drafted(lists, n, (serving, own), (candidate, other), now, session)
            answers = corpus.answers(asked[n : n + 1], lists[n])
            only = ~np.isin(lists[n], own[n, :SHOWN])
            user, clicked[n] = self._case.users.clicks(answers, only, self._draw, session)
            if user.startswith("account"):
                accounts[n] = int(user.removeprefix("account "))
            if list_id:
                taken = tuple(str(item) for item in lists[n][clicked[n]])
                gate.take(List(list_id, taken, user, user), now)
        found = Searches(asked, lists, clicked, accounts)
        for block in click_blocks(SPACE, found, np.asarray(corpus.asked, np.float32), first=first):
            self._learn(_timed(block, first), START_MS + (first + EVERY) * STEP_MS)
        self._announce(first // EVERY + 1)

    def _drafted(
        self,
        lists: Ranking,
        n: int,
        serving: tuple[Version, Ranking],
        candidate: tuple[Version, Ranking],
        now: int,
        session: int,
    ) -> str:
        """Put the drafted list into its row, and return its id."""
        rankings = [
            (version, [str(item) for item in ranking[n]]) for version, ranking in (serving, candidate)
        ]
        shown = show(
            self._keys,
            SPACE,
            (rankings[0], rankings[1]),
            SHOWN,
            time_ms=now,
            nonce=session.to_bytes(6, "big"),
        )
        lists[n] = [int(item) for item in shown.items]
        return shown.list_id

    def _learn(self, event: ItemBlock | ClickBlock, now: int) -> None:
        for block in self._constraints(event, now):
            self._learner.learn(block)

    def _constraints(self, event: ItemBlock | ClickBlock, now: int) -> Iterator[ConstraintBlock]:
        yield from self._builder.process(event, Origin(offset=self._offset, append_ms=now)).blocks
        self._offset += 1

    def _announce(self, step: int) -> None:
        self._newest = Version(1, 0, step)
        # A learner that has seen nothing has no map.
        W = None if self._learner.W is None else np.array(self._learner.W)
        self._maps[self._newest] = (
            None if W is None else np.asarray(self._learner.scale(np.eye(len(W))) @ W, np.float32)
        )
        kept = {UNADAPTED, self._newest, self._gate.serving, self._gate.challenger}
        self._maps = {version: map_ for version, map_ in self._maps.items() if version in kept}

    def _mapped(self, version: Version, queries: Rows) -> Rows:
        map_ = self._maps[version]
        return queries if map_ is None else np.asarray(queries @ map_)

    def _change(self, version: Version) -> float:
        for one in (UNADAPTED, version):
            if one not in self._measured:
                self._measured[one] = self._corpus.ndcg(self._mapped(one, self._corpus.tested))
        return self._measured[version] / self._measured[UNADAPTED] - 1


def _timed(block: ClickBlock, first: int) -> ClickBlock:
    """The same lists, shown so many milliseconds apart."""
    shown = START_MS + STEP_MS * (first + np.arange(len(block.list_ids), dtype=np.int64))
    row = block.clicked // SHOWN
    return replace(block, shown_at_ms=shown, click_ms=shown[row] + 1 + block.clicked % SHOWN)


HEADER: Final = (
    "corpus",
    "learner, users",
    "runs",
    "newest model, mean",
    "served, mean",
    "served, worst of all looks",
    "share of the gain",
    "promotions",
)


def row(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Cells of the table: changes at the last look, and the worst at any."""
    served = np.array([one["served"] for one in found])
    newest = np.array([one["newest"] for one in found])
    gained = newest[:, -1].mean()
    promoted = [sum(verdict == "promote" for verdict, *_ in one["decided"]) for one in found]
    return [
        str(len(found)),
        f"{newest[:, -1].mean():+.1%}",
        f"{served[:, -1].mean():+.1%}",
        f"{served.min():+.2%}",
        f"{served[:, -1].mean() / gained:.0%}" if gained > 0.01 else "-",
        f"{np.mean(promoted):.1f}",
    ]
