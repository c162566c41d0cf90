"""A source gives the rows of its file, or says which row and column cannot be used."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kinstream.producers.files import csv as csv_module
from kinstream.producers.files import parquet as parquet_module
from kinstream.producers.files.selection import Selection
from kinstream.producers.labelled.batch import Batch, Source
from kinstream.producers.labelled.bundled import BUNDLED
from kinstream.producers.labelled.hold_out import read_all
from kinstream.producers.labelled.sources import open_source
from kinstream.streams.errors import SourceError
from kinstream.testing import SOURCE_CHECKS, check_source


def write(folder: Path, text: str, name: str = "rows.csv") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def parquet(folder: Path, columns: dict[str, Any], **options: Any) -> str:
    path = folder / "rows.parquet"
    pq.write_table(pa.table(columns), path, **options)
    return str(path)


def npz(folder: Path, **arrays: Any) -> str:
    path = folder / "rows.npz"
    np.savez(path, **arrays)
    return str(path)


def x_of(batch: Batch, modality: int = 0) -> list[list[float]]:
    found: list[list[float]] = batch.tables[modality].vectors.tolist()
    return found


def labels_of(batch: Batch) -> list[int] | list[str]:
    return list(batch.labels)


# ---- what is read -----------------------------------------------------------------------------------------------


def test_csv_gives_vectors_labels_and_ids(tmp_path: Path) -> None:
    name = write(tmp_path, 'sku,width, height,label\na,1, 2.5 ,3\nb,-4e-1,+5,-7\n"c ""1""",.5,0,3\n')
    source = open_source(name, Selection(ids="sku"))
    batch = read_all(source)
    assert x_of(batch) == [[1.0, 2.5], [np.float32(-0.4), 5.0], [0.5, 0.0]]
    assert labels_of(batch) == [3, -7, 3]
    assert batch.ids == ("a", "b", 'c "1"')
    assert (source.layout.rows, source.layout.classes, source.layout.labels) == (3, 2, "integer")
    assert source.layout.modalities == (("x", 2),)
    assert batch.tables[0].vectors.dtype == np.float32


@pytest.mark.parametrize(
    ("text", "selection"),
    [
        ("a\tb\tclass\n1\t2\tu\n", Selection()),
        ("a;b;TARGET\n1;2;u\n", Selection()),
        ("b,kind,a\n2,u,1\n", Selection({"x": ["a", "b"]}, "kind")),
        ("b,kind,a,note\n2,u,1,hm\n", Selection({"x": ["[a]", "b"]}, "kind")),
        ("\ufeffa,b,label\r\n1,2,u\r\n\r\n", Selection()),
    ],
)
def test_csv_in_other_forms(tmp_path: Path, text: str, selection: Selection) -> None:
    batch = read_all(open_source(write(tmp_path, text), selection))
    assert x_of(batch) == [[1.0, 2.0]]
    assert labels_of(batch) == ["u"]


def test_tsv_is_separated_by_tabs(tmp_path: Path) -> None:
    batch = read_all(open_source(write(tmp_path, "a\tlabel\n1\t2\n", "rows.tsv")))
    assert (x_of(batch), labels_of(batch)) == ([[1.0]], [2])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "-2", "0"], [1, -2, 0]),
        (["1", "2", "x"], ["1", "2", "x"]),
        (["007", "8", "9"], ["007", "8", "9"]),
        (["1.0", "2", "3"], [1, 2, 3]),
        ([str(2**63 - 1), str(-(2**63)), "0"], [2**63 - 1, -(2**63), 0]),
        ([str(2**63), "1", "2"], [str(2**63), "1", "2"]),
    ],
)
def test_the_type_of_csv_labels_is_that_of_the_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: list[str], expected: list[Any]
) -> None:
    monkeypatch.setattr(csv_module, "BLOCK_BYTES", 40)
    name = write(tmp_path, "a,label\n" + "".join(f"1,{v}\n" for v in values))
    assert labels_of(read_all(open_source(name))) == expected


