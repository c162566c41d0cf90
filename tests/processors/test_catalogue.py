"""The catalogue holds what a dict would hold, and writes only what is new."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinstream.processors.base import catalogue as module
from kinstream.processors.base.catalogue import Catalogue
from kinstream.processors.base.id_table import hashes
from kinstream.streams.checkpoints.state_bytes import State, from_bytes, to_bytes
from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.values import ItemBlock, Table

MODALITIES = (("x", 3), ("colour", 2))
NAMES = st.integers(0, 300).map(str)
BLOCKS = st.lists(st.tuples(st.lists(NAMES, max_size=40), st.lists(NAMES, max_size=6)), max_size=25)
Held = dict[str, list[list[float]]]


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TAIL_ENTRIES", 8)
    monkeypatch.setattr(module, "_LEAST_ENTRIES", 8)


def block(ids: list[str], tombstones: list[str], seed: int) -> ItemBlock:
    rng = np.random.default_rng(seed)
    tables = tuple(Table(n, rng.standard_normal((len(ids), d)).astype(np.float32)) for n, d in MODALITIES)
    return ItemBlock("s", tuple(ids), tables if ids else (), 0, tuple(tombstones))


def follow(held: Held, event: ItemBlock) -> None:
    for row, name in enumerate(event.ids):
        held[name] = [t.vectors[row].tolist() for t in event.tables]
    for name in event.tombstones:
        held.pop(name, None)


def check(found: Catalogue, held: Held) -> None:
    names = [str(n) for n in range(301)]
    references = found.find(hashes(names))
    assert [r >= 0 for r in references.tolist()] == [name in held for name in names]
    assert len(found) == len(held)
    known = references[references >= 0]
    tables = found.vectors(known)
    order = [name for name in names if name in held]
    for place, table in enumerate(tables):
        assert table.vectors.tolist() == [held[name][place] for name in order]


class Files:
    """Segments as a checkpoint keeps them: a name is written once."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}

    def checkpoint(self, of: Catalogue) -> bytes:
        for name in of.segments():
            data = to_bytes(of.segment(name))
            assert self.held.setdefault(name, data) == data
        return to_bytes(of.state())

    def load(self, name: str) -> State:
        return from_bytes(self.held[name])


@pytest.mark.long
@settings(deadline=None)
@given(BLOCKS)
def test_it_holds_what_a_dict_would_hold_also_after_a_restore_at_any_place(
    blocks: list[tuple[list[str], list[str]]],
) -> None:
    alone, carried, held, files = Catalogue(), Catalogue(), Held(), Files()
    for seed, (ids, tombstones) in enumerate(blocks):
        event = block(ids, tombstones, seed)
        alone.put(event)
        carried.put(event)
        follow(held, event)
        check(alone, held)
        state = files.checkpoint(carried)
        carried = Catalogue()
        carried.restore(from_bytes(state))
        carried.restore_segments(files.load)
        check(carried, held)
        # The same bytes, whether it was carried over or not.
        assert files.checkpoint(alone) == state
        assert alone.segments() == carried.segments()


def test_an_erased_item_leaves_no_vector_anywhere() -> None:
    found = Catalogue()
    for seed in range(30):
        found.put(block([str(seed), "wanted"], [], seed))
    wanted = [block(["x", "wanted"], [], seed).tables[0].vectors[1].tobytes() for seed in range(30)]
    text = to_bytes(found.state()) + b"".join(to_bytes(found.segment(n)) for n in found.segments())
    assert any(vector in text for vector in wanted)
    before = set(found.segments())
    found.put(block([], ["wanted", "unheard of"], 0))
    text = to_bytes(found.state()) + b"".join(to_bytes(found.segment(n)) for n in found.segments())
    assert not any(vector in text for vector in wanted)
    # Another content has another name.
    assert set(found.segments()) != before
    assert len(found) == 30


def test_a_checkpoint_of_many_items_writes_little() -> None:
    found, files = Catalogue(), Files()
    for seed in range(400):
        found.put(block([f"{seed}-{n}" for n in range(5)], [], seed))
        before = len(files.held)
        files.checkpoint(found)
        assert len(files.held) - before <= 2
    # 2000 items in segments of up to 128, and each was written at most once for each level.
    assert len(found.segments()) <= 2000 // 128 + 6
    written = sum(len(np.asarray(from_bytes(data)["keys"])) for data in files.held.values())
    assert written <= 3 * 2000


def test_memory_is_bounded_by_the_items_that_are_there() -> None:
    found = Catalogue()
    rng = np.random.default_rng(0)
    names = [str(n) for n in range(200)]
    sizes = []
    for seed in range(300):
        found.put(block([str(n) for n in rng.choice(200, 20, replace=False)], [], seed))
        sizes.append(found.nbytes)
    assert max(sizes[100:]) <= 1.3 * max(sizes[:100])
    assert (found.find(hashes(names)) >= 0).all()


def test_items_of_other_dimensions_are_refused_and_change_nothing() -> None:
    found = Catalogue()
    found.put(block(["a"], [], 0))
    before = to_bytes(found.state())
    wrong = ItemBlock("s", ("b",), (Table("x", np.ones((1, 4), np.float32)),), 0, ("a",))
    with pytest.raises(BadRecord) as caught:
        found.put(wrong)
    assert caught.value.reason is Reason.WRONG_DIMENSION
    assert to_bytes(found.state()) == before


def test_of_an_item_that_comes_twice_in_a_block_the_last_counts() -> None:
    found = Catalogue()
    event = block(["a", "b", "a"], [], 0)
    found.put(event)
    assert len(found) == 2
    (table, _) = found.vectors(found.find(hashes(["a"])))
    assert table.vectors.tolist() == event.tables[0].vectors[2:].tolist()
