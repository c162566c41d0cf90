"""One machine of each kind, fed with encoded records as the log would feed it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kinstream.learners.agent import learner_spec
from kinstream.learners.base.scaler import PUBLISHED
from kinstream.processors.agent import builder_spec
from kinstream.streams.agents.letter import DETAIL, REASON, ROWS, redrive
from kinstream.streams.agents.machine import FATE_PREFIX, Machine, Place
from kinstream.streams.agents.refusals import Rows, parse_rows
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.checkpoints.state_bytes import from_bytes, to_bytes
from kinstream.streams.records.codec.codec import decode_constraints, encode
from kinstream.streams.records.message import Message, Output
from kinstream.streams.records.values import ConstraintBlock, Record
from kinstream.streams.settings import Settings

SPACE = "shop"
EVENTS = "kinstream.events"
CONSTRAINTS = "kinstream.constraints"
LETTERS = "kinstream.dead-letters"


#: Rule of the paper; learners in these tests take triplets.
RULES = ["click-skip-above"]


def no_files(name: str) -> Any:
    raise AssertionError(f"space {name!r} is wanted from a file")


class Stream:
    """A machine, and the offsets of its one input partition.

    Parameters
    ----------
    now_ms : at which every record is appended.
    """

    def __init__(self, spec: AgentSpec, now_ms: int, space: str = SPACE) -> None:
        self.spec = spec
        self.now_ms = now_ms
        self.space = space
        self.topic = f"kinstream.{spec.input_role}"
        self.offset = 0
        self.machine = self._machine()

    def _machine(self) -> Machine:
        output = None if self.spec.output_role is None else f"kinstream.{self.spec.output_role}"
        place = Place(self.spec.name, 1, self.topic, 0, 1, output, 1, LETTERS)
        return self.spec.make_machine(place, no_files)

    def __call__(self, value: Record | bytes, headers: Iterable[tuple[str, bytes]] = ()) -> list[Output]:
        body = value if isinstance(value, bytes) else encode(value)
        message = Message(
            self.topic,
            0,
            self.offset,
            self.now_ms,
            self.space.encode(),
            body,
            tuple(headers),
            self.offset - 1,
        )
        self.offset += 1
        return self.machine.step(message)

    def again(self, letter: Output) -> list[Output]:
        """The answer to a redrive of a letter."""
        sent = redrive(as_message(letter))
        assert sent.topic == self.topic
        assert sent.value is not None
        return self(sent.value, sent.headers)

    def restart(self) -> None:
        """Go on in a new machine, from the bytes that a checkpoint would hold."""
        old = self.machine
        names = list(old.names())
        spaces = {}
        for name in names:
            space = old.find(name)
            assert space is not None
            spaces[name] = to_bytes(space.state())
        segments = {
            (name, segment): to_bytes(old.segment(name, segment))
            for name, found in old.segments(names).items()
            for segment in found
        }
        output = None if self.spec.output_role is None else f"kinstream.{self.spec.output_role}"
        place = Place(self.spec.name, 1, self.topic, 0, 1, output, 1, LETTERS)
        new = self.spec.make_machine(place, lambda name: from_bytes(spaces[name]))
        new.read_segments_with(lambda name, segment: from_bytes(segments[name, segment]))
        new.restore(old.next_offset, old.last_record, from_bytes(to_bytes(old.partition_state())), names)
        self.machine = new

    def fates(self) -> dict[str, int]:
        """What the builder counted about its evidence; without zeros."""
        found = self.machine.counts.items()
        return {name.removeprefix(FATE_PREFIX): n for name, n in found if name.startswith(FATE_PREFIX) and n}

    def stored(self) -> bytes:
        """All bytes that a checkpoint of now would hold."""
        names = list(self.machine.names())
        parts = [to_bytes(self.machine.partition_state())]
        for name in names:
            space = self.machine.find(name)
            assert space is not None
            parts.append(to_bytes(space.state()))
        for name, found in self.machine.segments(names).items():
            parts += [to_bytes(self.machine.segment(name, segment)) for segment in found]
        return b"".join(parts)


def builder_stream(now_ms: int, kind: str = "clicks", **arguments: Any) -> Stream:
    """A builder called as its kind."""
    preferences = {"rules": RULES} if kind == "clicks" else {}
    settings = Settings.model_validate({"builders": {kind: {"kind": kind, **preferences, **arguments}}})
    return Stream(builder_spec(settings, kind), now_ms)


def learner_stream(now_ms: int, builder: str = "clicks", **arguments: Any) -> Stream:
    """An OPML learner in the published unit that follows a builder and holds nothing out."""
    settings = Settings.model_validate(
        {
            "builders": {builder: {"kind": builder, **({"rules": RULES} if builder == "clicks" else {})}},
            "learners": {
                "opml": {
                    "kind": "opml",
                    "from": [builder],
                    "unranked_lists": True,
                    "unit": PUBLISHED,
                    "held_out": 0.0,
                    **arguments,
                }
            },
        }
    )
    return Stream(learner_spec(settings, "opml"), now_ms)


def as_message(letter: Output) -> Message:
    return Message(letter.topic, 0, 0, 0, letter.key, letter.value, letter.headers, -1)


def letters(outputs: Iterable[Output]) -> list[Output]:
    return [output for output in outputs if output.topic == LETTERS]


def refusals(outputs: Iterable[Output]) -> list[tuple[str, Rows]]:
    """Reason and rows of each dead letter."""
    headers = [dict(output.headers) for output in letters(outputs)]
    return [(found[REASON].decode(), parse_rows(found[ROWS].decode())) for found in headers]


def detail(letter: Output) -> str:
    return dict(letter.headers)[DETAIL].decode()


def constraint_blocks(outputs: Iterable[Output]) -> list[ConstraintBlock]:
    found = [decode_constraints(output.value) for output in outputs if output.topic == CONSTRAINTS]
    return [block for block in found if isinstance(block, ConstraintBlock)]
