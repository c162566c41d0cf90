"""Simulated items and clicks as a load: first the catalogue, then the lists."""

from __future__ import annotations

from typing import Any

import numpy as np

from kinstream.producers.labelled.batch import Source
from kinstream.producers.labelled.hold_out import is_held_out, read_all, streamed_rows
from kinstream.producers.loads.click_rows import ClickRows, click_bytes
from kinstream.producers.loads.item_rows import ItemsInMemory
from kinstream.producers.loads.phased_load import EventSource, PhasedLoad
from kinstream.producers.loads.record_rows import BATCH_ROWS, RecordLayout
from kinstream.producers.simulated.settings import Simulation
from kinstream.producers.simulated.simulator import ClickSimulator
from kinstream.streams.errors import SourceError


class SimulatedLists:
    """The lists of a simulator as a source. A position is the number of a list."""

    def __init__(self, simulator: ClickSimulator) -> None:
        self._simulator = simulator
        self.identity = simulator.identity
        self.facts: dict[str, Any] = {"lists": simulator.settings.lists}
        first = simulator.click(0, "")
        sizes = tuple((t.name, t.vectors.shape[1]) for t in first.query_vector)
        self.layout = RecordLayout(sizes, simulator.settings.lists)
        self._next = 0

    def check_fits(self, room: int) -> None:
        """Refuse lists that may take more than `room` bytes."""
        settings = self._simulator.settings
        longest = max(len(name.encode()) for name in self._simulator.items().ids)
        vectors = sum(4 * width for _, width in self.layout.modalities)
        needed = 200 + longest + vectors + settings.list_length * (longest + 40)
        if needed > room:
            raise SourceError(f"lists of {settings.list_length} do not fit into a block of {room} bytes")

    def snapshot(self) -> int:
        return self._next

    def seek(self, position: int) -> None:
        self._next = position

    def next_batch(self) -> ClickRows | None:
        start, stop = self._next, min(self._next + BATCH_ROWS, self._simulator.settings.lists)
        if start >= stop:
            return None
        self._next = stop
        lists = tuple(self._simulator.clicks("", start, stop))
        return ClickRows(lists, tuple(map(click_bytes, lists)))


def simulated_load(
    simulator: ClickSimulator, space: str, block_rows: int | None = None, load_id: str | None = None
) -> PhasedLoad:
    """The load of a simulator: item blocks, then click blocks. `blocks()` of it gives the records.

    Raises
    ------
    SettingsError : the space, the load id or `block_rows` is invalid.
    SourceError : an item or a list does not fit into a block.
    """
    items = simulator.items()
    facts = {"items": len(items), "classes": simulator.classes}
    sources: list[EventSource[Any]] = [
        ItemsInMemory(items, simulator.identity, facts),
        SimulatedLists(simulator),
    ]
    return PhasedLoad("simulated-clicks", sources, space, block_rows, load_id)


def simulator_of(
    source: Source, settings: Simulation, hold_out: float = 0.0, hold_out_seed: int = 0
) -> ClickSimulator:
    """A simulator over a labelled source. Items are named by their ids, or by their row numbers in the source.

    Parameters
    ----------
    hold_out, hold_out_seed : share of the rows that are left out, as in a labelled load.

    Raises
    ------
    SettingsError : the settings do not fit the rows.
    SourceError : the rows cannot be used.
    """
    rows = streamed_rows(source, hold_out, hold_out_seed) if hold_out else read_all(source)
    ids = rows.ids
    if ids is None:
        left_out = is_held_out(hold_out, hold_out_seed, 0, source.layout.rows)
        ids = tuple(map(str, np.flatnonzero(~left_out).tolist()))
    return ClickSimulator({t.name: t.vectors for t in rows.tables}, rows.labels, settings, ids)
