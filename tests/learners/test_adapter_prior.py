"""Maps that begin as the mean of others: the formulas with that mean in place of the identity, files, states."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kinstream.learners.adapter.learner import Adapter
from kinstream.learners.agent import learner_spec
from kinstream.learners.models.export import encode, export
from kinstream.learners.models.onnx import encode_onnx
from kinstream.learners.ranking.learner import Ranking
from kinstream.streams.agents.generations.birth import settings_digest
from kinstream.streams.errors import SettingsError
from tests.learners.test_adapter import VERSION, Plain, world
from tests.support.pipeline import settings

D, N = 6, 60


def write(path: Path, model: Adapter) -> None:
    path.write_bytes(encode(export(model, VERSION, {}), "npz"))


@pytest.fixture
def maps(tmp_path: Path) -> Callable[[int], tuple[str, NDArray[np.float64]]]:
    """Files of two maps of a rank, and one of other features; the pattern of all, and the mean of the two."""

    def made(rank: int) -> tuple[str, NDArray[np.float64]]:
        total = np.zeros((D, D))
        for number, name in enumerate(("books", "wines")):
            Q, X = world(10 + number, D, N)
            sister = Adapter(rank, dtype="float64")
            sister.learn_pairs(Q, X)
            write(tmp_path / f"{name}.npz", sister)
            file = np.load(tmp_path / f"{name}.npz")
            found = [np.asarray(file[one], np.float64) for one in ("U", "V") if rank] or [file["W"]]
            total += found[0] @ found[1].T + np.eye(D) if rank else found[0].astype(np.float64)
        Q, X = world(12, D + 1, N)
        other = Adapter(rank)
        other.learn_pairs(Q, X)
        write(tmp_path / "zinc.npz", other)
        return str(tmp_path / "*.npz"), total / 2

    return made


@pytest.mark.parametrize("product", ["cosine", "dot"])
@pytest.mark.parametrize(("of_files", "rank"), [(0, 0), (0, 3), (2, 0), (2, 3)])
def test_steps_are_those_of_the_formulas_with_the_mean_for_the_identity(
    maps: Any, of_files: int, rank: int, product: str
) -> None:
    pattern, mean = maps(of_files)
    assert np.abs(mean - np.eye(D)).max() > 0.005
    model = Adapter(rank, product=product, prior=pattern, dtype="float64")
    plain = Plain(D, rank, 512, 0.012, unit=product == "cosine")
    plain.first, plain.before = mean, 2_700
    Q, X = world(1, D, N)
    for rows in np.array_split(np.random.default_rng(2).integers(N, size=200), 9):
        model.learn_pairs(Q[rows], X[rows])
        for row in rows:
            pair = [one / np.linalg.norm(one) if plain.unit else one for one in (Q[row], X[row])]
            plain.pair(pair[0], pair[1], 1.0, similar=True)
    state = model.state()
    assert state["steps"] == plain.k > 11
    for name, wanted in zip(("U", "V") if rank else ("D",), plain.mean, strict=True):
        assert isinstance(state[name], np.ndarray)
        np.testing.assert_allclose(np.asarray(state[name], np.float64), wanted, rtol=1e-6, atol=1e-8)
    learned = mean + (plain.mean[0] @ plain.mean[1].T if rank else plain.mean[0])
    np.testing.assert_allclose(model.W, learned, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(
        model.similarity(Q, X), np.einsum("ij,ij->i", model.scale(Q) @ learned, model.scale(X)), rtol=1e-6
    )


@pytest.mark.parametrize("rank", [0, 3])
def test_a_state_goes_on_without_the_files(maps: Any, tmp_path: Path, rank: int) -> None:
    pattern, _ = maps(rank)
    Q, X = world(3, D, N)
    one = Adapter(rank, prior=pattern)
    one.learn_pairs(Q[:40], X[:40])
    for path in tmp_path.glob("*.npz"):
        path.unlink()
    # A service that follows the model has the settings; the files are on the machine that learns.
    again, without = Adapter(rank, prior=pattern), Adapter(rank)
    for other in (again, without):
        other.restore(one.state())
        assert other.prior_digest == one.prior_digest is not None
        assert np.array_equal(other.W, one.W)
    for other in (one, again):
        other.learn_pairs(Q[40:], X[40:])
    assert {n: np.asarray(v).tobytes() for n, v in one.state().items()} == {
        n: np.asarray(v).tobytes() for n, v in again.state().items()
    }


@pytest.mark.parametrize("rank", [0, 3])
@pytest.mark.parametrize("kind", [Adapter, Ranking])
def test_exports_hold_the_whole_map_and_name_the_prior(maps: Any, kind: type[Adapter], rank: int) -> None:
    pattern, _ = maps(rank)
    Q, X = world(4, D, N)
    model = kind(rank=rank, prior=pattern)
    model.learn_pairs(Q, X)
    found = export(model, VERSION, {})
    assert found.metadata["prior"] == model.prior_digest
    file = np.load(io.BytesIO(encode(found, "npz")))
    q = Q.astype(np.float32)
    mapped = eval(
        json.loads(str(file["metadata"]))["query_map"], {"q": q, **{n: file[n] for n in file.files}}
    )
    np.testing.assert_allclose(mapped, q @ model.W, rtol=1e-5, atol=1e-6)
    if kind is Adapter:
        runtime = pytest.importorskip("onnxruntime")
        session = runtime.InferenceSession(encode_onnx(model, {}))
        np.testing.assert_allclose(session.run(None, {"x": q})[0], mapped, rtol=1e-5, atol=1e-6)
    bare = kind(rank=rank)
    bare.learn_pairs(Q, X)
    assert "prior" not in export(bare, VERSION, {}).metadata and bare.prior_digest is None


def test_before_anything_is_learned_it_is_the_mean_map(maps: Any) -> None:
    pattern, mean = maps(0)
    Q, X = world(5, D, N)
    model = Adapter(prior=pattern, dtype="float64")
    wanted = np.einsum("ij,ij->i", model.scale(Q) @ mean, model.scale(X))
    np.testing.assert_allclose(model.similarity(Q, X), wanted, rtol=1e-9)


def test_spaces_of_other_features_begin_as_the_embeddings(maps: Any) -> None:
    pattern, _ = maps(0)
    model, bare = Adapter(prior=pattern), Adapter()
    Q, X = (table[:, :4] for table in world(6, D, N))
    for one in (model, bare):
        one.learn_pairs(Q, X)
    assert model.prior_digest is None and np.array_equal(model.W, bare.W)


def test_files_that_are_no_maps_are_refused_by_name(tmp_path: Path) -> None:
    Q, X = world(7, D, N)
    with pytest.raises(SettingsError, match=r"prior: there is no file .*none\.npz"):
        Adapter(prior=str(tmp_path / "none.npz")).learn_pairs(Q, X)
    bad: dict[str, dict[str, Any]] = {
        "holds no query map": {"map": np.eye(D)},
        "holds no query map, which has": {"U": np.zeros((D, 2)), "V": np.zeros((D, 3))},
        "not a matrix of finite": {"W": np.full((D, D), np.nan)},
        "a matrix of finite numbers": {"W": np.zeros(D)},
    }
    for number, (reason, arrays) in enumerate(bad.items()):
        path = tmp_path / f"bad{number}.npz"
        np.savez(path, **arrays)
        with pytest.raises(SettingsError, match=rf"prior: .*bad{number}\.npz.*{reason}"):
            Adapter(prior=str(path)).learn_pairs(Q, X)
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(SettingsError, match=r"text\.npz cannot be read"):
        Adapter(prior=str(tmp_path / "text.npz")).learn_pairs(Q, X)
    (tmp_path / "pickled.npz").write_bytes(b"")
    np.savez(tmp_path / "pickled.npz", W=np.array([[{}]], object))
    with pytest.raises(SettingsError, match=r"pickled\.npz cannot be read"):
        Adapter(prior=str(tmp_path / "pickled.npz")).learn_pairs(Q, X)


def test_other_files_are_another_generation(maps: Any, tmp_path: Path) -> None:
    pattern, _ = maps(0)
    found = settings(learners={"new": {"kind": "adapter", "from": ["one-pass"], "prior": pattern}})
    before = learner_spec(found, "new").shaping
    assert learner_spec(found, "new").shaping == before
    (tmp_path / "books.npz").write_bytes((tmp_path / "wines.npz").read_bytes())
    after = learner_spec(found, "new").shaping
    assert settings_digest(after) != settings_digest(before)
    assert {name for name in after if after[name] != before[name]} == {"prior"}
    for path in tmp_path.glob("*.npz"):
        path.unlink()
    with pytest.raises(SettingsError, match="prior: there is no file"):
        learner_spec(found, "new")
