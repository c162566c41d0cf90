"""Relations come from tables and JSON lines, or the row that cannot be one is named."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kinstream.producers.loads.phased_load import PhasedLoad
from kinstream.producers.sources.file_events import open_events
from kinstream.streams.errors import KinstreamError, SettingsError, SourceError
from kinstream.streams.records.values import Relation
from tests.producers.block_contents import relations_of

JANUARY = 1_704_067_200_000
EXPECTED = [
    Relation("shop", "a", "b", True, JANUARY, "ed"),
    Relation("shop", "b", "c", False, JANUARY + 1500, None),
]


def write(folder: Path, text: str, name: str = "judged.csv") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def opened(name: str, given: dict[str, str] | None = None) -> Any:
    return open_events(name, "relations", "shop", given)


def sent(name: str, given: dict[str, str] | None = None) -> list[Relation]:
    load = PhasedLoad("relations", [opened(name, given)], "shop")
    return [relation for block in load.blocks(time_ms=17) for relation in relations_of(block)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("r.csv", "left,right,similar,time,source\na,b,1,1704067200,ed\nb,c,-1,1704067201.5,\n"),
        ("r.csv", "left,right,sign,time_ms,source\na,b,+1,1704067200000,ed\nb,c,0,1704067201500,\n"),
        ("r.tsv", "left\tright\tsimilar\ttime\tsource\na\tb\tTrue\t2024-01-01\ted\n"),
        (
            "r.jsonl",
            '{"left": "a", "right": "b", "similar": true, "time_ms": 1704067200000, "source": "ed"}\n\n'
            '{"left": "b", "right": "c", "similar": -1, "time_ms": 1704067201500}\n',
        ),
    ],
)
def test_relations_come_in_every_form(tmp_path: Path, name: str, text: str) -> None:
    found = sent(write(tmp_path, text, name))
    assert found == EXPECTED[: len(found)]


def test_relations_come_from_parquet(tmp_path: Path) -> None:
    times = pa.array([JANUARY * 10**6, (JANUARY + 1500) * 10**6 + 7], pa.timestamp("ns"))
    columns = {
        "a": ["a", "b"],
        "right": ["b", "c"],
        "similar": [True, False],
        "at": times,
        "who": ["ed", None],
    }
    pq.write_table(pa.table(columns), tmp_path / "r.parquet")
    mapped = {"left": "a", "time": "at", "source": "who"}
    assert sent(str(tmp_path / "r.parquet"), mapped) == EXPECTED


def test_packed_files_are_read(tmp_path: Path) -> None:
    for name, text in (
        ("r.csv.gz", "left,right,similar\na,b,1\n"),
        ("r.jsonl.gz", '{"left": "a", "right": "b", "similar": 1}\n'),
    ):
        (tmp_path / name).write_bytes(gzip.compress(text.encode()))
        assert sent(str(tmp_path / name)) == [Relation("shop", "a", "b", True, 17)]


def test_a_name_may_stand_in_several_columns(tmp_path: Path) -> None:
    name = write(tmp_path, "shop,left,right,similar\nx,a,b,1\n")
    found = sent(name, {"left": "shop,left", "right": "shop,right"})
    assert (found[0].left, found[0].right) == ("x/a", "x/b")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("left,right,similar\na,b,1\nc,c,1\n", r"row 2: right \(right\): 'c' is related to itself"),
        ("left,right,similar\na,b,maybe\n", r"row 1: similar \(similar\): 'maybe' is neither true"),
        ("left,right,similar\na,,1\n", r"row 1: right \(right\): is missing"),
        (
            "left,right,similar,time\na,b,1,-5\n",
            r"row 1: time \(time\): the time '-5' is outside of the years 1990 to 2099",
        ),
        ("left,right,similar,time\na,b,1,\n", r"row 1: time \(time\): is missing"),
        (
            "left,right,similar,time\na,b,1,2024-01-01\na,c,1,17\n",
            r"row 2: time \(time\): the time '17' is outside of the years 1990 to 2099",
        ),
        (
            "left,right,similar,time\na,b,1,20240101\na,c,1,soon\n",
            r"row 2: time \(time\): 'soon' is no time such as",
        ),
        ("left,right,similar\n", r"there are no rows"),
        (
            "left,right\na,b\n",
            r"which column is similar\? Use --field similar=COLUMN; there are: left, right",
        ),
        ("left,right,similar,sign\na,b,1,1\n", r"similar, sign could all be similar"),
        (f"left,right,similar\n{'x' * 5000},b,1\n", r"row 1: left \(left\): is longer than 4096"),
    ],
)
def test_a_bad_relation_is_refused_by_place(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(SourceError, match=told) as caught:
        opened(write(tmp_path, text))
    assert "judged.csv" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"left": "a"\n', r"row 1: not JSON"),
        ('{"left": "a", "right": "b", "similar": 1}\n[1]\n', r"row 2: not a JSON object"),
        (
            '{"left": "a", "right": "b", "similar": 1}\n{"left": "a", "right": 7.5, "similar": 1}\n',
            r"row 2.*7\.5",
        ),
    ],
)
def test_a_bad_line_is_refused_by_place(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(SourceError, match=told):
        opened(write(tmp_path, text, "judged.jsonl"))


def test_a_damaged_packed_file_is_refused(tmp_path: Path) -> None:
    packed = gzip.compress(b'{"left": "a", "right": "b", "similar": 1}\n' * 1000)
    for name in ("r.jsonl.gz", "r.csv.gz"):
        (tmp_path / name).write_bytes(packed[: len(packed) // 2])
        with pytest.raises(SourceError, match=name):
            opened(str(tmp_path / name))


@pytest.mark.parametrize(
    ("columns", "error", "told"),
    [
        ({"who": "left"}, SettingsError, "there is no field 'who'; there are: left, right, similar"),
        ({"similar": "left,right"}, SettingsError, "similar takes one column"),
        ({"left": "x"}, SourceError, "there is no column 'x'"),
    ],
)
def test_a_bad_mapping_is_refused(
    tmp_path: Path, columns: dict[str, str], error: type[KinstreamError], told: str
) -> None:
    with pytest.raises(error, match=told):
        opened(write(tmp_path, "left,right,similar\na,b,1\n"), columns)


@pytest.mark.parametrize("name", ["gone.jsonl", "gone.csv", "r.npz.txt"])
def test_a_file_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SourceError, match=r"no such file|not a file that ends|neither a file"):
        opened(str(tmp_path / name))
