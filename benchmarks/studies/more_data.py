"""Whether more rows make a learner better: errors on mnist after 1,000 to 50,000 fresh rows, each streamed once.

The 5 nearest of 5,000 rows that are never streamed classify 2,000 others, under the metric of that moment.

Example: python -m benchmarks.studies.more_data --seeds 3
"""

from __future__ import annotations

import argparse
import json
from time import perf_counter
from typing import Final

import numpy as np
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.shared_sets import load
from kinstream.learners.sklearn import MetricLearner

ROWS: Final = (1_000, 5_000, 10_000, 20_000, 50_000)
GALLERY: Final = 5_000
TEST: Final = 2_000
CHUNK: Final = 250


def main() -> None:
    """Print a line for each number of rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--learner", default="mixture")
    parser.add_argument("--settings", type=json.loads, default={}, help="JSON")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args()
    data = load("mnist")
    if data is None:
        parser.error("mnist.npz is missing in the folder of KINSTREAM_DATA")
    X, y = data.X.astype(np.float64), data.y
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        order = np.random.default_rng([seed, 3_141]).permutation(len(y))
        gallery, test, fresh = np.split(order, [GALLERY, GALLERY + TEST])
        model = MetricLearner(options.learner, seed=seed, block_rows=CHUNK, learner_settings=options.settings)
        begun, done = perf_counter(), 0
        for rows in ROWS:
            for start in range(done, rows, CHUNK):
                part = fresh[start : start + CHUNK]
                model.partial_fit(X[part], y[part], classes=np.unique(y))
            done = rows
            vote = KNeighborsClassifier(5).fit(model.transform(X[gallery]), y[gallery])
            error = float(np.mean(vote.predict(model.transform(X[test])) != y[test]))
            took = perf_counter() - begun
            print(
                f"seed {seed}: {rows:,} rows, {model.n_constraints_:,} triplets, error {error:.4f}, {took:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
