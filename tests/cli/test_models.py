"""`kinstream models`: the newest of each space and learner, and files that do what the learner does."""

from __future__ import annotations

import json
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from safetensors import safe_open

from kinstream.learners.agent import learner_spec
from kinstream.learners.base.learner import Learner
from kinstream.learners.models.export import encode, export, learner_from, linear_map
from kinstream.learners.registry import create
from kinstream.streams.errors import CheckpointError, SettingsError
from kinstream.streams.operations.models import NewestModels
from kinstream.streams.records.codec.codec import encode as encode_record
from kinstream.streams.records.message import Message
from kinstream.streams.records.values import Action, Declaration, ModelVersion
from tests.cli.system import System
from tests.support.pipeline import settings

VERSION = ModelVersion("a", "opml", "opml/7", 1, 5, 10, "t", 0, 42, "place", "digest", 1_000)


def core(system: System, learner: str, space: str) -> Any:
    agent = next(a for a in system.agents if a.spec.name == learner)
    spaces = (runner.machine.find(space) for runner in agent.runners.values())
    return next(s for s in spaces if s is not None).core


# ---- which is the newest ----------------------------------------------------------------------------------------


def read(*versions: ModelVersion | None) -> NewestModels:
    newest = NewestModels()
    values = [None if v is None else encode_record(v) for v in versions]
    newest.read(Message("m", 0, n, 0, b"key", value, (), n - 1) for n, value in enumerate(values))
    return newest


def test_the_highest_generation_epoch_and_step_wins_in_any_order() -> None:
    versions = [
        replace(VERSION, generation=2, epoch=5, step=1),
        replace(VERSION, generation=1, epoch=9, step=99),
        replace(VERSION, generation=2, epoch=5, step=3),
        replace(VERSION, generation=2, epoch=4, step=50),
    ]
    for order in (versions, versions[::-1]):
        assert read(*order).models() == {("a", "opml"): versions[2]}


def test_a_delete_removes_the_model_and_a_late_writer_does_not_bring_it_back() -> None:
    gone = replace(VERSION, epoch=6, step=0, deleted=True)
    assert read(VERSION, gone).models() == {}
    assert read(gone, VERSION).models() == {}
    again = replace(VERSION, epoch=7, step=1)
    assert read(VERSION, gone, again).models() == {("a", "opml"): again}


def test_learners_and_spaces_are_kept_apart_and_rubbish_is_told() -> None:
    newest = read(VERSION, None, replace(VERSION, learner="copml"), replace(VERSION, space="b"))
    newest.read([Message("m", 3, 7, 0, b"k", b"rubbish", (), 6)])
    assert list(newest.models()) == [("a", "copml"), ("a", "opml"), ("b", "opml")]
    assert [line.partition(":")[0] for line in newest.unreadable] == ["m partition 3 offset 7"]


# ---- the commands -----------------------------------------------------------------------------------------------


def test_topic_and_checkpoints_list_the_same_models(system: System) -> None:
    system.samples("a")
    system.samples("b", 3)
    system.control("gone", Action.CREATE)
    system.control("gone", Action.DELETE)
    system.run()
    lists = []
    for arguments in ((), ("--checkpoints",)):
        result = system.cli("models", "list", "--json", *arguments)
        assert result.exit_code == 0, result.output
        lists.append(json.loads(result.stdout))
    assert lists[0] == lists[1]
    assert [(m["space"], m["learner"]) for m in lists[0]] == [
        ("a", "copml"),
        ("a", "opml"),
        ("b", "copml"),
        ("b", "opml"),
    ]
    assert len(system.cli("models", "list").stdout.splitlines()) == 5


def test_show_says_the_weights_of_a_ranking(system: System) -> None:
    section = {"kind": "ranking", "from": ["one-pass"]}
    file = system.folder / "kinstream.toml"
    file.write_text(f'{file.read_text()}\n[learners.search]\nkind = "ranking"\nfrom = ["one-pass"]\n')
    made = settings(builders={"one-pass": {"kind": "one-pass", "seed": 3}}, learners={"search": section})
    system.agents.append(system.begin(learner_spec(made, "search")))
    system.samples("a")
    system.run()
    result = system.cli("models", "show", "a", "--learner", "search", "--json")
    assert json.loads(result.stdout)["weights"] == {"similarity": 1.0}, result.output
    lines = system.cli("models", "show", "a", "--learner", "search").stdout.splitlines()
    assert "weights:     similarity +1.000" in lines


def test_show_says_every_field_and_whether_the_file_is_whole(system: System) -> None:
    system.samples("a")
    system.run()
    result = system.cli("models", "show", "a", "--learner", "opml", "--json")
    shown = json.loads(result.stdout)
    assert result.exit_code == 0
    assert shown["algorithm"] == "opml/7"
    assert shown["file"].startswith("whole")
    file = Path(shown["location"])
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    result = system.cli("models", "show", "a", "--learner", "opml")
    assert result.exit_code == 1
    assert "its digest differs from the announced one" in result.stdout
    file.unlink()
    result = system.cli("models", "show", "a", "--learner", "opml")
    assert result.exit_code == 1
    assert "does not exist" in result.stdout


