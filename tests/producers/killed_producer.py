"""A producer that is killed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.support.memory_log import MemorySink

TOPIC = "kinstream.events"
LOG = {"cluster": "c", "topic": TOPIC, "topic_id": "t"}


class Killed(BaseException):
    """Stands for SIGKILL: nothing of the producer runs after it."""


@dataclass
class KilledSink(MemorySink):
    """Is killed at a send, when some of what was sent before has landed."""

    at: int = 0
    landed: int = 0
    sends: int = 0

    def send(self, *record: Any) -> None:
        super().send(*record)
        self.sends += 1
        if self.sends == self.at:
            self.deliver(self.landed)
            raise Killed
