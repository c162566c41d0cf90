"""Checks of result lists, one by one and over a whole file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from kinstream.producers.files.numbers import RowError
from kinstream.producers.loads.record_rows import UNKNOWN_TIME
from kinstream.streams.errors import KinstreamError
from kinstream.streams.records.values import Click

#: Milliseconds far beyond any calendar.
END_OF_TIME: Final = 2**53
#: Creates the error of a field: its name as in `Click`, the number of the impression or None, and the fault.
Fault = Callable[[str, int | None, str], KinstreamError]


def check_list(click: Click, fault: Fault) -> Click:
    """Check that builders can use a list.

    Raises
    ------
    KinstreamError : of `fault`. It is empty; an item or a position appears twice; a click is on no shown item; a
        position or a time is out of range.
    """
    if not click.items:
        raise fault("items", None, "the list is empty")
    for field, values in (("items", click.items), ("positions", click.positions)):
        if (twice := _repeated(values)) is not None:
            what = "item" if field == "items" else "position"
            raise fault(field, twice, f"{what} {values[twice]!r} appears twice in the list")
    for number, position in enumerate(click.positions):
        if not 0 <= position < 2**31:
            raise fault("positions", number, f"a position counts from the top and cannot be {position}")
    if not _is_time(click.shown_at_ms):
        raise fault("shown_at_ms", None, f"the time {click.shown_at_ms} is negative or beyond any calendar")
    places = {item: number for number, item in enumerate(click.items)}
    for one in click.clicks:
        place = places.get(one.item)
        if place is None:
            raise fault("clicks", None, f"a click on {one.item!r}, which is not shown")
        if not _is_time(one.time_ms):
            raise fault("clicks", place, f"the time {one.time_ms} is negative or beyond any calendar")
        if one.dwell_ms is not None and not 0 <= one.dwell_ms < END_OF_TIME:
            raise fault("dwell_ms", place, f"a dwell time of {one.dwell_ms} ms")
    return click


def _is_time(time_ms: int) -> bool:
    return time_ms == UNKNOWN_TIME or 0 <= time_ms < END_OF_TIME


def _repeated(values: Sequence[Any]) -> int | None:
    """The number of the first repeated value."""
    if len(set(values)) == len(values):
        return None
    seen: set[Any] = set()
    for number, value in enumerate(values):
        if value in seen:
            return number
        seen.add(value)
    return None


class ClickTally:
    """Counts lists, and holds their query vectors to one shape."""

    def __init__(self, place: str) -> None:
        self._place = place
        self.modalities: tuple[tuple[str, int], ...] = ()
        self.facts: dict[str, Any] = {
            "impressions": 0,
            "clicks": 0,
            "lists_without_click": 0,
            "lists_without_query": 0,
        }

    def add(self, record: Click, row: int) -> None:
        """Check and count a list.

        Raises
        ------
        SourceError : its query vector is not finite, or of other modalities or dimensions than those before.
        """
        self.facts["impressions"] += len(record.items)
        self.facts["clicks"] += len(record.clicks)
        self.facts["lists_without_click"] += not record.clicks
        self.facts["lists_without_query"] += record.query_item is None and not record.query_vector
        if not record.query_vector:
            return
        sizes = tuple((t.name, t.vectors.shape[1]) for t in record.query_vector)
        self.modalities = self.modalities or sizes
        if sizes != self.modalities:
            fault = f": a query vector of {dict(sizes)} numbers, but others have {dict(self.modalities)}"
            raise RowError(self._place, row, fault)
        if not all(np.isfinite(t.vectors).all() for t in record.query_vector):
            raise RowError(self._place, row, ": the query vector is not finite")
