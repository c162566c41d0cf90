"""What was done with the items of a list, as its clicks: each action with its weight, an outcome shared among them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from kinstream.streams.records.values import ItemClick


class Entry(NamedTuple):
    """One action, or an outcome of the whole list, whose item is None; no longer live once it is taken back."""

    item: str | None
    action: str | None
    time_ms: int
    weight: float
    live: bool = True


def clicks_of(entries: Iterable[Entry], places: Mapping[str, int]) -> Iterator[ItemClick]:
    """The clicks that entries in the order of the log make of a list; those on other items are left out.

    With an outcome, the newest, the items that were used share it: the r-th of them from the top gets a part in
    proportion to 1 / r. So a list that did not serve has no clicks.

    Parameters
    ----------
    places : of the items of the list.

    Examples
    --------
    >>> used = [Entry("b", None, 5, 1.0), Entry("a", "cited", 6, 1.0), Entry(None, None, 9, 0.75)]
    >>> [(one.item, one.weight) for one in clicks_of(used, {"a": 0, "b": 1, "c": 2})]
    [('b', 0.25), ('a', 0.5)]
    """
    live = [one for one in entries if one.live]
    outcome = next((one.weight for one in reversed(live) if one.item is None), None)
    shares: dict[str, float] = {}
    if outcome is not None:
        used = {one.item for one in live if one.item is not None and one.item in places}
        parts = {item: 1.0 / rank for rank, item in enumerate(sorted(used, key=places.__getitem__), 1)}
        shares = {item: outcome * part / sum(parts.values()) for item, part in parts.items()}
    for one in live:
        if one.item is None or one.item not in places:
            continue
        weight = float(np.float32(one.weight * shares.get(one.item, 1.0)))
        if weight > 0.0:
            yield ItemClick(one.item, one.time_ms, None, one.action, None if weight == 1.0 else weight)
