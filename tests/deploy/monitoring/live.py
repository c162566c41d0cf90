"""What the live test needs around the system: what is asked, somebody who is paged, and events that can change."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import numpy as np
from confluent_kafka import Producer

from kinstream.streams.kafka.clients import confluent_producer
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.values import ItemBlock, SampleBlock, Table
from kinstream.streams.settings import KafkaSettings
from tests.deploy.monitoring.boards import FILES, Ask, asks, filled, read, recorded
from tests.deploy.monitoring.short_rules import hurried

#: Series of a gate, of a store and of traces. The system of the live test has none of them: the walk of compose.yaml
#: asks for these.
ELSEWHERE: Final = re.compile(
    "kinstream_(gate|exposure|trace|serve_store|serve_decided|serve_drafted|serve_randomised)_"
)


def expressions(*, elsewhere: bool, divisor: int = 1) -> list[Ask]:
    """Of every panel, and of every recording rule: what it is recorded as, and what it is made of.

    Parameters
    ----------
    elsewhere : those about `ELSEWHERE`, or all others.
    divisor : of the durations of rules.
    """
    every = [ask for path in FILES for ask in asks(read(path))]
    every += [Ask(f"rule {name}", name) for name in recorded()]
    every += [Ask(f"rule {name}, expression", hurried(expr, divisor)) for name, expr in recorded().items()]
    return [ask for ask in every if bool(ELSEWHERE.search(ask.place + ask.expr)) == elsewhere]


def without_data(query: Callable[[str], list[dict[str, Any]]], asked: list[Ask]) -> list[Ask]:
    """Those of the expressions for which Prometheus has no number."""
    return [ask for ask in asked if not any(_number(one) for one in query(filled(ask.expr)))]


def _number(sample: dict[str, Any]) -> bool:
    return sample["value"][1] not in ("NaN", "+Inf", "-Inf")


@dataclass(frozen=True, slots=True)
class Notice:
    """One message of Alertmanager: to whom, and what it says."""

    receiver: str
    status: str
    alertname: str
    alerts: tuple[dict[str, Any], ...]


class OnCall:
    """Receives Alertmanager's messages and keeps them."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []
        on_call = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                name = body["groupLabels"]["alertname"]
                notice = Notice(self.path.strip("/"), body["status"], name, tuple(body["alerts"]))
                on_call.notices.append(notice)
                who = [{k: a["labels"].get(k) for k in ("agent", "space", "learner")} for a in body["alerts"]]
                now = time.strftime("%H:%M:%S")
                print(f"{now} {notice.receiver}: {name} {notice.status} {who}", flush=True)
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def listening(self) -> Iterator[OnCall]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    def told(self, receiver: str, alertname: str, status: str = "firing") -> list[Notice]:
        """Messages about an alert, in order."""
        return [
            n for n in self.notices if (n.receiver, n.alertname, n.status) == (receiver, alertname, status)
        ]


class Feed:
    """Sends labelled vectors of one space at a steady pace. Ten classes differ in four of sixteen features.

    Parameters
    ----------
    rows : of a block; five blocks are sent each second.
    """

    DIMENSION = 16
    CLASSES = 10

    def __init__(self, bootstrap: str, topic: str, space: str, rows: int = 40) -> None:
        self._topic = topic
        self._space = space
        self._rows = rows
        self._producer = Producer(confluent_producer(KafkaSettings(bootstrap_servers=bootstrap)))
        self._draw = np.random.default_rng([5, 1])
        self._means = np.zeros((self.CLASSES, self.DIMENSION))
        self._means[:, :4] = self._draw.normal(size=(self.CLASSES, 4)) * 2.0
        self._deviations = np.r_[np.full(4, 0.7), np.full(self.DIMENSION - 4, 2.5)]
        self._stop = threading.Event()
        self.flows = threading.Event()
        #: Once set, the labels say nothing about the vectors any more.
        self.shifted = False

    @contextmanager
    def running(self) -> Iterator[Feed]:
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        self.flows.set()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join()
            self._producer.flush(10)

    def send(self, *values: bytes) -> None:
        """Send records as they are."""
        for value in values:
            self._producer.produce(self._topic, key=self._space.encode(), value=value)
        left = self._producer.flush(60)
        assert left == 0, f"{left} records were not delivered"

    def items(self, rows: int) -> bytes:
        """A catalogue of so many items, as a record."""
        vectors = np.random.default_rng([5, 2]).normal(size=(rows, self.DIMENSION)).astype(np.float32)
        names = tuple(f"item {row}" for row in range(rows))
        return encode(ItemBlock(self._space, names, (Table("x", vectors),), int(time.time() * 1000)))

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            if self.flows.is_set():
                self.send(self._block())

    def _block(self) -> bytes:
        labels = self._draw.integers(0, self.CLASSES, self._rows)
        noise = self._draw.normal(size=(self._rows, self.DIMENSION)) * self._deviations
        vectors = (self._means[labels] + noise).astype(np.float32)
        if self.shifted:
            labels = self._draw.integers(0, self.CLASSES, self._rows)
        return encode(SampleBlock(self._space, (Table("x", vectors),), labels, int(time.time() * 1000)))


class Asking:
    """Asks a service for the neighbours of random vectors, five times a second, whether it answers or not."""

    def __init__(self, url: str, dimension: int) -> None:
        self._url = f"{url}/search"
        self._dimension = dimension
        self._draw = np.random.default_rng([5, 3])
        self._stop = threading.Event()

    @contextmanager
    def running(self) -> Iterator[Asking]:
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            body = {"vectors": self._draw.normal(size=(2, self._dimension)).tolist(), "k": 5}
            request = urllib.request.Request(
                self._url, json.dumps(body).encode(), {"Content-Type": "application/json"}
            )
            # It is away at the beginning and at the end.
            with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=5) as answer:
                answer.read()