def test_parquet_gives_numbers_and_lists(tmp_path: Path) -> None:
    name = parquet(
        tmp_path,
        {
            "image": pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2)),
            "words": pa.array([[1, 2, 3], [4, 5, 6]]),
            "price": pa.array([7, 8], pa.int16()),
            "note": ["u", "v"],
            "label": pa.array(["a", "b"]).dictionary_encode(),
        },
    )
    one = read_all(open_source(name))
    assert x_of(one) == [[1, 2, 1, 2, 3, 7], [3, 4, 4, 5, 6, 8]]
    assert labels_of(one) == ["a", "b"]
    two = open_source(name, Selection({"image": ["image"], "rest": ["price", "words"]}, ids="note"))
    assert two.layout.modalities == (("image", 2), ("rest", 4))
    batch = read_all(two)
    assert x_of(batch, 1) == [[7, 1, 2, 3], [8, 4, 5, 6]]
    assert batch.ids == ("u", "v")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, 2], pa.uint8()), [1, 2]),
        (pa.array([1.0, 2.0]), [1, 2]),
        (pa.array(np.array([1.0, 2.0], np.float16)), [1, 2]),
        (pa.array([True, False]), [1, 0]),
        (pa.array(["1", "2"]), ["1", "2"]),
    ],
)
def test_typed_labels_keep_their_type(tmp_path: Path, column: pa.Array, expected: list[Any]) -> None:
    name = parquet(tmp_path, {"a": [0.5, 1.5], "y": column})
    assert labels_of(read_all(open_source(name))) == expected


def test_npz_gives_one_array_for_each_modality(tmp_path: Path) -> None:
    name = npz(
        tmp_path,
        X=np.arange(12).reshape(3, 2, 2),
        text=np.ones((3, 1)),
        y=np.array(["a", "b", "a"]),
        sku=np.array([10, 11, 12]),
    )
    plain = read_all(open_source(name))
    assert x_of(plain) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    both = read_all(open_source(name, Selection({"image": ["X"], "text": ["text"]}, "y", "sku")))
    assert [t.name for t in both.tables] == ["image", "text"]
    assert both.ids == ("10", "11", "12")
    assert labels_of(both) == ["a", "b", "a"]


@pytest.mark.parametrize(("name", "shape"), [("digits", (1797, 64)), ("iris", (150, 4)), ("wine", (178, 13))])
def test_scikit_learns_sets_come_by_name(name: str, shape: tuple[int, int]) -> None:
    source = open_source(f"sklearn:{name}")
    assert (source.layout.rows, source.layout.modalities[0][1]) == shape
    assert source.layout.labels == "integer"
    assert name in BUNDLED


# ---- position and identity --------------------------------------------------------------------------------------


def sources(folder: Path) -> dict[str, Source]:
    rows = 300
    X = np.arange(rows, dtype=np.float64)[:, None] + [0.0, 0.25]
    text = "a,b,label\n" + "".join(f"{a},{b},k{n % 7}\n" for n, (a, b) in enumerate(X.tolist()))
    columns = {"a": X[:, 0], "b": X[:, 1], "label": [f"k{n % 7}" for n in range(rows)]}
    return {
        "csv": open_source(write(folder, text)),
        "parquet": open_source(parquet(folder, columns, row_group_size=70)),
        "npz": open_source(npz(folder, X=X, y=np.array(columns["label"]))),
    }


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_a_source_reads_on_from_any_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(csv_module, "BLOCK_BYTES", 500)
    monkeypatch.setattr(parquet_module, "BATCH_ROWS", 32)
    source = sources(tmp_path)[kind]
    whole = read_all(source)
    assert len(whole) == 300
    assert source.snapshot() == 300
    for row in (0, 1, 69, 70, 71, 139, 140, 299):
        source.seek(row)
        assert source.snapshot() == row
        batch = source.next_batch()
        assert batch is not None
        assert x_of(batch) == x_of(whole)[row : row + len(batch)]
        assert source.snapshot() == row + len(batch)
    source.seek(300)
    assert source.next_batch() is None


