"""An in-process log: topics of partitions of messages, with the failures of a real one on request."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from kinstream.streams.errors import DeliveryError
from kinstream.streams.records.identity import Headers
from kinstream.streams.records.message import Message
from kinstream.streams.topics import partition_of


@dataclass
class MemoryLog:
    """Messages by (topic, partition). Appending gives the next offset; `holes` are offsets that no record has.

    A record that is appended without a time has `start_ms`, and a millisecond for each one before it.
    """

    partitions: int = 2
    start_ms: int = 0
    entries: dict[tuple[str, int], list[Message]] = field(default_factory=lambda: defaultdict(list))
    ends: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))

    def append(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
        time_ms: int | None = None,
    ) -> int:
        place = (
            partition
            if partition is not None
            else partition_of((key or b"").decode(errors="replace"), self.partitions)
        )
        offset = self.ends[topic, place]
        before = self.entries[topic, place]
        previous = before[-1].offset if before else -1
        at = self.start_ms + offset if time_ms is None else time_ms
        before.append(Message(topic, place, offset, at, key, value, headers, previous))
        self.ends[topic, place] = offset + 1
        return offset

    def hole(self, topic: str, partition: int) -> None:
        """A transaction marker: an offset that is never delivered."""
        self.ends[topic, partition] += 1

    def lose(self, topic: str, partition: int, *offsets: int) -> None:
        """Drop records, as compaction does, or retention."""
        left = [m for m in self.entries[topic, partition] if m.offset not in offsets]
        previous = [-1, *(m.offset for m in left)]
        self.entries[topic, partition] = [
            m._replace(previous=p) for m, p in zip(left, previous, strict=False)
        ]

    def read(self, topic: str, partition: int, start: int) -> list[Message]:
        return [message for message in self.entries[topic, partition] if message.offset >= start]

    def end(self, topic: str, partition: int) -> int:
        return self.ends[topic, partition]


@dataclass
class MemorySink:
    """A sink onto a log. `lose_after` drops, as a crash does, what was sent and not yet acknowledged."""

    log: MemoryLog
    waiting: list[tuple[str, bytes | None, bytes | None, Headers, int | None]] = field(default_factory=list)
    reject: bool = False

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        self.waiting.append((topic, key, value, headers, partition))

    def deliver(self, number: int) -> None:
        """Let the first `number` records land."""
        for record in self.waiting[:number]:
            self.log.append(*record)
        del self.waiting[:number]

    def confirm(self, deadline_seconds: float = 0.0) -> None:
        if self.reject:
            raise DeliveryError("rejected on purpose")
        self.deliver(len(self.waiting))
