"""Records of several modalities go all the way: a file, a builder, learners, outcomes, a gauge for each modality."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kinstream.cli.main import cli
from kinstream.learners.agent import learner_spec
from kinstream.learners.base.several_modalities import MultiModal
from kinstream.learners.models.export import encode, export, learner_from
from kinstream.learners.several_modalities.omdml import OMDML
from kinstream.monitoring.agent import metrics_spec
from kinstream.processors.agent import builder_spec
from kinstream.producers.files.selection import Selection
from kinstream.producers.labelled.load import BlockSettings, LabelledLoad
from kinstream.producers.labelled.sources import open_source
from kinstream.streams.checkpoints.state_bytes import to_bytes
from kinstream.streams.errors import CheckpointError
from kinstream.streams.records.codec.codec import decode_outcome
from kinstream.streams.records.message import Output
from kinstream.streams.records.values import (
    Action,
    Click,
    Control,
    Declaration,
    ItemBlock,
    ItemClick,
    Kind,
    ModelVersion,
    Outcome,
    Record,
    Relation,
    Table,
)
from kinstream.streams.settings import Settings
from tests.clicks.stream import Stream, constraint_blocks, letters

SPACE = "digits"
NOW_MS = 1_700_000_000_000
SIZES = {"shape": 6, "colour": 3, "text": 4}
LEARNERS: dict[str, dict[str, Any]] = {
    "omdml": {"kind": "omdml", "beta": 0.9, "margin": 1.0},
    "lomdml": {"kind": "lomdml", "beta": 0.9, "rank": 3, "eta": 0.01, "margin": 1.0},
    "both": {"kind": "fusion", "base": "opml", "how": "uniform", "settings": {"gamma": 0.01}},
    "best": {"kind": "fusion", "base": "opml", "how": "best"},
    "one": {"kind": "fusion", "settings": {"gamma": 0.01, "warm_up": 20}, "scaler": "zscore"},
}
SETTINGS = Settings.model_validate(
    {
        "builders": {"one-pass": {"kind": "one-pass"}},
        "learners": {name: {"from": ["one-pass"], **section} for name, section in LEARNERS.items()},
    }
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of two classes in three arrays, of which the third tells nothing."""
    draw = np.random.default_rng(3)
    y = draw.integers(0, 2, 400)
    arrays = {
        f"X_{name}": (strength * y[:, None] + 0.4 * draw.normal(size=(400, d))).astype(np.float32)
        for (name, d), strength in zip(SIZES.items(), (1.0, 0.3, 0.0), strict=True)
    }
    path = tmp_path_factory.mktemp("npz") / "three.npz"
    np.savez(path, y=y, **arrays)  # type: ignore[arg-type, unused-ignore]
    return path


@pytest.fixture(scope="module")
def constraints(file: Path) -> list[Output]:
    """What the one-pass builder makes of the file, as `kinstream produce labelled` reads it."""
    selection = Selection({name: [f"X_{name}"] for name in SIZES})
    load = LabelledLoad(open_source(str(file), selection), SPACE, BlockSettings(block_rows=64))
    builder = Stream(builder_spec(SETTINGS, "one-pass"), NOW_MS, SPACE)
    return [output for block in load.blocks() for output in builder(block)]


def learned(
    name: str, constraints: list[Output], stream: Stream | None = None
) -> tuple[Stream, list[Output]]:
    stream = stream or Stream(learner_spec(SETTINGS, name), NOW_MS, SPACE)
    return stream, [output for sent in constraints for output in stream(sent.value or b"", sent.headers)]


def weights(outputs: list[Output]) -> dict[str, float]:
    newest = decode_outcome(outputs[-1].value or b"")
    assert isinstance(newest, Outcome)
    return newest.weights


def test_blocks_hold_every_modality(constraints: list[Output]) -> None:
    blocks = constraint_blocks(constraints)
    assert sum(len(block) for block in blocks) > 300
    for block in blocks:
        assert {table.name: table.vectors.shape[1] for table in block.tables} == SIZES


