"""What the mixture would reach if it knew how good its members are: the best that any judge of neighbours can do.

Each split is learned as in `as_they_are`. Then every member gets, in place of its own losses, its mean error on the
rows of the tests over all splits, as if it were known from as many rows as there are to learn from; the mixture makes
its weights from these by its own rule.

Example: python -m benchmarks.studies.known_weights --sets wine --splits 3
"""

from __future__ import annotations

import argparse
from typing import Any, Final, cast

import numpy as np

from benchmarks.studies.as_they_are import SETS, Rows, at_hand, learned, split, vote_error
from kinstream.learners.mixture.learner import Mixture
from kinstream.streams.compute.blas_threads import one_blas_thread

LENGTH: Final = 5_000


def member_rows(model: Mixture, X: Rows) -> dict[str, Rows]:
    """X (n, d) as each member measures it."""
    scaled = model.scale(X)
    found: dict[str, Rows] = {}
    for member in model._members:
        rows = model._views[member.view].apply(scaled)
        found[member.name] = rows @ member.learner.map.T if member.learns else rows
    return found


def main() -> None:
    """Print a line for each set: means over the splits."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS, metavar="SET")
    parser.add_argument("--splits", type=int, default=12)
    parser.add_argument("--first-seed", type=int, default=3_000)
    a = parser.parse_args()
    for data in at_hand(a.sets):
        with one_blas_thread():
            kept: list[tuple[Mixture, Any]] = []
            members, own = [], []
            for seed in range(a.first_seed, a.first_seed + a.splits):
                X, y, X_test, y_test = part = split(data, seed)
                estimator = next(e for length, e in learned(X, y, seed, "mixture", {}) if length == LENGTH)
                model = cast(Mixture, estimator.learner_)
                pairs = zip(member_rows(model, X).values(), member_rows(model, X_test).values(), strict=True)
                members.append([vote_error(rows, y, tests, y_test) for rows, tests in pairs])
                own.append(vote_error(model.transform(X), y, model.transform(X_test), y_test))
                kept.append((model, part))
            means = np.mean(members, axis=0)
            known = []
            for model, (X, y, X_test, y_test) in kept:
                losses = model._neighbours.new
                # A mean of n losses counts as 7 n / 16 of them, for later ones weigh more.
                losses.means, losses.rows = means, 16 * len(y) // 7
                model._metric = None
                model._weigh()
                known.append(vote_error(model.transform(X), y, model.transform(X_test), y_test))
        names = [member.name for member in kept[0][0]._members]
        best = names[int(means.argmin())]
        print(
            f"{data.name}: mixture {np.mean(own):.3f}, with known errors {np.mean(known):.3f}, "
            f"best member {best} {means.min():.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
