"""A thing has one name, and a row one label: the same value is read alike, or refused alike, in every entry."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kinstream.producers.files.selection import Selection
from kinstream.producers.items.categories import Hashed, OneHot
from kinstream.producers.items.source import open_items
from kinstream.producers.labelled.hold_out import read_all
from kinstream.producers.labelled.sources import open_source
from kinstream.producers.loads.phased_load import PhasedLoad
from kinstream.producers.sources.file_events import open_events
from kinstream.producers.sources.mapping import mapper
from kinstream.streams.configuration.sources import SourceSettings
from kinstream.streams.errors import BadRecord, SourceError
from kinstream.streams.records.foreign.names import label, name
from kinstream.streams.records.message import Message

SHOWN = 1_777_593_600_000
File = Callable[[Path, dict[str, Any]], str]


def csv_file(folder: Path, row: dict[str, Any]) -> str:
    with (folder / "rows.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, row)
        writer.writeheader()
        writer.writerow(row)
    return str(folder / "rows.csv")


def parquet_file(folder: Path, row: dict[str, Any]) -> str:
    # A value may be a column of one row.
    columns = {n: v if isinstance(v, pa.Array) else [v] for n, v in row.items()}
    pq.write_table(pa.table(columns), folder / "rows.parquet")
    return str(folder / "rows.parquet")


def jsonl_file(folder: Path, row: dict[str, Any]) -> str:
    (folder / "rows.jsonl").write_text(json.dumps(row))
    return str(folder / "rows.jsonl")


def npz_file(folder: Path, row: dict[str, Any]) -> str:
    arrays: dict[str, Any] = {n: np.array([v]) for n, v in row.items()}
    np.savez(folder / "rows.npz", **arrays)
    return str(folder / "rows.npz")


def item(file: File, folder: Path, value: Any) -> str:
    opened = open_items(file(folder, {"id": value, "X": 1.5}))
    (block,) = PhasedLoad("items", [opened], "s").blocks()
    return block.ids[0]  # type: ignore[union-attr, index]


def sample(file: File, folder: Path, value: Any) -> str:
    path = file(folder, {"id": value, "X": 1.5, "label": "k"})
    batch = read_all(open_source(path, Selection(ids="id")))
    assert batch.ids is not None
    return batch.ids[0]


def related(file: File, folder: Path, value: Any) -> str:
    opened = open_events(file(folder, {"left": value, "right": "other", "similar": 1}), "relations", "s")
    (block,) = PhasedLoad("relations", [opened], "s").blocks()
    return block.ids[0]  # type: ignore[union-attr, index]


def shown_item(file: File, folder: Path, value: Any) -> str:
    row = {"item": value, "clicked": 0, "shown_at": SHOWN}
    (block,) = PhasedLoad("clicks", [open_events(file(folder, row), "clicks", "s")], "s").blocks()
    return block.ids[0]  # type: ignore[union-attr, index]


def user(file: File, folder: Path, value: Any) -> str:
    row = {"item": "a", "clicked": 0, "shown_at": SHOWN, "user": value}
    (block,) = PhasedLoad("clicks", [open_events(file(folder, row), "clicks", "s")], "s").blocks()
    return block.actors[0]  # type: ignore[union-attr]


def listed(folder: Path, value: Any) -> str:
    items = (
        pa.array([[value]]) if not isinstance(value, pa.Array) else pa.ListArray.from_arrays([0, 1], value)
    )
    columns = {"items": items, "clicks": [[]], "shown_at": [SHOWN]}
    pq.write_table(pa.table(columns), folder / "rows.parquet")
    (block,) = PhasedLoad("clicks", [open_events(str(folder / "rows.parquet"), "clicks", "s")], "s").blocks()
    return block.ids[0]  # type: ignore[union-attr, index]


def line(folder: Path, value: Any) -> str:
    path = jsonl_file(
        folder, {"items": [value], "clicks": [{"item": value}], "shown_at_ms": SHOWN, "user": value}
    )
    (block,) = PhasedLoad("clicks", [open_events(path, "clicks", "s")], "s").blocks()
    assert block.actors == block.ids  # type: ignore[union-attr]
    return block.ids[0]  # type: ignore[union-attr]


def mapped(kind: str, fields: dict[str, Any], value: dict[str, Any]) -> Any:
    mapping = mapper(SourceSettings(topic="t", kind=kind, space="s", fields=fields))  # type: ignore[arg-type]
    events = mapping.events(Message("t", 0, 0, SHOWN, None, json.dumps(value).encode(), (), -1))
    assert events is not None
    return events[0]


def of_source(_: Path, value: Any) -> str:
    left: str = mapped("relations", {"left": "a", "right": "b"}, {"a": value, "b": "other"}).left
    items = mapped("items", {"id": "a", "vector": "v"}, {"a": value, "v": [1]})
    clicks = mapped("clicks", {"items": "a", "clicks": "b"}, {"a": [value], "b": [value]})
    assert left == items.ids[0] == clicks.items[0] == clicks.clicks[0].item
    return left


def category(file: File, folder: Path, value: Any) -> str:
    categories: Any = {"x": [OneHot("kind"), Hashed("kind", 9)]}
    opened = open_items(file(folder, {"id": "a", "kind": value, "w": 1.5}), None, categories)
    (found,) = opened.facts["vocabulary"]["kind"]
    return str(found)


TYPED: dict[str, Callable[[Path, Any], str]] = {
    "items parquet": lambda folder, value: item(parquet_file, folder, value),
    "samples parquet": lambda folder, value: sample(parquet_file, folder, value),
    "relations parquet": lambda folder, value: related(parquet_file, folder, value),
    "impressions parquet": lambda folder, value: shown_item(parquet_file, folder, value),
    "users parquet": lambda folder, value: user(parquet_file, folder, value),
    "categories parquet": lambda folder, value: category(parquet_file, folder, value),
    "lists parquet": listed,
}
JSON: dict[str, Callable[[Path, Any], str]] = {
    "relations json lines": lambda folder, value: related(jsonl_file, folder, value),
    "clicks json lines": line,
    "sources": of_source,
}
NPZ: dict[str, Callable[[Path, Any], str]] = {
    "items npz": lambda folder, value: item(npz_file, folder, value),
    "samples npz": lambda folder, value: sample(npz_file, folder, value),
}
CSV: dict[str, Callable[[Path, Any], str]] = {
    "items csv": lambda folder, value: item(csv_file, folder, value),
    "samples csv": lambda folder, value: sample(csv_file, folder, value),
    "relations csv": lambda folder, value: related(csv_file, folder, value),
    "impressions csv": lambda folder, value: shown_item(csv_file, folder, value),
    "users csv": lambda folder, value: user(csv_file, folder, value),
    "categories csv": lambda folder, value: category(csv_file, folder, value),
}
WITH_TYPES = {**TYPED, **JSON, **NPZ}
PLAIN = {**WITH_TYPES, **CSV}


@pytest.mark.parametrize("entry", PLAIN.values(), ids=PLAIN)
@pytest.mark.parametrize("value", ["sku-1", "007", "1.5", "1e5", "caf\u00e9", "a\0b", 17, -3, 4006381333931])
def test_text_and_whole_numbers_are_names(
    tmp_path: Path, entry: Callable[[Path, Any], str], value: Any
) -> None:
    assert entry(tmp_path, value) == str(value) == name(value)


@pytest.mark.parametrize("entry", PLAIN.values(), ids=PLAIN)
@pytest.mark.parametrize("value", [17.0, 4006381333931.0, 4.006381333931e22])
def test_numbers_with_a_point_are_no_names(
    tmp_path: Path, entry: Callable[[Path, Any], str], value: Any
) -> None:
    with pytest.raises(
        (SourceError, BadRecord), match=r"no name: it must be text or a whole number|must be a string"
    ):
        entry(tmp_path, value)


@pytest.mark.parametrize("entry", WITH_TYPES.values(), ids=WITH_TYPES)
def test_booleans_are_no_names(tmp_path: Path, entry: Callable[[Path, Any], str]) -> None:
    with pytest.raises((SourceError, BadRecord), match=r"no name|must be a string"):
        entry(tmp_path, True)


TIMES = [date(2026, 5, 1), datetime(2026, 5, 1), datetime(2026, 5, 1, tzinfo=UTC), time(12), Decimal("17.00")]


@pytest.mark.parametrize("entry", TYPED.values(), ids=TYPED)
@pytest.mark.parametrize("value", TIMES, ids=repr)
def test_times_and_decimals_with_a_point_are_no_names(
    tmp_path: Path, entry: Callable[[Path, Any], str], value: Any
) -> None:
    with pytest.raises(SourceError, match=r"row 1[,:] .*no name"):
        entry(tmp_path, value)


FORMS = {
    "decimal": (pa.array([Decimal(17)], pa.decimal128(38, 0)), "17"),
    "bytes": (pa.array([b"sku"], pa.binary()), "sku"),
    "large bytes": (pa.array([b"sku"], pa.large_binary()), "sku"),
    "large text": (pa.array(["sku"], pa.large_string()), "sku"),
    "text view": (pa.array(["sku"], pa.string_view()), "sku"),
    "dictionary": (pa.array(["sku"]).dictionary_encode(), "sku"),
    "uint64": (pa.array([2**64 - 1], pa.uint64()), str(2**64 - 1)),
    "uuid": (pa.array([UUID(int=7).bytes], pa.uuid()), str(UUID(int=7))),
}


@pytest.mark.parametrize("entry", TYPED.values(), ids=TYPED)
@pytest.mark.parametrize(("value", "expected"), FORMS.values(), ids=FORMS)
def test_text_and_whole_numbers_in_every_type_of_parquet(
    tmp_path: Path, entry: Callable[[Path, Any], str], value: Any, expected: str
) -> None:
    assert entry(tmp_path, value) == expected


@pytest.mark.parametrize("entry", TYPED.values(), ids=TYPED)
def test_bytes_that_are_no_utf8_are_no_names(tmp_path: Path, entry: Callable[[Path, Any], str]) -> None:
    with pytest.raises(SourceError, match=r"row 1, column '.*': is not valid UTF-8"):
        entry(tmp_path, pa.array([b"\xff\xfe"], pa.binary()))


def test_names_are_missing_in_a_column_of_floats_where_pandas_writes_nan(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"left": [float("nan"), 17.0], "right": ["a", "b"], "similar": [1, 1]}), path)
    with pytest.raises(SourceError, match=r"row 1: left \(left\): is missing"):
        open_events(str(path), "relations", "s")


# ---- labels -----------------------------------------------------------------------------------------------------


def labels_of(path: str, **selection: Any) -> list[Any]:
    source = open_source(path, Selection({"x": ["X"]}, **selection))
    found = list(read_all(source).labels)
    assert source.layout.classes == len(set(found))
    return found


def in_csv(folder: Path, values: list[Any]) -> list[Any]:
    (folder / "rows.csv").write_text("X,label\n" + "".join(f"1,{value}\n" for value in values))
    return labels_of(str(folder / "rows.csv"))


def in_parquet(folder: Path, values: list[Any]) -> list[Any]:
    pq.write_table(pa.table({"X": [1.0] * len(values), "label": values}), folder / "rows.parquet")
    return labels_of(str(folder / "rows.parquet"))


def in_npz(folder: Path, values: list[Any]) -> list[Any]:
    np.savez(folder / "rows.npz", X=np.ones((len(values), 1)), label=np.array(values))
    return labels_of(str(folder / "rows.npz"))


def in_source(_: Path, values: list[Any]) -> list[Any]:
    fields = {"vector": "rows[*].x", "label": "rows[*].y"}
    event = mapped("samples", fields, {"rows": [{"x": [1], "y": value} for value in values]})
    return list(event.labels)


LABELS = {"csv": in_csv, "parquet": in_parquet, "npz": in_npz, "source": in_source}


@pytest.mark.parametrize("entry", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([3, -7, 0], [3, -7, 0]),
        ([1.0, 2.0, -0.0, 1.0], [1, 2, 0, 1]),
        ([True, False, True], [1, 0, 1]),
        (["cat", "dog "], ["cat", "dog"]),
        (["007", "7"], ["007", "7"]),
    ],
)
def test_a_label_is_the_same_in_every_entry(
    tmp_path: Path, entry: Callable[[Path, list[Any]], list[Any]], values: list[Any], expected: list[Any]
) -> None:
    assert entry(tmp_path, values) == expected
    assert [label(value) for value in values] == expected


def test_text_that_has_a_type_is_no_number(tmp_path: Path) -> None:
    for entry in (in_parquet, in_npz, in_source):
        assert entry(tmp_path, ["1", "1.0", "true"]) == ["1", "1.0", "true"]
    # In CSV, text is what is not a number in all of the file.
    assert in_csv(tmp_path, ["1.0", "2"]) == [1, 2]
    assert in_csv(tmp_path, ["1.0", "2.5"]) == ["1.0", "2.5"]
    # As numpy.savetxt writes them.
    assert in_csv(tmp_path, [f"{n:.18e}" for n in (1, 0, -30, 2**53)]) == [1, 0, -30, 2**53]
    for text in (f"{1.5:.18e}", f"{2.0**60:.18e}", "1e3", "9.0e-01"):
        assert in_csv(tmp_path, ["1", text]) == ["1", text]
    assert in_csv(tmp_path, ["9007199254740993.0"]) == [2**53 + 1]
    assert in_csv(tmp_path, ["TRUE", "maybe"]) == ["TRUE", "maybe"]
    assert in_csv(tmp_path, ["true", "1"]) == ["true", "1"]


def test_decimals_are_labels_where_they_are_whole(tmp_path: Path) -> None:
    assert in_parquet(tmp_path, [Decimal("1.00"), Decimal("2.00")]) == [1, 2]
    assert in_parquet(tmp_path, [Decimal(2**62), Decimal(1)]) == [2**62, 1]
    with pytest.raises(SourceError, match="row 2, column 'label'"):
        in_parquet(tmp_path, [Decimal("1.00"), Decimal("2.50")])


@pytest.mark.parametrize("entry", [in_parquet, in_npz, in_source])
def test_fractions_are_no_labels_where_numbers_have_a_type(
    tmp_path: Path, entry: Callable[[Path, list[Any]], list[Any]]
) -> None:
    with pytest.raises((SourceError, BadRecord), match=r"2\.5 is not a whole number"):
        entry(tmp_path, [1.0, 2.5])


@pytest.mark.parametrize("kind", [">i8", ">i2", ">u4", ">f8", "<U3", ">U3", "S3"])
def test_labels_and_ids_of_every_byte_order(tmp_path: Path, kind: str) -> None:
    y = np.array([1, 2, 1]).astype(kind)
    np.savez(tmp_path / "rows.npz", X=np.ones((3, 2), ">f4"), y=y)
    found = list(read_all(open_source(str(tmp_path / "rows.npz"))).labels)
    assert found == ([1, 2, 1] if kind[-1] in "248" else ["1", "2", "1"])
    if kind != ">f8":
        np.savez(tmp_path / "items.npz", id=np.array([1, 2, 3]).astype(kind), X=np.ones((3, 2), ">f4"))
        (block,) = PhasedLoad("items", [open_items(str(tmp_path / "items.npz"))], "s").blocks()
        assert block.ids == ("1", "2", "3")  # type: ignore[union-attr]
