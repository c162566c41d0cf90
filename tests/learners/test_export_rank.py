"""How many columns an exported metric has: at most as many as features, or as were asked for."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from kinstream.learners.models.columns import best_columns
from kinstream.learners.models.export import export
from kinstream.learners.one_modality.opml import OPML
from kinstream.learners.registry import create, own_names
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import Kind, ModelVersion, Table
from kinstream.testing.blocks import pair_blocks, triplet_blocks

D = 5
VERSION = ModelVersion("s", "l", "opml/3", 1, 1, 0, "t", 0, 0, "", "", 0)
#: Not linear; of the adapter and ranking, for queries alone (docs/adapter.md).
OTHERS = ("adapter", "kernel-lego", "oahu", "omdl-lr-like", "omks", "ranking")


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
    learner = cast(Any, create("adapter", rank=5, product=product, memory=64))
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


def of_several_parts(kind: str, **settings: Any) -> tuple[Any, Any]:
    """A learner of several parts or modalities, and features whose directions vary by very different amounts."""
    draw = np.random.default_rng(4)
    several = kind in ("omdml", "fusion")
    learner = cast(Any, create(kind, **settings))
    widths = np.array([9.0, 5.0, 1.0, 0.3, 0.1])

    def features(drawn: Any) -> Any:
        x = (widths * drawn + 3.0).astype(np.float32)
        return {"a": x[:, :2], "b": x[:, 2:]} if several else {"x": x}

    for block in triplet_blocks(3, D, messages=40):
        found = features(draw.normal(size=block.tables[0].vectors.shape))
        learner.learn(replace(block, tables=tuple(Table(name, part) for name, part in found.items())))
    asked = features(draw.normal(size=(500, D)))
    return learner, asked if several else asked["x"]


def by_metadata(exported: Any, X: Any) -> Any:
    """What the documents say about the arrays of a file, in numpy."""
    arrays, use = exported.arrays, exported.metadata["use"]
    assert exported.metadata["scaler"] == "none"
    if "parts" not in exported.metadata:
        assert use.split(":")[0].endswith("added up")
        return sum(X[name] @ arrays[f"map.{name}"].T + arrays[f"offset.{name}"] for name in X)
    z = (X - arrays["shift"]) * arrays["factor"]
    found = 0.0
    for part in json.loads(exported.metadata["parts"]):
        seen = np.clip(z, arrays[part["low"]], arrays[part["high"]]) if "low" in part else z
        if part["view"] == "directions":
            seen = (seen + arrays[part["offset"]]) * arrays[part["scale"]] if "offset" in part else seen
            seen = seen / np.linalg.norm(seen, axis=1, keepdims=True)
        found = found + seen @ arrays[part["map"]].T
    assert "added up" in use and use.endswith("; then @ keep.T")
    return found @ arrays["keep"].T


@pytest.mark.parametrize("kind", ["mixture", "omdml", "fusion"])
def test_what_has_several_parts_is_written_with_fewer_columns_as_well(kind: str) -> None:
    learner, X = of_several_parts(kind)
    whole = np.asarray(learner.transform(X), np.float64)
    centred = whole - whole.mean(axis=0)
    variances = np.linalg.eigvalsh(centred.T @ centred / len(centred))[::-1]
    for rank in (1, 3):
        short = by_metadata(export(learner, VERSION, {}, rank), X)
        assert short.shape == (len(whole), rank)
        # Never more than the best directions of these rows have, and nearly as much.
        kept = short.var(axis=0).sum() / variances[:rank].sum()
        # The mixture's first directions vary by nearly as much as each other: its 500 vectors may order them otherwise.
        assert (0.8 if kind == "mixture" else 0.9) < kept <= 1.0 + 1e-6
    # With all columns, the distances are those of the learner.
    short = by_metadata(export(learner, VERSION, {}, whole.shape[1]), X)
    gaps = [np.linalg.norm(one[:250] - one[250:], axis=1) for one in (whole, short)]
    np.testing.assert_allclose(gaps[1], gaps[0], rtol=1e-3)


@pytest.mark.parametrize(
    ("kind", "scaler"),
    [("oahu", "zscore"), ("oahu", "minmax")],
)
def test_the_directions_of_networks_are_found_from_vectors(kind: str, scaler: str) -> None:
    learner, X = of_several_parts(kind, scaler=scaler)
    whole = np.asarray(learner.transform(X), np.float64)
    variances = np.linalg.eigvalsh(np.cov(whole.T, bias=True))[::-1]
    for rank in (1, 3):
        kept = best_columns(learner, rank)
        np.testing.assert_allclose(kept @ kept.T, np.eye(rank), atol=1e-9)
        np.testing.assert_array_equal(kept, best_columns(learner, rank))
        assert 0.75 < (whole @ kept.T).var(axis=0).sum() / variances[:rank].sum() <= 1.0 + 1e-6


def test_a_network_that_knows_nothing_of_its_features_says_so() -> None:
    learner, _ = of_several_parts("oahu")
    with pytest.raises(SettingsError, match="no export of a smaller rank without a scaler"):
        best_columns(learner, 2)


def test_a_mixture_that_remembers_too_few_vectors_says_so() -> None:
    learner, _ = of_several_parts("mixture")
    with pytest.raises(SettingsError, match=r"remembers \d+ vectors, too few for a rank of 1000000"):
        export(learner, VERSION, {}, 1_000_000)
