"""Whether what is served of OAHU, the neighbours under its `transform`, errs as its vote does.

Both judge the same rows after one pass of random triplets, beside the better of Euclidean distance and cosine, with
the sets, splits and scaling of `benchmarks.studies.never_worse`. Results: `benchmarks/studies/oahu.md`.

Example: python -m benchmarks.studies.oahu_served --sets iris wine --splits 3
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks.shared_sets import NAMES, loaded, split
from benchmarks.studies.never_worse import K, error, trained, unlearned
from kinstream.learners.oahu.learner import OAHU
from kinstream.learners.oahu.votes import classify
from kinstream.streams.compute.blas_threads import one_blas_thread


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=NAMES)
    parser.add_argument("--triplets", type=int, default=10_000)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=930)
    a = parser.parse_args()
    print("| set | not learned | vote | served | served over vote |\n|---|---|---|---|---|")
    with one_blas_thread():
        for data in loaded(tuple(a.sets)):
            if isinstance(data, str):
                print(f"{data} is not in KINSTREAM_DATA")
                continue
            found = []
            for seed in range(a.first_seed, a.first_seed + a.splits):
                part, model = split(data, seed), OAHU(seed=seed)
                for _ in trained(model, part, seed, [a.triplets]):
                    pass
                near, asked = model.transform(part.X), model.transform(part.X_test)
                served = classify([1.0], [near], part.y, [asked], K)
                vote = model.classify(part.X, part.y, part.X_test, K)
                found.append([min(unlearned(part)), error(vote, part.y_test), error(served, part.y_test)])
            plain, voted, under = np.mean(found, axis=0)
            print(
                f"| {data.name} | {plain:.4f} | {voted:.4f} | {under:.4f} | {under / voted - 1.0:+.0%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
