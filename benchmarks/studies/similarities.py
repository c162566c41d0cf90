"""Whether learners of a similarity rank better by it or by their distance, beside not learning.

Each learner at its defaults takes one pass of random triplets; then the 5 items of the largest similarity vote, or the
5 nearest under `transform`. Sets and splits are those of `benchmarks.studies.never_worse`: z-scored tables. "Of
directions" divides the similarity by the item's length. Results: `benchmarks/studies/as_they_are.md`.

Example: python -m benchmarks.studies.similarities --sets wine --splits 2
"""

from __future__ import annotations

import argparse
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.shared_sets import TABLES, Split, loaded, split, triplets
from benchmarks.studies.never_worse import BLOCK, K, error, unlearned
from kinstream.learners.oahu.votes import classify
from kinstream.learners.registry import create
from kinstream.streams.compute.blas_threads import one_blas_thread

Numbers = NDArray[np.float64]

KINDS: Final = ("oasis", "sors", "adasors", "soml-tg", "soml-da")
SETS: Final = tuple(
    name for name in TABLES if name in ("wine", "balance", "waveform", "sensorless_2200", "mfeat")
)


def measured(part: Split, kind: str, seed: int, number: int) -> list[float]:
    """Errors by similarity, by similarity of directions, and by distance."""
    model: Any = create(kind)
    for rows in triplets(part.y, seed, number, BLOCK):
        model.learn_triplets(*(part.X[rows[:, side]] for side in range(3)))
    similar = model.similarities(part.X_test, part.X)
    lengths = np.linalg.norm(model.scale(part.X), axis=1)
    found = [error(_voted(similar, part), part.y_test)]
    found.append(error(_voted(similar / np.where(lengths > 0.0, lengths, 1.0), part), part.y_test))
    near, asked = model.transform(part.X), model.transform(part.X_test)
    return [*found, error(classify([1.0], [near], part.y, [asked], K), part.y_test)]


def _voted(similar: Numbers, part: Split) -> NDArray[np.int64]:
    best = np.argpartition(-similar, K, axis=1)[:, :K]
    return np.array([np.bincount(row).argmax() for row in part.y[best]])


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--triplets", type=int, default=10_000)
    parser.add_argument("--splits", type=int, default=2)
    a = parser.parse_args()
    print(
        "| set | not learned | learner | similarity | of directions | distance |\n|---|---|---|---|---|---|"
    )
    with one_blas_thread():
        for data in loaded(tuple(a.sets)):
            if isinstance(data, str):
                print(f"{data} is not in KINSTREAM_DATA")
                continue
            parts = [split(data, seed) for seed in range(a.splits)]
            plain = float(np.mean([min(unlearned(part)) for part in parts]))
            for kind in KINDS:
                errors = [measured(part, kind, seed, a.triplets) for seed, part in enumerate(parts)]
                cells = " | ".join(f"{one:.3f}" for one in np.mean(errors, axis=0))
                print(f"| {data.name} | {plain:.3f} | {kind} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