@pytest.mark.parametrize("kind", ["clicks", "closure"])
def test_builders_over_a_catalogue_keep_every_modality(kind: str) -> None:
    draw = np.random.default_rng(2)
    ids = tuple(f"item {n}" for n in range(12))
    tables = tuple(Table(name, draw.normal(size=(12, d)).astype(np.float32)) for name, d in SIZES.items())
    section = {"kind": kind} | ({"rules": ["click-skip-above"]} if kind == "clicks" else {})
    builder = Stream(builder_spec(Settings.model_validate({"builders": {kind: section}}), kind), NOW_MS)
    builder(ItemBlock("shop", ids, tables, NOW_MS))
    said: list[Record] = [
        Relation("shop", ids[left], ids[right], similar, NOW_MS)
        for left, right, similar in ((0, 1, True), (1, 2, True), (0, 3, False), (4, 5, True), (4, 0, False))
    ]
    if kind == "clicks":
        shown = tuple(range(4))
        said = [
            Click(
                "shop",
                f"list {n}",
                ids[n : n + 4],
                shown,
                (ItemClick(ids[n + 3], NOW_MS),),
                NOW_MS,
                query_item=ids[11],
            )
            for n in range(6)
        ]
    outputs = [output for one in said for output in builder(one)]
    blocks = [block for block in constraint_blocks(outputs) if block.kind is Kind.TRIPLET]
    assert blocks and not letters(outputs)
    learner = OMDML(margin=1.0)
    for block in blocks:
        assert {table.name: table.vectors.shape[1] for table in block.tables} == SIZES
        counts = learner.learn(block).counts()
        assert counts.seen == len(block)
    assert set(learner.weights) == set(SIZES)


@pytest.mark.parametrize("name", ["omdml", "lomdml"])
def test_weights_go_to_the_modality_that_tells_the_classes_apart(
    name: str, constraints: list[Output]
) -> None:
    stream, outputs = learned(name, constraints)
    assert not letters(outputs)
    found = weights(outputs)
    assert sum(found.values()) == pytest.approx(1.0)
    assert found["shape"] > 0.5 > max(found["colour"], found["text"])
    space = stream.machine.find(SPACE)
    assert space is not None and isinstance(space.core, MultiModal)
    assert space.core.weights == found


@pytest.mark.parametrize("name", LEARNERS)
def test_a_restart_between_blocks_changes_nothing(name: str, constraints: list[Output]) -> None:
    whole, wanted = learned(name, constraints)
    stream, first = learned(name, constraints[:3])
    stream.restart()
    _, second = learned(name, constraints[3:], stream)
    assert [output.value for output in (*first, *second)] == [output.value for output in wanted]
    assert stream.stored() == whole.stored()


def test_there_is_a_gauge_for_every_modality(constraints: list[Output]) -> None:
    spec = metrics_spec(SETTINGS)
    metrics = Stream(spec, NOW_MS, SPACE)
    metrics.machine.on_owned(live=True)
    expected: dict[tuple[str, str], float] = {}
    for name in ("omdml", "lomdml", "both", "best"):
        _, outputs = learned(name, constraints)
        for output in outputs:
            metrics(output.value or b"", output.headers)
        expected |= {(name, modality): weight for modality, weight in weights(outputs).items()}
    registry = CollectorRegistry()
    for collector in spec.collectors:
        registry.register(collector)
    families = text_string_to_metric_families(generate_latest(registry).decode())
    shown = {
        (sample.labels["learner"], sample.labels["expert"]): sample.value
        for family in families
        for sample in family.samples
        if sample.name == "kinstream_expert_weight"
    }
    assert shown == pytest.approx(expected)
    assert {modality for _, modality in shown} == set(SIZES)
    assert [shown["both", modality] for modality in SIZES] == pytest.approx([1 / 3] * 3)