def test_a_model_that_is_not_there_is_said_with_those_that_are(system: System) -> None:
    system.samples("a")
    system.run()
    for arguments, said in (
        (("nobody",), "there are models of a"),
        (("a",), "has models of copml, opml: choose one with --learner"),
        (("a", "--learner", "other"), "has models of copml, opml: not 'other'"),
    ):
        result = system.cli("models", "show", *arguments)
        assert isinstance(result.exception, SettingsError)
        assert said in str(result.exception)


@pytest.mark.long
@pytest.mark.parametrize("form", ["npz", "safetensors"])
@pytest.mark.parametrize("scaler", ["none", "unit", "zscore"])
def test_an_exported_file_does_what_the_learner_does(system: System, form: str, scaler: str) -> None:
    system.control("a", Action.CREATE, Declaration((("x", 4),), "any", scaler))
    system.samples("a", 60)
    system.run()
    file = system.folder / f"a.{form}"
    result = system.cli("models", "export", "a", "--learner", "opml", "-o", str(file))
    assert result.exit_code == 0, repr(result.exception)
    told = json.loads(
        system.cli("models", "export", "a", "--learner", "opml", "-o", str(file), "--json").stdout
    )
    assert (told["space"], told["file"], told["format"]) == ("a", str(file), form)
    assert told["bytes"] == file.stat().st_size
    if form == "npz":
        with np.load(file, allow_pickle=False) as found:
            matrix, offset, metadata = found["map"], found["offset"], json.loads(str(found["metadata"]))
    else:
        with safe_open(file, "np") as found:
            matrix, offset, metadata = found.get_tensor("map"), found.get_tensor("offset"), found.metadata()
    X = np.random.default_rng(1).normal(size=(20, 4))
    learner = core(system, "opml", "a")
    raw = X / np.linalg.norm(X, axis=1, keepdims=True) if scaler == "unit" else X
    np.testing.assert_allclose(raw @ matrix.T + offset, learner.transform(X), rtol=1e-12, atol=1e-12)
    assert not np.allclose(matrix, np.eye(4))
    assert metadata["scaler"] == ("unit" if scaler == "unit" else "none")
    assert (metadata["space"], metadata["learner"], metadata["algorithm"]) == ("a", "opml", "opml/7")
    assert json.loads(metadata["versions"])["numpy"] == np.__version__


@pytest.mark.long
def test_an_onnx_file_does_what_the_learner_does(system: System) -> None:
    system.control("a", Action.CREATE, Declaration((("x", 4),), "any", "unit"))
    system.samples("a", 60)
    system.run()
    file = system.folder / "a.onnx"
    result = system.cli("models", "export", "a", "--learner", "opml", "-o", str(file))
    assert result.exit_code == 0, repr(result.exception)
    assert result.stdout.startswith(f"{file}: onnx, ")
    assert result.stdout.endswith(f" bytes, step {core(system, 'opml', 'a').accepted}\n")
    session = onnxruntime.InferenceSession(file.read_bytes(), providers=["CPUExecutionProvider"])
    about = session.get_modelmeta().custom_metadata_map
    assert (about["space"], about["learner"], about["algorithm"]) == ("a", "opml", "opml/7")
    assert json.loads(about["versions"])["numpy"] == np.__version__
    X = np.random.default_rng(1).normal(size=(20, 4))
    (found,) = session.run(None, {"x": X})
    np.testing.assert_allclose(found, core(system, "opml", "a").transform(X), rtol=1e-12, atol=1e-12)


