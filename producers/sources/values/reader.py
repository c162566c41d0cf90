"""Parses the records of a source, and leaves out those that are not wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kinstream.producers.sources.values.fields import compiled
from kinstream.producers.sources.values.foreign_record import Incoming
from kinstream.producers.sources.values.formats import Format
from kinstream.producers.sources.values.paths import Path
from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.foreign.names import shown
from kinstream.streams.records.message import Message


class Reader:
    """Parses records, and leaves out those that `when` does not want.

    Parameters
    ----------
    when : path -> the value that it must have, or several.
    needs_value : refuse records without a value.
    """

    def __init__(self, format_: Format, when: Mapping[str, Any], *, needs_value: bool) -> None:
        self.format = format_
        self._needs_value = needs_value
        self._when: list[tuple[Path, frozenset[Any]]] = [
            (compiled(f"when.{path}", path), frozenset(value if isinstance(value, list) else [value]))
            for path, value in when.items()
        ]

    def read(self, message: Message) -> Incoming | None:
        """A parsed record; None where it is left out.

        Raises
        ------
        BadRecord : it cannot be parsed, or has no value.
        """
        if message.value is None:
            if self._needs_value:
                raise BadRecord(Reason.UNDECODABLE, "a record without a value")
            return Incoming(message, None)
        return self._wanted(Incoming(message, self.format.parse(message)))

    def read_each(self, message: Message, documents: Callable[[Any], list[Any]]) -> list[Incoming]:
        """The parsed records that a message holds, without those that are left out.

        Parameters
        ----------
        documents : the records in the parsed value.

        Raises
        ------
        BadRecord : it cannot be parsed, or has no value; or one of its records is no object.
        """
        if message.value is None:
            raise BadRecord(Reason.UNDECODABLE, "a record without a value")
        each = documents(self.format.parse(message))
        return [found for one in each if (found := self._wanted(Incoming(message, one))) is not None]

    def _wanted(self, record: Incoming) -> Incoming | None:
        for path, wanted in self._when:
            found = record.at(path)
            if isinstance(found, list | dict) or found not in wanted:
                return None
        if type(record.value) is not dict and type(record.value) is not list:
            raise BadRecord(Reason.BAD_SHAPE, f"{shown(record.value)} is no object with fields")
        return record
