"""Records that hold a result list and its clicks."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from kinstream.producers.loads.list_checks import check_list
from kinstream.producers.sources.values.convert import (
    END_OF_TIME,
    are_milliseconds,
    flag,
    names_of,
    numbers_or_nothing,
    optional_name,
    refused,
    time_ms,
    vector,
    whole,
    wholes,
)
from kinstream.producers.sources.values.fields import Fields, MappedField
from kinstream.producers.sources.values.foreign_record import Incoming, Together
from kinstream.producers.sources.values.partition_time import MAX_AHEAD_MS, not_ahead, stamp_of
from kinstream.streams.errors import BadRecord, Reason, SettingsError
from kinstream.streams.records.checks import MAX_STRING_LENGTH, check_space, scores_of
from kinstream.streams.records.scores import Scores
from kinstream.streams.records.values import CLICK, Click, ItemClick, Loaded, Table

_NAMES: Final = ("session", "user", "query_item", "list_id", "address")


class ClickLists:
    """Result lists. `clicks` names the clicked items, or `clicked` has a flag for each shown one.

    Parameters
    ----------
    first_position : the number of the top rank in these records.

    Raises
    ------
    SettingsError : both or neither of `clicks` and `clicked` are named.
    """

    def __init__(self, fields: Fields, first_position: int = 0) -> None:
        self._fields = fields
        self._first = first_position
        self._items = fields["items"]
        self._positions = fields.find("positions")
        self._names = [fields.find(name) for name in _NAMES]
        self._has_vector = "query_vector" in fields.vectors
        self._time = fields.find("time")
        self._clicked_at = fields.find("clicked_at")
        plain = ("time", "items", "positions", "clicks", "clicked_at", "space", *_NAMES)
        self._together = Together([None if (f := fields.find(name)) is None else f.path for name in plain])
        self._has_plain = "clicks" in fields and "dwell_ms" not in fields and "action" not in fields
        self._check_space = lru_cache(10_000)(check_space)
        if ("clicks" in fields) == ("clicked" in fields):
            raise SettingsError(
                "fields must name one of clicks and clicked: the clicked items, or a flag for each shown one"
            )

    def __call__(self, record: Incoming) -> list[Loaded]:
        click = self.plain(record) if self._has_plain else None
        return self.value_by_value(record) if click is None else [click]

    def plain(self, record: Incoming) -> Click | None:
        """The list, if its values are as most are: names of text, whole numbers, times in milliseconds.

        Much faster than `value_by_value`, which takes every list, names what it refuses, and returns the same.

        Raises
        ------
        BadRecord : only the space, the query's vector or a score does not fit.
        """
        try:
            shown_at, items, positions, clicks, clicked_at, space, *names = self._together(record)
            if self._time is None:
                shown_at = record.message.timestamp_ms
                if shown_at < 0:
                    return None
            elif type(shown_at) is not int or not are_milliseconds((shown_at,)):
                return None
            latest = _latest(record)
            if shown_at > latest:
                return None
            count = len(items)
            shown = set(items)
            # Joining refuses what is not text.
            characters = len("".join(items))
        except (BadRecord, TypeError):
            return None
        if type(items) is not list or len(shown) != count or not count or "" in shown:
            return None
        if characters > MAX_STRING_LENGTH and max(map(len, items)) > MAX_STRING_LENGTH:
            return None
        ranks = self._plain_ranks(positions, count)
        clicked = self._plain_clicks(clicks, clicked_at, shown, shown_at, latest)
        if ranks is None or clicked is None:
            return None
        for name in names:
            if name is not None and (type(name) is not str or len(name) > MAX_STRING_LENGTH):
                return None
        session, user, query_item, list_id, address = names
        fields, message = self._fields, record.message
        if "space" not in fields:
            space = fields.space(record)
        elif type(space) is str and 0 < len(space) <= MAX_STRING_LENGTH:
            space = self._check_space(space)
        else:
            return None
        return Click(
            space,
            list_id or f"{message.topic}-{message.partition}-{message.offset}",
            tuple(items),
            ranks,
            clicked,
            shown_at,
            session or None,
            user or None,
            query_item or None,
            query_vector(fields, record) if self._has_vector else (),
            address=address or None,
            scores=self._scores(record, count),
        )

    def _plain_ranks(self, positions: Any, count: int) -> tuple[int, ...] | None:
        if self._positions is None:
            return _from_the_top(count)[0]
        if type(positions) is not list or len(positions) != count or set(map(type, positions)) != {int}:
            return None
        first = self._first
        ranks, in_order = _from_the_top(count)
        if not first and positions == in_order:
            return ranks
        if min(positions) < first or max(positions) >= 2**31 + first or len(set(positions)) != count:
            return None
        return tuple([position - first for position in positions]) if first else tuple(positions)

    def _plain_clicks(
        self, clicks: Any, clicked_at: Any, shown: set[str], shown_at: int, latest: int
    ) -> tuple[ItemClick, ...] | None:
        if clicks is None or clicks == []:
            return ()
        try:
            if type(clicks) is not list or not shown.issuperset(clicks):
                return None
        except TypeError:
            return None
        if self._clicked_at is None:
            return tuple([ItemClick(name, shown_at) for name in clicks])
        if type(clicked_at) is not list or len(clicked_at) != len(clicks):
            return None
        if set(map(type, clicked_at)) != {int} or not are_milliseconds(clicked_at):
            return None
        if max(clicked_at) > latest:
            return None
        return tuple(map(ItemClick, clicks, clicked_at))

    def value_by_value(self, record: Incoming) -> list[Loaded]:
        """The list of any record.

        Raises
        ------
        BadRecord : it does not fit the fields; with the field, its path and the fault.
        """
        fields = self._fields
        shown_at = fields.time(record)
        items = names_of(self._raw(record, self._items), self._items.where)
        if not items:
            raise BadRecord(Reason.EMPTY, f"{self._items.where}: nothing was shown")
        positions = self._ranks(record, len(items))
        clicks = self._clicks(record, items, shown_at)
        message = record.message
        session, user, query_item, list_id, address = [
            None if field is None else optional_name(record.at(field.path), field.where)
            for field in self._names
        ]
        click = Click(
            fields.space(record),
            list_id or f"{message.topic}-{message.partition}-{message.offset}",
            items,
            positions,
            clicks,
            shown_at,
            session,
            user,
            query_item,
            query_vector(fields, record) if self._has_vector else (),
            address=address,
            scores=self._scores(record, len(items)),
        )
        if not _sound(click):
            check_list(click, self._fault)
        return [click]

    def _scores(self, record: Incoming, count: int) -> Scores | None:
        """A number, or nothing, for each shown item and name of the settings."""
        if not self._fields.scores:
            return None
        found = {
            field.name: numbers_or_nothing(record.at(field.path), count, field.where)
            for field in self._fields.scores
        }
        return scores_of(found, count)

    def _ranks(self, record: Incoming, count: int) -> tuple[int, ...]:
        field = self._positions
        if field is None or record.at(field.path) is None:
            return tuple(range(count))
        found = wholes(self._raw(record, field), field.where)
        if len(found) != count:
            raise refused(field.where, f"{len(found)} values for {count}")
        return tuple([position - self._first for position in found]) if self._first else tuple(found)

    def _fault(self, field: str, number: int | None, what: str) -> BadRecord:
        name = {"shown_at_ms": "time"}.get(field, field)
        found = self._fields.find(name) or self._fields.find("clicked") or self._fields["items"]
        return refused(found.where, what)

    def _raw(self, record: Incoming, field: MappedField) -> list[Any]:
        found = record.at(field.path)
        if type(found) is not list:
            raise refused(field.where, "is missing" if found is None else "is no list")
        return found

    def _list(self, record: Incoming, name: str, read: Any) -> list[Any]:
        field = self._fields[name]
        where = field.where
        return [read(one, where) for one in self._raw(record, field)]

    def _beside(self, record: Incoming, name: str, count: int, read: Any) -> list[Any]:
        """A list with one value for each entry of another."""
        found = self._list(record, name, read)
        if len(found) != count:
            raise refused(self._fields[name].where, f"{len(found)} values for {count}")
        return found

    def _clicks(self, record: Incoming, items: tuple[str, ...], shown_at: int) -> tuple[ItemClick, ...]:
        fields = self._fields
        if "clicked" in fields:
            flags = self._beside(record, "clicked", len(items), _flag_or_nothing)
            places = [place for place, clicked in enumerate(flags) if clicked]
            names = tuple(items[place] for place in places)
            times = self._at(record, "clicked_at", len(items), _time_of(record), places)
            dwells = self._at(record, "dwell_ms", len(items), _optional_whole, places)
            kinds = self._at(record, "action", len(items), kind_of_action, places)
        else:
            raw = record.at(fields["clicks"].path)
            # A list without clicks may leave the field out.
            names = (
                () if raw is None else names_of(self._raw(record, fields["clicks"]), fields["clicks"].where)
            )
            places = list(range(len(names)))
            times = self._at(record, "clicked_at", len(names), _time_of(record), places)
            dwells = self._at(record, "dwell_ms", len(names), _optional_whole, places)
            kinds = self._at(record, "action", len(names), kind_of_action, places)
        return tuple(
            ItemClick(name, shown_at if at is None else at, dwell, kind)
            for name, at, dwell, kind in zip(names, times, dwells, kinds, strict=True)
        )

    def _at(self, record: Incoming, name: str, count: int, read: Any, places: list[int]) -> list[Any]:
        field = self._fields.find(name)
        if field is None or not places or record.at(field.path) is None:
            return [None] * len(places)
        found = self._beside(record, name, count, read)
        return [found[place] for place in places]


@lru_cache(100)
def _from_the_top(count: int) -> tuple[tuple[int, ...], list[int]]:
    """The ranks 0, 1, ... of that many items, as a tuple and as a list."""
    return tuple(range(count)), list(range(count))


def _sound(click: Click) -> bool:
    """Whether `check_list` would find nothing, for most lists; in less time."""
    items = set(click.items)
    return (
        len(items) == len(click.items) == len(set(click.positions))
        and min(click.positions) >= 0
        and max(click.positions) < 2**31
        and all(one.item in items and one.dwell_ms is None for one in click.clicks)
    )


def query_vector(fields: Fields, record: Incoming) -> tuple[Table, ...]:
    """The query's vector, one row for each modality; none where the record has none."""
    made = []
    for field in fields.vectors.get("query_vector", ()):
        found = record.at(field.path)
        if found is not None:
            made.append(Table(field.name, vector(fields.changed(found), field.where).reshape(1, -1)))
    if made and len(made) < len(fields.vectors["query_vector"]):
        raise BadRecord(Reason.BAD_SHAPE, "query_vector: some modalities are missing")
    return tuple(made)


def kind_of_action(value: Any, where: str) -> str | None:
    """The kind of an action; None for a click."""
    found = optional_name(value, where)
    return None if found == CLICK else found


def _flag_or_nothing(value: Any, where: str) -> bool:
    return value is not None and flag(value, where)


def _time_of(record: Incoming) -> Callable[[Any, str], int | None]:
    """Reads the times of clicks in a record."""

    def read(value: Any, where: str) -> int | None:
        return None if value is None else not_ahead(time_ms(value, where), record.message, where)

    return read


def _latest(record: Incoming) -> int:
    """The latest time that `not_ahead` allows in a record."""
    log_ms = stamp_of(record.message)
    return END_OF_TIME if log_ms is None else log_ms + MAX_AHEAD_MS


def _optional_whole(value: Any, where: str) -> int | None:
    return None if value is None else whole(value, where)
