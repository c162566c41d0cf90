"""Before its first block a learner measures by the model that it begins with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray

from kinstream.learners.registry import has, names
from kinstream.learners.several_modalities.fusion import HOWS
from kinstream.testing.learners import digest
from tests.learners.published_unit import create

#: Settings under which a learner begins otherwise than by default.
OTHERS: Final[dict[str, list[dict[str, Any]]]] = {
    "kernel-lego": [{"kernel": "linear"}, {"kernel": "polynomial"}],
    "lomdml": [{"rank": 2, "init": init} for init in ("orthogonal", "identity", "pca")],
    "omks": [{"kernels": ["linear", "rbf"], "bandwidth": 2.0}, {"kernels": "linear"}],
    "rdml": [{"start": "identity"}],
    "soml-da": [{"centre": False}],
    "soml-tg": [{"start": "zero"}],
    "fusion": [{"how": how, "base": base} for how in HOWS for base in ("pola", "oasis", "rdml")],
}
SEVERAL: Final = ("fusion", "lomdml", "omdl-lr-like", "omdml", "omks")
#: What begins at zero.
AT_ZERO: Final[list[tuple[str, dict[str, Any]]]] = [
    ("pola", {}),
    ("rdml", {}),
    ("soml-tg", {"start": "zero"}),
    *(("fusion", {"how": how, "base": "pola"}) for how in HOWS),
]


def settings() -> Iterator[tuple[str, dict[str, Any]]]:
    for kind in names():
        for one in ({}, *OTHERS.get(kind, [])):
            if not has(kind, "scaler"):
                yield kind, one
                continue
            for scaler in ("none", "unit"):
                yield kind, {**one, "scaler": scaler}


def vectors(kind: str, seed: int, rows: int = 6) -> Any:
    draw = np.random.default_rng(seed)
    shape, colour = draw.normal(size=(rows, 4)), draw.normal(size=(rows, 3))
    return {"shape": shape, "colour": colour} if kind in SEVERAL else shape


def begun(kind: str, chosen: dict[str, Any]) -> Any:
    """A learner of the dimensions of `vectors` that has learned nothing."""
    learner: Any = create(kind, **chosen)
    X = vectors(kind, 0, 1)
    if kind == "fusion":
        # Of rejected rows it does not even learn the dimensions. Equal vectors teach nothing.
        learner.learn_triplets(X, X, X)
    else:
        void = {name: np.nan * table for name, table in X.items()} if kind in SEVERAL else np.nan * X
        assert learner.learn_triplets(void, X, X).rejected.all()
    return learner


def apart(X: NDArray[Any]) -> NDArray[Any]:
    """Squared distances between the rows of X (n, d), (n, n)."""
    return np.asarray(np.sum((X[:, None] - X[None]) ** 2, axis=2))


@pytest.mark.parametrize(("kind", "chosen"), list(settings()))
def test_a_learner_measures_by_its_first_model(kind: str, chosen: dict[str, Any]) -> None:
    new: Any = create(kind, **chosen)
    wanted = begun(kind, chosen)
    X, Y = vectors(kind, 1), vectors(kind, 2)
    np.testing.assert_allclose(new.distance(X, Y), wanted.distance(X, Y), rtol=1e-12, atol=1e-300)
    # A map is one of several with the same distances.
    np.testing.assert_allclose(apart(new.transform(X)), apart(wanted.transform(X)), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(new.scale(X), wanted.scale(X))
    based = create(chosen.get("base", "opml")) if kind == "fusion" else wanted
    if hasattr(based, "similarity"):
        np.testing.assert_allclose(new.similarity(X, Y), wanted.similarity(X, Y), rtol=1e-12)
    # Measuring is no beginning: another dimension is as good.
    assert digest(new.state()) == digest(create(kind, **chosen).state())
    less = {name: table[:, 1:] for name, table in X.items()} if kind in SEVERAL else X[:, 1:]
    assert new.distance(less, less).shape == (6,)


@pytest.mark.parametrize(("kind", "chosen"), AT_ZERO)
def test_what_begins_at_zero_tells_nothing_apart(kind: str, chosen: dict[str, Any]) -> None:
    new: Any = create(kind, **chosen)
    assert not new.distance(vectors(kind, 1), vectors(kind, 2)).any()
    assert not new.transform(vectors(kind, 1)).any()
