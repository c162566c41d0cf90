"""A time has one reading, in whatever file or record it comes; what is of no year between 1990 and 2099 is refused."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinstream.producers.items.source import open_items
from kinstream.producers.loads.phased_load import PhasedLoad
from kinstream.producers.sources.file_events import open_events
from kinstream.producers.sources.mapping import mapper
from kinstream.streams.configuration.sources import SourceSettings
from kinstream.streams.errors import BadRecord, SourceError
from kinstream.streams.records.foreign.times import EARLIEST, END, milliseconds
from kinstream.streams.records.message import Message

#: 2026-05-01.
DAY = 1_777_593_600_000
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def csv_file(folder: Path, row: dict[str, Any]) -> str:
    with (folder / "rows.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, row)
        writer.writeheader()
        writer.writerow(row)
    return str(folder / "rows.csv")


def parquet_file(folder: Path, row: dict[str, Any]) -> str:
    pq.write_table(pa.table({name: [value] for name, value in row.items()}), folder / "rows.parquet")
    return str(folder / "rows.parquet")


def jsonl_file(folder: Path, row: dict[str, Any]) -> str:
    (folder / "rows.jsonl").write_text(json.dumps(row))
    return str(folder / "rows.jsonl")


File = Callable[[Path, dict[str, Any]], str]


def of_relation(file: File, folder: Path, time: Any) -> int:
    row = {"left": "a", "right": "b", "similar": 1, "time": time}
    opened = open_events(file(folder, row), "relations", "s")
    (block,) = PhasedLoad("relations", [opened], "s").blocks()
    return int(block.time_ms[0])  # type: ignore[union-attr, index]


def of_item(file: File, folder: Path, time: Any) -> int:
    opened = open_items(file(folder, {"id": "a", "w": 1, "at": time}), {"vector": "w", "time": "at"})
    (block,) = PhasedLoad("items", [opened], "s").blocks()
    return int(block.time_ms)  # type: ignore[union-attr]


def of_impression(file: File, folder: Path, time: Any) -> int:
    row = {"item": "a", "clicked": 1, "shown_at": "2026-05-01", "clicked_at": time}
    (block,) = PhasedLoad("clicks", [open_events(file(folder, row), "clicks", "s")], "s").blocks()
    return int(block.click_ms[0])  # type: ignore[union-attr]


def of_list(file: File, folder: Path, time: Any) -> int:
    row = {"items": '["a"]', "clicks": "[]", "shown_at": time}
    (block,) = PhasedLoad("clicks", [open_events(file(folder, row), "clicks", "s")], "s").blocks()
    return int(block.shown_at_ms[0])  # type: ignore[union-attr, index]


def of_source(folder: Path, time: Any) -> int:
    fields: dict[str, Any] = {"left": "a", "right": "b", "time": "at"}
    mapping = mapper(SourceSettings(topic="t", kind="relations", space="s", fields=fields))
    value = json.dumps({"a": "x", "b": "y", "at": time}).encode()
    events = mapping.events(Message("t", 0, 0, END, None, value, (), -1))
    assert events is not None
    return int(events[0].time_ms)  # type: ignore[union-attr]


ENTRIES: dict[str, Callable[[Path, Any], int]] = {
    "relations csv": lambda folder, time: of_relation(csv_file, folder, time),
    "relations parquet": lambda folder, time: of_relation(parquet_file, folder, time),
    "relations json lines": lambda folder, time: of_relation(jsonl_file, folder, time),
    "items csv": lambda folder, time: of_item(csv_file, folder, time),
    "items parquet": lambda folder, time: of_item(parquet_file, folder, time),
    "impressions csv": lambda folder, time: of_impression(csv_file, folder, time),
    "impressions parquet": lambda folder, time: of_impression(parquet_file, folder, time),
    "lists csv": lambda folder, time: of_list(csv_file, folder, time),
    "lists parquet": lambda folder, time: of_list(parquet_file, folder, time),
    "sources": of_source,
}
each = pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)


@each
@pytest.mark.parametrize(
    ("time", "expected"),
    [
        (DAY // 1000, DAY),
        (DAY, DAY),
        (DAY * 1_000, DAY),
        (DAY * 1_000_000, DAY),
        (DAY / 1000 + 0.25, DAY + 250),
        (DAY + 0.25, DAY),
        (DAY * 1_000 + 0.5, DAY),
        (20260501, DAY),
        ("20260501", DAY),
        ("2026-05-01", DAY),
        ("2026-05-01T02:00:00+02:00", DAY),
        (f"{DAY // 1000}.25", DAY + 250),
    ],
)
def test_units_are_recognised(
    tmp_path: Path, entry: Callable[[Path, Any], int], time: Any, expected: int
) -> None:
    assert entry(tmp_path, time) == expected


WRONG = (0, -1, 46_143, 46_143.5, 1_000, 2026, 20261301, 19691231, 10**11, 10**14, 10**17 + 1, 10**18 * 5)
NO_TIMES = ("46143", "soon", "1e5", "1989-12-31", "2100-01-01", "58301-01-01", "0000-00-00", "20260501120000")


@each
@pytest.mark.parametrize("time", [*WRONG, *NO_TIMES])
def test_what_is_of_no_taken_year_is_refused(
    tmp_path: Path, entry: Callable[[Path, Any], int], time: Any
) -> None:
    with pytest.raises((SourceError, BadRecord), match=r"(time|clicked_at) \(.*\): ") as caught:
        entry(tmp_path, time)
    assert str(time) in str(caught.value)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
def test_timestamps_of_parquet_in_every_unit_and_zone(tmp_path: Path, unit: str, zone: str | None) -> None:
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    good = pa.array([DAY // 1000 * per_second], pa.timestamp(unit, zone))
    columns = {"left": ["a"], "right": ["b"], "similar": [1], "time": good}
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table(columns), path)
    (block,) = PhasedLoad("relations", [open_events(str(path), "relations", "s")], "s").blocks()
    assert block.time_ms.tolist() == [DAY]  # type: ignore[union-attr]
    # Milliseconds or microseconds that were declared as something larger, and a clock that was never set.
    far = {"s": 2**43, "ms": 2**55, "us": 2**61, "ns": 2**62}[unit]
    for wrong in (far, -far, 5):
        columns["time"] = pa.array([wrong], pa.timestamp(unit, zone))
        pq.write_table(pa.table(columns), path)
        with pytest.raises(
            SourceError, match=r"row 1: time \(time\): the time .* outside of the years 1990 to 2099"
        ):
            open_events(str(path), "relations", "s")


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64()])
def test_dates_and_lists_of_times_in_parquet(tmp_path: Path, kind: pa.DataType) -> None:
    columns = {
        "items": [["a", "b"]],
        "clicks": [["a", "b"]],
        "clicked_at": pa.array([[date(2026, 5, 1), date(2026, 5, 2)]], pa.list_(kind)),
        "shown_at": pa.array([date(2026, 5, 1)], kind),
    }
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table(columns), path)
    (block,) = PhasedLoad("clicks", [open_events(str(path), "clicks", "s")], "s").blocks()
    assert block.shown_at_ms.tolist() == [DAY]  # type: ignore[union-attr]
    assert block.click_ms.tolist() == [DAY, DAY + 86_400_000]  # type: ignore[union-attr]
    columns["clicked_at"] = pa.array([[NOON, NOON.replace(year=2200)]], pa.list_(pa.timestamp("ms", "UTC")))
    pq.write_table(pa.table(columns), path)
    with pytest.raises(SourceError, match=r"row 1: clicked_at \(clicked_at\): the time 2200"):
        open_events(str(path), "clicks", "s")


@given(st.integers(EARLIEST, END - 1), st.integers(-23, 23))
def test_every_spelling_of_a_time_is_one_time(time: int, hours: int) -> None:
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time)
    spellings = (time, str(time), time * 1_000, time * 1_000_000, at, at.replace(tzinfo=None), at.isoformat())
    zoned = at.astimezone(timezone(timedelta(hours=hours)))
    assert {milliseconds(one) for one in (*spellings, zoned, zoned.isoformat(), Decimal(time))} == {time}
    assert milliseconds(time // 1000) == time // 1000 * 1000
    assert milliseconds(f" {time} ") == time


@given(st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=12))
def test_no_value_becomes_a_time_of_another_year(value: Any) -> None:
    try:
        found = milliseconds(value)
    except ValueError as error:
        assert str(error)
    else:
        assert EARLIEST <= found < END


@pytest.mark.parametrize("value", [10**400, -(10**400), Decimal("1e400"), float("inf"), "9" * 400, 2**63])
def test_no_number_is_too_large_to_be_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="the time"):
        milliseconds(value)
