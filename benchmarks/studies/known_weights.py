"""What the mixture would reach if it knew how good its members are: the best that any judge of neighbours can do.

Each split is learned as in `as_they_are`. Then every member gets, in place of its own losses, its mean error on the
rows of the tests over all splits, as if it were known from as many rows as there are to learn from; the mixture makes
its weights from these by its own rule. A second figure is of errors that a user could know: of five folds of the rows
to learn from, each classified by members that have learned the other four.

Example: python -m benchmarks.studies.known_weights --sets wine --splits 3
"""

from __future__ import annotations

import argparse
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from benchmarks.studies.as_they_are import SETS, Codes, Rows, at_hand, learned, split, vote_error
from kinstream.learners.mixture.learner import Mixture
from kinstream.streams.compute.blas_threads import one_blas_thread

LENGTH: Final = 5_000
FOLDS: Final = 5
Split = tuple[Rows, Codes, Rows, Codes]


def member_rows(model: Mixture, X: Rows) -> dict[str, Rows]:
    """X (n, d) as each member measures it."""
    scaled = model.scale(X)
    found: dict[str, Rows] = {}
    for member in model._members:
        rows = model._views[member.view].apply(scaled)
        found[member.name] = rows @ member.learner.map.T if member.learns else rows
    return found


def learned_on(X: Rows, y: Codes, seed: int) -> Mixture:
    """The mixture after `LENGTH` triplets of some rows."""
    estimator = next(e for length, e in learned(X, y, seed, "mixture", {}) if length == LENGTH)
    return cast(Mixture, estimator.learner_)


def member_errors(model: Mixture, X: Rows, y: Codes, X_test: Rows, y_test: Codes) -> list[float]:
    """Errors of each member."""
    pairs = zip(member_rows(model, X).values(), member_rows(model, X_test).values(), strict=True)
    return [vote_error(rows, y, tests, y_test) for rows, tests in pairs]


def cross_validated(X: Rows, y: Codes, seed: int) -> NDArray[np.float64]:
    """Errors of each member by five folds."""
    wrong = []
    for fold in np.array_split(np.random.default_rng([seed, 2_718]).permutation(len(y)), FOLDS):
        rest = np.setdiff1d(np.arange(len(y)), fold)
        model = learned_on(X[rest], y[rest], seed)
        wrong.append(np.array(member_errors(model, X[rest], y[rest], X[fold], y[fold])) * len(fold))
    return np.asarray(np.sum(wrong, axis=0) / len(y))


def weighed_error(model: Mixture, errors: NDArray[np.float64], part: Split) -> float:
    """Error of the mixture with the weights of such errors of its members."""
    X, y, X_test, y_test = part
    losses = model._neighbours.new
    # A mean of n losses counts as 7 n / 16 of them, for later ones weigh more.
    losses.means, losses.rows = errors, 16 * len(y) // 7
    model._metric = None
    model._weigh()
    return vote_error(model.transform(X), y, model.transform(X_test), y_test)


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
            kept: list[tuple[Mixture, Split]] = []
            members, own, by_folds = [], [], []
            for seed in range(a.first_seed, a.first_seed + a.splits):
                X, y, X_test, y_test = part = split(data, seed)
                model = learned_on(X, y, seed)
                members.append(member_errors(model, *part))
                own.append(vote_error(model.transform(X), y, model.transform(X_test), y_test))
                by_folds.append(cross_validated(X, y, seed))
                kept.append((model, part))
            means = np.mean(members, axis=0)
            known = [weighed_error(model, means, part) for model, part in kept]
            pairs = zip(by_folds, kept, strict=True)
            guessed = [weighed_error(model, errors, part) for errors, (model, part) in pairs]
            chosen = [one[errors.argmin()] for errors, one in zip(by_folds, members, strict=True)]
        names = [member.name for member in kept[0][0]._members]
        best = names[int(means.argmin())]
        print(
            f"{data.name}: mixture {np.mean(own):.3f}, with known errors {np.mean(known):.3f}, "
            f"with those of five folds {np.mean(guessed):.3f}, the best member by five folds {np.mean(chosen):.3f}, "
            f"best member {best} {means.min():.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
