"""User Behavior Insights (UBI 1.x of OpenSearch): queries and events of one topic, joined to result lists.

A query opens a list of its hits. Clicks join the list of their `query_id`, until a record of the partition is later
than the query by the window: then the list is an event, with its clicks. So the join is a function of one log. Times
are those of the records.

Schema: https://o19s.github.io/ubi, version 1.3.0.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import orjson

from kinstream.producers.clicks.checks import check_list
from kinstream.producers.sources.convert import name_of, optional_name, refused
from kinstream.producers.sources.fields import Fields
from kinstream.producers.sources.formats import Format
from kinstream.producers.sources.incoming import Incoming
from kinstream.producers.sources.lists import query_vector
from kinstream.producers.sources.reader import Reader
from kinstream.streams.configuration.sources import SourceSettings
from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.message import Message
from kinstream.streams.records.state import State
from kinstream.streams.records.values import Click, ItemClick, Loaded, Table

FIELDS: Final = {
    "action": "action_name",
    "query_id": "query_id",
    "items": "query_response_hit_ids",
    "item": "event_attributes.object.object_id",
    "time": "timestamp",
    "session": "session_id",
    "user": "client_id",
}
ACTIONS: Final = ("click", "click_through")
WINDOW_MINUTES: Final = 30
#: Lists, and items in them, that are open at a time; above it the oldest is closed before its window ends.
MAX_OPEN: Final = 100_000
MAX_ITEMS: Final = 2_000_000
#: A record further ahead of its place in the log would close lists too early.
MAX_AHEAD_MS: Final = 24 * 3_600_000

LIST_CLOSED: Final = "list-closed"
CLOSED_EARLY: Final = "list-closed-early"
LIST_REPEATED: Final = "list-repeated"
EMPTY_LIST: Final = "list-empty"
CLICK_JOINED: Final = "click-joined"
CLICK_REPEATED: Final = "click-repeated"
OTHER_ACTION: Final = "other-action"
FATES: Final = (
    LIST_CLOSED,
    CLOSED_EARLY,
    LIST_REPEATED,
    EMPTY_LIST,
    CLICK_JOINED,
    CLICK_REPEATED,
    OTHER_ACTION,
)


@dataclass(slots=True)
class _Open:
    """A list whose window has not ended."""

    space: str
    list_id: str
    items: tuple[str, ...]
    shown_at_ms: int
    session: str | None
    user: str | None
    query_item: str | None
    query_vector: tuple[Table, ...]
    clicks: list[tuple[str, int]] = field(default_factory=list)

    def click(self) -> Click:
        return Click(
            self.space,
            self.list_id,
            self.items,
            tuple(range(len(self.items))),
            tuple(ItemClick(item, at) for item, at in self.clicks),
            self.shown_at_ms,
            self.session,
            self.user,
            self.query_item,
            self.query_vector,
        )


class Ubi:
    """The join of one partition.

    Parameters
    ----------
    actions : names of the actions that are clicks.
    window_ms : how long after its query a list takes clicks.
    """

    def __init__(self, reader: Reader, fields: Fields, actions: Iterable[str], window_ms: int) -> None:
        self._reader = reader
        self._fields = fields
        self._actions = frozenset(actions)
        self._window_ms = window_ms
        self._open: dict[str, _Open] = {}
        self._items = 0
        self._watermark = 0
        self._counts: Counter[str] = Counter()

    def events(self, message: Message) -> list[Loaded] | None:
        record = self._reader.read(message)
        if record is None:
            return None
        action = self._value(record, "action")
        if action is None:
            return self._query(record)
        if type(action) is not str or action not in self._actions:
            self._counts[OTHER_ACTION] += 1
            return self._pass_time(record) or None
        return self._click(record)

    def _value(self, record: Incoming, name: str) -> Any:
        return record.at(self._fields[name].path)

    def _time(self, record: Incoming) -> int:
        time = self._fields.time(record)
        if time > record.message.timestamp_ms + MAX_AHEAD_MS and record.message.timestamp_ms >= 0:
            ahead = (time - record.message.timestamp_ms) // 3_600_000
            raise BadRecord(
                Reason.AHEAD_OF_LOG,
                f"{self._fields['time'].where}: {ahead} hours ahead of its place in the log",
            )
        return time

    def _pass_time(self, record: Incoming) -> list[Loaded]:
        """Let the time of a record that is left out close lists, if it has one."""
        try:
            return self._advance(self._time(record))
        except BadRecord:
            return []

    # ---- the two types of records -------------------------------------------------------------------------------

    def _query(self, record: Incoming) -> list[Loaded]:
        fields = self._fields
        hits = self._value(record, "items")
        if type(hits) is not list:
            raise refused(
                fields["items"].where,
                f"is missing, and so is {fields['action'].path.text}: neither a query with its hits nor an event",
            )
        time = self._time(record)
        where = fields["query_id"].where
        list_id = name_of(self._value(record, "query_id"), where)
        names = tuple(name_of(one, fields["items"].where) for one in hits)
        if not names:
            self._counts[EMPTY_LIST] += 1
            return self._advance(time)
        found = self._open.get(list_id)
        if found is not None:
            if found.items != names:
                raise refused(where, f"a list of query {list_id!r} with other hits is open")
            self._counts[LIST_REPEATED] += 1
            return self._advance(time)
        shown = _Open(
            fields.space(record),
            list_id,
            names,
            time,
            self._name(record, "session"),
            self._name(record, "user"),
            self._name(record, "query_item"),
            query_vector(fields, record),
        )
        check_list(shown.click(), lambda name, number, what: refused(fields["items"].where, what))
        made = self._advance(time)
        self._open[list_id] = shown
        self._items += len(names)
        return [*made, *self._surplus()]

    def _click(self, record: Incoming) -> list[Loaded]:
        fields = self._fields
        time = self._time(record)
        where = fields["query_id"].where
        list_id = name_of(self._value(record, "query_id"), where)
        item = name_of(self._value(record, "item"), fields["item"].where)
        shown = self._open.get(list_id)
        if shown is None or time > shown.shown_at_ms + self._window_ms:
            raise BadRecord(
                Reason.UNKNOWN_LIST,
                f"{where}: no list of query {list_id!r} is open on this partition, or it was closed",
            )
        if item not in shown.items:
            raise BadRecord(
                Reason.UNKNOWN_ITEM,
                f"{fields['item'].where}: {item!r} is not among the hits of query {list_id!r}",
            )
        session = self._name(record, "session")
        if (item, time) in shown.clicks:
            self._counts[CLICK_REPEATED] += 1
        else:
            shown.clicks.append((item, time))
            shown.session = shown.session or session
            self._counts[CLICK_JOINED] += 1
        return self._advance(time)

    def _name(self, record: Incoming, name: str) -> str | None:
        found = self._fields.find(name)
        return None if found is None else optional_name(record.at(found.path), found.where)

    # ---- closing ------------------------------------------------------------------------------------------------

    def _advance(self, time: int) -> list[Loaded]:
        self._watermark = max(self._watermark, time)
        return list(self._ended())

    def _ended(self) -> Iterator[Click]:
        """The lists whose window has ended, in the order of their queries in the log."""
        while self._open:
            first = next(iter(self._open.values()))
            if first.shown_at_ms + self._window_ms >= self._watermark:
                return
            yield self._close()
            self._counts[LIST_CLOSED] += 1

    def _surplus(self) -> Iterator[Click]:
        while len(self._open) > MAX_OPEN or (self._items > MAX_ITEMS and len(self._open) > 1):
            yield self._close()
            self._counts[CLOSED_EARLY] += 1

    def _close(self) -> Click:
        shown = self._open.pop(next(iter(self._open)))
        self._items -= len(shown.items)
        return shown.click()

    def held_back(self) -> list[Loaded]:
        return [one.click() for one in self._open.values()]

    # ---- state --------------------------------------------------------------------------------------------------

    def counts(self) -> dict[str, int]:
        return {fate: self._counts[fate] for fate in FATES}

    def state(self) -> State:
        lists = [
            {
                "space": one.space,
                "list_id": one.list_id,
                "items": one.items,
                "shown_at_ms": one.shown_at_ms,
                "session": one.session,
                "user": one.user,
                "query_item": one.query_item,
                "query_vector": [
                    (t.name, base64.b64encode(np.ascontiguousarray(t.vectors, "<f4").tobytes()).decode())
                    for t in one.query_vector
                ],
                "clicks": one.clicks,
            }
            for one in self._open.values()
        ]
        own: State = {
            "open_lists": orjson.dumps(lists).decode(),
            "watermark": self._watermark,
            "fates": orjson.dumps(self.counts()).decode(),
        }
        return own | self._reader.format.state()

    def restore(self, state: State) -> None:
        self._take_lists(state)
        self._counts = Counter(orjson.loads(str(state["fates"])))
        self._reader.format.restore(state)

    def inherit(self, state: State) -> None:
        if "open_lists" in state:
            self._take_lists(state)

    def _take_lists(self, state: State) -> None:
        self._open = {}
        for one in orjson.loads(str(state["open_lists"])):
            clicks = [(item, at) for item, at in one.pop("clicks")]
            tables = tuple(
                Table(name, np.frombuffer(base64.b64decode(data), "<f4").reshape(1, -1))
                for name, data in one.pop("query_vector")
            )
            items = tuple(one.pop("items"))
            self._open[one["list_id"]] = _Open(**one, items=items, query_vector=tables, clicks=clicks)
        self._items = sum(len(one.items) for one in self._open.values())
        self._watermark = int(state["watermark"])


def ubi(settings: SourceSettings, format_: Format) -> Ubi:
    """The join of a source with `preset = "ubi"`.

    Raises
    ------
    SettingsError : a field is unknown, or a path is not one. The message begins with the name of the setting.
    """
    fields = Fields("ubi", {**FIELDS, **settings.fields}, settings.space)
    reader = Reader(format_, settings.when, needs_value=True)
    window = settings.window_minutes or WINDOW_MINUTES
    return Ubi(reader, fields, settings.actions or ACTIONS, window * 60_000)
