"""A sink and offsets that hold no record: its store is told every position that a checkpoint tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from kinstream.streams.agents.machine import Place
from kinstream.streams.records.message import Message
from kinstream.streams.topics import partition_of
from kinstream.vectors.sinks.agent import SinkMachine
from kinstream.vectors.sinks.base import Change, Lane

SPACE = "docs"
HOME = partition_of(SPACE, 2)


@dataclass
class Store:
    """A store that holds a position, and refuses to begin after it, as an older copy of a database would."""

    at: int
    told: list[int] = field(default_factory=list)

    def write(self, lane: Lane, first: int, changes: Sequence[tuple[int, Change]], end: int) -> None:
        assert self.at >= first, "the store is an older one"
        self.at = max(self.at, end)
        self.told.append(end)


def machine(store: Store, at: int) -> SinkMachine:
    place = Place("main", 1, "kinstream.vectors", HOME, 2, None, 0, "kinstream.dead-letters")
    made = SinkMachine(place, SPACE, cast(Any, store))
    made.next_offset = at
    return made


def foreign(offset: int, previous: int) -> Message:
    return Message("kinstream.vectors", HOME, offset, 0, b"another space", b"", (), previous)


@pytest.mark.parametrize("records_before", [0, 1])
def test_a_position_that_passes_holes_reaches_the_store(records_before: int) -> None:
    store = Store(at=10)
    sink = machine(store, 10)
    for number in range(records_before):
        sink.step(foreign(10 + number, 9 + number))
        sink.flush()
    sink.pass_to(15)
    sink.flush()
    assert store.told[-1] == 15
    # The next process begins at the checkpoint, which says 15.
    again = machine(store, 15)
    again.step(foreign(16, 14))
    again.flush()
    assert store.at == 17
