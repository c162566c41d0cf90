"""Whether the portfolio, with one setting for all data sets, is ever worse than not learning: online and held out.

Online: its mistakes on T random triplets are at most those of the best un-learned metric in it, and sqrt(T ln N / 2) of
N members, and one standard error over the splits. Held out: the error of 5-NN under the metric that it exports, by the
rule of benchmarks/studies/never_worse.py. Finished trials are kept; the same command goes on where it was stopped.

Example: python -m benchmarks.studies.portfolio --sets iris wine --splits 3
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.shared_sets import NAMES, SharedSet, Split, loaded, split, triplets
from benchmarks.studies import never_worse
from benchmarks.studies.never_worse import (
    ALLOWED,
    BLOCK,
    LEVEL,
    RESULTS,
    Cell,
    K,
    directions,
    error,
    unlearned,
)
from kinstream.learners.kernels.ensembles.portfolio import POWER
from kinstream.learners.oahu.votes import classify
from kinstream.learners.portfolio.hubs import FIRST, NEIGHBOURS, SAMPLED, STRENGTH
from kinstream.learners.portfolio.learner import Portfolio
from kinstream.learners.portfolio.members import UNLEARNED, USUAL
from kinstream.learners.portfolio.views import POWER as VIEWS_POWER
from kinstream.streams.compute.blas_threads import one_blas_thread

Rows = NDArray[np.floating[Any]]
Codes = NDArray[np.int64]

LENGTHS: Final = (500, 1_000, 2_000, 5_000, 10_000)
#: Splits of a set, and answers that all splits of one with fewer numbers than `FEW` make together: a row of iris's test
#: half is .013 of the error.
SPLITS: Final = 10
ANSWERS: Final = 20_000
FEW: Final = 10_000


@dataclass(frozen=True, slots=True)
class Trial:
    """One split after so many triplets.

    Parameters
    ----------
    euclidean, cosine, learner : errors of 5-NN.
    utilised : share of triplets that changed a member, of those that are not one vector three times.
    members : N, un-learned metrics included.
    mistakes : online, of the portfolio.
    unlearned : online mistakes of each of `UNLEARNED`.
    """

    name: str
    seed: int
    inner: bool
    triplets: int
    euclidean: float
    cosine: float
    learner: float
    utilised: float
    members: int
    mistakes: int
    unlearned: tuple[int, ...]

    def held_out(self) -> never_worse.Trial:
        """What the rule of benchmarks/studies/never_worse.py looks at."""
        own = never_worse.Trial.__dataclass_fields__
        return never_worse.Trial(**{name: getattr(self, name) for name in own})


@dataclass(frozen=True, slots=True)
class Online:
    """Online mistakes on a set at one number of triplets, means over the splits.

    Parameters
    ----------
    best : name of the un-learned metric with the fewest.
    difference, error : mistakes of the portfolio less those of the best, and its standard error.
    slack : sqrt(T ln N / 2).
    """

    name: str
    triplets: int
    splits: int
    best: str
    unlearned: float
    mistakes: float
    difference: float
    error: float
    slack: float

    @property
    def within(self) -> bool:
        return self.difference <= self.slack + self.error


def trials(
    data: SharedSet, seed: int, lengths: Sequence[int], settings: dict[str, Any], *, inner: bool = False
) -> Iterator[Trial]:
    """One split of one set in one pass, at every number of triplets."""
    part = split(data, seed, inner=inner)
    plain, cosine = unlearned(part)
    learner = Portfolio(**({"seed": seed} | settings))
    rows = np.concatenate(list(triplets(part.y, seed, max(lengths), BLOCK)))
    mistakes, used, possible = 0, 0, 0
    for begin, stop in pairwise(sorted({0, *lengths, *range(0, max(lengths), BLOCK)})):
        x, near, far = (part.X[rows[begin:stop, s]] for s in range(3))
        counts = learner.learn_triplets(x, near, far).counts()
        mistakes, used = mistakes + counts.mistakes, used + counts.utilised
        possible += int(np.any((x != near) | (x != far), axis=1).sum())
        if stop not in lengths:
            continue
        yield Trial(
            data.name,
            seed,
            inner,
            stop,
            plain,
            cosine,
            error(voted(learner, part), part.y_test),
            used / possible,
            len(learner.weights),
            mistakes,
            ranked_wrong(learner, part, rows[:stop]),
        )


def voted(learner: Portfolio, part: Split) -> Codes:
    """Classes of the test rows, by the one metric and the vote that the un-learned ones have."""
    gallery, queries = learner.transform(part.X), learner.transform(part.X_test)
    return classify([1.0], [gallery], part.y, [queries], K)


def ranked_wrong(learner: Portfolio, part: Split, rows: Codes) -> tuple[int, ...]:
    """How many triplets each un-learned metric of the portfolio ranks wrong; a tie is wrong."""
    Z = np.asarray(learner.scale(part.X), np.float64)
    found = []
    for table in (Z, directions(Z)):
        near, far = (np.square(table[rows[:, 0]] - table[rows[:, side]]).sum(axis=1) for side in (1, 2))
        found.append(int(np.count_nonzero(near >= far)))
    return tuple(found)


def online(done: Sequence[Trial]) -> list[Online]:
    """Trials by set and number of triplets."""
    groups: dict[tuple[str, int], list[Trial]] = {}
    for trial in done:
        groups.setdefault((trial.name, trial.triplets), []).append(trial)
    rows = []
    for (name, length), group in groups.items():
        others = np.array([trial.unlearned for trial in group], np.float64)
        own = np.array([trial.mistakes for trial in group], np.float64)
        best = int(others.mean(axis=0).argmin())
        gaps, n = own - others[:, best], len(group)
        spread = float(gaps.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
        slack = float(np.sqrt(length * np.log(group[0].members) / 2.0))
        means = (float(others[:, best].mean()), float(own.mean()), float(gaps.mean()))
        rows.append(Online(name, length, n, UNLEARNED[best], *means, spread, slack))
    return rows


def report(held: Sequence[Cell], counted: Sequence[Online]) -> str:
    """Both tables in one, and what they say to each promise."""
    lines = [
        "| set | triplets | Euclid | cosine | portfolio | difference | p worse | p better | best un-learned, mistakes "
        "| portfolio | allowed |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for c, o in zip(held, counted, strict=True):
        lines.append(
            f"| {c.name} | {c.triplets:,} | {c.euclidean:.3f} | {c.cosine:.3f} | {c.learner:.3f} "
            f"| {c.difference:+.4f}{'' if c.within else ' (!)'} ± {c.error:.4f} | {c.worse:.2g} | {c.better:.2g} "
            f"| {o.best} {o.unlearned:,.0f} | {o.mistakes:,.0f}{'' if o.within else ' (!)'} "
            f"| {o.unlearned + o.slack + o.error:,.0f} |"
        )
    lines += [
        "",
        _verdict(
            "online mistakes at most those of the best un-learned metric + sqrt(T ln N / 2) + 1 standard error",
            [f"{o.name} at {o.triplets:,}" for o in counted if not o.within],
        ),
        _verdict(
            f"mean loss of held-out error at most max(1 standard error, {ALLOWED})",
            [f"{c.name} at {c.triplets:,}" for c in held if not c.within],
        ),
        _verdict(
            f"no cell significantly worse at {LEVEL} after Holm",
            [f"{c.name} at {c.triplets:,}" for c in held if c.worse < LEVEL],
        ),
    ]
    for length in sorted({c.triplets for c in held}):
        there = [c for c in held if c.triplets == length]
        won, clear = sum(c.won for c in there), sum(c.better < LEVEL for c in there)
        lines.append(
            f"better at {length:,} by the paired t-test: {won} of {len(there)} sets; after Holm {clear}"
        )
    return "\n".join(lines)


def _verdict(promise: str, exceptions: list[str]) -> str:
    return f"{promise}: " + ("does not hold: " + ", ".join(exceptions) if exceptions else "holds")


def saved(path: Path) -> list[Trial]:
    """Trials that an earlier run has finished."""
    if not path.exists():
        return []
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [Trial(**{**one, "unlearned": tuple(one["unlearned"])}) for one in found]


def run(arguments: argparse.Namespace) -> list[Trial]:
    """Every trial that was asked for, those of earlier runs included."""
    settings: dict[str, Any] = json.loads(arguments.settings)
    lengths = sorted(set(arguments.triplets))
    # Defaults belong to the key: when they change, nothing of an earlier run counts.
    key = json.dumps(
        [
            settings,
            USUAL,
            FIRST,
            NEIGHBOURS,
            SAMPLED,
            STRENGTH,
            POWER,
            VIEWS_POWER,
            str(inspect.signature(Portfolio)),
        ],
        sort_keys=True,
    )
    path = arguments.output or RESULTS / f"portfolio-{hashlib.sha256(key.encode()).hexdigest()[:8]}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    known = {(t.name, t.seed, t.triplets): t for t in saved(path) if t.inner == arguments.inner}
    found = []
    for data in loaded(tuple(arguments.sets)):
        if isinstance(data, str):
            print(f"{data} is not there and is left out; set KINSTREAM_DATA to its folder", file=sys.stderr)
            continue
        seeds = range(arguments.first_seed, arguments.first_seed + (arguments.splits or splits(data)))
        for seed in seeds:
            if all((data.name, seed, m) in known for m in lengths):
                continue
            for trial in trials(data, seed, lengths, settings, inner=arguments.inner):
                known[trial.name, trial.seed, trial.triplets] = trial
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(trial)) + "\n")
        found += [known[data.name, seed, m] for m in lengths for seed in seeds]
        print(f"{data.name} is done", file=sys.stderr)
    return found


def splits(data: SharedSet) -> int:
    """How many splits tell something: more where a split is quick and small."""
    return ceil(ANSWERS / len(split(data, 0).y_test)) if data.X.size < FEW else SPLITS


def main() -> None:
    """Measure what is missing, and print the table and the verdicts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=list(NAMES), choices=NAMES, metavar="SET")
    parser.add_argument("--triplets", nargs="+", type=int, default=list(LENGTHS))
    parser.add_argument(
        "--splits",
        type=int,
        help=f"of each set. [default: {SPLITS}; of sets below {FEW:,} numbers what {ANSWERS:,} answers take]",
    )
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--settings", default="{}", help="of the portfolio, as JSON")
    parser.add_argument(
        "--inner", action="store_true", help="split training parts; for the choice of settings"
    )
    parser.add_argument("--output", type=Path, help="file of finished trials. [default: by the settings]")
    arguments = parser.parse_args()
    with one_blas_thread():
        done = run(arguments)
    if done:
        print(report(never_worse.cells([trial.held_out() for trial in done]), online(done)))


if __name__ == "__main__":
    main()