def test_an_export_needs_no_brokers_with_checkpoints(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    system.samples("a")
    system.run()
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS")
    file = system.folder / "a.npz"
    result = system.cli("models", "export", "a", "--learner", "copml", "--checkpoints", "-o", str(file))
    assert result.exit_code == 0, repr(result.exception)
    assert file.exists()


def test_an_export_has_as_many_columns_as_were_asked_for(system: System) -> None:
    system.control("a", Action.CREATE, Declaration((("x", 4),), "any", "none"))
    system.samples("a", 60)
    system.run()
    asked = ("models", "export", "a", "--learner", "opml", "--rank", "2", "-o")
    result = system.cli(*asked, str(system.folder / "a.npz"))
    assert result.exit_code == 0 and "map 2 x 4" in result.output
    with np.load(system.folder / "a.npz", allow_pickle=False) as found:
        assert found["map"].shape == (2, 4) and found["offset"].shape == (2,)


def test_a_space_in_which_nothing_was_learned_has_no_export(system: System) -> None:
    system.control("a", Action.CREATE)
    system.run()
    result = system.cli("models", "export", "a", "--learner", "opml", "-o", str(system.folder / "a.npz"))
    assert isinstance(result.exception, CheckpointError)
    assert "nothing has been learned" in str(result.exception)
    assert not (system.folder / "a.npz").exists()


# ---- the matrix -------------------------------------------------------------------------------------------------


def learned(dtype: str = "float64", scaler: str = "none", guard: str = "clip", d: int = 6) -> Learner:
    draw = np.random.default_rng(5)
    gamma = 0.2 if guard == "normalise" else 0.05
    learner = create("opml", gamma=gamma, scaler=scaler, guard=guard, dtype=dtype, warm_up=20)
    spread = np.linspace(0.1, 30.0, d)
    triplets = [draw.normal(size=(300, d)) * spread + 100.0 for _ in range(3)]
    learner.learn_triplets(*triplets)  # type: ignore[attr-defined]
    return learner


@pytest.mark.parametrize("guard", ["clip", "normalise"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("scaler", ["none", "unit", "zscore", "minmax"])
def test_map_and_offset_are_the_transform(scaler: str, dtype: str, guard: str) -> None:
    learner = learned(dtype, scaler, guard)
    matrix, offset, left = linear_map(learner)
    X = np.random.default_rng(6).normal(size=(50, 6)) * 10.0 + 100.0
    raw = X / np.linalg.norm(X, axis=1, keepdims=True) if left == "unit" else X
    wanted = learner.transform(X)
    tolerance = (1e-10 if dtype == "float64" else 1e-4) * max(1.0, float(np.abs(wanted).max()))
    np.testing.assert_allclose(raw @ matrix.T + offset, wanted, rtol=0, atol=tolerance)
    assert left == ("unit" if scaler == "unit" else "none")


SIMILARITIES = pytest.mark.parametrize("kind", ["oasis", "soml-tg", "soml-da", "sors", "adasors"])


def of_a_similarity(kind: str, scaler: str) -> tuple[Any, Any, Any]:
    """A learner, its export, and the arrays in it."""
    draw = np.random.default_rng(5)
    learner: Any = create(kind, scaler=scaler, warm_up=20)
    learner.learn_triplets(*(draw.normal(size=(300, 6)) * np.linspace(0.1, 3.0, 6) + 1.0 for _ in range(3)))
    exported = export(learner, VERSION, {})
    with np.load(BytesIO(encode(exported, "npz")), allow_pickle=False) as file:
        return learner, exported, dict(file)


@SIMILARITIES
@pytest.mark.parametrize("scaler", ["none", "unit"])
def test_a_similarity_can_be_ranked_by_with_numpy_alone(scaler: str, kind: str) -> None:
    learner, exported, arrays = of_a_similarity(kind, scaler)
    draw = np.random.default_rng(6)
    Q, X = draw.normal(size=(5, 6)) + 1.0, draw.normal(size=(50, 6)) + 1.0
    raw_q, raw_x = Q, X
    if scaler == "unit":
        raw_q, raw_x = (Z / np.linalg.norm(Z, axis=1, keepdims=True) for Z in (Q, X))
    assert exported.metadata["rank"].startswith(
        "(q / |q|) @ similarity" if scaler == "unit" else "q @ similarity"
    )
    found, wanted = raw_q @ arrays["similarity"] @ raw_x.T, learner.similarities(Q, X)
    # The same up to the unit of the features.
    np.testing.assert_allclose(found / found[0, 0], wanted / wanted[0, 0], rtol=1e-9, atol=1e-9)
    assert found[0, 0] * wanted[0, 0] > 0
    assert not np.allclose(arrays["similarity"], np.eye(6))
    np.testing.assert_allclose(
        raw_x @ arrays["map"].T + arrays["offset"], learner.transform(X), rtol=0, atol=1e-9
    )
    assert "rank" not in export(learned(), VERSION, {}).metadata


@SIMILARITIES
@pytest.mark.parametrize("scaler", ["zscore", "minmax"])
def test_behind_statistics_a_similarity_exports_its_distance_alone(scaler: str, kind: str) -> None:
    """Inner products of such vectors favour long ones: ranked by them, neighbours err more than without learning."""
    learner, exported, arrays = of_a_similarity(kind, scaler)
    assert set(arrays) & {"similarity", "shift", "factor"} == set() and "rank" not in exported.metadata
    X = np.random.default_rng(6).normal(size=(50, 6)) + 1.0
    np.testing.assert_allclose(
        X @ arrays["map"].T + arrays["offset"], learner.transform(X), rtol=0, atol=1e-9
    )


def test_equal_models_are_equal_npz_files_and_other_formats_are_refused() -> None:
    made = export(learned(), VERSION, {})
    assert encode(made, "npz") == encode(export(learned(), VERSION, {}), "npz")
    with pytest.raises(SettingsError, match="npz, safetensors, onnx, not 'csv'"):
        encode(made, "csv")


def test_a_state_of_other_hyper_parameters_is_refused(system: System) -> None:
    system.samples("a")
    system.run()
    shown = json.loads(system.cli("models", "show", "a", "--learner", "opml", "--json").stdout)
    data = Path(shown["location"]).read_bytes()
    assert learner_from(data, "opml", {"gamma": 0.01}).algorithm == "opml/7"
    with pytest.raises(SettingsError, match="dtype"):
        learner_from(data, "opml", {"dtype": "float32"})
