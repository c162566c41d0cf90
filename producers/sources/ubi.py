"""User Behavior Insights (UBI of OpenSearch): queries and events of one topic, joined to result lists.

A query opens a list of its hits, and so does the first impression of a query without hits. Impressions add what was
shown, further pages of a query their hits. Clicks join the list of their `query_id` until the time of the partition's
log is later by the window: then the list is an event, with its clicks. So the join is a function of one log. The times
in records are data: they say when a list was shown and clicked, and only the Kafka times of records move the log.

Schema: https://o19s.github.io/ubi, version 1.3.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

from kinstream.producers.sources.join import Join
from kinstream.producers.sources.lists import query_vector
from kinstream.producers.sources.ubi_forms import Forms, documents, is_bulk_line
from kinstream.producers.sources.ubi_lists import OpenList, Part
from kinstream.producers.sources.values.convert import refused, time_ms
from kinstream.producers.sources.values.foreign_record import Incoming
from kinstream.producers.sources.values.formats import Format
from kinstream.producers.sources.values.partition_time import not_ahead, stamp_of
from kinstream.producers.sources.values.reader import Reader
from kinstream.streams.configuration.sources import SourceSettings
from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.message import Message
from kinstream.streams.records.state import State
from kinstream.streams.records.values import CLICK, Loaded

ACTIONS: Final = (CLICK, "click_through")
IMPRESSION: Final = "impression"


class Fate(StrEnum):
    """What becomes of queries, impressions and clicks."""

    LIST_CLOSED = "list-closed"
    CLOSED_EARLY = "list-closed-early"
    LIST_CONTINUED = "list-continued"
    LIST_REPEATED = "list-repeated"
    EMPTY_LIST = "list-empty"
    CLICK_JOINED = "click-joined"
    CLICK_REPEATED = "click-repeated"
    CLICK_WITHOUT_QUERY = "click-without-query"
    IMPRESSION_JOINED = "impression-joined"
    IMPRESSION_REPEATED = "impression-repeated"
    OTHER_ACTION = "other-action"
    BULK_LINE = "bulk-line"


class Ubi(Join):
    """The join of one partition.

    Parameters
    ----------
    actions : names of the actions that are clicks, in any case.
    window_ms : how long after its query a list takes clicks.
    """

    fates = Fate

    def __init__(self, reader: Reader, forms: Forms, actions: Iterable[str], window_ms: int) -> None:
        self._reader = reader
        self._forms = forms
        self._actions = frozenset(action.lower() for action in actions)
        super().__init__(window_ms, [field.name for field in forms.fields.scores])

    def events(self, message: Message) -> list[Loaded] | None:
        records = self._reader.read_each(message, documents)
        if not records:
            return None
        counts = self._counts.copy()
        # One record changes a list that is open after all checks; of several, a later one may be refused.
        self._lists.begin(copies=len(records) > 1)
        try:
            times = [self._take(record) for record in records]
        except BadRecord:
            self._lists.undo()
            self._counts = counts
            raise
        appended = message.appended and stamp_of(message) is not None
        for said in times:
            if said is not None:
                self._time.take(*said, appended=appended)
        return self._due()

    def _take(self, record: Incoming) -> tuple[str, int] | None:
        """Take one record; returns its query and the time that it says for the log, None if it says none.

        Raises
        ------
        BadRecord : it does not fit; nothing has changed.
        """
        forms = self._forms
        action = forms.value(record, "action")
        if action is None:
            return self._query(record)
        name = action.lower() if type(action) is str else ""
        is_click = name in self._actions
        if not is_click and name != IMPRESSION:
            self._counts[Fate.OTHER_ACTION] += 1
            return self._passing(record)
        query = forms.name(record, "query_id")
        if query is None:
            self._counts[Fate.CLICK_WITHOUT_QUERY if is_click else Fate.OTHER_ACTION] += 1
            return None
        objects = forms.items(record)
        items = tuple(name for name in dict.fromkeys(objects) if name is not None)
        if is_click:
            return self._click(record, query, items, None if name in ACTIONS else name)
        if not items:
            self._counts[Fate.OTHER_ACTION] += 1
            return self._passing(record)
        return self._impression(record, query, items, objects)

    def _passing(self, record: Incoming) -> tuple[str, int] | None:
        """What a record that is left out says for the log, if it belongs to a query."""
        try:
            query = self._forms.name(record, "query_id")
            log_ms = stamp_of(record.message)
            return None if query is None else (query, self._own_ms(record) if log_ms is None else log_ms)
        except BadRecord:
            return None

    def _own_ms(self, record: Incoming) -> int:
        """The time in a record, which is data.

        Raises
        ------
        BadRecord : it has none, or one ahead of the log.
        """
        where = self._forms.where("time")
        return not_ahead(time_ms(self._forms.value(record, "time"), where), record.message, where)

    def _part(self, record: Incoming) -> Part:
        """What all records say of their lists.

        Raises
        ------
        BadRecord : its time is none or ahead of the log, or a name is none.
        """
        own_ms = self._own_ms(record)
        session, user = self._forms.name(record, "session"), self._forms.name(record, "user")
        return self._placed(own_ms, record.message, session, user)

    # ---- the three types of records -----------------------------------------------------------------------------

    def _query(self, record: Incoming) -> tuple[str, int] | None:
        forms = self._forms
        hits = forms.hits(record)
        if hits is None and is_bulk_line(record.value):
            self._counts[Fate.BULK_LINE] += 1
            return None
        query = forms.name(record, "query_id")
        if hits is None and (query is None or forms.value(record, "time") is None):
            raise refused(
                forms.where("items"),
                f"is missing, and so is {forms.fields['action'].path.text}: neither a query with its hits nor an event",
            )
        if query is None:
            raise refused(forms.where("query_id"), "is missing")
        part = self._part(record)
        if hits is not None and not any(hits):
            self._counts[Fate.EMPTY_LIST] += 1
            return query, part.log_ms
        item, vector = forms.name(record, "query_item"), query_vector(forms.fields, record)
        scores = None if hits is None else forms.scores(record, len(hits))
        is_new = self._lists.find(query) is None
        shown = self._list(record, query, part)
        more = self._lists.add_query(shown, part, hits or (), item, vector)
        if hits is not None and scores is not None:
            self._lists.add_scores(shown, part, hits, scores)
        self._counts[Fate.LIST_CONTINUED if more else Fate.LIST_REPEATED] += not is_new
        return query, part.log_ms

    def _impression(
        self, record: Incoming, query: str, items: tuple[str, ...], objects: Sequence[str | None]
    ) -> tuple[str, int]:
        part, ordinal = self._part(record), self._forms.ordinal(record)
        scores = self._forms.scores(record, len(objects))
        shown = self._list(record, query, part)
        added = self._lists.add_seen(shown, part, items, ordinal)
        if scores is not None:
            self._lists.add_scores(shown, part, objects, scores)
        self._counts[Fate.IMPRESSION_JOINED if added else Fate.IMPRESSION_REPEATED] += 1
        return query, part.log_ms

    def _click(
        self, record: Incoming, query: str, items: tuple[str, ...], kind: str | None
    ) -> tuple[str, int]:
        forms, part = self._forms, self._part(record)
        if not items:
            raise refused(forms.where("item"), "is missing")
        shown = self._lists.find(query)
        if shown is None or not shown.takes(part.own_ms, self._window_ms):
            raise BadRecord(
                Reason.UNKNOWN_LIST,
                f"{forms.where('query_id')}: no list of query {query!r} is open on this partition, or it was closed",
            )
        for item in items:
            if not shown.shows(item):
                raise BadRecord(
                    Reason.UNKNOWN_ITEM,
                    f"{forms.where('item')}: {item!r} is not among the hits of query {query!r}",
                )
        joined = self._lists.add_clicks(shown, part, items, kind)
        self._counts[Fate.CLICK_JOINED] += joined
        self._counts[Fate.CLICK_REPEATED] += len(items) - joined
        return query, part.log_ms

    def _list(self, record: Incoming, query: str, part: Part) -> OpenList:
        """The open list of a query, or a new one."""
        shown = self._lists.find(query)
        return self._lists.open(self._forms.fields.space(record), query, part) if shown is None else shown

    # ---- closing ------------------------------------------------------------------------------------------------

    def _closed(self, lists: Iterable[OpenList], fate: StrEnum) -> list[Loaded]:
        made: list[Loaded] = []
        for one in lists:
            if len(one):
                made.append(one.click())
            self._counts[fate if len(one) else Fate.EMPTY_LIST] += 1
        return made

    # ---- state --------------------------------------------------------------------------------------------------

    def state(self) -> State:
        return super().state() | self._reader.format.state()

    def restore(self, state: State) -> None:
        super().restore(state)
        self._reader.format.restore(state)


def ubi(settings: SourceSettings, format_: Format) -> Ubi:
    """The join of a source with `preset = "ubi"`.

    Raises
    ------
    SettingsError : a field is unknown, or a path is not one. The message begins with the name of the setting.
    """
    forms = Forms(settings.fields, settings.space)
    reader = Reader(format_, settings.when, needs_value=True)
    return Ubi(reader, forms, settings.actions or ACTIONS, settings.window_ms)
