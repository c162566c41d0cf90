"""Query maps in Python: of every bilinear learner, from a file, and while models are published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinstream import QueryAdapter, QueryModel
from kinstream.learners.models.export import encode, export
from kinstream.learners.models.query_map import query_map
from kinstream.search.models.model import Name
from kinstream.search.models.staleness import Failure
from kinstream.streams.errors import CheckpointError, SettingsError
from kinstream.streams.records.values import ModelVersion
from tests.learners.published_unit import create
from tests.search.learned_world import World
from tests.search.store_service import bilinear

VERSION = ModelVersion("docs", "taste", "?", 2, 5, 70, "t", 0, 9, "", "ab" * 32, 1)
D = 6
LEARNERS: list[tuple[str, dict[str, Any]]] = [
    *((kind, {"scaler": s}) for kind in ("oasis", "sors", "adasors", "soml-tg", "soml-da") for s in ("none", "unit")),
    ("oasis", {"unit": "length"}),
    ("adapter", {"rank": 3}),
    ("adapter", {"rank": 0}),
    ("adapter", {"rank": 3, "product": "dot"}),
]  # fmt: skip


def learned(kind: str, **arguments: Any) -> Any:
    draw = np.random.default_rng(5)
    learner: Any = create(kind, **arguments)
    learner.learn_triplets(*(draw.normal(size=(300, D)) * np.linspace(0.5, 2.0, D) for _ in range(3)))
    return learner


def ranked(scores: Any) -> Any:
    return np.argsort(-np.asarray(scores, np.float64), axis=1, kind="stable")


@pytest.mark.parametrize(("kind", "arguments"), LEARNERS)
def test_a_store_of_raw_items_ranks_as_the_learner_does(
    kind: str, arguments: dict[str, Any], tmp_path: Path
) -> None:
    learner = learned(kind, **arguments)
    file = tmp_path / "model.npz"
    file.write_bytes(encode(export(learner, VERSION, {}), "npz"))
    draw = np.random.default_rng(6)
    Q, X = draw.normal(size=(20, D)).astype(np.float32), draw.normal(size=(80, D)).astype(np.float32)
    wanted = learner.similarities(Q, X).astype(np.float64)
    for mapped in (query_map(learner)(Q), QueryModel.from_file(file).map(Q)):
        assert mapped.dtype == np.float32 and mapped.shape == Q.shape
        scores = mapped.astype(np.float64) @ X.T.astype(np.float64)
        if learner.scaler == "unit":
            scores /= np.linalg.norm(X.astype(np.float64), axis=1)
        # Up to one positive factor of each query.
        factor = (scores * wanted).sum(axis=1) / (wanted * wanted).sum(axis=1)
        assert (factor > 0).all()
        np.testing.assert_allclose(scores / factor[:, None], wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
    plain = ranked(Q @ X.T)
    assert (plain != ranked(wanted)).any()


def test_a_file_is_named_by_what_it_was_exported_of(tmp_path: Path) -> None:
    file = tmp_path / "model.npz"
    file.write_bytes(encode(export(learned("adapter", rank=D), VERSION, {}), "npz"))
    found = QueryModel.from_file(file)
    assert (found.learner, found.name, found.digest) == ("taste", Name(2, 5, 70), "ab" * 32)
    assert found.adapted and found.dimension == D
    q = np.ones(D)
    assert found.map(q).shape == (D,) and (found.map(q.tolist()) == found.map(q[None])[0]).all()
    with pytest.raises(ValueError, match="shape"):
        found.map(np.ones(D + 1))
    with pytest.raises(ValueError, match="shape"):
        found.map(np.ones((1, 1, D)))


def changed(tmp_path: Path, **arrays: Any) -> Path:
    file = tmp_path / "changed.npz"
    found = dict(np.load(_file(tmp_path), allow_pickle=False))
    np.savez(file, **{name: array for name, array in (found | arrays).items() if array is not None})
    return file


def _file(tmp_path: Path) -> Path:
    file = tmp_path / "model.npz"
    file.write_bytes(encode(export(learned("adapter", rank=D), VERSION, {}), "npz"))
    return file


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ({"U": None}, "not a query map"),
        ({"U": np.ones((3, 2))}, "not a query map"),
        ({"U": np.full((D, 6), np.nan)}, "not all of finite numbers"),
        ({"U": np.array([["a"]]), "V": np.array([["a"]])}, "not all of finite numbers"),
        ({"U": np.array([{}], object), "V": np.array([{}], object)}, "not a query map"),
        ({"metadata": np.array("{}")}, "not a query map"),
        ({"metadata": np.array("[")}, "not a query map"),
        ({"metadata": None}, "not a query map"),
    ],
)
def test_other_files_are_refused_in_one_line(arrays: dict[str, Any], text: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=text) as error:
        QueryModel.from_file(changed(tmp_path, **arrays))
    assert "\n" not in str(error.value)


def test_what_is_no_file_of_arrays_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.npz"
    with pytest.raises(SettingsError, match="No such file"):
        QueryModel.from_file(file)
    for content in (b"", b"PK\x03\x04", b"no arrays", encode(export(create_opml(), VERSION, {}), "npz")):
        file.write_bytes(content)
        with pytest.raises(SettingsError, match="not a query map"):
            QueryModel.from_file(file)


def test_a_file_for_mapped_items_is_refused_with_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "model.npz"
    file.write_bytes(encode(export(learned("adapter"), VERSION, {}, 2), "npz"))
    with pytest.raises(SettingsError, match="for a store of mapped items; export it without --rank"):
        QueryModel.from_file(file)


def create_opml() -> Any:
    learner: Any = create("opml")
    learner.learn_triplets(*np.random.default_rng(1).normal(size=(3, 20, D)))
    return learner


def test_learners_without_a_query_map_are_refused() -> None:
    with pytest.raises(SettingsError, match="has no query map"):
        query_map(create_opml())
    with pytest.raises(SettingsError, match="scaler zscore"):
        query_map(learned("oasis", scaler="zscore", warm_up=20))
    with pytest.raises(CheckpointError, match="nothing has been learned"):
        query_map(create("oasis"))


def test_it_follows_models_and_leaves_out_what_has_no_map(world: World) -> None:
    world.learn("a")
    (version, *_) = world.announced(learner="opml")[-1:]
    adapter = QueryAdapter("a", "opml", world.settings, brokers="127.0.0.1:1")
    # The feed of the test in place of brokers.
    adapter._follow("a", "opml", world.feed(loader=QueryAdapter._loader(world.settings)))
    with adapter:
        world.source.announce(version)
        found = adapter.wait()
        assert not found.learned
        assert adapter.staleness().failures[Failure.REFUSED] == 1
        assert "has no query map" in str(adapter.staleness().trouble)
        q = np.ones(4, np.float32)
        assert not adapter.current.adapted and (adapter.map(q) == q).all()
        assert adapter.current is adapter.current


def test_the_map_is_made_once_for_a_model_and_changes_with_it() -> None:
    from kinstream.search.models.model import Model
    from kinstream.search.queries.adapter import Newest

    newest = Newest("taste")
    assert not newest.of(Model()).adapted
    model = Model(VERSION, bilinear(D, 1))
    found = newest.of(model)
    assert newest.of(model) is found and found.adapted and found.name == Name(2, 5, 70)
    assert found.digest == VERSION.sha256
    empty = newest.of(Model(VERSION, create("oasis")))
    assert not empty.adapted and empty.digest == "" and empty.name == Name(2, 5, 70)
