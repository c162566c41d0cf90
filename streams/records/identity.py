"""Identities of outputs, and a consumer's decision to take an output, drop it, or report a gap.

The headers of an output name the input that caused it and the output before it in the same chain. A run after a crash
emits the same identities. So with one mark for each (emitter, space) a consumer takes each output once, in order, and
notices when the log has lost one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from kinstream.streams.errors import BadRecord, Reason

EMITTER: Final = "kinstream-emitter"
GENERATION: Final = "kinstream-generation"
EPOCH: Final = "kinstream-epoch"
ORIGIN: Final = "kinstream-origin"
PREVIOUS: Final = "kinstream-previous"

Headers = tuple[tuple[str, bytes], ...]


class Position(NamedTuple):
    """The order of a chain. Compared as a tuple."""

    generation: int
    epoch: int
    offset: int
    part: int

    def text(self) -> str:
        return "/".join(str(number) for number in self)

    @classmethod
    def parse(cls, text: str) -> Position:
        numbers = [int(number) for number in text.split("/")]
        if len(numbers) != len(cls._fields) or min(numbers) < 0 or max(numbers) >= 2**63:
            raise ValueError(f"{text!r} is not a position")
        return cls(*numbers)


@dataclass(frozen=True, slots=True)
class Identity:
    """The emitter of an output, its input, and the output before it.

    Parameters
    ----------
    emitter : name of the builder or learner.
    position : generation, epoch of the space, offset of the input, part.
    topic, partition : of the input.
    previous : position of the output before it in (emitter, generation, epoch, space); None for the first.
    """

    emitter: str
    position: Position
    topic: str
    partition: int
    previous: Position | None

    def headers(self) -> Headers:
        """As Kafka headers, readable without the record's body."""
        p = self.position
        pairs = [
            (EMITTER, self.emitter),
            (GENERATION, str(p.generation)),
            (EPOCH, str(p.epoch)),
            (ORIGIN, f"{self.topic}/{self.partition}/{p.offset}/{p.part}"),
        ]
        if self.previous is not None:
            pairs.append((PREVIOUS, self.previous.text()))
        return tuple((name, value.encode()) for name, value in pairs)


def read_identity(headers: Iterable[tuple[str, bytes | None]]) -> Identity:
    """Read an identity from Kafka headers.

    Raises
    ------
    BadRecord : a header is missing or cannot be read.
    """
    found: Mapping[str, bytes | None] = dict(headers)
    try:
        text = {name: (found[name] or b"").decode() for name in (EMITTER, GENERATION, EPOCH, ORIGIN)}
        topic, partition, offset, part = text[ORIGIN].rsplit("/", 3)
        position = Position.parse(f"{text[GENERATION]}/{text[EPOCH]}/{offset}/{part}")
        previous = found.get(PREVIOUS)
        before = None if previous is None else Position.parse(previous.decode())
        if not text[EMITTER] or int(partition) < 0:
            raise ValueError("no emitter or partition")
    except (KeyError, ValueError) as error:
        raise BadRecord(Reason.BAD_IDENTITY, f"headers without a readable identity: {error}") from error
    return Identity(text[EMITTER], position, topic, int(partition), before)


class Verdict(Enum):
    """A consumer's decision about an output, given its mark."""

    TAKE = "take"
    ADOPT = "adopt"
    DUPLICATE = "duplicate"
    GAP = "gap"


def judge(mark: Position | None, identity: Identity) -> Verdict:
    """Compare an output with the mark of its (emitter, space).

    Not above the mark: a duplicate, or of an older generation. Above it, with a predecessor that is not above it:
    taken. No mark yet: taken, and counted as adopted unless it is the first of its chain. Otherwise the log has lost
    records.
    """
    if mark is None:
        return Verdict.TAKE if identity.previous is None else Verdict.ADOPT
    if identity.position <= mark:
        return Verdict.DUPLICATE
    if identity.previous is None or identity.previous <= mark:
        return Verdict.TAKE
    return Verdict.GAP
