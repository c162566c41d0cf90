"""Columns that only number or name rows are no features where all other columns are, and the commands say so."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from kinstream.cli.main import cli
from kinstream.evaluation.experiment.data import of_source
from kinstream.producers.files.selection import Selection
from kinstream.producers.items.source import open_items
from kinstream.producers.labelled.hold_out import held_out_rows, read_all, streamed_rows
from kinstream.producers.labelled.load import BlockSettings, LabelledLoad
from kinstream.producers.labelled.sources import open_source
from kinstream.producers.loads.phased_load import PhasedLoad
from kinstream.streams.errors import SourceError

ROWS = 40
SHUFFLED = [(n * 7) % ROWS + 100 for n in range(ROWS)]


def columns_with(name: str, values: Sequence[Any], place: int = 0) -> dict[str, list[Any]]:
    columns: list[tuple[str, list[Any]]] = [
        ("x", [float(n % 7) for n in range(ROWS)]),
        ("w", [float(n % 5) for n in range(ROWS)]),
        ("label", [f"k{n % 3}" for n in range(ROWS)]),
        ("sku", [f"sku-{n}" for n in range(ROWS)]),
    ]
    columns.insert(place, (name, list(values)))
    return dict(columns)


def write(folder: Path, kind: str, columns: dict[str, list[Any]], metadata: Any = None) -> str:
    path = folder / f"rows.{kind}"
    if kind == "csv":
        with path.open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
    else:
        table = pa.table(columns)
        pq.write_table(table.replace_schema_metadata(metadata or {}), path)
    return str(path)


def labelled(path: str) -> tuple[list[str], Sequence[str]]:
    source = open_source(path, Selection(ids="sku"))
    assert read_all(source).tables[0].vectors.shape[1] == len(source.layout.features[0])
    return list(source.layout.features[0]), source.layout.left_out


def loaded(path: str) -> tuple[list[str], Sequence[str]]:
    load = LabelledLoad(open_source(path, Selection(ids="sku")), "s", BlockSettings())
    assert list(load.facts.get("left_out", ())) == list(load.layout.left_out)
    return list(load.layout.features[0]), load.layout.left_out


def evaluated(path: str) -> tuple[list[str], Sequence[str]]:
    source = open_source(path, Selection(ids="sku"))
    return list(of_source("rows", source).names), source.layout.left_out


def held_out(path: str) -> tuple[list[str], Sequence[str]]:
    source = open_source(path, Selection(ids="sku"))
    for part in (streamed_rows, held_out_rows):
        assert part(source, 0.3, 0).tables[0].vectors.shape[1] == source.layout.modalities[0][1]
    return list(source.layout.features[0]), source.layout.left_out


ENTRIES: dict[str, Callable[[str], tuple[list[str], Sequence[str]]]] = {
    "labelled": labelled,
    "load": loaded,
    "evaluate": evaluated,
    "hold-out": held_out,
}
each = pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
NUMBERING = [
    ("csv", "", range(ROWS)),
    ("csv", "", SHUFFLED),
    ("csv", "", [f"row {n}" for n in range(ROWS)]),
    ("csv", "Unnamed: 0", range(ROWS)),
    ("csv", "Unnamed: 0.1", SHUFFLED),
    ("csv", "index", SHUFFLED),
    ("csv", "level_0", range(ROWS)),
    ("csv", "Id", range(1, ROWS + 1)),
    ("csv", "_id", SHUFFLED),
    ("csv", "rownames", range(1, ROWS + 1)),
    ("parquet", "__index_level_0__", SHUFFLED),
    ("parquet", "index", range(ROWS)),
    ("parquet", "row_nr", range(ROWS)),
    ("parquet", "level_1", [float(n) for n in range(ROWS)]),
]


@each
@pytest.mark.parametrize(("kind", "name", "values"), NUMBERING)
def test_columns_that_number_rows_are_no_features(
    tmp_path: Path,
    entry: Callable[[str], tuple[list[str], Sequence[str]]],
    kind: str,
    name: str,
    values: Sequence[Any],
) -> None:
    path = write(tmp_path, kind, columns_with(name, values))
    assert entry(path) == (["x", "w"], (name,))


@pytest.mark.parametrize(("kind", "name", "values"), [one for one in NUMBERING if one[0] == "parquet"])
def test_nor_are_they_features_of_items(tmp_path: Path, kind: str, name: str, values: Sequence[Any]) -> None:
    opened = open_items(write(tmp_path, kind, columns_with(name, values)), {"id": "sku"})
    assert opened.layout.modalities == (("x", 2),)
    assert opened.facts["left_out"] == [name]
    assert len(list(PhasedLoad("items", [opened], "s").blocks())) == 1


@pytest.mark.parametrize(("values", "left"), [(range(ROWS), ("",)), ([n / 2 for n in range(ROWS)], ())])
def test_a_column_without_a_name_is_one_wherever_it_stands(
    tmp_path: Path, values: Sequence[Any], left: tuple[str, ...]
) -> None:
    names, found = labelled(write(tmp_path, "csv", columns_with("", values, place=3)))
    assert found == left
    assert ("" in names) is not bool(left)


def test_an_index_with_a_name_is_what_pandas_declares(tmp_path: Path) -> None:
    metadata = {b"pandas": json.dumps({"index_columns": ["when", {"kind": "range"}]})}
    path = write(tmp_path, "parquet", columns_with("when", [5.5] * ROWS), metadata)
    assert labelled(path) == (["x", "w"], ("when",))
    for broken in (b"{", b"[]", b"7", b'{"index_columns": 3}', b'{"index_columns": [["a"]]}'):
        path = write(tmp_path, "parquet", columns_with("when", [5.5] * ROWS), {b"pandas": broken})
        assert labelled(path) == (["when", "x", "w"], ())


@each
@pytest.mark.parametrize(
    ("kind", "name", "values", "place"),
    [
        ("csv", "index", [1.5 + n / 100 for n in range(ROWS)], 0),
        ("csv", "index", [n % 9 for n in range(ROWS)], 0),
        ("csv", "id", [-n for n in range(ROWS)], 0),
        ("csv", "row", [n // 4 for n in range(ROWS)], 0),
        ("csv", "z", range(ROWS), 0),
        ("parquet", "index", [n % 9 for n in range(ROWS)], 0),
        ("parquet", "level_0", [0.5] * ROWS, 0),
        ("parquet", "index", [n % 2 == 0 for n in range(ROWS)], 0),
    ],
)
def test_other_columns_stay_features_whatever_their_names(
    tmp_path: Path,
    entry: Callable[[str], tuple[list[str], Sequence[str]]],
    kind: str,
    name: str,
    values: Sequence[Any],
    place: int,
) -> None:
    found, left_out = entry(write(tmp_path, kind, columns_with(name, values, place)))
    assert (sorted(found), left_out) == (sorted(["x", "w", name]), ())


def test_a_selection_keeps_them_and_label_and_ids_are_what_they_are(tmp_path: Path) -> None:
    path = write(tmp_path, "csv", columns_with("index", range(ROWS)))
    source = open_source(path, Selection({"x": ["index", "x"]}))
    assert (source.layout.features, source.layout.left_out) == ((("index", "x"),), ())
    source = open_source(path, Selection({"x": ["x"]}, ids="index"))
    assert source.layout.left_out == ()
    with (tmp_path / "rows.csv").open("w") as stream:
        stream.write("index,label\n0,a\n1,b\n")
    with pytest.raises(SourceError, match=r"no column is left for the features.*'index' only numbers rows"):
        open_source(path)


def test_an_evaluation_says_what_it_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, "csv", columns_with("Unnamed: 0", range(ROWS)))
    # It ends at a learner that is none, after it has read the file.
    arguments = ["evaluate", "--from", f"file:{path}", "--learner", "no-such-kind", "--field", "id=sku"]
    result = CliRunner().invoke(cli, arguments)
    assert "Column 'Unnamed: 0' only numbers or names rows" in result.stderr, result.output
