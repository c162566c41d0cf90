"""What the joins of lists with what was done with them have in common: open lists, the time of the log, counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import ClassVar

import orjson

from kinstream.producers.sources.ubi_lists import OpenList, OpenLists, Part
from kinstream.producers.sources.values.partition_time import PartitionTime, stamp_of
from kinstream.streams.records.message import Message
from kinstream.streams.records.state import State
from kinstream.streams.records.values import Loaded


class Join(ABC):
    """The join of one partition; with `events` it is a `kinstream.producers.sources.mapping.Mapper`.

    Parameters
    ----------
    window_ms, names : as of `OpenLists`.

    Attributes
    ----------
    fates : what is counted; `LIST_CLOSED` and `CLOSED_EARLY` among it.
    """

    fates: ClassVar[type[StrEnum]]

    def __init__(self, window_ms: int, names: Sequence[str] | None) -> None:
        self._window_ms = window_ms
        self._lists = OpenLists(window_ms, names)
        self._time = PartitionTime()
        self._counts: Counter[str] = Counter()

    def _placed(self, own_ms: int, message: Message, session: str | None, user: str | None) -> Part:
        """What a record with this time of its own says of its list."""
        log_ms = stamp_of(message)
        # A log without times, as a file is, has those in its records.
        log_ms = own_ms if log_ms is None else log_ms
        # A producer whose clock is behind does not write into the past.
        return Part(own_ms, log_ms, max(log_ms, self._time.now_ms), session, user)

    # ---- closing ------------------------------------------------------------------------------------------------

    def _due(self) -> list[Loaded]:
        """The events of lists whose window has ended, and of those that make room."""
        self._lists.correct(self._time.latest_ms)
        ended = self._closed(self._lists.due(self._time.now_ms), self.fates["LIST_CLOSED"])
        return ended + self._closed(self._lists.surplus(), self.fates["CLOSED_EARLY"])

    @abstractmethod
    def _closed(self, lists: Iterable[OpenList], fate: StrEnum) -> list[Loaded]:
        """The events of closed lists, which are counted by their fate."""

    def held_back(self) -> list[Loaded]:
        return [one.click() for one in self._lists if len(one)]

    # ---- state --------------------------------------------------------------------------------------------------

    def counts(self) -> dict[str, int]:
        return {fate.value: self._counts[fate] for fate in self.fates}

    def state(self) -> State:
        return {
            "open_lists": orjson.dumps(self._lists.state()).decode(),
            "spaces": orjson.dumps(self._lists.spaces).decode(),
            "times": orjson.dumps(self._time.state()).decode(),
            "fates": orjson.dumps(self.counts()).decode(),
        }

    def restore(self, state: State) -> None:
        self._take_lists(state, orjson.loads(str(state.get("spaces", "[]"))))
        self._counts = Counter(orjson.loads(str(state["fates"])))

    def inherit(self, state: State) -> None:
        if "open_lists" in state:
            self._take_lists(state, ())

    def _take_lists(self, state: State, spaces: Sequence[str]) -> None:
        self._lists.restore(orjson.loads(str(state["open_lists"])), spaces)
        # The first version of UBI's join kept the largest time in a record, which any client could have set.
        self._time.restore([(query, at) for query, at in orjson.loads(str(state.get("times", "[]")))])