@pytest.mark.parametrize("check", SOURCE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_every_source_passes_the_shared_checks(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    check: Callable[[Callable[[], Source]], None],
) -> None:
    monkeypatch.setattr(csv_module, "BLOCK_BYTES", 500)
    monkeypatch.setattr(parquet_module, "BATCH_ROWS", 32)
    check(lambda: sources(tmp_path)[kind])


def test_the_checks_of_sources_notice_rows_that_come_in_another_order(tmp_path: Path) -> None:
    """Each time that it is opened."""
    turns = count()

    def opened() -> Source:
        rows = [f"{number},k{number % 2}\n" for number in range(40)]
        return open_source(write(tmp_path, "a,label\n" + "".join(rows[next(turns) :] + rows)))

    with pytest.raises(AssertionError) as caught:
        check_source(opened)
    assert caught.value.__notes__ == ["in the check gives_the_same_rows_again"]


def test_the_identity_is_that_of_the_rows_and_their_reading(tmp_path: Path) -> None:
    text = "a,b,label\n1,2,3\n"
    name = write(tmp_path, text)
    same = write(tmp_path, text, "copy.csv")
    other = write(tmp_path, text.replace("3", "4"), "other.csv")
    found = [
        open_source(name).identity,
        open_source(name, Selection({"x": ["a"]})).identity,
        open_source(other).identity,
    ]
    assert len(set(found)) == 3
    assert open_source(same).identity == found[0]


# ---- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "selection", "told"),
    [
        ("a,label\n1,x\n2,y,9\n", Selection(), r"rows\.csv: row 2: 3 columns, but others have 2"),
        ("a,b,label\n1,2,x\n3\n", Selection(), r"row 2: 1 columns, but others have 3"),
        ("a,label\n1,x\nhello,y\n", Selection(), r"row 2, column 'a': 'hello' is not a number"),
        ("a,label\n1,x\n,y\n", Selection(), r"row 2, column 'a': the value is missing"),
        ("a,label\n1,x\n  ,y\n", Selection(), r"row 2, column 'a': the value is missing"),
        ("a,label\n1,x\nNaN,y\n", Selection(), r"row 2, column 'a': nan is not a finite number"),
        ("a,label\n1,x\n-inf,y\n", Selection(), r"row 2, column 'a': -inf is not a finite number"),
        ("a,label\n1e39,x\n", Selection(), r"row 1, column 'a': 1e\+39 does not fit into float32"),
        ("a,label\n1,x\n2,\n", Selection(), r"row 2, column 'label': the value is missing"),
        ("a,label,id\n1,x,\n", Selection(ids="id"), r"row 1, column 'id': the value is missing"),
        ("a,label\n1,x\n", Selection(label="kind"), r"no column 'kind'; there are: a, label"),
        ("a,label\n1,x\n", Selection({"x": ["a", "c*"]}), r"no column 'c\*'; there are: a, label"),
        ("a,label\n1,x\n", Selection(ids="sku"), r"no column 'sku'"),
        ("a,b\n1,x\n", Selection(), r"no column is called one of label, class, target, y"),
        ("a,y,class\n1,2,x\n", Selection(), r"several columns are \(y, class\)"),
        ("label\nx\n", Selection(), r"no column is left for the features"),
        ("a,a,label\n1,2,x\n", Selection(), r"the header names 'a' twice"),
        ("a,label\n", Selection(), r"there are no rows"),
        ("", Selection(), r"Empty CSV"),
        (f"a,label\n1,{'x' * 5000}\n", Selection(), r"row 1, column 'label': the label is longer than 4096"),
    ],
)
def test_a_bad_csv_file_is_refused_by_place(
    tmp_path: Path, text: str, selection: Selection, told: str
) -> None:
    with pytest.raises(SourceError, match=told) as caught:
        open_source(write(tmp_path, text), selection)
    assert "rows.csv" in str(caught.value)


def test_a_bad_row_far_into_the_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_module, "BLOCK_BYTES", 1000)
    rows = [f"{n},{n},k\n" for n in range(3000)]
    for number, bad, told in (
        (2345, "1,two,k\n", r"row 2346, column 'b': 'two'"),
        (2345, "1\n", "row 2346: 1 col"),
    ):
        changed = [*rows[:number], bad, *rows[number + 1 :]]
        with pytest.raises(SourceError, match=told):
            open_source(write(tmp_path, "a,b,label\n" + "".join(changed)))


