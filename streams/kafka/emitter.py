"""The idempotent producer that agents and producers emit with: gapless, and every delivery is confirmed."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from kinstream.streams.errors import ClockWrong, DeliveryDenied, DeliveryError
from kinstream.streams.kafka.clocks import apart, is_of_time, rejected_for_its_time
from kinstream.streams.records.identity import Headers

log = logging.getLogger("kinstream.emitter")

#: How often `send` serves delivery reports at most. Each time costs as much as handing over a record.
SERVE_SECONDS: Final = 0.01


class Sink(Protocol):
    """The receiver of outputs. A log in memory is also a sink."""

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        """Hand over one record.

        Raises
        ------
        DeliveryError : an earlier record was rejected, or is unconfirmed past the deadline.
        """

    def confirm(self, deadline_seconds: float) -> None:
        """Return once every record handed over is acknowledged.

        Raises
        ------
        DeliveryError : one was rejected, or the deadline passed. Nothing may be sent after that.
        """


class Emitter:
    """confluent-kafka's producer behind `Sink`.

    Once a delivery has failed, nothing more is sent: a later record must not land without the earlier.

    Parameters
    ----------
    config : of `kinstream.streams.kafka.clients.confluent_producer`.
    deadline_seconds : how long a record may stay unconfirmed while more are being sent.
    on_delivery : called with (topic, partition, offset) of each confirmed record, on the sending thread.
    """

    def __init__(
        self,
        config: dict[str, Any],
        *,
        deadline_seconds: float = 120.0,
        on_delivery: Callable[[str, int, int], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        from confluent_kafka import Producer

        self._failure: str | None = None
        self._too_large = False
        self._kind: type[DeliveryError] = DeliveryError
        self._clock_told = False
        self._producer = Producer({**config, "error_cb": self._on_error}, logger=None)
        self._deadline_seconds = deadline_seconds
        self._on_delivery = on_delivery
        self._clock = clock
        self._last_progress = self._served_at = clock()
        #: One entry for each unconfirmed record, by topic. There is no lock: librdkafka may call back while an
        #: exception is being raised, and a lock taken then would never be released.
        self._outstanding: dict[str, deque[None]] = {}

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            self._fail(error, f"the producer failed permanently: {error.str()}")

    def _fail(self, error: Any, text: str) -> None:
        """Note the first failure. `error` is librdkafka's, or one in its place."""
        if self._failure is not None:
            return
        name = error.name() if hasattr(error, "name") else ""
        self._too_large = "MSG_SIZE_TOO_LARGE" in name or "too large" in text.lower()
        self._failure = text
        if is_of_time(name, text):
            self._kind, self._failure = ClockWrong, rejected_for_its_time(text)
        elif "_AUTHORIZATION_FAILED" in name or "authorization failed" in text.lower():
            self._kind = DeliveryDenied
            self._failure = f"{text}; kinstream topics acls lists what to allow"

    def _failed(self) -> DeliveryError:
        return self._kind(self._failure, too_large=self._too_large)

    def _acknowledged(self, error: Any, message: Any) -> None:
        self._outstanding[message.topic()].pop()
        self._last_progress = self._clock()
        if error is not None:
            self._fail(error, _rejected(error, message))
            return
        if not self._clock_told and (text := apart(message)):
            self._clock_told = True
            log.warning("%s", text)
        if self._on_delivery is not None:
            self._on_delivery(message.topic(), message.partition(), message.offset())

    @property
    def unconfirmed(self) -> int:
        """Records handed over and not yet acknowledged."""
        return sum(len(entries) for entries in list(self._outstanding.values()))

    @property
    def _waiting(self) -> str:
        """The number of waiting records, and their topics."""
        topics = sorted(topic for topic, entries in list(self._outstanding.items()) if entries)
        return f"{self.unconfirmed} records for {', '.join(topics)}"

    def check(self) -> None:
        """Serve delivery reports.

        Raises
        ------
        DeliveryError : a record was rejected, or none was confirmed for longer than the deadline.
        """
        self._served_at = self._clock()
        self._await_reports(self._producer.poll, 0)
        if self._failure is not None:
            raise self._failed()
        waited = self._clock() - self._last_progress
        if self.unconfirmed and waited > self._deadline_seconds:
            raise DeliveryError(f"{self._waiting} not confirmed for {waited:.0f} s")

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        if self._failure is not None or self._clock() - self._served_at >= SERVE_SECONDS:
            self.check()
        if not self.unconfirmed:
            self._last_progress = self._clock()
        self._outstanding.setdefault(topic, deque()).append(None)
        where: dict[str, Any] = {} if partition is None else {"partition": partition}
        while True:
            try:
                self._producer.produce(
                    topic,
                    value=value,
                    key=key,
                    headers=list(headers),
                    on_delivery=self._acknowledged,
                    **where,
                )
                return
            except BufferError:
                self._await_reports(self._producer.poll, 0.1)
                self.check()
            except Exception as error:
                self._fail(error, f"{topic}: {error}")
                raise self._failed() from error

    def confirm(self, deadline_seconds: float | None = None) -> None:
        limit = self._clock() + (self._deadline_seconds if deadline_seconds is None else deadline_seconds)
        while self.unconfirmed and self._failure is None:
            left = limit - self._clock()
            if left <= 0:
                # After a suspension of the process, the answers of that time are still queued.
                self._await_reports(self._producer.flush, 0.5)
                if self.unconfirmed and self._failure is None:
                    self._failure = f"{self._waiting} not confirmed within the deadline"
                break
            self._await_reports(self._producer.flush, min(left, 0.5))
        if self._failure is not None:
            raise self._failed()

    def close(self, deadline_seconds: float = 5.0) -> None:
        """Give up unconfirmed records after the deadline and free the client."""
        self._await_reports(self._producer.flush, deadline_seconds)
        self._producer.purge()
        self._await_reports(self._producer.flush, 0)

    def _await_reports(self, serve: Callable[[float], object], seconds: float) -> None:
        try:
            serve(seconds)
        except Exception as error:
            # A fatal error is raised here, not in the error callback, sometimes in the middle of a report. Python
            # then reports it as an error of the current call.
            cause = error.__cause__ or error
            text = cause.args[0].str() if cause.args and hasattr(cause.args[0], "str") else cause
            self._fail(cause, f"the producer failed permanently: {text}")


def _rejected(error: Any, message: Any) -> str:
    """Why the brokers rejected a record, and what to do if that is known."""
    topic = message.topic()
    if error.name() in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"):
        return f"topic {topic} does not exist: kinstream topics create"
    lacking = f": lacks WRITE on topic {topic}" if "AUTHORIZATION" in error.name() else ""
    where = topic if message.partition() is None else f"{topic} partition {message.partition()}"
    return f"{where} rejected a record{lacking}: {error.str()}"
