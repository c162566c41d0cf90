"""Whether a robust loss, or weights by agreement, help a learner whose clicks are poisoned, and what they cost.

Corpora, users and sessions are those of the part `served` of `benchmarks.studies.gate`. What is printed is the change
of NDCG@10 of the newest model in the end against no adaptation, with and without a fifth of the sessions poisoned. The
cap on lists a day stops accounts that come often, and does nothing against as many accounts as bought sessions.

Example: python -m benchmarks.studies.robust_clicks corpus.npz --first-seed 78000 --results robust.jsonl
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.studies.gate.corpora import NAMES, opened
from benchmarks.studies.gate.people import Users
from benchmarks.studies.gate.runs import Kept, Run
from benchmarks.studies.gate.served import GOOD, Case, Live
from kinstream.gate.values import Options
from kinstream.learners.adapter.learner import TEMPERATURE, Adapter
from kinstream.learners.kernels import lists as kernels
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.records.values import ClickBlock, ConstraintBlock, ItemBlock


@dataclass(frozen=True, slots=True)
class Variant:
    """A defence.

    Parameters
    ----------
    exponent : q of the generalised cross entropy (Zhang and Sabuncu, NeurIPS 2018): the gradient of a click counts p^q.
    agreement : power of the share of a query's earlier lists with the item in which it was clicked, with one more list
        that has the share of all pairs; a weight is this power over its mean.
    lists_per_day : of one user that the builder uses; 0: all.
    """

    exponent: float = 0.0
    agreement: float = 0.0
    lists_per_day: int = 0


VARIANTS: Final[Mapping[str, Variant]] = {
    "none": Variant(),
    "loss, q = 0.3": Variant(exponent=0.3),
    "agreement": Variant(agreement=1.0),
    "ten lists a day of a user": Variant(lists_per_day=10),
}
USERS: Final[Mapping[str, Users]] = {"honest": Users(), "a fifth poisoned": Users(poisoned=0.2)}
#: Names of a variant and of users, by that of a run.
CASES: Final = {f"{defence}; {users}": (defence, users) for defence in VARIANTS for users in USERS}


class Robust(Adapter):
    """The learner with the loss."""

    def __init__(self, exponent: float) -> None:
        super().__init__()
        self._exponent = exponent

    def _learn_waiting(self) -> tuple[bool, bool]:
        links = int(self._tally[kernels.LINKS])
        if links and self._exponent:
            self._shares[:links] *= self._likely(links) ** self._exponent
        return super()._learn_waiting()

    def _likely(self, links: int) -> NDArray[np.float64]:
        """(links,) probabilities of the clicked items among those in memory, without the other clicks of the list."""
        used, waiting = int(self._tally[kernels.SLOTS]), int(self._tally[kernels.WAITING])
        query, slot = self._links[:links].T
        X, H = self._queries[:waiting], self._vectors[:used]
        X = X / np.sqrt((X * X).sum(axis=1, keepdims=True))
        logits = np.asarray(self._mapped_by(self._iterate, X) @ H.T, np.float64)[query] / TEMPERATURE
        clicked = np.zeros((waiting, used), np.bool_)
        clicked[query, slot] = True
        own = logits[np.arange(links), slot]
        logits[clicked[query]] = -np.inf
        top = np.maximum(logits.max(axis=1), own)
        mine = np.exp(own - top)
        return np.asarray(mine / (mine + np.exp(logits - top[:, None]).sum(axis=1)))


class RobustLive(Live):
    """A run with a variant."""

    def __init__(self, corpus: str, file: Path, users: Users, variant: Variant, seed: int) -> None:
        case = Case(GOOD, users, lists_per_day=variant.lists_per_day)
        super().__init__(opened(corpus, file), case, GOOD, seed, Options())
        self._learner, self._power = Robust(variant.exponent), variant.agreement
        #: Of a query and an item, by their vectors: lists in which it was clicked, and in which it was looked at.
        self._agreed: dict[tuple[bytes, bytes], tuple[int, int]] = {}
        #: The same of all pairs, with one click as a start.
        self._clicked, self._seen = 1, 1
        self._sum, self._number = 0.0, 0

    def _constraints(self, event: ItemBlock | ClickBlock, now: int) -> Iterator[ConstraintBlock]:
        for block in super()._constraints(event, now):
            yield self._weighed(block) if self._power else block

    def _weighed(self, block: ConstraintBlock) -> ConstraintBlock:
        names = [row.tobytes() for row in block.tables[0].vectors]
        weights = np.ones(len(block), np.float32)
        assert block.signs is not None
        for row, ((query, item), sign) in enumerate(
            zip(block.index.tolist(), block.signs.tolist(), strict=True)
        ):
            key = names[query], names[item]
            clicked, seen = self._agreed.get(key, (0, 0))
            self._agreed[key] = clicked + (sign > 0), seen + 1
            if sign > 0:
                agreed = (clicked + self._clicked / self._seen) / (seen + 1)
                self._sum, self._number = self._sum + agreed**self._power, self._number + 1
                weights[row] = agreed**self._power / (self._sum / self._number)
            self._clicked, self._seen = self._clicked + (sign > 0), self._seen + 1
        return replace(block, weights=weights)


def measured(run: Run, file: Path) -> dict[str, Any]:
    """The result of a run."""
    defence, users = CASES[run.case]
    with one_blas_thread():
        return RobustLive(run.corpus, file, USERS[users], VARIANTS[defence], run.seed).run()


def main() -> None:
    """Measure what is missing in the file of results, and print a row for each corpus and variant."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path, help="NPZ of the documentation; made where it is not there")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--results", type=Path, required=True, help="runs that have ended, as JSON lines")
    parser.add_argument("--processes", type=int, default=2)
    a = parser.parse_args()
    seeds = range(a.first_seed, a.first_seed + a.runs)
    kept = Kept(a.results, a.corpus, measured)
    runs = [Run("robust", corpus, case, seed) for corpus in NAMES for case in CASES for seed in seeds]
    kept.measure(runs, a.processes, float("inf"))
    print("| corpus | defence | runs | newest, honest | newest, a fifth poisoned | worst of these |")
    print("|---|---|---|---|---|---|")
    for corpus in NAMES:
        for defence in VARIANTS:
            honest, bad = (
                np.array(
                    [kept.found[Run("robust", corpus, f"{defence}; {users}", s)]["newest"] for s in seeds]
                )
                for users in USERS
            )
            cells = (str(a.runs), *(f"{one:+.1%}" for one in (honest.mean(), bad.mean(), bad.min())))
            print(f"| {corpus} | {defence} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