def test_csv_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(b"a,label\n1,\xff\xfe\n")
    with pytest.raises(SourceError, match=r"rows\.csv: row 1, column 'label': is not valid UTF-8"):
        open_source(str(tmp_path / "rows.csv"))


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"a": [1.0, None], "y": [1, 2]}, r"row 2, column 'a': the value is missing"),
        ({"a": [1.0, float("nan")], "y": [1, 2]}, r"row 2, column 'a': nan"),
        (
            {"a": [[1.0, 2.0], [3.0]], "y": [1, 2]},
            r"row 2, column 'a': a list of 1 numbers, but others have 2",
        ),
        (
            {"a": [[1.0, 2.0], [3.0, None]], "y": [1, 2]},
            r"row 2, column 'a': a number in the list is missing",
        ),
        ({"a": [[1.0], [float("inf")]], "y": [1, 2]}, r"row 2, column 'a': inf"),
        ({"a": [[1.0], None], "y": [1, 2]}, r"row 2, column 'a': the value is missing"),
        ({"a": [1.0, 2.0], "y": [1.0, 2.5]}, r"row 2, column 'y': the label 2.5 is not a whole number"),
        ({"a": [1.0, 2.0], "y": [1, None]}, r"row 2, column 'y': the value is missing"),
        ({"a": [1.0], "y": [[1]]}, r"column 'y': holds list.*labels are whole numbers or text"),
        ({"a": ["u"], "y": [1]}, r"no column is left for the features"),
        ({"a": pa.array([], pa.float64()), "y": pa.array([], pa.int64())}, r"there are no rows"),
    ],
)
def test_a_bad_parquet_file_is_refused_by_place(tmp_path: Path, columns: dict[str, Any], told: str) -> None:
    with pytest.raises(SourceError, match=told) as caught:
        open_source(parquet(tmp_path, columns))
    assert "rows.parquet" in str(caught.value)


def test_a_parquet_text_column_can_be_chosen_if_it_reads_as_numbers(tmp_path: Path) -> None:
    name = parquet(tmp_path, {"a": ["1", "two"], "y": [1, 2]})
    with pytest.raises(SourceError, match=r"row 2, column 'a': 'two' is not a number"):
        open_source(name, Selection({"x": ["a"]}))


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({"X": np.ones((3, 2)), "y": np.arange(2)}, r"array 'x' has shape \(3, 2\), and there are 2 labels"),
        (
            {"X": np.array([[1.0], [np.nan]]), "y": np.arange(2)},
            r"row 2, column 'x\[0\]': nan is not a finite",
        ),
        ({"X": np.array([[1.0, 1e300]]), "y": np.arange(1)}, r"row 1, column 'x\[1\]': 1e\+300 does not fit"),
        ({"X": np.array([["a"]]), "y": np.arange(1)}, r"array 'x' holds <U1, not numbers"),
        ({"X": np.ones((2, 2)), "y": np.ones((2, 2))}, r"array 'y' has shape \(2, 2\)"),
        ({"X": np.ones((2, 0)), "y": np.arange(2)}, r"array 'x' has 0 features"),
        (
            {"X": np.ones((1, 1)), "y": np.array([None])},
            r"array 'y' cannot be read; pickled objects are refused",
        ),
        ({"Z": np.ones((1, 1)), "y": np.arange(1)}, r"no column is left for the features; there are: Z, y"),
        ({"X": np.ones((0, 1)), "y": np.arange(0)}, r"there are no rows"),
    ],
)
def test_a_bad_npz_file_is_refused_by_place(tmp_path: Path, arrays: dict[str, Any], told: str) -> None:
    with pytest.raises(SourceError, match=told) as caught:
        open_source(npz(tmp_path, **arrays))
    assert "rows.npz" in str(caught.value)


@pytest.mark.parametrize("name", ["rows.parquet", "rows.npz"])
def test_a_file_that_is_something_else_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SourceError, match=name):
        open_source(write(tmp_path, "nonsense", name))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("gone.csv", "there is no such file"),
        ("rows.xlsx", r"neither a file that ends in \.csv"),
        ("sklearn:faces", r"sklearn:digits"),
        ("sklearn:iris", "are fixed"),
    ],
)
def test_a_source_that_cannot_be_opened_is_told(name: str, told: str) -> None:
    with pytest.raises(SourceError, match=told):
        open_source(name, Selection(label="kind"))


@pytest.mark.parametrize(
    ("name", "head", "mark"),
    [
        ("rows.csv", "a,b,label", ","),
        ("rows.csv", "a;b;label", ";"),
        ("rows.csv", "a\tb\tlabel", "\t"),
        ("rows.csv", '"length, mm"|b|label', "|"),
        ("rows.csv", "\n \na;b;label", ";"),
        ("rows.tsv", "a, mm\tb\tlabel", "\t"),
    ],
)
def test_columns_are_separated_as_those_of_the_first_line(
    tmp_path: Path, name: str, head: str, mark: str
) -> None:
    (tmp_path / name).write_text(f"{head}\n1{mark}2{mark}x\n3{mark}4{mark}y\n")
    batch = read_all(open_source(str(tmp_path / name)))
    assert (batch.tables[0].vectors.tolist(), list(batch.labels)) == ([[1, 2], [3, 4]], ["x", "y"])
