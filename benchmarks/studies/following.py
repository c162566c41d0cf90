"""Step sizes in the unit of a mean squared length of 1, and learners whose features change in mid-stream.

`--grid` shows the 5-NN errors of a learner for several step sizes on parts of the training halves of scikit-learn's
sets, as they are or z-scored, and of 384 features of which 24 tell 20 classes apart. Without it a learner gets 3,000
triplets of a half, then 2,000 of the same rows with their features permuted, rotated, or in other units; beside its
error on the other half is that of a new learner of the 2,000. What came out: following.md.

Example: python -m benchmarks.studies.following opml lego --scaler zscore
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.neighbors import KNeighborsClassifier

from kinstream.learners.registry import create
from kinstream.learners.sklearn import MetricLearner

Rows = NDArray[np.floating[Any]]
Set = tuple[Rows, NDArray[Any]]


def embedded() -> Set:
    """1,600 directions of 384 features."""
    draw = np.random.default_rng(0)
    centres, y = draw.normal(size=(20, 24)), draw.integers(0, 20, 1600)
    told = centres[y] + 0.9 * draw.normal(size=(1600, 24))
    noise = 1.2 * draw.normal(size=(1600, 360)) * np.linspace(1.2, 0.2, 360)
    turned, _ = np.linalg.qr(draw.normal(size=(384, 384)))
    X = np.concatenate([told, noise], axis=1) @ turned + 0.3 * draw.normal(size=384)
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


SETS: Final[dict[str, Callable[[], Set]]] = {
    "wine": lambda: load_wine(return_X_y=True),
    "breast_cancer": lambda: load_breast_cancer(return_X_y=True),
    "iris": lambda: load_iris(return_X_y=True),
    "digits": lambda: load_digits(return_X_y=True),
    "embedded": embedded,
}
CHANGING: Final = ("wine", "breast_cancer", "digits")
WAYS: Final[dict[str, Callable[[Rows, np.random.Generator], Rows]]] = {
    "permuted": lambda X, draw: X[:, draw.permutation(X.shape[1])],
    "rotated": lambda X, draw: X @ np.linalg.qr(draw.normal(size=(X.shape[1],) * 2))[0],
    "units": lambda X, draw: X * 10.0 ** draw.integers(-3, 4, X.shape[1]),
}


def error(model: Any, X: Rows, y: NDArray[Any], U: Rows, v: NDArray[Any]) -> float:
    vote = KNeighborsClassifier(5, algorithm="brute").fit(model.transform(X), y)
    return 1.0 - float(vote.score(model.transform(U), v))


def halves(data: Set, seed: int) -> tuple[Rows, NDArray[Any], int]:
    X, y = data
    order = np.random.default_rng(seed).permutation(len(y))
    return X[order], y[order], len(y) // 2


def on_a_part(kind: str, settings: dict[str, Any], data: Set, seed: int, triplets: int = 3000) -> float:
    """The error on the last two fifths of a training half."""
    X, y, half = halves(data, seed)
    cut = 3 * half // 5
    model = MetricLearner(kind, learner_settings=settings, passes=max(1, triplets // cut), seed=seed)
    model.fit(X[:cut], y[:cut])
    return error(model, X[:cut], y[:cut], X[cut:half], y[cut:half])


def taught(model: Any, X: Rows, y: NDArray[Any], m: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    anchors = draw.integers(0, len(y), m)
    same = np.array([draw.choice(np.flatnonzero(y == y[a])) for a in anchors])
    others = np.array([draw.choice(np.flatnonzero(y != y[a])) for a in anchors])
    for rows in (slice(start, start + 250) for start in range(0, m, 250)):
        model.learn_triplets(X[anchors[rows]], X[same[rows]], X[others[rows]])


def after_a_change(
    kind: str, settings: dict[str, Any], data: Set, way: str, seed: int
) -> tuple[float, float]:
    """Errors of the learner that lived through the change, and of a new one."""
    X, y, half = halves(data, seed)
    Z = WAYS[way](X, np.random.default_rng(seed + 1))
    old, new = create(kind, **settings), create(kind, **settings)
    taught(old, X[:half], y[:half], 3000, seed)
    for model in (old, new):
        taught(model, Z[:half], y[:half], 2000, seed + 9)
    one, other = (error(model, Z[:half], y[:half], Z[half:], y[half:]) for model in (old, new))
    return one, other


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="+")
    parser.add_argument("--scaler", default="zscore")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--grid", nargs="+", metavar="NAME=VALUE")
    asked = parser.parse_args()
    for kind in asked.kinds:
        for point in asked.grid or []:
            name, _, value = point.partition("=")
            settings = {"scaler": asked.scaler, name: float(value)}
            found = {
                data: np.mean([on_a_part(kind, settings, load(), seed) for seed in range(asked.splits)])
                for data, load in SETS.items()
            }
            print(kind, point, *(f"{data} {mean:.3f}" for data, mean in found.items()), flush=True)
        for way in () if asked.grid else WAYS:
            print(kind, way, end="")
            for data in CHANGING:
                pairs = [
                    after_a_change(kind, {"scaler": asked.scaler}, SETS[data](), way, seed)
                    for seed in range(asked.splits)
                ]
                one, other = np.mean(pairs, axis=0)
                print(f"  {data} {one:.3f} (new: {other:.3f})", end="", flush=True)
            print()


if __name__ == "__main__":
    main()