def test_a_declared_scaler_is_that_of_every_modality(constraints: list[Output]) -> None:
    declaration = Declaration(tuple(SIZES.items()), "any", "minmax")
    stream = Stream(learner_spec(SETTINGS, "omdml"), NOW_MS, SPACE)
    builder = Stream(builder_spec(SETTINGS, "one-pass"), NOW_MS, SPACE)
    opened = builder(Control(SPACE, Action.CREATE, NOW_MS, declaration))
    for sent in opened:
        stream(sent.value or b"", sent.headers)
    space = stream.machine.find(SPACE)
    assert space is not None
    assert stream.machine.make_core(SPACE, space).scaler == "minmax"  # type: ignore[attr-defined]


@pytest.mark.parametrize("form", ["npz", "safetensors"])
@pytest.mark.parametrize("name", LEARNERS)
def test_an_export_does_what_the_learner_does(
    name: str, form: str, constraints: list[Output], tmp_path: Path
) -> None:
    stream, _ = learned(name, constraints)
    space = stream.machine.find(SPACE)
    assert space is not None
    section = SETTINGS.learners[name]
    learner = learner_from(to_bytes(space.state()), section.kind, section.arguments())
    version = ModelVersion(SPACE, name, learner.algorithm, 1, 1, space.step, "t", 0, 0, "", "", NOW_MS)
    path = tmp_path / f"model.{form}"
    path.write_bytes(encode(export(learner, version, {}), form))
    arrays, metadata = opened(path)
    draw = np.random.default_rng(1)
    X = {modality: draw.normal(size=(9, d)) for modality, d in SIZES.items()}
    parts = [
        X[modality] @ arrays[f"map.{modality}"].T + arrays[f"offset.{modality}"]
        for modality in SIZES
        if f"map.{modality}" in arrays
    ]
    assert len(parts) == (1 if name == "best" else 3)
    found = np.sum(parts, axis=0) if "added up" in metadata["use"] else np.concatenate(parts, axis=1)
    wanted: NDArray[Any] = learner.transform(X)  # type: ignore[arg-type]
    np.testing.assert_allclose(found - found[0], wanted - wanted[0], rtol=0, atol=1e-9)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9)


def opened(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
        return arrays, json.loads(str(arrays.pop("metadata")))
    from safetensors import safe_open

    with safe_open(path, "np") as found:
        return {name: found.get_tensor(name) for name in found.keys()}, found.metadata()  # noqa: SIM118


def test_nothing_learned_is_nothing_to_export() -> None:
    from kinstream.learners.registry import create

    version = ModelVersion(SPACE, "l", "a/1", 1, 1, 0, "t", 0, 0, "", "", NOW_MS)
    for kind in ("omdml", "lomdml", "fusion"):
        with pytest.raises(CheckpointError, match="nothing has been learned"):
            export(create(kind), version, {})


def test_the_command_writes_a_map_for_each_modality(
    constraints: list[Output], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, _ = learned("lomdml", constraints)
    space = stream.machine.find(SPACE)
    assert space is not None
    version = ModelVersion(SPACE, "lomdml", "lomdml/1", 1, 1, space.step, "t", 0, 0, "", "", NOW_MS)
    monkeypatch.setattr(
        "kinstream.cli.commands.models.newest_models",
        lambda settings, checkpoints: {(SPACE, "lomdml"): version},
    )
    monkeypatch.setattr("kinstream.cli.commands.models.rebuilt", lambda version, settings: space.core)
    monkeypatch.setattr("kinstream.streams.operations.models.computed_with", lambda version, settings: {})
    file = tmp_path / "m.npz"
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, ["models", "export", SPACE, "-o", str(file)])
    assert result.exit_code == 0, repr(result.exception)
    assert "map.shape 3 x 6, map.colour 3 x 3, map.text 3 x 4 float64, step" in result.stdout
    assert opened(file)[0].keys() == {f"{array}.{name}" for array in ("map", "offset") for name in SIZES}
