"""How long the stream stands still after a worker was killed.

Rows flow all the time. A worker process gets SIGKILL, its supervisor starts another, and the group lets that one
in when the dead one's session has run out. The time is that from the signal to the first outcome of an event that
came to be after the signal, by the outcome's own timestamp.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from benchmarks.figures import Figure
from benchmarks.latency import start_agents, start_rows
from benchmarks.system import System, system
from kinstream.streams.kafka.clients import confluent
from kinstream.streams.records.codec.codec import decode_outcome
from kinstream.streams.records.values import Outcome
from tests.support.processes import Process

RATE: Final = 50
#: Asked for: no longer than the session timeout and so many seconds.
MARGIN_SECONDS: Final = 5.0
LIMIT_SECONDS: Final = 60.0
TRIES: Final = {"learner": 5, "builder": 3}


class Tail:
    """The newest outcomes, as they come."""

    def __init__(self, on: System) -> None:
        from confluent_kafka import OFFSET_END, Consumer, TopicPartition

        self._consumer = Consumer(
            {**confluent(on.settings.kafka), "group.id": "kinstream-bench", "enable.auto.commit": False}
        )
        topic = on.settings.topic("outcomes")
        self._consumer.assign([TopicPartition(topic, p, OFFSET_END) for p in on.ends("outcomes")])

    def outcomes(self, seconds: float) -> Iterator[tuple[float, Outcome]]:
        """(time sent, outcome), for so long."""
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            record: Any = self._consumer.poll(0.1)
            if record is not None and not record.error():
                outcome = decode_outcome(record.value())
                if isinstance(outcome, Outcome):
                    yield record.timestamp()[1] / 1000, outcome

    def first_after(self, moment: float) -> float:
        """When the first outcome was sent whose event is younger than the moment.

        Raises
        ------
        RuntimeError : there was none in a minute.
        """
        return self._first(lambda sent, outcome: outcome.time_ms / 1000 > moment)

    def first_sent_after(self, moment: float) -> float:
        """When the first outcome was sent after the moment.

        Raises
        ------
        RuntimeError : there was none in a minute.
        """
        return self._first(lambda sent, outcome: sent > moment)

    def _first(self, wanted: Callable[[float, Outcome], bool]) -> float:
        for sent, outcome in self.outcomes(LIMIT_SECONDS):
            if wanted(sent, outcome):
                return sent
        raise RuntimeError(f"no new outcome in {LIMIT_SECONDS:.0f} s")

    def close(self) -> None:
        self._consumer.close()


def kill(worker: Process, tail: Tail) -> float:
    """Seconds from the signal to the first new outcome."""
    process = worker.child()
    assert process is not None, "no worker process to kill"
    moment = time.time()
    process.kill()
    return tail.first_after(moment) - moment


def run(quick: bool) -> list[Figure]:
    """Kill the learner and the builder, several times each, at drawn moments."""
    draw = np.random.default_rng(1)
    found = []
    with system() as on:
        agents = start_agents(on)
        producer = start_rows(on, RATE, 100)
        tail = Tail(on)
        tail.first_after(time.time())
        limit = on.settings.worker.session_timeout_seconds + MARGIN_SECONDS
        for role, tries in TRIES.items():
            seconds = []
            for _ in range(1 if quick else tries):
                # Anywhere between two heartbeats and between two checkpoints.
                for _ in tail.outcomes(
                    float(draw.uniform(3.0, 3.0 + on.settings.checkpoints.interval_seconds))
                ):
                    pass
                seconds.append(kill(agents[role], tail))
            found.append(
                Figure(
                    "recovery",
                    f"SIGKILL of the {role} to the first new outcome, longest of {len(seconds)}",
                    max(seconds),
                    "s",
                    at_most=limit,
                    facts={"seconds": seconds, "session_timeout": limit - MARGIN_SECONDS},
                )
            )
        tail.close()
        producer.stop()
    return found
