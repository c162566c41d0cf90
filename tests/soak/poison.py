"""Records that nobody can use, at a steady rate, each with a header by which it is found again."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaException, Producer

from tests.crash.checker import Record

HEADER: Final = "soak-poison"
BUILDERS: Final = ("one-pass", "clicked")
#: Space of the samples among them: one that holds samples.
SPACE: Final = "digits-0"
_ROW = [0.5] * 64


def _samples(rows: object, labels: object) -> bytes:
    event = {
        "kind": "samples",
        "space": SPACE,
        "vectors": rows,
        "labels": labels,
        "time_ms": 1_700_000_000_000,
    }
    return json.dumps(event).encode()


#: By name: key, value, and which builders refuse it. One that follows no samples does not look into them.
KINDS: Final[Mapping[str, tuple[bytes | None, bytes | None, tuple[str, ...]]]] = {
    "garbage": (SPACE.encode(), b"\x00\xff neither Avro nor JSON", BUILDERS),
    "torn": (SPACE.encode(), b"\xc3\x01\x00\x01", BUILDERS),
    "nothing": (SPACE.encode(), None, BUILDERS),
    "no key": (None, b"{}", BUILDERS),
    "ragged": (SPACE.encode(), _samples([_ROW, [1.0]], [0, 1]), BUILDERS),
    "unknown field": (SPACE.encode(), b'{"kind": "samples", "colour": 3}', BUILDERS),
    "narrow": (SPACE.encode(), _samples([[0.5, 0.5]], [1]), ("one-pass",)),
}


class Poisoner:
    """Sends the kinds in turn, until it is stopped.

    Parameters
    ----------
    share : of all events.
    events : how many there are.
    home : the partition of a key.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        share: float,
        events: Callable[[], int],
        home: Callable[[bytes], int],
    ) -> None:
        self.sent: dict[int, str] = {}
        self._topic = topic
        self._share = share
        self._events = events
        self._home = home
        self._failures: list[str] = []
        self._stop = threading.Event()
        quiet: dict[str, Any] = {"log_level": 0, "error_cb": lambda error: None, "message.timeout.ms": 0}
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **quiet})
        self._thread = threading.Thread(target=self._run, name="poison", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        kinds = list(KINDS)
        while not self._stop.wait(1.0):
            self._producer.poll(0)
            number = len(self.sent)
            try:
                if number >= self._share * self._events():
                    continue
            except KafkaException:
                continue  # no broker
            kind = kinds[number % len(kinds)]
            key, value, _ = KINDS[kind]
            self.sent[number] = kind
            self._producer.produce(
                self._topic,
                key=key,
                value=value,
                partition=self._home(key or b""),
                headers=[(HEADER, str(number).encode())],
                on_delivery=self._told,
            )

    def _told(self, error: object, message: object) -> None:
        if error is not None:
            self._failures.append(str(error))

    def stop(self, seconds: float) -> None:
        """Stop, and wait until the brokers have confirmed everything.

        Raises
        ------
        RuntimeError : they have not.
        """
        self._stop.set()
        self._thread.join()
        if self._producer.flush(seconds) or self._failures:
            raise RuntimeError(f"poison was not confirmed: {self._failures[:3]}")


def wanted_letters(events: Iterable[Record], sent: Mapping[int, str]) -> set[tuple[str, str]]:
    """(consumer, refused identity) of every letter there has to be, from the events themselves."""
    found: dict[int, Record] = {}
    for record in events:
        if HEADER in record.headers:
            number = int(record.headers[HEADER])
            assert number not in found, f"poison {number} is in the log twice"
            found[number] = record
    assert found.keys() == sent.keys(), "poison is missing in the log"
    return {
        (builder, f"{record.topic}/{record.partition}/{record.offset}")
        for number, record in found.items()
        for builder in KINDS[sent[number]][2]
    }


def letters_of(records: Iterable[Record]) -> dict[tuple[str, str], list[str]]:
    """The rows that each letter names, by (consumer, refused identity)."""
    found: dict[tuple[str, str], list[str]] = {}
    for record in records:
        text = {name: value.decode() for name, value in record.headers.items() if value is not None}
        key = text["kinstream-dead-consumer"], text["kinstream-dead-refused"]
        found.setdefault(key, []).append(text["kinstream-dead-rows"])
    return found
