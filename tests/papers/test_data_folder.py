"""Data sets by name: what is there is loaded, what is not is named with its public original."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.papers.registry import names, protocol
from benchmarks.papers.shared.data_folder import KNOWN, DataFolder, Missing
from kinstream.evaluation.experiment.data import LabelledRows
from kinstream.streams.errors import SettingsError, SourceError


def loaded(folder: Path | None, name: str) -> LabelledRows:
    found = DataFolder(folder).load(name)
    assert isinstance(found, LabelledRows)
    return found


def test_an_archive_is_loaded_as_it_is(tmp_path: Path) -> None:
    X = np.arange(12, dtype=np.uint8).reshape(4, 3)
    np.savez(tmp_path / "glass.npz", X=X, y=np.array([7, 1, 7, 2]))
    rows = loaded(tmp_path, "glass")
    assert rows.tables["x"].dtype == np.float32
    assert np.array_equal(rows.tables["x"], X)
    assert rows.labels.tolist() == [2, 0, 2, 1]


def test_modalities_and_parts(tmp_path: Path) -> None:
    y = np.array([0, 1])
    np.savez(tmp_path / "mfeat.npz", X_fou=np.ones((2, 3)), X_mor=np.zeros((2, 1)), y=y)
    assert {name: X.shape for name, X in loaded(tmp_path, "mfeat").tables.items()} == {
        "fou": (2, 3),
        "mor": (2, 1),
    }
    for number, part in enumerate(("train_a", "train_b", "test")):
        np.savez(tmp_path / f"cifar10_gray_{part}.npz", X=np.full((2, 4), number), y=y)
    assert loaded(tmp_path, "cifar10_gray").tables["x"][:, 0].tolist() == [0, 0, 1, 1, 2, 2]


def test_a_table_of_text_is_loaded_too(tmp_path: Path) -> None:
    (tmp_path / "balance.csv").write_text("left,right,label\n1,2,L\n3,1,R\n", encoding="utf-8")
    rows = loaded(tmp_path, "balance")
    assert len(rows) == 2 and rows.features == 2 and rows.labels.tolist() == [0, 1]


def test_bundled_sets_need_no_folder_and_no_other_set_passes_for_them() -> None:
    assert (len(loaded(None, "iris")), loaded(None, "wine").features) == (150, 13)
    # scikit-learn's breast cancer data are 569 rows of 30 features, and not the paper's.
    assert isinstance(DataFolder(None).load("breast"), Missing)


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_what_is_missing_is_named_with_its_public_original(name: str, tmp_path: Path) -> None:
    found = DataFolder(tmp_path).load(name)
    if KNOWN[name].bundled:
        assert isinstance(found, LabelledRows)
        return
    assert isinstance(found, Missing)
    assert f"{name}" in found.reason and str(tmp_path) in found.reason
    assert KNOWN[name].what in found.reason and KNOWN[name].where in found.reason


def test_a_part_of_a_set_is_missing(tmp_path: Path) -> None:
    np.savez(tmp_path / "cifar10_gray_test.npz", X=np.zeros((1, 4)), y=np.zeros(1))
    found = DataFolder(tmp_path).load("cifar10_gray")
    assert isinstance(found, Missing)
    assert "cifar10_gray_train_a.npz + cifar10_gray_train_b.npz + cifar10_gray_test.npz" in found.reason


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    (tmp_path / "glass.npz").write_bytes(b"no archive")
    with pytest.raises(SourceError, match=r"glass\.npz: "):
        DataFolder(tmp_path).load("glass")
    np.savez(tmp_path / "pima.npz", features=np.zeros((1, 4)), y=np.zeros(1))
    with pytest.raises(SourceError, match=r"pima\.npz: expected y, and X"):
        DataFolder(tmp_path).load("pima")
    with pytest.raises(SettingsError, match="does not exist"):
        DataFolder(tmp_path / "nowhere")


@pytest.mark.parametrize("name", names())
def test_an_experiment_without_data_names_all_that_it_needs(name: str, tmp_path: Path) -> None:
    found = protocol(name).sets(DataFolder(tmp_path), False)
    assert all(isinstance(one, Missing) or one.name in ("iris", "wine") for one in found)
    assert any(isinstance(one, Missing) for one in found)
