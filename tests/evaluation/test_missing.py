"""`--missing`: empty features and NaN are refused, their rows left out, or they become the training rows' mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from kinstream.cli.main import cli
from kinstream.evaluation.experiment.data import of_arrays, of_source
from kinstream.evaluation.experiment.splits import filled
from kinstream.producers.files.selection import Selection
from kinstream.producers.labelled.sources import open_source
from kinstream.streams.errors import SettingsError, SourceError

CSV = "width,height,label\n1,10,a\n,20,a\n3,NaN,b\n4, ,b\n5,50,a\n"
KEPT = Selection(keep_missing=True)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(CSV)
    return path


def test_by_default_the_place_is_named(table: Path) -> None:
    with pytest.raises(SourceError, match=r"table\.csv: row 2, column 'width': the value is missing"):
        open_source(str(table))


def test_rows_are_left_out_and_counted(table: Path) -> None:
    found = of_source("table", open_source(str(table), KEPT), "drop")
    assert found.tables["x"].tolist() == [[1.0, 10.0], [5.0, 50.0]]
    assert found.labels.tolist() == [0, 0] and found.names == ("width", "height")
    assert found.describe()["dropped"] == 3 and "missing" not in found.describe()


def test_the_mean_is_that_of_the_training_rows_alone(table: Path) -> None:
    rows = of_source("table", open_source(str(table), KEPT), "mean")
    assert rows.describe()["missing"] == 3
    found = filled(rows.tables, np.array([0, 2, 3]))["x"]
    # Training rows 1, 3 and 4 have the widths 1, 3, 4 and the height 10; row 5 is far away and does not count.
    assert found[1, 0] == pytest.approx(8.0 / 3.0)
    assert found[[2, 3], 1].tolist() == [10.0, 10.0]
    moved = rows.tables["x"].copy()
    moved[4] = [1e6, -1e6]
    again = filled({"x": moved}, np.array([0, 2, 3]))["x"]
    assert np.array_equal(again[:4], found[:4])


def test_a_column_without_a_value_to_learn_from_is_refused(table: Path) -> None:
    rows = of_source("table", open_source(str(table), KEPT), "mean")
    with pytest.raises(SettingsError, match=r"column 2 of x has no value in the 2 training rows"):
        filled(rows.tables, np.array([2, 3]))
    with pytest.raises(SettingsError, match=r"column 'height' has no value"):
        filled(rows.tables, np.array([2, 3]), rows.names)


def test_arrays_with_missing_numbers_are_treated_alike() -> None:
    X, y = np.array([[1.0, np.nan], [2.0, 3.0]]), np.array([0, 1])
    with pytest.raises(SettingsError, match="row 0 of x is not finite in column 1"):
        of_arrays("x", X, y)
    assert len(of_arrays("x", X, y, missing="drop")) == 1
    assert of_arrays("x", X, y, missing="mean").missing == 1
    for missing in ("drop", "mean"):
        with pytest.raises(SettingsError, match="not finite"):
            of_arrays("x", np.array([[np.inf], [1.0]]), y, missing=missing)
    with pytest.raises(SettingsError, match="leaves none"):
        of_arrays("x", np.full((2, 1), np.nan), y, missing="drop")


def test_npz_and_lists_may_have_missing_numbers(tmp_path: Path) -> None:
    path = tmp_path / "table.npz"
    np.savez(path, X=np.array([[1.0, np.nan], [2.0, 3.0]]), y=[0, 1])
    with pytest.raises(SourceError, match="not a finite number"):
        open_source(str(path))
    found = of_source("table", open_source(str(path), KEPT), "mean")
    assert found.missing == 1 and found.names == ("X[0]", "X[1]")


def evaluated(*arguments: str) -> Any:
    found = CliRunner().invoke(cli, ["evaluate", *arguments, "--no-report", "--jobs", "1", "--json"])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return json.loads(found.stdout)


@pytest.mark.long
def test_the_command_counts_what_was_missing(tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    y = draw.integers(0, 2, 60)
    lines = [
        f"{'' if i % 20 == 0 else 2 * label + draw.normal():},{draw.normal()},{label}"
        for i, label in enumerate(y)
    ]
    path = tmp_path / "own.csv"
    path.write_text("\n".join(["size,noise,label", *lines]))
    words = ("--from", f"file:{path}", "--learner", "opml", "--splits", "2")
    with pytest.raises(SourceError, match="row 1, column 'size'"):
        evaluated(*words, "--output", str(tmp_path / "refuse"))
    dropped = evaluated(*words, "--missing", "drop", "--output", str(tmp_path / "drop"))
    assert (dropped["data"][0]["rows"], dropped["data"][0]["dropped"]) == (57, 3)
    mean = evaluated(*words, "--missing", "mean", "--output", str(tmp_path / "mean"))
    assert (mean["data"][0]["rows"], mean["data"][0]["missing"]) == (60, 3)
    names = {one["name"] for one in mean["importance"][0]["features"]}
    assert names == {"size", "noise"}
