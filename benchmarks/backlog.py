"""Constraint blocks exactly as the builder agent emits them, identities included, from drawn labelled rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NoReturn

import numpy as np

from kinstream.processors.agent import builder_spec
from kinstream.producers.loads.blocks import BLOCK_ROWS, MAX_BLOCK_BYTES
from kinstream.streams.agents.machine import Machine, Place
from kinstream.streams.records.codec.codec import decode_constraints, encode
from kinstream.streams.records.message import Message, Output
from kinstream.streams.records.values import ConstraintBlock, LoadPosition, SampleBlock, Table
from kinstream.streams.settings import Settings
from kinstream.streams.topics import partition_of

CLASSES: Final = 10
#: Bytes that the producer leaves for all but the rows, and those of a label.
_BESIDE, _LABEL = 512, 8


def block_rows(d: int, rows: int = BLOCK_ROWS) -> int:
    """Rows of a sample block as the producer cuts it, if it may have `rows`."""
    return min(rows, (MAX_BLOCK_BYTES - _BESIDE) // (4 * d + _LABEL))


def constraints(
    settings: Settings, spaces: Sequence[str], d: int, rounds: int, rows: int | None = None
) -> Iterator[Output]:
    """What the builder makes of `rounds` sample blocks of each space, the spaces in turn.

    Vectors are short and labels are drawn, so the margin is never reached and every constraint stays active.

    Parameters
    ----------
    rows : of a sample block; None for what the producer would cut.
    """
    rng = np.random.default_rng(d)
    rows = rows or block_rows(d)
    machines = [_machine(settings, partition) for partition in range(settings.topics.partitions)]
    scale = np.float32(np.sqrt(0.2 / d))
    for number in range(rounds):
        for space in spaces:
            machine = machines[partition_of(space, settings.topics.partitions)]
            vectors = rng.standard_normal((rows, d), np.float32) * scale
            labels = rng.integers(0, CLASSES, rows)
            load = LoadPosition("benchmark", number)
            value = encode(SampleBlock(space, (Table("x", vectors),), labels, 0, None, load))
            place = machine.place
            at = machine.next_offset
            yield from machine.step(
                Message(place.topic, place.partition, at, 0, space.encode(), value, (), at - 1)
            )


def _machine(settings: Settings, partition: int) -> Machine:
    partitions = settings.topics.partitions
    place = Place(
        name="one-pass",
        generation=1,
        topic=settings.topic("events"),
        partition=partition,
        input_partitions=partitions,
        output_topic=settings.topic("constraints"),
        output_partitions=partitions,
        dead_letters=settings.topic("dead-letters"),
    )
    return builder_spec(settings, "one-pass").make_machine(place, _no_files)


def _no_files(name: str) -> NoReturn:
    raise RuntimeError(f"space {name!r} was never written down")


def block_of(record: Output | Message) -> ConstraintBlock:
    """The constraint block in a record."""
    found: Any = decode_constraints(record.value)
    assert isinstance(found, ConstraintBlock), found
    return found
