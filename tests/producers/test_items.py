"""A catalogue becomes vectors of numbers and categories, and tombstones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kinstream.producers.files import csv as csv_module
from kinstream.producers.items.categories import Hashed, OneHot, hashed
from kinstream.producers.items.source import open_items
from kinstream.producers.loads.item_rows import tombstones
from kinstream.producers.loads.phased_load import PhasedLoad
from kinstream.streams.errors import SettingsError, SourceError
from tests.producers.block_contents import items_of

CSV = "sku,width,height,colour,brand\na,1,2,red,acme\nb,3,4,blue,\nc,5,6,red,zeta\n"

T = 1_704_067_200_000


def write(folder: Path, text: str, name: str = "shop.csv") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def load_of(name: str, given: Any = None, categories: Any = None, block_rows: int = 256) -> PhasedLoad:
    return PhasedLoad("items", [open_items(name, given, categories)], "shop", block_rows)


def sent(name: str, given: Any = None, categories: Any = None) -> dict[str, list[list[float]]]:
    return {k: v for b in load_of(name, given, categories).blocks() for k, v in items_of(b)[0].items()}


def test_numbers_and_one_hot_categories_in_order_of_first_appearance(tmp_path: Path) -> None:
    name = write(tmp_path, CSV)
    columns = {"id": "sku", "vector": "height,w*"}, {"x": [OneHot("colour"), OneHot("brand")]}
    assert sent(name, *columns) == {
        "a": [[2, 1, 1, 0, 1, 0]],
        "b": [[4, 3, 0, 1, 0, 0]],
        "c": [[6, 5, 1, 0, 0, 1]],
    }
    facts = load_of(name, *columns).facts
    assert facts["vocabulary"] == {"colour": ["red", "blue"], "brand": ["acme", "zeta"]}
    assert (facts["items"], facts["tombstones"], facts["features"]) == (3, 0, {"x": 6})


def test_hashed_categories_are_the_same_everywhere(tmp_path: Path) -> None:
    # Computed once: a changed hash would make other vectors of the same catalogue.
    assert [hashed("brand", value, 8) for value in ("acme", "zeta", "ö")] == [(1, 1.0), (0, -1.0), (1, -1.0)]
    found = sent(write(tmp_path, CSV), {"id": "sku", "vector": "width"}, {"x": [Hashed("brand", 8)]})
    for item, brand in (("a", "acme"), ("c", "zeta")):
        expected = np.zeros(8)
        bucket, sign = hashed("brand", brand, 8)
        expected[bucket] = sign
        assert found[item][0][1:] == expected.tolist()
    assert found["b"][0][1:] == [0.0] * 8


def test_modalities_hold_numbers_categories_or_both(tmp_path: Path) -> None:
    given = {"id": "sku", "vector.size": "width,height"}
    columns = given, {"look": [OneHot("colour")], "size": [Hashed("brand", 3)]}
    found = sent(write(tmp_path, CSV), *columns)
    assert found["b"] == [[3, 4, 0, 0, 0], [0, 1]]
    assert load_of(write(tmp_path, CSV), *columns).facts["features"] == {"size": 5, "look": 2}


def test_the_name_may_be_guessed_or_joined(tmp_path: Path) -> None:
    assert list(sent(write(tmp_path, "Item_ID,w\n7,1\n"))) == ["7"]
    assert list(sent(write(tmp_path, "shop,id,w\nx,7,1\ny,7,1\n"), {"id": "shop,id"})) == ["x/7", "y/7"]


def test_rows_marked_as_deleted_are_tombstones_whatever_else_they_hold(tmp_path: Path) -> None:
    text = "id,w,kind,gone\na,,,1\nb,2,u,\nc,bad,v,true\nd,4,w,0\n"
    columns = {"id": "id", "vector": "w", "deleted": "gone"}, {"x": [OneHot("kind")]}
    (block,) = load_of(write(tmp_path, text), *columns).blocks()
    assert items_of(block) == ({"b": [[2, 1, 0]], "d": [[4, 0, 1]]}, ("a", "c"))
    with pytest.raises(SourceError, match=r"row 3, column 'w': 'bad' is not a number"):
        load_of(write(tmp_path, text.replace("true", "0")), *columns)


def test_a_file_of_deletes_alone_has_no_vectors(tmp_path: Path) -> None:
    (block,) = load_of(write(tmp_path, "id,w,gone\na,,1\nb,,1\n"), {"deleted": "gone"}).blocks()
    assert items_of(block) == ({}, ("a", "b"))


def test_a_block_says_one_thing_of_an_item(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "id,w,gone\na,1,\nb,2,\na,,1\na,3,\nb,4,\nc,5,\n"
    columns = {"deleted": "gone"}
    expected = [
        ({"a": [[1]], "b": [[2]]}, ()),
        ({}, ("a",)),
        ({"a": [[3]], "b": [[4]], "c": [[5]]}, ()),
    ]
    for bytes_at_once in (12, 25, 10_000):
        monkeypatch.setattr(csv_module, "BLOCK_BYTES", bytes_at_once)
        assert [items_of(b) for b in load_of(write(tmp_path, text), columns).blocks()] == expected


def test_the_time_of_a_block_is_the_newest_of_its_rows(tmp_path: Path) -> None:
    text = "id,w,at\na,1,2024-01-01T00:00:02Z\nb,2,2024-01-01T00:00:03+00:00\nc,3,2024-01-01T00:00:01\n"
    columns = {"vector": "w", "time": "at"}
    blocks: Any = load_of(write(tmp_path, text), columns, None, 2).blocks(9)
    assert [block.time_ms for block in blocks] == [T + 3000, T + 1000]
    untimed = {"vector": "w"}
    assert [b.time_ms for b in load_of(write(tmp_path, text), untimed).blocks(9)] == [9]  # type: ignore[union-attr]


def test_parquet_and_npz_give_lists_and_several_modalities(tmp_path: Path) -> None:
    X = np.arange(12, dtype=np.float32).reshape(3, 4)
    kinds = ["u", "v", "u"]
    pq.write_table(
        pa.table({"id": [1, 2, 3], "image": list(X), "kind": pa.array(kinds).dictionary_encode()}),
        tmp_path / "shop.parquet",
    )
    np.savez(tmp_path / "shop.npz", id=np.array([1, 2, 3]), image=X.reshape(3, 2, 2), kind=np.array(kinds))
    expected = {str(n + 1): [X[n].tolist(), [1.0, 0.0] if n != 1 else [0.0, 1.0]] for n in range(3)}
    for name in ("shop.parquet", "shop.npz"):
        given, categories = {"vector.image": "image"}, {"kind": [OneHot("kind")]}
        assert sent(str(tmp_path / name), given, categories) == expected


@pytest.mark.parametrize(
    ("text", "columns", "told"),
    [
        ("id,w\na,1\nb,nan\n", {}, r"row 2, column 'w': nan is not a finite number"),
        ("id,w\na,1\nb,\n", {}, r"row 2, column 'w': the value is missing"),
        ("id,w\n,1\n", {}, r"row 1, column 'id': the value is missing"),
        ("sku,w\na,1\n", {}, r"which column is id\? Use --field id=COLUMN; there are: sku, w"),
        ("id,item,w\na,a,1\n", {}, r"the columns id, item could all be id"),
        ("id\na\n", {}, r"no column is left for the features"),
        ("id,w\na,1\n", {"time": "at"}, r"there is no column 'at'"),
        ("id,w\na,1\n", {"vector": "k"}, r"there is no column 'k'"),
        ("id,w\na,1\n", {"deleted": "id,w"}, r"deleted takes one column, not id, w"),
        ("id,w\na,1\n", {"ids": "id"}, r"there is no field 'ids'; did you mean id\?"),
        ("id,w,gone\na,1,perhaps\n", {"deleted": "gone"}, r"row 1: deleted \(gone\): 'perhaps'"),
        (
            "id,w,at\na,1,-1\n",
            {"time": "at"},
            r"row 1: time \(at\): the time '-1' is outside of the years",
        ),
        ("id,w\n", {}, r"there are no rows"),
    ],
)
def test_a_bad_catalogue_is_refused_by_place(
    tmp_path: Path, text: str, columns: dict[str, str], told: str
) -> None:
    with pytest.raises((SourceError, SettingsError), match=told):
        open_items(write(tmp_path, text), columns)


def test_an_item_that_fits_into_no_block_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    categories = {m: [Hashed("brand", 70_000)] for m in ("a", "b")}
    with pytest.raises(SourceError, match=r"row 1: an item of \d+ bytes does not fit into a block"):
        load_of(write(tmp_path, CSV), {"id": "sku", "vector": "width"}, categories)


def test_too_many_buckets_are_refused() -> None:
    with pytest.raises(SettingsError, match="buckets"):
        Hashed("brand", 0)


def test_the_identity_is_that_of_the_rows_and_their_vectors(tmp_path: Path) -> None:
    name = write(tmp_path, CSV)

    def identity(categories: Any = None, **given: str) -> str:
        return open_items(name, {"id": "sku", "vector": "width", **given}, categories).identity

    found = [
        identity(),
        identity(categories={"x": [OneHot("brand")]}),
        identity(categories={"x": [Hashed("brand", 8)]}),
        identity(categories={"x": [Hashed("brand", 9)]}),
        identity(categories={"y": [Hashed("brand", 9)]}),
        identity(vector="height"),
    ]
    assert len(set(found)) == len(found)
    assert identity() == found[0]


def test_deletes_by_name_count_each_time() -> None:
    first, later = (PhasedLoad("items", [tombstones(["a", "b", "a"], began)], "shop") for began in (1, 2))
    assert [items_of(b) for b in first.blocks()] == [({}, ("a", "b"))]
    assert first.load_id != later.load_id
    with pytest.raises(SourceError, match="no item to delete"):
        tombstones([], 1)
