"""A record of another system, parsed: what paths look into."""

from __future__ import annotations

from typing import Any

import orjson

from kinstream.producers.sources.convert import shown
from kinstream.producers.sources.paths import KEY, TIMESTAMP, Path
from kinstream.streams.errors import BadRecord, Reason
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

    def _key_text(self) -> str | None:
        key = self.message.key
        try:
            return None if key is None else key.decode()
        except UnicodeDecodeError as error:
            raise BadRecord(Reason.UNDECODABLE, f"{KEY} is not text in UTF-8: {error}") from error

    def _parsed_key(self) -> Any:
        if self._key is None and self.message.key is not None:
            try:
                self._key = orjson.loads(self.message.key)
            except orjson.JSONDecodeError as error:
                raise BadRecord(Reason.UNDECODABLE, f"{KEY} is not JSON: {shown(str(error))}") from error
        return self._key
