"""Writes to `kinstream.feedback`: shown lists, which may be dropped, and feedback, which has to be acknowledged.

Nothing waits for the brokers: what cannot be written in time is given up, and the producer goes on, which the gapless
one of agents (`kinstream.streams.kafka.emitter`) must not. One producer writes both, so feedback that comes to the same
service as its list comes after it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from kinstream.streams.kafka.clients import confluent_producer
from kinstream.streams.records.identity import Headers
from kinstream.streams.settings import KafkaSettings

log = logging.getLogger("kinstream.serve")

#: Records that wait for the brokers: above it shown lists are dropped.
MOST_SHOWN: Final = 5_000
#: And above it feedback is refused.
_MOST: Final = 2 * MOST_SHOWN
#: For which a record waits for the brokers: they may be restarted, and no list is dropped.
WAIT_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.1
#: Seconds between two lines of the log about records that were not written.
_QUIET_SECONDS: Final = 60.0


class NotWritten(Exception):
    """The brokers have not acknowledged a record; it may have been written."""


class Writer:
    """One producer. Any thread may call it, after `start`.

    Parameters
    ----------
    create : a producer from its configuration, by default confluent-kafka's.

    Attributes
    ----------
    settled : receives the space of each shown list, and whether it was written.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        topic: str,
        create: Callable[[dict[str, Any]], Any] | None = None,
    ) -> None:
        self._config = confluent_producer(kafka) | {
            # A record that was given up is a gap.
            "enable.gapless.guarantee": False,
            "message.timeout.ms": int(1_000 * WAIT_SECONDS),
            "linger.ms": 0,
            "queue.buffering.max.messages": _MOST,
            "error_cb": self._on_error,
        }
        self._topic = topic
        self._create = create or _producer
        self._producer: Any = None
        self._broken = threading.Event()
        self._stopping = threading.Event()
        self._warned = -_QUIET_SECONDS
        self._thread = threading.Thread(target=self._serve, name="kinstream-feedback", daemon=True)
        self.settled: Callable[[str, bool], None] = lambda *_: None

    # ---- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to write. Whether brokers answer does not matter."""
        self._producer = self._create(self._config)
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Write what waits; give up the rest after that time."""
        if self._thread.is_alive():
            self._producer.flush(seconds)
            self._stopping.set()
            self._thread.join(seconds)

    def _serve(self) -> None:
        """Serve the reports of deliveries; begin anew after an error that a producer does not survive."""
        while not self._stopping.is_set():
            if self._broken.is_set():
                self._broken.clear()
                before, self._producer = self._producer, self._create(self._config)
                before.purge()
                before.poll(0)
            try:
                self._producer.poll(_POLL_SECONDS)
            except Exception as error:
                self._fail(error)

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            self._fail(error)

    def _fail(self, error: object) -> None:
        self._broken.set()
        self._warn(error)

    def _warn(self, error: object) -> None:
        now = time.monotonic()
        if now - self._warned >= _QUIET_SECONDS:
            self._warned = now
            log.warning("%s: a record was not written: %s", self._topic, error)

    # ---- records ----------------------------------------------------------------------------------------------------

    def show(self, space: str, value: bytes, headers: Headers = ()) -> None:
        """Write a shown list, if the brokers keep up."""
        if len(self._producer) >= MOST_SHOWN:
            self.settled(space, False)
            return
        try:
            self._produce(space, value, headers, partial(self._shown, space))
        except Exception as error:
            self._warn(error)
            self.settled(space, False)

    def _shown(self, space: str, error: Any, message: Any) -> None:
        if error is not None:
            self._warn(error)
        self.settled(space, error is None)

    def send(self, space: str, values: Sequence[bytes]) -> Future[None]:
        """Write feedback; the result is there once the brokers have acknowledged all of it.

        The future raises `NotWritten` if they have not, for one record or more.
        """
        done: Future[None] = Future()
        waiting = _Waiting(len(values), done, self._warn)
        for value in values:
            try:
                self._produce(space, value, (), waiting.settle)
            except Exception as error:
                waiting.settle(error, None)
        return done

    def _produce(
        self, space: str, value: bytes, headers: Headers, report: Callable[[Any, Any], None]
    ) -> None:
        self._producer.produce(
            self._topic, value=value, key=space.encode(), headers=list(headers), on_delivery=report
        )


class _Waiting:
    """The records of one request that are not settled yet."""

    def __init__(self, left: int, done: Future[None], warn: Callable[[object], None]) -> None:
        self._left, self._done, self._warn = left, done, warn
        self._error: object = None
        # Taken by the thread of a request and by the one that serves reports, for a moment.
        self._lock = threading.Lock()

    def settle(self, error: Any, message: Any) -> None:
        with self._lock:
            self._left -= 1
            self._error = self._error or error
            last = not self._left
        if not last:
            return
        if self._error is None:
            self._done.set_result(None)
        else:
            self._warn(self._error)
            self._done.set_exception(NotWritten(str(self._error)))


def _producer(config: dict[str, Any]) -> Any:
    from confluent_kafka import Producer

    return Producer(config, logger=None)
