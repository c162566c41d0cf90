"""Whether a learner, given features as they are, is worse than what a user has without it.

A user has Euclidean distance and cosine of the features as they are, z-scored and divided by their ranges. Each random
half is streamed in new orders through the one-pass builder and the learner until there are enough triplets; then the
other half, or 1,500 rows of it, is classified by its 5 nearest rows. The best of the six is that of the set: the one
with the least mean error. `--batch` adds LDA, and NCA and LMNN on at most 600 rows, behind a z-score. Trials are kept
in the file of `--results`, and the same command goes on where it was stopped.

Example: python -m benchmarks.studies.as_they_are --sets wine iris --splits 3
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.shared_sets import IMAGES, NAMES, SharedSet, load
from benchmarks.studies.never_worse import directions
from kinstream.learners.sklearn import MetricLearner
from kinstream.replay.evaluation.runner.batch import Fitted, fitted
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.errors import SettingsError

Rows = NDArray[np.floating[Any]]
Codes = NDArray[np.int64]
Map = Callable[[Rows], Rows]

LENGTHS: Final = (1_000, 5_000, 10_000)
SETS: Final = ("digits", *(name for name in NAMES if name != "emnist_balanced_part"))
#: Rows of a set with images, rows to test on, and rows that batch learners take.
IMAGE_ROWS: Final = 5_000
TEST_ROWS: Final = 1_500
BATCH_LEARNERS: Final = ("lda", "nca", "lmnn")
CHUNK: Final = 250
ALLOWED: Final = 0.005
LEVEL: Final = 0.05


def found(name: str) -> SharedSet | None:
    """A set by its name; None where its file is not there."""
    if name != "digits":
        return load(name)
    data = load_digits()
    return SharedSet(name, data.data, data.target.astype(np.int64))


def halves(data: SharedSet, seed: int) -> tuple[Codes, Codes]:
    """Rows to learn from and to test on."""
    order = np.random.default_rng([seed, 1_618]).permutation(len(data.y))
    if data.name in IMAGES:
        order = order[:IMAGE_ROWS]
    middle = (len(order) + 1) // 2
    return order[:middle], order[middle:][:TEST_ROWS]


def trial(
    data: SharedSet, seed: int, learner: str, settings: dict[str, Any], *, batch: bool
) -> dict[str, float]:
    """Errors of one split, by metric."""
    first, last = halves(data, seed)
    X, X_test = (data.X[rows].astype(np.float64) for rows in (first, last))
    y, y_test = data.y[first], data.y[last]

    def error(apply: Map) -> float:
        vote = KNeighborsClassifier(5).fit(apply(X), y)
        return float(np.mean(vote.predict(apply(X_test)) != y_test))

    errors = {name: error(apply) for name, apply in simple(X).items()}
    if batch:
        errors |= {name: error(apply) for name, apply in batch_learners(X, y, seed)}
    for length, model in learned(X, y, seed, learner, settings):
        errors[f"{learner} {length}"] = error(model.transform)
    return errors


def simple(X: Rows) -> dict[str, Map]:
    """What a user has without learning, by the statistics of X."""
    mean, deviation, least, reach = X.mean(axis=0), X.std(axis=0), X.min(axis=0), np.ptp(X, axis=0)
    deviation, reach = (np.where(one > 0.0, one, 1.0) for one in (deviation, reach))
    scalings: dict[str, Map] = {
        "raw": lambda Z: Z,
        "z": lambda Z: (Z - mean) / deviation,
        "min-max": lambda Z: (Z - least) / reach,
    }

    def turned(apply: Map) -> Map:
        return lambda Z: directions(apply(Z))

    return scalings | {f"{name} cosine": turned(apply) for name, apply in scalings.items()}


def batch_learners(X: Rows, y: Codes, seed: int) -> Iterator[tuple[str, Map]]:
    """LDA, NCA and LMNN behind a z-score, as `kinstream evaluate --batch` fits them."""
    scale = simple(X)["z"]
    for kind in BATCH_LEARNERS:
        try:
            model = fitted(kind, scale(X), y, seed)
        except SettingsError:
            continue

        def apply(Z: Rows, model: Fitted = model) -> Rows:
            return model.transform(scale(Z))

        yield kind, apply


def learned(
    X: Rows, y: Codes, seed: int, learner: str, settings: dict[str, Any]
) -> Iterator[tuple[int, MetricLearner]]:
    """The learner after each number of triplets."""
    draw = np.random.default_rng([seed, 2_236])
    model = MetricLearner(learner, seed=seed, block_rows=CHUNK, learner_settings=settings)
    waiting: list[int] = []
    for length in LENGTHS:
        while getattr(model, "n_constraints_", 0) < length:
            while len(waiting) < CHUNK:
                waiting += draw.permutation(len(y)).tolist()
            rows, waiting = waiting[:CHUNK], waiting[CHUNK:]
            model.partial_fit(X[rows], y[rows], classes=np.unique(y))
        yield length, model


def report(trials: Sequence[dict[str, Any]], learner: str) -> str:
    """A row for each set, and what is worse than the best of the six."""
    metrics = [name for name in trials[0]["errors"] if not name.startswith(learner)]
    lines = [
        "| set | splits | " + " | ".join([*metrics, *map(str, LENGTHS)]) + " |",
        "|---" * (len(metrics) + 5) + "|",
    ]
    cells = []
    for name in dict.fromkeys(one["set"] for one in trials):
        errors = [one["errors"] for one in trials if one["set"] == name]
        means = {key: float(np.mean([one[key] for one in errors])) for key in errors[0]}
        six = [key for key in simple(np.zeros((1, 1))) if key in means]
        best = min(six, key=lambda key: means[key])
        shown = [
            f"**{means[key]:.3f}**" if key == best else f"{means.get(key, np.nan):.3f}" for key in metrics
        ]
        for length in LENGTHS:
            gaps = np.array([one[f"{learner} {length}"] - one[best] for one in errors])
            spread = float(gaps.std(ddof=1) / np.sqrt(len(gaps))) if len(gaps) > 1 else np.nan
            worse = (
                1.0 if not gaps.any() else float(stats.ttest_1samp(gaps, 0.0, alternative="greater").pvalue)
            )
            cells.append((name, length, float(gaps.mean()), spread, worse))
            within = gaps.mean() <= max(spread, ALLOWED)
            shown.append(f"{means[f'{learner} {length}']:.3f}{'' if within else ' (!)'}")
        lines.append(f"| {name} | {len(errors)} | " + " | ".join(shown) + " |")
    beyond = [f"{n} at {t:,} ({gap:+.4f} ± {e:.4f})" for n, t, gap, e, _ in cells if gap > max(e, ALLOWED)]
    ordered = sorted(cells, key=lambda cell: cell[4])
    holm = []
    for rank, (n, t, gap, e, p) in enumerate(ordered):
        if p * (len(ordered) - rank) > LEVEL:
            break
        holm.append(f"{n} at {t:,} ({gap:+.4f} ± {e:.4f}, p {p:.2g})")
    lines += [
        "",
        f"worse than the best of the six by more than max(1 standard error, {ALLOWED}): {', '.join(beyond) or 'none'}",
        f"significantly worse at {LEVEL} after Holm's correction: {', '.join(holm) or 'none'}",
    ]
    return "\n".join(lines)


def main() -> None:
    """Run what is missing and print the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS, metavar="SET")
    parser.add_argument("--learner", default="mixture")
    parser.add_argument("--settings", type=json.loads, default={}, help="JSON")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--batch", action="store_true", help="LDA, NCA and LMNN too")
    parser.add_argument("--results", type=Path, help="a file of trials, a line each")
    a = parser.parse_args()
    done: list[dict[str, Any]] = []
    if a.results is not None and a.results.is_file():
        done = [json.loads(line) for line in a.results.read_text().splitlines()]
    known = {(one["set"], one["seed"]): one for one in done}
    trials = []
    for name in a.sets:
        data = found(name)
        if data is None:
            print(f"{name}: its file is not there")
            continue
        for seed in range(a.first_seed, a.first_seed + a.splits):
            one = known.get((name, seed))
            if one is None:
                with one_blas_thread():
                    one = {"set": name, "seed": seed}
                    one["errors"] = trial(data, seed, a.learner, a.settings, batch=a.batch)
                if a.results is not None:
                    with a.results.open("a") as file:
                        file.write(json.dumps(one) + "\n")
            trials.append(one)
        print(report([one for one in trials if one["set"] == name], a.learner).splitlines()[2], flush=True)
    if trials:
        print(report(trials, a.learner))


if __name__ == "__main__":
    main()
