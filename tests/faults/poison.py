"""Records that cannot be used, of every kind, each with the reason that its dead letter must give."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.errors import Reason
from kinstream.streams.records.codec import avro
from kinstream.streams.records.codec.codec import decode_constraints, encode
from kinstream.streams.records.identity import Headers, Identity, Position
from kinstream.streams.records.values import (
    Action,
    ConstraintBlock,
    Control,
    Declaration,
    Kind,
    SampleBlock,
    Table,
)

#: A number of bytes or items that no memory holds, as Avro writes it.
HUGE = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"


class Poison(NamedTuple):
    """What it is, what to send, and why it is refused."""

    what: str
    key: bytes | None
    value: bytes | None
    reason: Reason
    rows: str = "all"


def samples(
    space: str, vectors: Any, labels: NDArray[np.int64] | tuple[str, ...] | None = None
) -> SampleBlock:
    table = np.asarray(vectors, dtype=np.float32)
    return SampleBlock(
        space, (Table("x", table),), np.arange(len(table)) if labels is None else labels, 1_000
    )


def lying(name: str, body: dict[str, Any], **table: Any) -> bytes:
    """A record whose first table says something else than it holds."""
    first, *others = body["tables"]
    return avro.write(name, {**body, "tables": [{**first, **table}, *others]})


def bad_events(space: str, declared: str) -> list[Poison]:
    """Poison for `space`, which knows 8 dimensions and integer labels, and `declared`, which is declared so."""
    key = space.encode()
    good = samples(space, np.ones((4, 8)))
    value = encode(good)
    body = avro.read(value)[1]
    vectors = np.ones((3, 8), np.float32)
    half = vectors.copy()
    half[1, 2] = np.nan
    infinite = np.full((3, 8), np.inf, np.float32)
    deep = b'{"kind": "samples", "x": ' + b"[" * 5_000 + b"]" * 5_000 + b"}"
    unknown_field = json.dumps(
        {"kind": "samples", "space": space, "vectors": [[1] * 8], "labels": [1], "tme": 0}
    )
    return [
        Poison("no value", key, None, Reason.UNDECODABLE),
        Poison("undecodable bytes", key, b"\x00\xff poison", Reason.UNDECODABLE),
        Poison("a schema that is not known", key, avro.MARKER + bytes(8) + value[10:], Reason.UNKNOWN_SCHEMA),
        Poison("a truncated block", key, value[:-7], Reason.UNDECODABLE),
        Poison("bytes left over", key, value + b"\x00", Reason.UNDECODABLE),
        Poison("a shape that lies", key, lying("SampleBlock", body, rows=5), Reason.BAD_SHAPE),
        Poison("a huge shape", key, lying("SampleBlock", body, rows=2**31 - 1), Reason.BAD_SHAPE),
        Poison("a huge string", key, value[:10] + HUGE + b"a", Reason.UNDECODABLE),
        Poison("rows of NaN", key, encode(samples(space, half)), Reason.NOT_FINITE, rows="1"),
        Poison("infinity everywhere", key, encode(samples(space, infinite)), Reason.NOT_FINITE),
        Poison("another dimension", key, encode(samples(space, np.ones((3, 5)))), Reason.WRONG_DIMENSION),
        Poison("an empty block", key, encode(samples(space, np.ones((0, 8)))), Reason.EMPTY),
        Poison(
            "labels of another type",
            key,
            encode(samples(space, vectors, ("x", "y", "z"))),
            Reason.WRONG_LABEL_TYPE,
        ),
        Poison(
            "labels of another type than declared",
            declared.encode(),
            encode(samples(declared, vectors, ("x", "y", "z"))),
            Reason.WRONG_LABEL_TYPE,
        ),
        Poison(
            "another dimension than declared",
            declared.encode(),
            encode(samples(declared, np.ones((3, 5)))),
            Reason.WRONG_DIMENSION,
        ),
        Poison("deep JSON", key, deep, Reason.UNDECODABLE),
        Poison("JSON with an unknown field", key, unknown_field.encode(), Reason.BAD_SHAPE),
        Poison("no key", None, value, Reason.WRONG_KEY),
        Poison("a key that is not UTF-8", b"\xff\xfe", value, Reason.WRONG_KEY),
        Poison("the key of another space", key, encode(replace(good, space="other")), Reason.WRONG_KEY),
        Poison("a kind that does not belong here", key, encode(constraints(space)), Reason.WRONG_KIND),
        Poison(
            "a space that does not exist",
            b"nowhere",
            encode(Control("nowhere", Action.RESET, 1)),
            Reason.UNKNOWN_SPACE,
        ),
    ]


def declare(space: str) -> bytes:
    """The record that declares a space of 8 dimensions and integer labels."""
    return encode(Control(space, Action.CREATE, 1, Declaration((("x", 8),), "integer")))


def constraints(space: str, d: int = 8, epoch: int = 0) -> ConstraintBlock:
    vectors = np.arange(3 * d, dtype=np.float32).reshape(3, d)
    return ConstraintBlock(
        space,
        Kind.TRIPLET,
        (Table("x", vectors),),
        np.array([[0, 1, 2]], np.int32),
        np.zeros(1, np.int8),
        ("one-pass",),
        np.zeros(1, np.uint8),
        np.zeros(1, np.bool_),
        np.ones(1, np.float32),
        1_000,
        epoch,
    )


def identity(space: str, number: int, topic: str, epoch: int = 0) -> Headers:
    """Headers of the chain of `one-pass` in a space that the builder itself does not know."""
    before = Position(1, epoch, number - 1, 0) if number else None
    return Identity("one-pass", Position(1, epoch, number, 0), topic, 0, before).headers()


def bad_constraints(space: str) -> list[Poison]:
    """Poison for a space whose learner knows 8 dimensions; to be sent with identities of its chain."""
    key = space.encode()
    good = constraints(space)
    value = encode(good)
    body = avro.read(value)[1]
    assert isinstance(decode_constraints(value), ConstraintBlock)
    broken = np.full((3, 8), np.nan, np.float32)
    return [
        Poison("no value", key, None, Reason.UNDECODABLE),
        Poison("undecodable bytes", key, b"\x00\xff poison", Reason.UNDECODABLE),
        Poison("a schema that is not known", key, avro.MARKER + bytes(8) + value[10:], Reason.UNKNOWN_SCHEMA),
        Poison("a truncated block", key, value[:-7], Reason.UNDECODABLE),
        Poison("a shape that lies", key, lying("ConstraintBlock", body, columns=9), Reason.BAD_SHAPE),
        Poison("a huge shape", key, lying("ConstraintBlock", body, rows=2**31 - 1), Reason.BAD_SHAPE),
        Poison("a huge string", key, value[:10] + HUGE + b"a", Reason.UNDECODABLE),
        Poison("NaN", key, encode(replace(good, tables=(Table("x", broken),))), Reason.NOT_FINITE),
        Poison("another dimension", key, encode(constraints(space, 5)), Reason.WRONG_DIMENSION),
        Poison(
            "an empty block",
            key,
            avro.write("ConstraintBlock", {**body, "index": b"", "rule": b"", "derived": b""}),
            Reason.EMPTY,
        ),
        Poison(
            "an index outside the table",
            key,
            encode(replace(good, index=np.array([[0, 1, 3]], np.int32))),
            Reason.BAD_SHAPE,
        ),
        Poison("the key of another space", key, encode(constraints("other")), Reason.WRONG_KEY),
        Poison(
            "another epoch than its headers say", key, encode(constraints(space, 8, 7)), Reason.BAD_IDENTITY
        ),
        Poison("a kind that does not belong here", key, encode(samples(space, broken)), Reason.WRONG_KIND),
    ]
