"""What a user has without learning: errors of 5 neighbours on raw, scaled and min-max features, Euclidean and cosine.

The splits and the vote are those of the other studies, so these errors stand beside theirs. Scales come from the
training part.

Example: python -m benchmarks.studies.simple_metrics --sets wine balance --splits 10 --first-seed 2000
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.shared_sets import IMAGES, NAMES, SharedSet, Split, loaded, parts, scaled
from benchmarks.studies.never_worse import unlearned
from kinstream.streams.compute.blas_threads import one_blas_thread


def forms(data: SharedSet, seed: int) -> Iterator[tuple[str, Split]]:
    """One split with its features as they are, scaled as the other studies have them, and with a range of 0 to 1."""
    first, last = parts(data, seed)
    X, X_test = (data.X[rows].astype(np.float64) for rows in (first, last))
    least, width = X.min(axis=0), np.ptp(X, axis=0)
    width = np.where(width > 0.0, width, 1.0)
    tables: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {
        "raw": (X, X_test),
        "scaled": scaled(data.X[first], data.X[last], one_scale=data.name in IMAGES),
        "min-max": ((X - least) / width, (X_test - least) / width),
    }
    for name, (own, others) in tables.items():
        yield name, Split(own, data.y[first], others, data.y[last])


def errors(data: SharedSet, seed: int) -> dict[str, float]:
    """Errors by form and distance."""
    found = {}
    for form, part in forms(data, seed):
        found[form], found[f"{form} cosine"] = unlearned(part)
    return found


def main() -> None:
    """Print a row for each set: means over the splits."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=list(NAMES), choices=NAMES, metavar="SET")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    arguments = parser.parse_args()
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.splits)
    for data in loaded(tuple(arguments.sets)):
        if isinstance(data, str):
            print(f"{data}: its file is not there")
            continue
        with one_blas_thread():
            found = [errors(data, seed) for seed in seeds]
        means = {name: np.mean([one[name] for one in found]) for name in found[0]}
        print(f"{data.name}: " + ", ".join(f"{name} {mean:.3f}" for name, mean in means.items()), flush=True)


if __name__ == "__main__":
    main()
