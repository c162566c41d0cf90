"""OAHU in verification and in rankings of everything, and how many new rows a stream of triplets has.

Splits and triplets are those of `benchmarks.studies.never_worse`. Pairs and rankings go by the weighted sum of the
distances of all metrics, learned and un-learned; rows that no triplet has touched are verified against each other in
random pairs, and rank all rows that were learned from. Finished trials are kept in a file, and a run that was stopped
goes on.

Examples:

    python -m benchmarks.studies.oahu_rankings
    python -m benchmarks.studies.oahu_rankings --new-rows --sets breast glass
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.metrics import average_precision_score, roc_auc_score

from benchmarks.shared_sets import NAMES, SharedSet, Split, loaded, split, triplets
from benchmarks.studies.never_worse import BLOCK, RESULTS, directions, trained
from kinstream.learners.oahu.learner import OAHU
from kinstream.streams.compute.blas_threads import one_blas_thread

Rows = NDArray[np.floating[Any]]
Codes = NDArray[np.int64]
Values = NDArray[np.float64]

SETS: Final = ("waveform", "sensorless_2200", "leaves100")
#: Column of the table to the settings of OAHU; None for a metric that is not learned.
METRICS: Final[dict[str, dict[str, Any] | None]] = {
    "Euclid": None,
    "cosine": None,
    "default": {},
    "share .5": {"share": 0.5},
    "share 1": {"share": 1.0},
}
PAIRS: Final = 20_000
TRIPLETS: Final = 10_000
#: Rows at the top of a ranking of which the precision is taken.
TOP: Final = 10
#: Triplets after which rows that appear for the first time are counted.
WARM_UP: Final = 200
_PART: Final = 250


@dataclass(frozen=True, slots=True)
class Trial:
    """One metric on one split: area under the ROC curve of pairs, and of rankings mAP and precision of the top."""

    name: str
    seed: int
    metric: str
    auc: float
    map: float
    precision: float


def spaces(metric: str, part: Split, seed: int) -> tuple[Sequence[float], list[Rows], list[Rows]]:
    """Weights of what measures, and gallery and test rows under each."""
    settings = METRICS[metric]
    if settings is None:
        tables = (part.X, part.X_test)
        plain, asked = (directions(X) for X in tables) if metric == "cosine" else tables
        return [1.0], [plain], [asked]
    learner = OAHU(**({"seed": seed} | settings))
    for _ in trained(learner, part, seed, [TRIPLETS]):
        pass
    return list(learner.weights.values()), learner.embed(part.X), learner.embed(part.X_test)


def pairs(y: Codes, seed: int) -> tuple[Codes, Codes]:
    """Random pairs of two different rows."""
    draw = np.random.default_rng([seed, 1_618])
    left = draw.integers(0, len(y), PAIRS)
    return left, (left + draw.integers(1, len(y), PAIRS)) % len(y)


def trial(data: SharedSet, seed: int, metric: str) -> Trial:
    """Everything that is measured of one metric on one split."""
    part = split(data, seed)
    weights, gallery, queries = spaces(metric, part, seed)
    left, right = pairs(part.y_test, seed)
    apart = sum(w * np.linalg.norm(X[left] - X[right], axis=1) for w, X in zip(weights, queries, strict=True))
    auc = roc_auc_score(part.y_test[left] == part.y_test[right], -np.asarray(apart))
    means, tops = [], []
    for start in range(0, len(part.y_test), _PART):
        rows = slice(start, start + _PART)
        distances = sum(w * cdist(Q[rows], X) for w, Q, X in zip(weights, queries, gallery, strict=True))
        for own, row in zip(part.y_test[rows], np.asarray(distances), strict=True):
            relevant = part.y == own
            if relevant.any():
                means.append(average_precision_score(relevant, -row))
                tops.append(relevant[np.argsort(row, kind="stable")[:TOP]].mean())
    return Trial(data.name, seed, metric, float(auc), float(np.mean(means)), float(np.mean(tops)))


def new_rows(data: SharedSet, seed: int) -> tuple[int, int]:
    """Rows that are learned from, and those of them that no triplet shows before the warm-up is over."""
    y = split(data, seed).y
    rows = np.concatenate(list(triplets(y, seed, TRIPLETS, BLOCK)))
    early = np.unique(rows[:WARM_UP])
    return len(y), len(np.setdiff1d(rows, early))


def run(asked: argparse.Namespace) -> list[Trial]:
    """Every trial that was asked for, those of earlier runs included."""
    path: Path = asked.output
    path.parent.mkdir(parents=True, exist_ok=True)
    known = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            one = Trial(**json.loads(line))
            known[one.name, one.seed, one.metric] = one
    found = []
    for data in _at_hand(asked.sets):
        for metric in METRICS:
            for seed in range(asked.first_seed, asked.first_seed + asked.splits):
                key = (data.name, seed, metric)
                if key not in known:
                    known[key] = trial(data, seed, metric)
                    with path.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(asdict(known[key])) + "\n")
                found.append(known[key])
        print(f"{data.name} is done", file=sys.stderr)
    return found


def _at_hand(names: Sequence[str]) -> list[SharedSet]:
    found = []
    for data in loaded(tuple(names)):
        if isinstance(data, str):
            print(f"{data} is not there and is left out; set KINSTREAM_DATA to its folder", file=sys.stderr)
        else:
            found.append(data)
    return found


def report(done: Sequence[Trial]) -> str:
    """A row a set: AUC / mAP / precision of the top, by metric."""
    lines = ["| | " + " | ".join(METRICS) + " |", "|---" * (len(METRICS) + 1) + "|"]
    for name in dict.fromkeys(one.name for one in done):
        texts = []
        for metric in METRICS:
            own = [(t.auc, t.map, t.precision) for t in done if (t.name, t.metric) == (name, metric)]
            texts.append(" / ".join(f"{value:.3f}".removeprefix("0") for value in np.mean(own, axis=0)))
        lines.append(f"| {name} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=NAMES, metavar="SET")
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=300)
    parser.add_argument(
        "--new-rows",
        action="store_true",
        help=f"print instead how many rows appear first after {WARM_UP} of the triplets",
    )
    parser.add_argument("--output", type=Path, default=RESULTS / "oahu-rankings.jsonl")
    asked = parser.parse_args()
    with one_blas_thread():
        if asked.new_rows:
            for data in _at_hand(asked.sets):
                counts = [
                    new_rows(data, seed) for seed in range(asked.first_seed, asked.first_seed + asked.splits)
                ]
                learned, new = np.mean(counts, axis=0)
                print(f"{data.name}: of {learned:.0f} rows {new:.1f} appear first after {WARM_UP} triplets")
        elif done := run(asked):
            print(report(done))


if __name__ == "__main__":
    main()
