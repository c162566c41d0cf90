"""Names of items: one is found without reading the others, whatever has been erased."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinstream.processors.base.builder import Origin, State
from kinstream.processors.base.id_table import hashes
from kinstream.processors.closure import item_log
from kinstream.processors.closure.closure import Closure
from kinstream.processors.closure.item_log import ItemLog
from kinstream.processors.closure.seed_log import SeedLog
from tests.processors.closure_samples import items, tell


class Text(bytes):
    """Bytes of names that note how many were decoded."""

    decoded = 0

    def __getitem__(self, place: Any) -> Any:
        return Text(super().__getitem__(place))

    def decode(self, *_: Any) -> str:
        Text.decoded += len(self)
        return bytes(self).decode()


def counted(log: ItemLog) -> None:
    """From now on, bytes that become names are counted."""
    Text.decoded = 0
    log._sealed = [(Text(text), ends) for text, ends in log._sealed]


def filled(names: list[str]) -> ItemLog:
    log = ItemLog()
    log.add(hashes(names), names, np.arange(len(names)))
    return log


def test_a_name_is_decoded_alone() -> None:
    names = [f"item {n}" for n in range(2 * item_log.SEGMENT + 10)]
    log = filled(names)
    counted(log)
    some = [0, 1, item_log.SEGMENT - 1, item_log.SEGMENT, 9000, 2 * item_log.SEGMENT - 1]
    assert [log.name(n) for n in some] == [names[n] for n in some]
    assert Text.decoded == sum(len(names[n]) for n in some)


def test_an_explanation_and_a_refusal_decode_the_names_that_they_say() -> None:
    builder = Closure(max_new_pairs=1, max_new_triplets=1)
    count = item_log.SEGMENT + 50
    builder.process(items(range(count)), Origin(0))
    tell(builder, *[(n, n + 1, True, None) for n in range(count - 1)])
    counted(builder._items)
    found = builder.explain("item 0", "item 500")
    assert found is not None and len(found.links) == 500
    assert [link.left for link in found.links] == [f"item {n}" for n in range(500)]
    said = sum(len(link.left or "") + len(link.right or "") for link in found.links)
    assert Text.decoded == said
    Text.decoded = 0
    made = tell(builder, (3, 7000, False, None))
    assert "'item 3' and 'item 7000'" in made.refused[0].detail
    assert Text.decoded < 20 * len("item 7000")


def test_an_erasure_decodes_no_name() -> None:
    names = [f"item {n}" for n in range(item_log.SEGMENT)]
    log = filled(names)
    counted(log)
    log.remove(hashes([names[5], names[0], names[-1]]))
    assert Text.decoded == 0
    assert [log.name(n) for n in (0, 1, 4, 5, 6, 8191)] == [None, names[1], names[4], None, names[6], None]


@settings(max_examples=60)
@given(
    names=st.lists(st.text(max_size=12), min_size=1, max_size=40, unique=True),
    gone=st.lists(st.integers(0, 39), max_size=30),
    segment=st.sampled_from([1, 3, 8, 100]),
)
def test_any_names_and_erasures(names: list[str], gone: list[int], segment: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(item_log, "SEGMENT", segment)
        log = filled(names)
        expected: list[str | None] = list(names)
        for n in gone:
            if n < len(names):
                log.remove(hashes([names[n]]))
                expected[n] = None
        assert [log.name(n) for n in range(len(names))] == expected
        again = ItemLog()
        state, parts = log.state(), {name: log.segment(name) for name in log.segments()}
        again.restore(state)
        again.restore_segments(lambda name: parts[name])
        assert [again.name(n) for n in range(len(names))] == expected
        for number, part in enumerate(parts.values()):
            here = expected[number * segment : (number + 1) * segment]
            assert np.asarray(part["text"]).tobytes() == "".join(name or "" for name in here).encode()
            ends = np.cumsum([len((name or "").encode()) for name in here])
            assert np.asarray(part["ends"]).tolist() == ends.tolist()


def test_a_seed_of_the_open_tail_is_found_without_copying_all_sources() -> None:
    log = SeedLog()
    many = [f"source {n}" for n in range(5000)]
    columns = {
        name: np.zeros(5000, np.int64) for name in ("left", "right", "kind", "via", "offset", "row", "time")
    }
    log.append(columns | {"source": np.arange(5000)}, many)
    names = log._source_names

    class Once(list[str]):
        def __iter__(self) -> object:  # type: ignore[override]
            raise AssertionError("all sources were gone through")

    log._source_names = Once(names)
    assert [log.seed(n).source for n in (0, 17, 4999)] == [many[0], many[17], many[4999]]
    log._source_names = names
    state: State = log.state()
    assert json.loads(str(state["sources"])) == many
