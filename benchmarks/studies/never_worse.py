"""Whether OAHU, with one setting for all data sets, is ever worse than not learning.

Not learning is 5-NN by Euclidean or by cosine distance on the same scaled vectors, whichever errs less on a set, with
the vote that OAHU has. Triplets are uniform random ones of the training part; each of them is seen once.

Example: python -m benchmarks.studies.never_worse --sets iris wine --splits 3
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from benchmarks.shared_sets import NAMES, SharedSet, Split, loaded, split, triplets
from kinstream.evaluation.runner.statistics import holm
from kinstream.learners.oahu.learner import OAHU
from kinstream.learners.oahu.variants import VARIANTS, varied
from kinstream.learners.oahu.votes import classify
from kinstream.streams.compute.blas_threads import one_blas_thread

Rows = NDArray[np.floating[Any]]
Codes = NDArray[np.int64]

RESULTS: Final = Path(__file__).parents[1] / "results"
K: Final = 5
BLOCK: Final = 256
#: A mean loss that counts as none, whatever its standard error.
ALLOWED: Final = 0.005
LEVEL: Final = 0.05


@dataclass(frozen=True, slots=True)
class Trial:
    """One split after so many triplets.

    Parameters
    ----------
    euclidean, cosine, learner : errors of 5-NN.
    utilised : share of triplets that changed the learner, of those that are not one vector three times.
    """

    name: str
    seed: int
    inner: bool
    triplets: int
    euclidean: float
    cosine: float
    learner: float
    utilised: float


@dataclass(frozen=True, slots=True)
class Cell:
    """All splits of a set at one number of triplets, the learner against the better of both metrics.

    Parameters
    ----------
    worse, better : one-sided p of the paired t-test, after Holm's correction.
    alone : two-sided p of the paired t-test of this cell.
    """

    name: str
    triplets: int
    splits: int
    euclidean: float
    cosine: float
    learner: float
    difference: float
    error: float
    worse: float
    better: float
    alone: float
    utilised: float

    @property
    def within(self) -> bool:
        """No loss on average but what chance, or next to nothing, explains."""
        return self.difference <= max(self.error, ALLOWED)

    @property
    def won(self) -> bool:
        """A win as tables of the field mark it: less error, by the paired t-test of this cell."""
        return self.difference < 0.0 and self.alone < LEVEL


def directions(X: Rows) -> Rows:
    """Rows of length 1; zeros stay."""
    length = np.linalg.norm(X, axis=1, keepdims=True)
    return np.asarray(X / np.where(length > 0.0, length, 1.0))


def unlearned(part: Split) -> tuple[float, float]:
    """Errors of 5-NN by Euclidean and by cosine distance."""
    tables = [(part.X, part.X_test), (directions(part.X), directions(part.X_test))]
    plain, cosine = (
        error(classify([1.0], [gallery], part.y, [queries], K), part.y_test) for gallery, queries in tables
    )
    return plain, cosine


def error(found: Codes, y: Codes) -> float:
    """Share of rows that are of another class."""
    return float(np.mean(found != y))


def trained(learner: OAHU, part: Split, seed: int, lengths: Sequence[int]) -> Iterator[tuple[int, float]]:
    """One pass over random triplets; stops at every length, with the share of triplets that changed the learner."""
    used, seen = np.zeros(2, np.int64), 0
    for rows in triplets(part.y, seed, max(lengths), BLOCK):
        begin = 0
        for stop in [at - seen for at in sorted(lengths) if seen < at <= seen + len(rows)]:
            used += _learn(learner, part, rows[begin:stop])
            begin = stop
            yield seen + stop, float(used[0] / used[1])
        used += _learn(learner, part, rows[begin:])
        seen += len(rows)


def _learn(learner: OAHU, part: Split, rows: Codes) -> tuple[int, int]:
    """How many triplets changed the learner, and how many could: those that are not one vector three times."""
    if not len(rows):
        return 0, 0
    x, near, far = (part.X[rows[:, s]] for s in range(3))
    possible = np.any((x != near) | (x != far), axis=1)
    return learner.learn_triplets(x, near, far).counts().utilised, int(possible.sum())


def trials(
    data: SharedSet, seed: int, lengths: Sequence[int], settings: dict[str, Any], *, inner: bool = False
) -> Iterator[Trial]:
    """One split of one set, at every number of triplets."""
    part = split(data, seed, inner=inner)
    euclidean, cosine = unlearned(part)
    learner = learner_of({"seed": seed} | settings)
    for length, utilised in trained(learner, part, seed, lengths):
        found = error(learner.classify(part.X, part.y, part.X_test, K), part.y_test)
        yield Trial(data.name, seed, inner, length, euclidean, cosine, found, utilised)


def cells(done: Sequence[Trial]) -> list[Cell]:
    """Trials by set and number of triplets."""
    groups: dict[tuple[str, int], list[Trial]] = {}
    for trial in done:
        groups.setdefault((trial.name, trial.triplets), []).append(trial)
    rows = []
    for (name, length), group in groups.items():
        euclidean, cosine, learner = (
            np.array([getattr(trial, field) for trial in group])
            for field in ("euclidean", "cosine", "learner")
        )
        gaps = learner - (euclidean if euclidean.mean() <= cosine.mean() else cosine)
        n = len(gaps)
        spread = float(gaps.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
        mean = float(gaps.mean())
        above = float(student.sf(mean / spread, n - 1)) if spread > 0.0 else 0.5 - 0.5 * np.sign(mean)
        used = min(trial.utilised for trial in group)
        means = (float(euclidean.mean()), float(cosine.mean()), float(learner.mean()))
        rows.append((name, length, n, *means, mean, spread, above, used))
    worse = holm(np.array([row[8] for row in rows]))
    better = holm(1.0 - np.array([row[8] for row in rows]))
    return [
        Cell(
            *row[:8],
            worse=float(w),
            better=float(b),
            alone=2.0 * min(row[8], 1.0 - row[8]),
            utilised=row[9],
        )
        for row, w, b in zip(rows, worse, better, strict=True)
    ]


def report(found: Sequence[Cell]) -> str:
    """A table, and what it says to each promise."""
    lines = [
        "| set | triplets | splits | Euclid | cosine | OAHU | difference | std. error | p worse | p better |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for c in found:
        mark = "" if c.within else " (!)"
        lines.append(
            f"| {c.name} | {c.triplets:,} | {c.splits} | {c.euclidean:.3f} | {c.cosine:.3f} | {c.learner:.3f} "
            f"| {c.difference:+.4f}{mark} | {c.error:.4f} | {c.worse:.2g} | {c.better:.2g} |"
        )
    beyond = [f"{c.name} at {c.triplets:,}" for c in found if not c.within]
    worse = [f"{c.name} at {c.triplets:,}" for c in found if c.worse < LEVEL]
    lines += [
        "",
        f"mean loss at most max(1 standard error, {ALLOWED}): {_verdict(beyond)}",
        f"no cell significantly worse at {LEVEL} after Holm: {_verdict(worse)}",
    ]
    for length in sorted({c.triplets for c in found}):
        there = [c for c in found if c.triplets == length]
        won, held = [c for c in there if c.won], [c for c in there if c.better < LEVEL]
        words = "holds" if 2 * len(won) >= len(there) else "does not hold"
        lines.append(
            f"clear gain (paired t-test, {LEVEL}) on at least half of the sets at {length:,}: {words}, on "
            f"{len(won)} of {len(there)}; after Holm's correction over all cells {len(held)}"
        )
    short = [f"{c.name} at {c.triplets:,} ({c.utilised:.5f})" for c in found if c.utilised < 1.0]
    lines.append(f"every triplet changed the learner: {_verdict(short)}")
    return "\n".join(lines)


def _verdict(exceptions: list[str]) -> str:
    return "does not hold: " + ", ".join(exceptions) if exceptions else "holds"


def learner_of(settings: dict[str, Any]) -> OAHU:
    """OAHU; settings that it does not have are values of its variant."""
    own = inspect.signature(OAHU).parameters
    given = {name: value for name, value in settings.items() if name in own}
    changes = {name: value for name, value in settings.items() if name not in own}
    if "anchors" in changes:
        changes["anchors"] = tuple(changes["anchors"])
    return OAHU(**given | {"variant": varied(given.get("variant", "anchored"), **changes)})


def trials_file(folder: Path, settings: dict[str, Any]) -> Path:
    """Where the finished trials of these settings are kept."""
    # Defaults belong to the key: when they change, nothing of an earlier run counts.
    defaults = f"{VARIANTS} {inspect.signature(OAHU)}"
    key = hashlib.sha256((json.dumps(settings, sort_keys=True) + defaults).encode()).hexdigest()[:8]
    return folder / f"never-worse-{key}.jsonl"


def saved(path: Path) -> list[Trial]:
    """Trials that an earlier run has finished."""
    if not path.exists():
        return []
    return [Trial(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def run(arguments: argparse.Namespace) -> list[Trial]:
    """Every trial that was asked for, those of earlier runs included."""
    settings: dict[str, Any] = json.loads(arguments.settings)
    lengths = sorted(set(arguments.triplets))
    path = arguments.output or trials_file(RESULTS, settings)
    path.parent.mkdir(parents=True, exist_ok=True)
    asked = [
        (name, arguments.first_seed + i, m)
        for name in arguments.sets
        for i in range(arguments.splits)
        for m in lengths
    ]
    known = {(t.name, t.seed, t.triplets): t for t in saved(path) if t.inner == arguments.inner}
    for data in loaded(tuple(arguments.sets)):
        if isinstance(data, str):
            print(f"{data} is not there and is left out; set KINSTREAM_DATA to its folder", file=sys.stderr)
            continue
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.splits):
            missing = [m for m in lengths if (data.name, seed, m) not in known]
            if not missing:
                continue
            for trial in trials(data, seed, missing, settings, inner=arguments.inner):
                known[trial.name, trial.seed, trial.triplets] = trial
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(trial)) + "\n")
        print(f"{data.name} is done", file=sys.stderr)
    return [known[key] for key in asked if key in known]


def main() -> None:
    """Measure what is missing, and print the table and the verdicts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=list(NAMES), choices=NAMES, metavar="SET")
    parser.add_argument("--triplets", nargs="+", type=int, default=[1_000, 10_000])
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--settings", default="{}", help="of OAHU and of its variant, as JSON")
    parser.add_argument(
        "--inner", action="store_true", help="split training parts; for the choice of settings"
    )
    parser.add_argument("--output", type=Path, help="file of finished trials. [default: by the settings]")
    arguments = parser.parse_args()
    with one_blas_thread():
        done = run(arguments)
    if done:
        print(report(cells(done)))


if __name__ == "__main__":
    main()
