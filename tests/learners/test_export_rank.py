"""How many columns an exported metric has: at most as many as features, or as were asked for."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from kinstream.learners.models.export import export
from kinstream.learners.one_modality.opml import OPML
from kinstream.learners.registry import create, own_names
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import Kind, ModelVersion
from kinstream.testing.blocks import pair_blocks, triplet_blocks

D = 5
VERSION = ModelVersion("s", "l", "opml/3", 1, 1, 0, "t", 0, 0, "", "", 0)
#: Not linear; of the portfolio, of several parts side by side; of the adapter, for queries alone (docs/adapter.md).
OTHERS = ("adapter", "kernel-lego", "oahu", "omdl-lr-like", "omks", "portfolio")


def learned(kind: str, **settings: Any) -> Any:
    learner: Any = create(kind, **settings)
    for block in (pair_blocks if learner.form is Kind.PAIR else triplet_blocks)(3, D, messages=8):
        learner.learn(block)
    return learner


@pytest.mark.parametrize("kind", [kind for kind in own_names() if kind not in OTHERS])
def test_an_export_has_at_most_as_many_columns_as_features(kind: str) -> None:
    exported = export(learned(kind), VERSION, {})
    maps = [array for name, array in exported.arrays.items() if name.startswith("map")]
    assert maps and all(array.shape[1] == D for array in maps)
    added = exported.metadata["use"].split(":")[0].endswith("added up")
    assert (max if added else sum)(len(array) for array in maps) <= D


def of_rank(rank: int | None, scaler: str) -> tuple[Any, Any]:
    draw = np.random.default_rng(1)
    learner = OPML(scaler=scaler, warm_up=60)
    widths = np.array([100.0, 30.0, 1.0, 0.1, 0.01])
    x, near, far = widths * draw.normal(size=(3, 400, D))
    learner.learn_triplets(x, near, far)
    found = export(learner, VERSION, {}, rank).arrays
    X = widths * draw.normal(size=(4000, D))
    return learner, X @ found["map"].T + found["offset"]


@pytest.mark.parametrize("scaler", ["none", "zscore"])
def test_the_directions_that_are_kept_are_those_in_which_the_metric_varies_most(scaler: str) -> None:
    _, whole = of_rank(None, scaler)
    assert whole.shape[1] == D
    centred = whole - whole.mean(axis=0)
    variances = np.linalg.eigvalsh(centred.T @ centred / len(centred))[::-1]
    for rank in (1, 2, 4):
        _, short = of_rank(rank, scaler)
        assert short.shape[1] == rank
        kept = float(short.var(axis=0).sum())
        assert kept == pytest.approx(float(variances[:rank].sum()), rel=0.05)


def test_a_rank_of_as_many_columns_changes_nothing() -> None:
    np.testing.assert_array_equal(of_rank(D, "zscore")[1], of_rank(None, "zscore")[1])


@pytest.mark.parametrize("product", ["cosine", "dot"])
def test_an_adapter_of_a_smaller_rank_maps_items_as_well(product: str) -> None:
    draw = np.random.default_rng(2)
    learner = cast(Any, create("adapter", product=product, memory=64))
    x, near, far = draw.normal(size=(3, 300, D))
    learner.learn_triplets(x, near, far)
    whole = export(learner, VERSION, {})
    U, V = whole.arrays["U"], whole.arrays["V"]
    # As the metadata says it.
    Q, X = draw.normal(size=(8, D)), 3.0 * draw.normal(size=(50, D))
    lengths = np.linalg.norm(X, axis=1, keepdims=True) if product == "cosine" else 1.0
    wanted = (Q + (Q @ U) @ V.T) @ (X / lengths).T
    assert whole.metadata["product"] == product
    for rank in (D, 2):
        found = export(learner, VERSION, {}, rank)
        assert {name: one.shape for name, one in found.arrays.items()} == {
            "query": (rank, D),
            "item": (rank, D),
        }
        assert found.metadata["query_map"] == "q @ query.T" and found.metadata["product"] == "dot"
        assert found.metadata["item_map"] == ("(x / |x|) @ item.T" if product == "cosine" else "x @ item.T")
        products = (Q @ found.arrays["query"].T) @ (X / lengths @ found.arrays["item"].T).T
        if rank == D:
            np.testing.assert_allclose(products, wanted, atol=1e-4)
    # Two of five directions rank better than chance.
    assert np.corrcoef(products.ravel(), wanted.ravel())[0, 1] > 0.3


def test_an_item_map_of_more_dimensions_than_features_is_refused() -> None:
    with pytest.raises(SettingsError, match="no item map of rank 6: k must be 1 to 5"):
        export(learned("adapter"), VERSION, {}, D + 1)


@pytest.mark.parametrize("kind", ["portfolio", "mixture", "omdml", "fusion"])
def test_a_rank_is_refused_for_what_is_not_one_map(kind: str) -> None:
    with pytest.raises(SettingsError, match="is not one linear map"):
        export(learned(kind), VERSION, {}, 2)
