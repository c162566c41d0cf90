"""Whether KISSME or XQDA should stand beside LDA: three maps of the same two scatters, by their neighbours.

`lda` keeps the scatters of similar and of dissimilar differences. From these, KISSME's metric is S^-1 - B^-1 without
its negative part (Köstinger et al.: Large scale metric learning from equivalence constraints, CVPR 2012); XQDA's is
KISSME's within the directions in which B is larger than S (Liao et al.: Person re-identification by local maximal
occurrence representation and metric learning, CVPR 2015). Features are z-scored; splits, stream and vote are those of
`as_they_are`.

Example: python -m benchmarks.studies.kiss --sets wine iris --splits 3
"""

from __future__ import annotations

import argparse
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.shared_sets import SharedSet
from benchmarks.studies.as_they_are import LENGTHS, SETS, at_hand, learned, simple, split, vote_error
from kinstream.streams.compute.blas_threads import one_blas_thread

Matrix = NDArray[np.float64]

#: As the shrinkage of `lda`.
SHRINKAGE: Final = 0.1
SCATTERS: Final = ("similar", "dissimilar")
METRICS: Final = ("z", "lda", "kissme", "xqda")


def root(M: Matrix) -> Matrix:
    """A map whose squared distances are those of M without its negative part."""
    values, vectors = np.linalg.eigh((M + M.T) / 2.0)
    return np.asarray(np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T)


def kissme(S: Matrix, B: Matrix) -> Matrix:
    return root(np.linalg.inv(S) - np.linalg.inv(B))


def xqda(S: Matrix, B: Matrix) -> Matrix:
    """KISSME in the directions whose ratio of B to S is above 1; the first of all if there is none."""
    values, vectors = np.linalg.eigh(S)
    W = (vectors / np.sqrt(values)) @ vectors.T
    ratios, directions = np.linalg.eigh(W @ B @ W)
    ratios[-1] = np.inf
    kept = directions[:, ratios > 1.0].T @ W
    return np.asarray(kissme(kept @ S @ kept.T, kept @ B @ kept.T) @ kept)


def trial(data: SharedSet, seed: int) -> list[dict[str, float]]:
    """Errors of one split by metric, after each number of triplets."""
    X, y, X_test, y_test = split(data, seed)
    scale = simple(X)["z"]
    X, X_test = scale(X), scale(X_test)
    errors = []
    settings: dict[str, Any] = {"scaler": "none", "shrinkage": SHRINKAGE, "subspace": X.shape[1]}
    for _, model in learned(X, y, seed, "lda", settings):
        state = {name: np.asarray(value) for name, value in model.learner_.state().items()}
        S, B = (state[name] / state["weights"][k] for k, name in enumerate(SCATTERS))
        ridge = SHRINKAGE * np.trace(S) / len(S) * np.eye(len(S))
        maps = (np.eye(len(S)), state["map"], kissme(S + ridge, B + ridge), xqda(S + ridge, B))
        found = [vote_error(X @ L.T, y, X_test @ L.T, y_test) for L in maps]
        errors.append(dict(zip(METRICS, found, strict=True)))
    return errors


def main() -> None:
    """Print a row for each set and length: means over the splits."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS, metavar="SET")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    a = parser.parse_args()
    for data in at_hand(a.sets):
        with one_blas_thread():
            trials = [trial(data, seed) for seed in range(a.first_seed, a.first_seed + a.splits)]
        for k, length in enumerate(LENGTHS):
            means = {m: np.mean([one[k][m] for one in trials]) for m in METRICS}
            print(
                f"{data.name} at {length:,}:",
                " ".join(f"{m} {mean:.3f}" for m, mean in means.items()),
                flush=True,
            )


if __name__ == "__main__":
    main()
