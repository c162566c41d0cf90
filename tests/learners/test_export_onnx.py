"""An ONNX file does in onnxruntime what the learner's `transform` does, or the learner has none and says so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from kinstream.learners.adapter.learner import Adapter
from kinstream.learners.base.learner import Learner
from kinstream.learners.models.columns import best_columns
from kinstream.learners.models.export import origin
from kinstream.learners.models.onnx import encode_onnx
from kinstream.learners.oahu.variants import varied
from kinstream.learners.one_modality.kernel_lego import KernelLEGO
from kinstream.learners.several_modalities.omdl_lr import OMDLLR
from kinstream.learners.several_modalities.omks import OMKS
from kinstream.streams.errors import CheckpointError, SettingsError
from kinstream.streams.records.values import ModelVersion
from kinstream.testing.learners import Case
from tests.learners.cases import all_cases
from tests.learners.published_unit import create

VERSION = ModelVersion("a", "mine", "opml/1", 1, 5, 10, "t", 0, 42, "place", "digest", 1_000)
ROOT = Path(__file__).parents[2]
#: Of entries, relative to the largest.
TOLERANCE = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-5}


def session(data: bytes) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def features(learner: Any, n: int) -> Any:
    """Raw features that the learner takes, some of them zeros, small and large."""
    draw = np.random.default_rng(n)

    def table(d: int) -> Any:
        X = draw.normal(size=(n, d)) * np.exp(draw.normal(size=(n, 1)))
        X[: n // 4] = 0.0
        return X.astype(np.float32)

    modalities = getattr(learner, "modalities", ())
    return {name: table(d) for name, d in modalities} if modalities else table(learner.dimension)


def run(data: bytes, X: Any) -> Any:
    """What the file makes of features."""
    found = session(data)
    tables = {f"x_{name}": table for name, table in X.items()} if isinstance(X, dict) else {"x": X}
    kinds = {"tensor(float)": np.float32, "tensor(double)": np.float64}
    given = {one.name: tables[one.name].astype(kinds[one.type]) for one in found.get_inputs()}
    (output,) = found.run(None, given)
    return output


def mapped(learner: Any, X: Any) -> Any:
    """What a file is to compute: for an adapter the mapped queries, which `transform` does not give."""
    if not isinstance(learner, Adapter):
        return learner.transform(X)
    first, *second = learner.factors
    return X + (X @ first) @ second[0].T if second else X @ first


def check(learner: Any, name: str = "") -> None:
    data = encode_onnx(learner, origin(VERSION, {"numpy": np.__version__}))
    assert data == encode_onnx(learner, origin(VERSION, {"numpy": np.__version__}))
    for n in (24, 1):
        X = features(learner, n)
        wanted, found = mapped(learner, X), run(data, X)
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype), name
        tolerance = TOLERANCE[found.dtype] * max(1.0, float(np.abs(wanted).max()))
        np.testing.assert_allclose(found, wanted, rtol=0.0, atol=tolerance, err_msg=name)


def learned(kind: str, **settings: Any) -> Any:
    learner: Any = create(kind, **settings)
    draw = np.random.default_rng(7)
    label = draw.integers(0, 2, 300)
    centre = np.array([[0.0, 3.0, 0.0, 100.0, -5.0], [1.0, 0.0, 4.0, 101.0, -5.0]])
    vectors: list[Any] = [centre[k] + draw.normal(size=(300, 5)) for k in (label, label, 1 - label)]
    if kind in ("lomdml", "fusion"):
        vectors = [{"one": table[:, :2], "two": table[:, 2:]} for table in vectors]
    learner.learn_triplets(*vectors)
    return learner


# ---- every kind -------------------------------------------------------------------------------------------------


def exportable(learner: Any) -> bool:
    """Whether it is linear, OAHU, or made of such."""
    metrics = [learner, *getattr(learner, "learners", {}).values()]
    kernels = any(isinstance(one, KernelLEGO) and one.kernel != "linear" for one in metrics)
    return not kernels and not any(isinstance(one, OMKS | OMDLLR) for one in metrics)


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_every_learner_has_the_form_or_says_that_it_has_none(case: Case) -> None:
    learner: Any = case.make()
    with pytest.raises((CheckpointError, SettingsError)):
        encode_onnx(learner, {})
    for block in case.blocks:
        learner.learn(block)
    if exportable(learner):
        check(learner, case.name)
        return
    with pytest.raises(SettingsError, match=r"export|not a linear map"):
        encode_onnx(learner, {})


# ---- types, scalers, settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scaler", ["none", "unit", "zscore", "minmax"])
@pytest.mark.parametrize("kind", ["opml", "oasis", "oahu", "lomdml", "fusion"])
def test_the_scaler_is_within(kind: str, scaler: str, dtype: str) -> None:
    own: dict[str, Any] = {"dtype": dtype, "warm_up": 40}
    if kind == "fusion":
        own = {"base": "opml", "how": "uniform", "settings": own}
    check(learned(kind, scaler=scaler, **own))


@pytest.mark.parametrize("scaler", ["unit", "zscore"])
@pytest.mark.parametrize("how", ["concatenate", "uniform", "best"])
@pytest.mark.parametrize("base", ["opml", "oahu"])
def test_a_fusion_has_an_input_for_each_modality_that_measures(base: str, how: str, scaler: str) -> None:
    learner = learned("fusion", base=base, how=how, scaler=scaler, settings={"warm_up": 40})
    check(learner)
    names = [one.name for one in session(encode_onnx(learner, {})).get_inputs()]
    measures = list(learner.learners) if how != "concatenate" else ["one", "two"]
    assert names == [f"x_{name}" for name in measures]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "settings",
    [
        {"variant": "published"},
        {"variant": varied("published", lift=0.3, biases=True), "layers": 3},
        {"variant": varied(anchors=("cosine",)), "layers": 0},
        {"variant": varied(anchors=("lifted",), lift=0.0)},
        {"variant": varied(biases=True), "batch": 8, "scaler": "zscore", "warm_up": 40},
    ],
    ids=str,
)
def test_networks_of_oahu(settings: dict[str, Any], dtype: str) -> None:
    check(learned("oahu", hidden=12, dtype=dtype, **settings))


@pytest.mark.parametrize("kind", ["opml", "mixture", "fusion", "oahu"])
def test_a_smaller_rank_keeps_some_directions_of_the_output(kind: str) -> None:
    learner = learned(kind, **({"scaler": "zscore"} if kind == "oahu" else {}))
    X = features(learner, 24)
    wanted = learner.transform(X) @ best_columns(learner, 2).T
    found = run(encode_onnx(learner, {}, 2), X)
    np.testing.assert_allclose(found, wanted, atol=1e-3 * float(np.abs(wanted).max()))
    assert run(encode_onnx(learner, {}, 1_000), X).shape == learner.transform(X).shape


# ---- the file ---------------------------------------------------------------------------------------------------


def test_the_file_says_what_it_is_and_takes_any_number_of_rows() -> None:
    learner = learned("opml", gamma=0.01)
    data = encode_onnx(learner, origin(VERSION, {"numpy": "2"}))
    model = onnx.load_from_string(data)
    onnx.checker.check_model(model, full_check=True)
    told = {one.key: one.value for one in model.metadata_props}
    assert (told["space"], told["step"], told["state_sha256"]) == ("a", "10", "digest")
    assert (told["scaler"], json.loads(told["versions"])) == ("none", {"numpy": "2"})
    assert told["use"].startswith("y of raw features x:")
    found = session(data)
    (given,), (output,) = found.get_inputs(), found.get_outputs()
    assert (given.name, given.shape, output.name, output.shape) == ("x", ["n", 5], "y", ["n", 5])
    assert run(data, np.zeros((0, 5))).shape == (0, 5)


def test_a_model_that_is_too_large_for_the_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kinstream.learners.models.onnx_graph.MAX_BYTES", 199)
    with pytest.raises(SettingsError, match="2 GiB"):
        encode_onnx(learned("opml"), {})


def test_without_the_package_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(SettingsError, match=r"pip install 'kinstream\[onnx\]'"):
        encode_onnx(learned("opml"), {})


def test_nothing_imports_onnx_before_it_is_needed() -> None:
    code = "import sys, kinstream.learners.models.onnx, kinstream.search.models.follower; print('onnx' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "False"


def test_a_learner_of_another_make_has_none() -> None:
    class Other:
        algorithm = "other/1"

    other: Learner = Other()  # type: ignore[assignment]
    with pytest.raises(SettingsError, match="other/1 has no such export"):
        encode_onnx(other, {})
