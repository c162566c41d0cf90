"""Exported rankings: a service needs numpy alone, and its ranking is the learner's."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinstream.learners.models.export import encode, export
from kinstream.learners.models.query_map import query_map
from kinstream.learners.ranking.learner import Ranking
from kinstream.processors.base.id_table import name_hashes
from kinstream.search.models.model import Model
from kinstream.search.queries.adapter import query_model
from kinstream.search.queries.model import QueryModel
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import ModelVersion
from kinstream.streams.signals import REMEMBERED
from tests.learners.ranking.test_ranking import HALF, learned
from tests.learners.ranking.world import World

VERSION = ModelVersion("s", "search", "ranking/1", 1, 0, 7, "t", 0, 1, "", "0" * 64, 0)


@pytest.fixture(scope="module")
def model() -> Ranking:
    return learned(World(300).blocks(), start=HALF, remember=1_000)


def candidates(model: Ranking, n: int = 30) -> dict[str, Any]:
    world = World(1)
    found = {name: one[0] for name, one in model.signals(world.queries[:1], world.items[:n]).items()}
    return found | {name: one[0, :n] for name, one in world.signals.items()}


def test_a_file_ranks_as_the_learner(model: Ranking, tmp_path: Path) -> None:
    path = tmp_path / "search.npz"
    path.write_bytes(encode(export(model, VERSION, {}), "npz"))
    read = QueryModel.from_file(path)
    signals = candidates(model)
    assert read.blend is not None and read.blend.names == model.blend.names
    assert read.blend(signals).tobytes() == model.blend(signals).tobytes()
    assert np.array_equal(read.map(World(1).queries), query_map(model)(World(1).queries))


def test_a_file_remembers_what_the_learner_remembers(model: Ranking, tmp_path: Path) -> None:
    path = tmp_path / "search.npz"
    path.write_bytes(encode(export(model, VERSION, {}), "npz"))
    read, served = QueryModel.from_file(path), query_model("search", Model(VERSION, model))
    assert model.remembered is not None and read.known is not None and served.known is not None
    names, known = name_hashes([str(row) for row in range(300)]), 0
    for query in (*World(1).queries, -World(1).queries[0]):
        wanted = model.remembered.recall(query)
        for found in (read.recall(query), served.recall(query)):
            assert (found is None) == (wanted is None)
            if found is not None and wanted is not None:
                assert found.rates(names).tobytes() == wanted.rates(names).tobytes()
        known += wanted is not None
    assert 60 < known < 121
    signals = candidates(model) | {REMEMBERED: np.arange(30.0)}
    for one in (read.known, served.known):
        assert one(signals).tobytes() == model.known_blend(signals).tobytes()


@pytest.mark.parametrize("lost", ["remembered_clicks", "known_weights"])
def test_a_file_with_half_a_memory_is_refused(model: Ranking, tmp_path: Path, lost: str) -> None:
    path = tmp_path / "search.npz"
    path.write_bytes(encode(export(model, VERSION, {}), "npz"))
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files if name != lost}
    np.savez(path, **arrays)
    with pytest.raises(SettingsError, match=lost):
        QueryModel.from_file(path)


def test_a_file_ranks_in_numpy_alone(model: Ranking, tmp_path: Path) -> None:
    """The recipe of docs/adapter.md."""
    path = tmp_path / "search.npz"
    path.write_bytes(encode(export(model, VERSION, {}), "npz"))
    file, world = np.load(path), World(1)
    q, x = world.queries[0], world.items[:30]
    moved = q @ file["W"]
    known = {"similarity": x @ q, "adapted": x @ moved / np.linalg.norm(moved)}
    known |= {name: one[0, :30] for name, one in world.signals.items()}
    signals = np.column_stack([known[name] for name in file["signals"]])
    widths = signals.max(axis=0) - signals.min(axis=0)
    scales = np.where(file["scales"] > 0, file["scales"], widths)
    values = (signals - signals.mean(axis=0)) @ (file["weights"] / scales)
    assert np.allclose(values, model.blend(candidates(model)), atol=1e-5)


def test_other_formats_say_the_same(model: Ranking) -> None:
    from safetensors.numpy import load

    exported = export(model, VERSION, {})
    arrays = load(encode(exported, "safetensors"))
    assert json.loads(exported.metadata["signals"]) == list(model.blend.names)
    assert np.array_equal(arrays["weights"], model.blend.weights)
    onnx = pytest.importorskip("onnx")
    from kinstream.learners.models.onnx import encode_onnx

    graph = onnx.load(io.BytesIO(encode_onnx(model, {})))
    told = {one.key: one.value for one in graph.metadata_props}
    assert json.loads(told["signals"]) == list(model.blend.names)
    assert json.loads(told["weights"]) == model.blend.weights.tolist()


def test_a_file_of_fewer_dimensions_has_the_maps_alone(model: Ranking) -> None:
    assert set(export(model, VERSION, {}, rank=4).arrays) == {"query", "item"}


def test_a_service_gets_the_blend_of_the_newest_model(model: Ranking) -> None:
    found = query_model("search", Model(VERSION, model))
    assert found.blend is not None and found.blend.names == model.blend.names
    assert query_model("search", Model()).blend is None
