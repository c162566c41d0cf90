"""The bytes of a record as values: JSON, or Avro in Confluent's framing."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping
from typing import Any, Final, Protocol

import fastavro
import orjson

from kinstream.producers.sources.schemas import Schemas, UnknownSchema, parsed
from kinstream.streams.errors import BadRecord, GenerationMismatch, Reason
from kinstream.streams.records.names import shown
from kinstream.streams.records.state import State

#: First byte of Confluent's framing, and the bytes before the body: it, and the schema's id.
_MAGIC: Final = 0
_FRAME: Final = struct.Struct(">BI")
_SCHEMAS: Final = "schemas"


class Format(Protocol):
    """Parses the values of records."""

    def parse(self, value: bytes) -> Any:
        """Raises BadRecord if the bytes are not of this format."""

    def state(self) -> State:
        """What later results depend on, besides the settings."""

    def restore(self, state: State) -> None:
        """Continue from what `state` returned."""


class Json:
    """JSON in UTF-8."""

    def parse(self, value: bytes) -> Any:
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError as error:
            raise BadRecord(Reason.UNDECODABLE, f"not JSON: {error.msg} at byte {error.pos}") from error

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        return None


class AvroRecord:
    """One Avro record by itself, as the files hold it: for a mapping that is tried."""

    def __init__(self) -> None:
        self.value: Any = None

    def parse(self, value: bytes) -> Any:
        return self.value

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        return None


class Avro:
    """Avro behind a zero byte and four bytes with the id of its schema.

    Every schema that was used is part of the state, so that reading the same records again needs no registry.

    Parameters
    ----------
    schemas : where an id is looked up that the state does not hold.
    """

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._texts: dict[int, str] = {}
        self._parsed: dict[int, Any] = {}

    def parse(self, value: bytes) -> Any:
        if len(value) < _FRAME.size or value[0] != _MAGIC:
            raise BadRecord(
                Reason.UNDECODABLE, f"{len(value)} bytes that do not begin with Confluent's framing of Avro"
            )
        number: int = _FRAME.unpack_from(value)[1]
        schema = self._parsed.get(number)
        if schema is None:
            schema = self._look_up(number)
        source = io.BytesIO(value)
        source.seek(_FRAME.size)
        try:
            found = fastavro.schemaless_reader(source, schema, None)
        except Exception as error:
            # Bytes that are not of the schema make the library fail in many ways; none of them is the stream's fault.
            raise BadRecord(
                Reason.UNDECODABLE,
                f"schema {number}: {type(error).__name__} while decoding: {shown(str(error))}",
            ) from error
        if source.tell() != len(value):
            raise BadRecord(
                Reason.UNDECODABLE, f"schema {number}: {len(value) - source.tell()} bytes left over"
            )
        return found

    def _look_up(self, number: int) -> Any:
        try:
            text = self._texts[number] if number in self._texts else self._schemas.text(number)
            schema = parsed(text)
        except UnknownSchema as error:
            raise BadRecord(Reason.UNKNOWN_SCHEMA, str(error)) from error
        self._texts[number] = text
        self._parsed[number] = schema
        return schema

    def state(self) -> State:
        return {_SCHEMAS: json.dumps({str(number): text for number, text in sorted(self._texts.items())})}

    def restore(self, state: State) -> None:
        """Continue from a state.

        Raises
        ------
        GenerationMismatch : a schema in a file is not the one that records were read with.
        """
        texts: Mapping[str, str] = json.loads(str(state.get(_SCHEMAS, "{}")))
        self._texts = {int(number): text for number, text in texts.items()}
        self._parsed = {}
        for number, text in self._schemas.files().items():
            known = self._texts.get(number)
            if known is not None and json.loads(known) != json.loads(text):
                raise GenerationMismatch(
                    f"schema {number} is not the one that records were read with: a changed schema has another id. "
                    "Put the file back, or begin a new generation: kinstream worker source NAME --new-generation"
                )
