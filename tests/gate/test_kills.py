"""Gateway, gate, learner and broker killed 20 times in all during a live run: every decision once, and the same again.

Users ask the service and click, the builder and the learner make models of their clicks, and the gate compares them.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from kinstream.cli.local.system import free_port
from kinstream.gate.agent import decision_key, gate_spec
from kinstream.streams.records.codec.codec import decode_decision, encode
from kinstream.streams.records.gate import UNADAPTED, GateDecision, Version
from kinstream.streams.records.identity import EMITTER, read_identity
from kinstream.streams.records.message import Message
from kinstream.streams.records.values import Click, ItemBlock, ItemClick, Table
from kinstream.streams.topics import partition_of
from tests.faults.processes import System
from tests.gate.gates import SECRET
from tests.kafka.broker import KafkaBroker
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent
from tests.support.postgres import postgres
from tests.support.processes import Process, until

SPACE = "docs"
TOPICS, LOUD, ITEMS, ASKED = 4, 8, 60, 10
#: Each kills four: service, gate, learner, broker.
ROUNDS = 5
TOPIC_OF = np.arange(ITEMS) % TOPICS
NAMES = tuple(f"doc-{n}" for n in range(ITEMS))


def embeddings(topics: NDArray[np.int64], draw: np.random.Generator) -> NDArray[np.float32]:
    """A few quiet numbers tell the topic; the loud ones have nothing to do with it."""
    quiet = 1.2 * np.eye(TOPICS)[topics] + 0.2 * draw.normal(size=(len(topics), TOPICS))
    found = np.concatenate([quiet, draw.normal(size=(len(topics), LOUD))], axis=1)
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True), np.float32)


class Users(threading.Thread):
    """People who ask and click until they are stopped, whatever is killed meanwhile. An answer may fail to come."""

    def __init__(self, system: System, port: int) -> None:
        super().__init__()
        self.system, self.url = system, f"http://127.0.0.1:{port}"
        self.stopped = threading.Event()
        self.answers, self.drafted = 0, 0
        self.served: set[Version] = set()
        self.error: BaseException | None = None
        self._draw = np.random.default_rng(6)

    def run(self) -> None:
        try:
            while not self.stopped.wait(0.02):
                self._ask()
        except BaseException as error:
            self.error = error

    def _ask(self) -> None:
        topics = self._draw.integers(0, TOPICS, ASKED)
        vectors = embeddings(topics, self._draw)
        try:
            answer = httpx.post(f"{self.url}/search", json={"vectors": vectors.tolist(), "k": 10}, timeout=60)
        except httpx.HTTPError:
            return
        if answer.status_code != 200:
            assert answer.status_code == 503, answer.text
            return
        found: dict[str, Any] = answer.json()
        model = found["model"]
        self.served.add(Version(model["generation"], model["epoch"], model["step"]))
        now = time.time_ns() // 10**6
        events: list[tuple[str | bytes | None, bytes | None]] = []
        for topic, vector, result in zip(topics, vectors, found["results"], strict=True):
            shown = tuple(one["id"] for one in result["neighbours"])
            if result["list_id"] is None:
                list_id = f"plain-{self.answers}-{len(events)}"
            else:
                self.drafted += 1
                list_id = result["list_id"]
            liked = [item for item in shown if TOPIC_OF[int(item.removeprefix("doc-"))] == topic]
            clicks = tuple(ItemClick(item, now) for item in liked if self._draw.random() < 0.5)
            table = (Table("x", vector[None]),)
            places = tuple(range(len(shown)))
            # The query, which the learner needs.
            event = Click(SPACE, list_id, shown, places, clicks, now, query_vector=table)
            events.append((SPACE, encode(event)))
        self.system.send(events)
        self.answers += 1

    def go_on(self, what: str) -> None:
        """Wait until they have been answered three times more."""
        least = self.answers + 3
        until(
            lambda: self.answers >= least or self.error is not None, f"users are answered after {what}", 180
        )
        if self.error is not None:
            raise self.error


def held_copy(messages: list[Message], partitions: int) -> MemoryLog:
    """The same records at the same offsets, in memory."""
    log = MemoryLog(partitions=partitions)
    for message in messages:
        log.entries[message.topic, message.partition].append(message)
        log.ends[message.topic, message.partition] = message.offset + 1
    return log


def decided(messages: list[Message]) -> Iterator[tuple[tuple[int, int, int, int], bytes]]:
    """The decisions of the gate in the order of the topic, with their identities."""
    for message in messages:
        if dict(message.headers).get(EMITTER) == b"gate" and message.key == decision_key(SPACE):
            p = read_identity(message.headers).position
            yield (p.generation, p.epoch, p.offset, p.part), message.value or b""


@pytest.mark.long
@pytest.mark.timeout(900)
def test_twenty_kills_change_no_decision(
    own_kafka: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KINSTREAM_GATE_KEY", SECRET)
    port, draw, rng = free_port(), np.random.default_rng(5), random.Random(5)
    items = embeddings(TOPIC_OF, draw)
    with postgres() as server:
        server.fill(SPACE, NAMES, items)
        (tmp_path / "url").write_text(server.url)
        store = {"backend": "pgvector", "collection": SPACE, "distance": "inner-product"}
        system = System(
            tmp_path / "system",
            own_kafka.bootstrap,
            builders__clicks={"kind": "clicks", "rules": ["click-skip-above"]},
            learners__taste={
                "kind": "oasis",
                "from": ["clicks"],
                "unranked_lists": True,
                # New challengers must come, whatever the judge of the learner says of the oldest ones.
                "publish": "always",
                "scaler": "unit",
                "unit": "published",
            },
            serve__spaces={SPACE: {"learner": "taste", "connection_file": str(tmp_path / "url"), **store}},
            serve__http_port=port,
            gate__docs={
                "share": 1.0,
                "every_minutes": 0.0,
                "min_learned": 0,
                "min_sessions": 30,
                "max_sessions": 120,
                "bought_votes": 0,
                "per_item": 0,
            },
        ).create_topics()
        try:
            system.send([(SPACE, encode(ItemBlock(SPACE, NAMES, (Table("x", items),), 0)))])
            system.start("builder", "worker", "builder", "clicks", "--create")
            victims: dict[str, Process] = {
                "learner": system.start("learner", "worker", "learner", "taste", "--create"),
                "gate": system.start("gate", "worker", "gate", "--create"),
                "serve": system.start("serve", "serve"),
            }
            users = Users(system, port)
            users.start()
            kills = run_through(system, own_kafka, users, victims, rng)
            users.stopped.set()
            users.join(180)
            assert users.error is None and not users.is_alive()
            assert kills == 4 * ROUNDS
            home = partition_of(SPACE, system.partitions)
            system.wait_for("gate", {home: system.ends("events")[home]})
            assert victims["gate"].stop() == 0

            found = list(decided(system.read("models")))
            once = dict(found)
            # What came twice is the same record: it was written again by a worker whose checkpoint was older.
            assert all(once[identity] == value for identity, value in found)
            decisions = [decode_decision(value) for value in once.values()]
            check(decisions, users)
            assert replayed(system, tmp_path / "again") == once
            print(f"{kills} kills, {len(decisions)} decisions, {len(found) - len(once)} written twice")
        finally:
            system.close()


def run_through(
    system: System, broker: KafkaBroker, users: Users, victims: dict[str, Process], rng: random.Random
) -> int:
    """Kill everything in turn, in the middle of its work; how many were killed."""
    users.go_on("the start")
    kills, before = 0, decided_upto(system)
    for number in range(ROUNDS):
        order = [*victims]
        rng.shuffle(order)
        for name in order:
            time.sleep(rng.uniform(0.0, 0.8))
            killed = worker_of(victims[name], name)
            os.kill(killed, signal.SIGKILL)
            kills += 1
            until(partial(has_another_worker, victims[name], killed), f"another {name}")
        users.go_on(f"round {number}")
        broker.kill()
        kills += 1
        time.sleep(rng.uniform(0.0, 0.5))
        broker.start()
        users.go_on(f"the broker's death {number}")
        last = before
        before = until_decided(system, last)
    return kills


def worker_of(process: Process, name: str) -> int:
    """The process id of a worker, which may just have ended by itself because the broker was away."""
    while True:
        until(process.child, f"a worker of {name}")
        child = process.child()
        if child is not None:
            return child.pid


def has_another_worker(process: Process, killed: int) -> bool:
    child = process.child()
    return child is not None and child.pid != killed


def decided_upto(system: System) -> int:
    return len(list(decided(system.read("models"))))


def until_decided(system: System, before: int) -> int:
    """Wait until the gate has decided more than once since."""
    until(lambda: decided_upto(system) > before + 1, f"more than {before} decisions", 240)
    return decided_upto(system)


def check(decisions: list[GateDecision], users: Users) -> None:
    """They are numbered without a gap in the order of the log, and users were served what was decided."""
    assert [one.number for one in decisions] == list(range(1, len(decisions) + 1))
    assert [one.offset for one in decisions] == sorted(one.offset for one in decisions)
    assert len(decisions) >= 2 * ROUNDS
    assert users.drafted > 30 * ROUNDS
    assert users.served <= {UNADAPTED, *(one.serving for one in decisions)}
    serving = UNADAPTED
    for one in decisions:
        assert one.before == serving
        serving = one.serving


def replayed(system: System, root: Path) -> dict[tuple[int, int, int, int], bytes]:
    """The decisions of a gate that reads the same events without being disturbed."""
    log = held_copy(system.read("events"), system.partitions)
    Agent(gate_spec(system.settings), system.settings, log, root).run()
    models = [m for p in range(system.partitions) for m in log.read(system.topic("models"), p, 0)]
    return dict(decided(models))
