"""Brokers in this process, which a test lets acknowledge, wait or refuse."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from kinstream.search.feedback.writer import Writer
from kinstream.streams.records.codec.codec import decode_feedback
from kinstream.streams.records.lists.feedback import Feedback
from kinstream.streams.records.values import Click
from kinstream.streams.settings import KafkaSettings


class Brokers:
    """What confluent-kafka's producer is for a writer.

    Attributes
    ----------
    error : what deliveries end with; None acknowledges them.
    held : whether they do not end.
    full : whether the producer takes no record.
    """

    def __init__(self) -> None:
        self.records: list[tuple[bytes, bytes, dict[str, bytes]]] = []
        self.error: Any = None
        self.held = self.full = False
        self.made = 0
        self._waiting: list[tuple[Callable[[Any, Any], None], tuple[bytes, bytes, dict[str, bytes]]]] = []
        self._news = threading.Condition()

    def create(self, config: dict[str, Any]) -> Brokers:
        self.config = config
        self.made += 1
        return self

    def produce(
        self,
        topic: str,
        *,
        value: bytes,
        key: bytes,
        headers: list[Any],
        on_delivery: Callable[[Any, Any], None],
    ) -> None:
        assert topic == "kinstream.feedback"
        if self.full:
            raise BufferError("Local: Queue full")
        with self._news:
            self._waiting.append((on_delivery, (key, value, dict(headers))))
            self._news.notify()

    def poll(self, seconds: float) -> None:
        with self._news:
            self._news.wait_for(lambda: self._waiting and not self.held, seconds)
            done, self._waiting = ([], self._waiting) if self.held else (self._waiting, [])
        for report, record in done:
            if self.error is None:
                self.records.append(record)
            report(self.error, None)

    def flush(self, seconds: float) -> None:
        self.poll(0)

    def purge(self) -> None:
        """Nothing is kept in a test that ends a producer."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def shown(self) -> list[Click]:
        return [one for one in self._decoded() if isinstance(one, Click)]

    @property
    def feedback(self) -> list[Feedback]:
        return [one for one in self._decoded() if isinstance(one, Feedback)]

    def _decoded(self) -> list[Click | Feedback]:
        return [decode_feedback(value) for _, value, _ in self.records]


def writer_to(brokers: Brokers) -> Writer:
    return Writer(KafkaSettings(bootstrap_servers="none:9"), "kinstream.feedback", brokers.create)
