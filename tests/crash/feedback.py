"""Feedback while the service, the worker that joins it, and the broker are killed: none is lost, none counts twice.

At the end some of it is taken back, when its lists have become events, and worker and broker are killed again.

`python -m tests.crash.feedback --feedback 100000 --kills 20`
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
import numpy as np
from confluent_kafka import Producer

from kinstream.cli.local.system import free_port
from kinstream.gate.lists.list_id import Keys
from kinstream.gate.lists.plain_id import plain_id
from kinstream.producers.sources.agent import source_spec
from kinstream.streams.agents.machine import Place
from kinstream.streams.kafka.clients import confluent_producer
from kinstream.streams.kafka.emitter import Emitter
from kinstream.streams.records.codec.codec import decode_event, decode_feedback, encode
from kinstream.streams.records.values import Click, Feedback, ItemBlock, Table
from kinstream.streams.topics import CATALOGUE, FEEDBACK
from tests.kafka.broker import KafkaBroker
from tests.sources.rows import Rows, numbered
from tests.support.kafka_system import KafkaSystem
from tests.support.processes import Process, until

SECRET: Final = "a secret of this run, and of no other"
ITEMS: Final = 40
MINUTE: Final = 60_000
WINDOW_MINUTES: Final = 20
#: Feedback in a request, and in all on a list.
TOGETHER: Final = 10
#: Of what was given, how much is taken back.
TAKEN_BACK: Final = 200
ACTIONS: Final = (None, "cited", "purchase")
_TOML: Final = """
[checkpoints]
url = "{url}"
interval_seconds = 0.5
[worker]
session_timeout_seconds = 3.0
heartbeat_interval_seconds = 1.0
[builders.one-pass]
kind = "one-pass"
[learners.opml]
kind = "opml"
from = ["one-pass"]
[sources.feedback]
topic = "{prefix}.feedback"
preset = "feedback"
window_minutes = {window}
[serve]
http_port = {port}
request_seconds = 5.0
[serve.spaces.docs]
learner = "opml"
record = true
"""


class Loop(KafkaSystem):
    """A service that records, the worker that joins, and the brokers, each of which can be killed."""

    def __init__(self, folder: Path, broker: KafkaBroker) -> None:
        prefix, self.port = f"loop-{uuid4().hex[:8]}", free_port()
        text = _TOML.format(url=folder / "checkpoints", prefix=prefix, window=WINDOW_MINUTES, port=self.port)
        super().__init__(folder, broker.bootstrap, prefix, 2, text)
        self.broker = broker
        with self.cluster() as cluster:
            cluster.create([topic for topic in CATALOGUE if topic is not FEEDBACK], self.settings)
        # The times of its records are those of producers, so that the end of this run can be later than it is.
        broker.create_topic(self.topic("feedback"), 2, **{"message.timestamp.type": "CreateTime"})
        items = tuple(f"item-{n}" for n in range(ITEMS))
        vectors = np.random.default_rng(1).normal(size=(ITEMS, 8)).astype(np.float32)
        emitter = Emitter(confluent_producer(self.settings.kafka))
        block = ItemBlock("docs", items, (Table("x", vectors),), int(time.time() * 1000))
        emitter.send(self.topic("events"), b"docs", encode(block))
        emitter.confirm(60)
        emitter.close()
        self.url = f"http://127.0.0.1:{self.port}"
        self.service = self._serve()
        self.worker = self._join()

    def _serve(self) -> Process:
        return self.start("serve", "serve", "--unsupervised")

    def _join(self) -> Process:
        return self.start("source", "worker", "source", "feedback", "--create", "--unsupervised")

    def ready(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}/readyz", timeout=2).status_code == 200
        return False

    def kill(self, what: str) -> None:
        """Kill it, and start it again."""
        if what == "broker":
            self.broker.kill()
            time.sleep(1.0)
            self.broker.start()
            return
        process: Process = getattr(self, what)
        os.kill(process.pid, signal.SIGKILL)
        process.status()
        setattr(self, what, self._serve() if what == "service" else self._join())

    def alive(self) -> None:
        """Start again what has ended by itself, as a supervisor would: the worker ends without its broker."""
        for what, start in (("worker", self._join), ("service", self._serve)):
            if getattr(self, what).ended is not None:
                setattr(self, what, start())

    def joined(self) -> tuple[Rows, int]:
        """The rows that the worker has made, and how many were written again."""
        return numbered(one for one in self.read("events") if decode_event(one.value).load is not None)  # type: ignore[union-attr]

    def close_lists(self, seed: int) -> None:
        """Records whose times end every window."""
        at = int(time.time() * 1000) + (WINDOW_MINUTES + 2) * MINUTE
        producer = Producer(confluent_producer(self.settings.kafka))
        for number in range(40):
            nonce = (seed * 1000 + number).to_bytes(6, "big")
            name = plain_id(Keys(SECRET), "docs", ["end"], time_ms=at + number, nonce=nonce)
            shown = Click("docs", name, ("end",), (0,), (), at + number)
            producer.produce(self.topic("feedback"), encode(shown), b"docs", timestamp=at + number)
        producer.flush(60)


class Client(threading.Thread):
    """Asks, and says what was used, again and again until it is acknowledged; one in ten of that once more."""

    def __init__(self, url: str, seed: int, number: int, given: Counter[tuple[str, str]]) -> None:
        super().__init__(daemon=True)
        self._url, self._rng, self._left, self._given = url, random.Random(seed), number, given
        self._seed = seed
        self.repeated = self.tries = 0
        self.seconds: list[float] = []
        self.fault: BaseException | None = None

    def run(self) -> None:
        try:
            with httpx.Client(base_url=self._url, timeout=15) as client:
                while self._left > 0:
                    self._turn(client)
        except BaseException as error:
            self.fault = error

    def _post(self, client: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
        while True:
            self.tries += 1
            with contextlib.suppress(httpx.HTTPError):
                began = time.monotonic()
                answer = client.post(path, json=body)
                if answer.status_code == 200:
                    if path == "/feedback":
                        self.seconds.append(time.monotonic() - began)
                    found: dict[str, Any] = answer.json()
                    return found
                assert answer.status_code in (503, 504), answer.text
            time.sleep(0.1)

    def _turn(self, client: httpx.Client) -> None:
        vectors = [[self._rng.gauss(0, 1) for _ in range(8)] for _ in range(2)]
        answer = self._post(client, "/search", {"vectors": vectors, "k": 5, "session": f"s-{self._seed}"})
        for result in answer["results"]:
            name, items = result["list_id"], [one["id"] for one in result["neighbours"]]
            made = []
            for number in range(min(TOGETHER, self._left)):
                one = {"list_id": name, "item": self._rng.choice(items), "action": self._rng.choice(ACTIONS)}
                made.append({**one, "key": str(number)})
            if not made:
                return
            self._post(client, "/feedback", {"feedback": made})
            again = [one for one in made if self._rng.random() < 0.1]
            if again:
                self._post(client, "/feedback", {"feedback": again})
            self.repeated += len(again)
            self._left -= len(made)
            for one in made:
                self._given[name, one["item"]] += 1


def storm(loop: Loop, number: int, kills: int, clients: int = 4, seed: int = 1) -> dict[str, Any]:
    """So many feedbacks under so many kills; what came of them.

    Raises
    ------
    AssertionError : one is lost, or counts twice, or a replay is another.
    """
    until(loop.ready, "the service is ready")
    given: list[Counter[tuple[str, str]]] = [Counter() for _ in range(clients)]
    each = -(-number // clients)
    began = time.monotonic()
    threads = [Client(loop.url, seed * 100 + n, each, given[n]) for n in range(clients)]
    for thread in threads:
        thread.start()
    rng, order = random.Random(seed), ["service", "worker", "broker"]
    killed: Counter[str] = Counter()
    for kill in range(kills):
        done = sum(sum(one.values()) for one in given)
        goal = min(number * (kill + 1) // (kills + 1), number - 1)
        until(lambda g=goal: sum(sum(one.values()) for one in given) >= g, f"{goal} of {number}", 600)  # type: ignore[misc]
        what = order[kill % 3]
        loop.kill(what)
        killed[what] += 1
        del done
        time.sleep(rng.uniform(0.0, 1.0))
        loop.alive()
    while any(thread.is_alive() for thread in threads):
        loop.alive()
        time.sleep(0.2)
    seconds = time.monotonic() - began
    assert [thread.fault for thread in threads] == [None] * clients
    total = sum(given, Counter())
    return (
        {"feedback": sum(total.values()), "seconds": round(seconds, 1), "killed": dict(killed)}
        | check(loop, total)
        | {
            "repeated": sum(thread.repeated for thread in threads),
            "median_ms": round(1000 * float(np.median([s for t in threads for s in t.seconds])), 2),
        }
    )


def check(loop: Loop, given: Counter[tuple[str, str]]) -> dict[str, Any]:
    """Compare the lists in `events` with what was acknowledged, and with a replay of the log."""
    written = [decode_feedback(one.value) for one in loop.read("feedback")]
    shown = Counter(one.list_id for one in written if isinstance(one, Click))
    assert max(shown.values()) == 1
    wanted = Counter({key: count for key, count in given.items() if key[0] in shown})
    attempt = iter(range(1, 1000))
    lists: dict[str, Any] = {}

    def joined() -> bool:
        loop.alive()
        loop.close_lists(next(attempt))
        rows, _ = loop.joined()
        found = [row for some in rows.values() for row in some.values() if "list_id" in row]
        lists.clear()
        lists.update({row["list_id"]: row for row in found})
        assert len(lists) == len(found)
        return shown.keys() <= lists.keys()

    until(joined, "every list is closed", 600, every=5.0)
    found = Counter((name, item) for name in shown for item, _ in lists[name]["clicks"])
    assert found == wanted, (sum((wanted - found).values()), sum((found - wanted).values()))
    late = taken_back(loop, sorted(wanted)[:TAKEN_BACK])
    again = replayed(loop)
    rows, repeated = loop.joined()
    for load, some in rows.items():
        assert some.items() <= again[load].items()
    return {
        "lists": len(shown),
        "lost": sum((wanted - found).values()),
        "double": sum((found - wanted).values()),
        "of lists that a kill took along": sum(given.values()) - sum(wanted.values()),
        "taken back late": late,
        "rows written again": repeated,
    }


def taken_back(loop: Loop, used: Sequence[tuple[str, str]]) -> int:
    """Take back what was done with closed lists, under three kills of the worker, one of them as the broker comes
    back; each is one event. Returns how many."""
    at = int(time.time() * 1000) + (WINDOW_MINUTES + 3) * MINUTE
    producer, wanted = Producer(confluent_producer(loop.settings.kafka)), set()
    for number, (name, item) in enumerate(used):
        one = Feedback("docs", name, item, None, 1.0, at, str(number), retract=True)
        producer.produce(loop.topic("feedback"), encode(one), b"docs", timestamp=at)
        wanted.add((name, item, str(number)))
        if number in (len(used) // 4, len(used) // 2, 3 * len(used) // 4):
            assert producer.flush(60) == 0
            if number == len(used) // 2:
                loop.kill("broker")
            loop.kill("worker")
    assert producer.flush(60) == 0
    found: list[tuple[str, str, str]] = []

    def there() -> bool:
        loop.alive()
        rows, _ = loop.joined()
        found[:] = [
            row["taken_back"] for some in rows.values() for row in some.values() if "taken_back" in row
        ]
        return len(found) >= len(wanted)

    until(there, "everything that was taken back is an event", 300, every=2.0)
    assert sorted(found) == sorted(wanted)
    return len(wanted)


def replayed(loop: Loop) -> Any:
    """The rows that a machine makes of the log, in this process."""
    outputs = []
    spec = source_spec(loop.settings, "feedback")
    for partition in range(2):
        topic = loop.topic("feedback")
        place = Place("feedback", 1, topic, partition, 2, loop.topic("events"), 2, loop.topic("dead-letters"))
        machine = spec.make_machine(place, lambda name: {})
        for message in loop.read("feedback"):
            if message.partition == partition:
                outputs += [*machine.step(message), *machine.flush()]
    return numbered([one for one in outputs if one.topic == loop.topic("events")])[0]


def main(arguments: Sequence[str] | None = None) -> None:
    """The run of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--feedback", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    os.environ["KINSTREAM_GATE_KEY"] = SECRET
    with tempfile.TemporaryDirectory() as folder, KafkaBroker(Path(folder) / "kafka") as broker:
        loop = Loop(Path(folder), broker)
        try:
            print(json.dumps(storm(loop, asked.feedback, asked.kills, seed=asked.seed)))
        finally:
            loop.close()


if __name__ == "__main__":
    main()
