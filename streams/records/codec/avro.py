"""Avro single-object encoding: two marker bytes, the schema's fingerprint, the body.

The fingerprint identifies the schema that wrote a record, so records of older schemas stay readable. Every released
schema is in `streams/schemas` and is never edited; newer ones are added.
Format: Apache Avro specification, "Single object encoding" and "Schema fingerprints" (CRC-64-AVRO).
"""

from __future__ import annotations

import io
import json
import struct
from functools import cache
from importlib import resources
from typing import Any, Final

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form

from kinstream.streams.errors import BadRecord, Reason

MARKER: Final = b"\xc3\x01"
HEADER_SIZE: Final = 10

#: No message is larger than this; a block from our own code stays under half of it.
MAX_MESSAGE_BYTES: Final = 1_000_000


@cache
def _versions() -> dict[str, tuple[tuple[bytes, Any], ...]]:
    """Marks and schemas of each record, the oldest first: `Name.avsc`, `Name-2.avsc`, ..."""
    found: dict[str, dict[int, tuple[bytes, Any]]] = {}
    for entry in resources.files("kinstream.streams").joinpath("schemas").iterdir():
        if entry.name.endswith(".avsc"):
            raw = json.loads(entry.read_text(encoding="utf-8"))
            name, _, number = entry.name.removesuffix(".avsc").partition("-")
            digest = fingerprint(to_parsing_canonical_form(raw), "CRC-64-AVRO")
            mark = struct.pack("<Q", int(digest, 16))
            found.setdefault(name, {})[int(number or 1)] = mark, fastavro.parse_schema(raw)
    return {name: tuple(some[number] for number in sorted(some)) for name, some in sorted(found.items())}


@cache
def _schemas() -> tuple[dict[str, tuple[bytes, Any]], dict[bytes, tuple[str, Any]]]:
    """The newest schema by name, and every one by its mark."""
    by_name = {name: some[-1] for name, some in _versions().items()}
    by_mark = {mark: (name, parsed) for name, some in _versions().items() for mark, parsed in some}
    return by_name, by_mark


def write(name: str, body: dict[str, Any], version: int | None = None) -> bytes:
    """Encode `body` under the schema of that name: of that version, from 1 on, or the newest."""
    mark, schema = _schemas()[0][name] if version is None else _versions()[name][version - 1]
    out = io.BytesIO()
    out.write(MARKER + mark)
    fastavro.schemaless_writer(out, schema, body)
    return out.getvalue()


def read(value: bytes) -> tuple[str, dict[str, Any]]:
    """Decode a single object into the name of its record and its body, in the fields of the newest schema.

    Raises
    ------
    BadRecord : not a single object, unknown schema, truncated, or bytes left over.
    """
    if not value.startswith(MARKER) or len(value) < HEADER_SIZE:
        raise BadRecord(Reason.UNDECODABLE, f"{len(value)} bytes that are not an Avro single object")
    by_name, by_fingerprint = _schemas()
    known = by_fingerprint.get(value[2:HEADER_SIZE])
    if known is None:
        raise BadRecord(
            Reason.UNKNOWN_SCHEMA, f"schema fingerprint {value[2:HEADER_SIZE].hex()} is not known here"
        )
    name, written = known
    newest = by_name[name][1]
    source = io.BytesIO(value)
    source.seek(HEADER_SIZE)
    try:
        body = fastavro.schemaless_reader(source, written, None if newest is written else newest)
    except (
        ValueError,
        EOFError,
        IndexError,
        TypeError,
        KeyError,
        OverflowError,
        struct.error,
    ) as error:
        raise BadRecord(Reason.UNDECODABLE, f"{name}: {type(error).__name__} while decoding") from error
    if source.tell() != len(value) or not isinstance(body, dict):
        raise BadRecord(Reason.UNDECODABLE, f"{name}: {len(value) - source.tell()} bytes left over")
    return name, body
