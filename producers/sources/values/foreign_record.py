"""A record of another system, parsed: what paths look into."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import orjson

from kinstream.producers.sources.values.paths import KEY, TIMESTAMP, Get, Path, each_of, walk
from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.foreign.framing import is_framed, unframed
from kinstream.streams.records.foreign.names import shown
from kinstream.streams.records.message import Message


class Incoming:
    """One record, with its key and its time.

    Parameters
    ----------
    value : its parsed value; None for a record without one.
    """

    __slots__ = ("_key", "message", "value")

    def __init__(self, message: Message, value: Any) -> None:
        self.message = message
        self.value = value
        self._key: Any = None

    def at(self, path: Path) -> Any:
        """The value at a path; None where there is none.

        Raises
        ------
        BadRecord : the path leads into the key, and that is not text or not JSON.
        """
        if not path.root:
            return path.get(self.value)
        if path.root == TIMESTAMP:
            return self.message.timestamp_ms
        return self._key_text() if path.plain_key else path.get(self._parsed_key())

    def _key_text(self) -> Any:
        key = self.message.key
        if key is not None and is_framed(key):
            return self._parsed_key()
        try:
            return None if key is None else key.decode()
        except UnicodeDecodeError as error:
            raise BadRecord(Reason.UNDECODABLE, f"{KEY} is not text in UTF-8: {error}") from error

    def _parsed_key(self) -> Any:
        if self._key is None and self.message.key is not None:
            try:
                self._key = orjson.loads(unframed(self.message.key))
            except orjson.JSONDecodeError as error:
                raise BadRecord(Reason.UNDECODABLE, f"{KEY} is not JSON: {shown(str(error))}") from error
        return self._key


class Together:
    """The values at several paths, read in one pass: an object or a list that holds several is found once.

    Parameters
    ----------
    paths : None gives None.

    Examples
    --------
    >>> from kinstream.producers.sources.values.paths import compile_path
    >>> found = Together([compile_path("user.id"), None, compile_path("user.name")])
    >>> found(Incoming(None, {"user": {"id": 7}}))
    (7, None, None)
    """

    def __init__(self, paths: Sequence[Path | None]) -> None:
        objects: dict[tuple[str | int | None, ...], list[int]] = {}
        lists: dict[tuple[str | int | None, ...], list[int]] = {}
        #: Places and paths that lead elsewhere: they are read one by one.
        self._others: list[tuple[int, Path]] = []
        names: dict[int, str] = {}
        for place, path in enumerate(paths):
            if path is None:
                continue
            steps = path.steps
            if path.root or not isinstance(steps[-1], str):
                self._others.append((place, path))
                continue
            names[place] = steps[-1]
            if None not in steps:
                objects.setdefault(steps[:-1], []).append(place)
            elif steps.index(None) == len(steps) - 2:
                lists.setdefault(steps[:-2], []).append(place)
            else:
                self._others.append((place, path))
        self._objects = [
            (walk(steps), _several([names[place] for place in places]), [names[place] for place in places])
            for steps, places in objects.items()
        ]
        self._lists = [
            (walk(steps), [(names[place], itemgetter(names[place])) for place in places])
            for steps, places in lists.items()
        ]
        grouped = [*objects.values(), *lists.values(), [place for place, _ in self._others]]
        order = {place: at for at, place in enumerate(place for places in grouped for place in places)}
        # The last of the values found is None.
        self._ordered = _several([order.get(place, len(order)) for place in range(len(paths))])

    def __call__(self, record: Incoming) -> tuple[Any, ...]:
        """The values, in the order of the paths.

        Raises
        ------
        BadRecord : a path leads into the key, and that is not text or not JSON.
        """
        value = record.value
        found: list[Any] = []
        for outer, take, names in self._objects:
            inner = outer(value)
            try:
                found += take(inner)
            except (KeyError, TypeError):
                is_object = type(inner) is dict
                found += [inner.get(name) if is_object else None for name in names]
        for outer, columns in self._lists:
            inner = outer(value)
            if type(inner) is list:
                found += [each_of(inner, name, take_each) for name, take_each in columns]
            else:
                found += [None] * len(columns)
        for _, path in self._others:
            found.append(record.at(path))
        found.append(None)
        ordered: tuple[Any, ...] = self._ordered(found)
        return ordered


def _several(keys: Sequence[str | int]) -> Get:
    """As `itemgetter`, but a tuple also of one key."""
    return itemgetter(*keys) if len(keys) > 1 else lambda value: (value[keys[0]],)
