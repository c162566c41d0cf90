"""Whether a learner, given features as they are, is worse than what a user has without it.

A user has Euclidean distance and cosine of the features as they are, z-scored and divided by their ranges. Each random
half is streamed in new orders through the one-pass builder and the learner until there are enough triplets; then the
other half, or 1,500 rows of it, is classified by its 5 nearest rows. The best of the six is that of the set: the one
with the least mean error on the rows of the tests, so it is known only afterwards. "chosen" is what a user can do
instead: of the six, the one with the fewest mistakes of 5 neighbours among the rows to learn from, each without itself.
`--batch` adds LDA, and NCA and LMNN on at most 600 rows, behind a z-score, or those that are named. "plain" is what a
user would write in 40 lines, `benchmarks.studies.plain_nca` behind a z-score, after as many rows. Trials are kept in
the file of `--results`, and the same command goes on where it was stopped.

Example: python -m benchmarks.studies.as_they_are --sets wine iris --splits 3
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.shared_sets import IMAGES, NAMES, SharedSet, load
from benchmarks.studies import plain_nca
from benchmarks.studies.never_worse import directions
from kinstream.evaluation.experiment.contenders import BATCH_ROWS
from kinstream.evaluation.runner.batch import Fitted, fitted
from kinstream.learners.baselines.batch import fit_lmnn
from kinstream.learners.sklearn import MetricLearner
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.errors import SettingsError

Rows = NDArray[np.floating[Any]]
Codes = NDArray[np.int64]
Map = Callable[[Rows], Rows]

LENGTHS: Final = (1_000, 5_000, 10_000)
CHOSEN: Final = "chosen"
PLAIN: Final = "plain"
PACKAGED: Final = {"digits": load_digits, "breast_cancer": load_breast_cancer}
SETS: Final = (*PACKAGED, *(name for name in NAMES if name != "emnist_balanced_part"))
#: Rows of a set with images, rows to test on, and rows that batch learners take.
IMAGE_ROWS: Final = 5_000
TEST_ROWS: Final = 1_500
BATCH_LEARNERS: Final = ("lda", "nca", "lmnn")
CHUNK: Final = 250
ALLOWED: Final = 0.005
LEVEL: Final = 0.05


def found(name: str) -> SharedSet | None:
    """A set by its name; None where its file is not there."""
    if name not in PACKAGED:
        return load(name)
    data = PACKAGED[name]()
    return SharedSet(name, data.data, data.target.astype(np.int64))


def at_hand(names: Sequence[str]) -> Iterator[SharedSet]:
    """The sets whose files are there; the others are named."""
    for name in names:
        data = found(name)
        if data is None:
            print(f"{name}: its file is not there")
        else:
            yield data


def halves(data: SharedSet, seed: int) -> tuple[Codes, Codes]:
    """Rows to learn from and to test on."""
    order = np.random.default_rng([seed, 1_618]).permutation(len(data.y))
    if data.name in IMAGES:
        order = order[:IMAGE_ROWS]
    middle = (len(order) + 1) // 2
    return order[:middle], order[middle:][:TEST_ROWS]


def split(data: SharedSet, seed: int) -> tuple[Rows, Codes, Rows, Codes]:
    """Features and classes of the rows to learn from, and of those to test on."""
    first, last = halves(data, seed)
    X, X_test = (data.X[rows].astype(np.float64) for rows in (first, last))
    return X, data.y[first], X_test, data.y[last]


def vote_error(X: Rows, y: Codes, X_test: Rows | None, y_test: Codes) -> float:
    """Share of rows for which their 5 nearest of X vote wrong; None: of X itself, each row without itself."""
    return float(np.mean(KNeighborsClassifier(5).fit(X, y).predict(X_test) != y_test))


def trial(
    data: SharedSet, seed: int, learner: str, settings: dict[str, Any], batch: Sequence[str]
) -> dict[str, float]:
    """Errors of one split, by metric."""
    X, y, X_test, y_test = split(data, seed)

    def error(apply: Map) -> float:
        return vote_error(apply(X), y, apply(X_test), y_test)

    six = simple(X)
    errors = {name: error(apply) for name, apply in six.items()}
    errors[CHOSEN] = errors[min(six, key=lambda name: vote_error(six[name](X), y, None, y))]
    errors |= {name: error(apply) for name, apply in batch_learners(batch, X, y, seed)}
    errors |= {f"{PLAIN} {length}": error(apply) for length, apply in plainly_learned(X, y, seed)}
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


def lmnn(X: Rows, y: Codes, seed: int) -> Fitted:
    """LMNN with 3 target neighbours, of random rows whose classes have two of them or more."""
    rows = np.random.default_rng([seed, 3_141]).permutation(len(y))[:BATCH_ROWS]
    sizes = np.bincount(y[rows])
    rows = rows[sizes[y[rows]] > 1]
    return Fitted(fit_lmnn(X[rows], y[rows], n_neighbors=min(3, int(sizes[sizes > 1].min()) - 1)))


def batch_learners(kinds: Sequence[str], X: Rows, y: Codes, seed: int) -> Iterator[tuple[str, Map]]:
    """Batch learners behind a z-score, as `kinstream evaluate` fits them, and LMNN to as many rows as NCA."""
    scale = simple(X)["z"]
    for kind in kinds:
        try:
            model = lmnn(scale(X), y, seed) if kind == "lmnn" else fitted(kind, scale(X), y, seed)
        except SettingsError:
            continue

        def apply(Z: Rows, model: Fitted = model) -> Rows:
            return model.transform(scale(Z))

        yield kind, apply


def plainly_learned(X: Rows, y: Codes, seed: int) -> Iterator[tuple[int, Map]]:
    """What a user would write, after each number of rows."""
    scale = simple(X)["z"]
    found = plain_nca.maps(scale(X), y, np.random.default_rng([seed, 2_236]), LENGTHS)
    for length, W in zip(LENGTHS, found, strict=True):

        def apply(Z: Rows, W: Rows = W) -> Rows:
            return scale(Z) @ W.T

        yield length, apply


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
    """A row for each set, and what is worse than the best of the six, and than the one that was chosen."""
    metrics = [name for name in trials[0]["errors"] if not name.startswith(learner)]
    lines = [
        "| set | splits | " + " | ".join([*metrics, *map(str, LENGTHS)]) + " |",
        "|---" * (len(metrics) + 5) + "|",
    ]
    to_best, to_chosen, to_plain = [], [], []
    for name in dict.fromkeys(one["set"] for one in trials):
        errors = [one["errors"] for one in trials if one["set"] == name]
        means = {key: float(np.mean([one[key] for one in errors])) for key in errors[0]}
        best = min(simple(np.zeros((1, 1))), key=lambda key: means[key])
        shown = [
            f"**{means[key]:.3f}**" if key == best else f"{means.get(key, np.nan):.3f}" for key in metrics
        ]
        for length in LENGTHS:
            to_best.append(gap_to(best, name, length, errors, learner))
            to_chosen.append(gap_to(CHOSEN, name, length, errors, learner))
            if f"{PLAIN} {length}" in means:
                to_plain.append(gap_to(f"{PLAIN} {length}", name, length, errors, learner))
            shown.append(f"{means[f'{learner} {length}']:.3f}{' (!)' if to_best[-1].beyond else ''}")
        lines.append(f"| {name} | {len(errors)} | " + " | ".join(shown) + " |")
    lines += ["", *verdicts("the best of the six", to_best), *verdicts("the one that was chosen", to_chosen)]
    lines += verdicts("the plain one", to_plain)
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Gap:
    """How much worse the learner is than something else: mean, standard error, one-sided p value."""

    where: str
    mean: float
    error: float
    p: float

    @property
    def beyond(self) -> bool:
        # Of one split there is no error, and the number is nan.
        return self.mean > float(np.fmax(self.error, ALLOWED))

    def __str__(self) -> str:
        return f"{self.where} ({self.mean:+.4f} ± {self.error:.4f}, p {self.p:.2g})"


def gap_to(other: str, name: str, length: int, errors: Sequence[dict[str, float]], learner: str) -> Gap:
    """By the errors of all splits of a set."""
    gaps = np.array([one[f"{learner} {length}"] - one[other] for one in errors])
    spread = float(gaps.std(ddof=1) / np.sqrt(len(gaps))) if len(gaps) > 1 else np.nan
    test = stats.ttest_1samp(gaps, 0.0, alternative="greater") if gaps.any() and len(gaps) > 1 else None
    p = 1.0 if test is None else float(test.pvalue)
    return Gap(f"{name} at {length:,}", float(gaps.mean()), spread, p)


def verdicts(other: str, gaps: Sequence[Gap]) -> list[str]:
    """Where the learner is worse than something else by more than is allowed, and where significantly."""
    beyond = [str(gap) for gap in gaps if gap.beyond]
    holm: list[str] = []
    for gap in sorted(gaps, key=lambda gap: gap.p):
        if gap.p * (len(gaps) - len(holm)) > LEVEL:
            break
        holm.append(str(gap))
    return [
        f"worse than {other} by more than max(1 standard error, {ALLOWED}): {', '.join(beyond) or 'none'}",
        f"significantly worse at {LEVEL} after Holm's correction: {', '.join(holm) or 'none'}",
    ]


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
    parser.add_argument("--batch", nargs="*", choices=BATCH_LEARNERS, help="batch learners, or those named")
    parser.add_argument("--results", type=Path, help="a file of trials, a line each")
    a = parser.parse_args()
    done: list[dict[str, Any]] = []
    if a.results is not None and a.results.is_file():
        done = [json.loads(line) for line in a.results.read_text().splitlines()]
    batch = () if a.batch is None else tuple(a.batch) or BATCH_LEARNERS
    known = {(one["set"], one["seed"]): one for one in done}
    trials = []
    for data in at_hand(a.sets):
        for seed in range(a.first_seed, a.first_seed + a.splits):
            one = known.get((data.name, seed))
            if one is None:
                with one_blas_thread():
                    one = {"set": data.name, "seed": seed}
                    one["errors"] = trial(data, seed, a.learner, a.settings, batch)
                if a.results is not None:
                    with a.results.open("a") as file:
                        file.write(json.dumps(one) + "\n")
            trials.append(one)
        print(
            report([one for one in trials if one["set"] == data.name], a.learner).splitlines()[2], flush=True
        )
    if trials:
        print(report(trials, a.learner))


if __name__ == "__main__":
    main()
