"""The bytes of a record as values: JSON, or Avro in Confluent's framing."""

from __future__ import annotations

import json
from typing import Any, Final, Protocol
from uuid import UUID

import orjson

from kinstream.producers.sources.schemas.registry import Schema, Schemas, UnknownSchema, parsed
from kinstream.streams.errors import BadRecord, GenerationMismatch, Reason
from kinstream.streams.records.foreign.framing import FRAME_SIZE, is_framed, unframed
from kinstream.streams.records.message import Message
from kinstream.streams.records.state import State

#: Header with the id of a record's schema; then its value has no frame.
SCHEMA_HEADER: Final = "__value_schema_id"
#: First byte of an id: a number of four bytes follows, or a UUID.
_NUMBER: Final = 0
_UUID: Final = 1
_SCHEMAS: Final = "schemas"


class Format(Protocol):
    """Parses the values of records."""

    def parse(self, message: Message) -> Any:
        """The parsed value of a record that has one.

        Raises
        ------
        BadRecord : the bytes are not of this format.
        OutsideUnavailable : another system, which knows how to read it, does not answer.
        """

    def state(self) -> State:
        """What later results depend on, besides the settings."""

    def restore(self, state: State) -> None:
        """Continue from what `state` returned."""


class Json:
    """JSON in UTF-8, also behind the id of its JSON Schema."""

    def parse(self, message: Message) -> Any:
        try:
            return orjson.loads(unframed(message.value or b""))
        except orjson.JSONDecodeError as error:
            raise BadRecord(Reason.UNDECODABLE, f"not JSON: {error.msg} at byte {error.pos}") from error

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        return None


class Parsed:
    """A record that another has parsed: a row of a file."""

    def __init__(self) -> None:
        self.value: Any = None

    def parse(self, message: Message) -> Any:
        return self.value

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        return None


class Avro:
    """Avro with the id of its schema before the body or in a header, as Confluent's serializers write it.

    Every schema that was used is part of the state, so that reading the same records again needs no registry.

    Parameters
    ----------
    schemas : where an id is looked up that the state does not hold.
    """

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._texts: dict[str, str] = {}
        self._parsed: dict[str, Schema] = {}

    def parse(self, message: Message) -> Any:
        schema_id, body = _parts(message)
        schema = self._parsed.get(schema_id) or self._look_up(schema_id)
        try:
            return schema.read(body)
        except ValueError as error:
            raise BadRecord(Reason.UNDECODABLE, f"schema {schema_id}: {error}") from error

    def _look_up(self, schema_id: str) -> Schema:
        try:
            text = self._texts.get(schema_id) or self._schemas.text(schema_id)
            schema = parsed(text)
        except UnknownSchema as error:
            raise BadRecord(Reason.UNKNOWN_SCHEMA, str(error)) from error
        self._texts[schema_id] = text
        self._parsed[schema_id] = schema
        return schema

    def state(self) -> State:
        return {_SCHEMAS: json.dumps(self._texts, sort_keys=True)}

    def restore(self, state: State) -> None:
        """Continue from a state.

        Raises
        ------
        GenerationMismatch : a schema in a file is not the one that records were read with.
        """
        self._texts = json.loads(str(state.get(_SCHEMAS, "{}")))
        self._parsed = {}
        for schema_id, text in self._schemas.files().items():
            known = self._texts.get(schema_id)
            if known is not None and json.loads(known) != json.loads(text):
                raise GenerationMismatch(
                    f"schema {schema_id} is not the one that records were read with: a changed schema has another id. "
                    "Put the file back, or begin a new generation: kinstream worker source NAME --new-generation"
                )


def _parts(message: Message) -> tuple[str, bytes]:
    """The id of a record's schema, and the body.

    Raises
    ------
    BadRecord : there is none.
    """
    value = message.value or b""
    # A reader takes the last header of a name.
    found = next((one for name, one in reversed(message.headers) if name == SCHEMA_HEADER), None)
    if found is None:
        if not is_framed(value):
            raise BadRecord(
                Reason.UNDECODABLE, f"{len(value)} bytes that do not begin with Confluent's framing of Avro"
            )
        return str(int.from_bytes(value[1:FRAME_SIZE])), value[FRAME_SIZE:]
    if len(found) == 5 and found[0] == _NUMBER:
        return str(int.from_bytes(found[1:])), value
    if len(found) == 17 and found[0] == _UUID:
        return str(UUID(bytes=found[1:])), value
    raise BadRecord(Reason.UNDECODABLE, f"the header {SCHEMA_HEADER} holds no id of a schema")
