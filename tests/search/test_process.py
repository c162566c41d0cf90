"""`kinstream serve` as a process, on a real Kafka, beside a learner that learns."""

from __future__ import annotations

import os
import signal
import threading
from bisect import bisect_right
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest

from kinstream.cli.local.system import free_port
from kinstream.learners.models.export import learner_from
from kinstream.streams.checkpoints.state_bytes import from_bytes
from kinstream.streams.errors import BadRecord
from kinstream.streams.operations.models import data_of
from kinstream.streams.records.codec.codec import decode_model, encode
from kinstream.streams.records.values import Action, Control, ItemBlock, Table
from kinstream.streams.topics import partition_of
from tests.faults import conftest as faults
from tests.faults.conftest import MakeSystem
from tests.faults.processes import System, patched
from tests.kafka.broker import KafkaBroker
from tests.search.index_service import Truth
from tests.support.alive import alive
from tests.support.pipeline import samples
from tests.support.processes import Process, until

systems = faults.make_system
SPACE = "digits"
D = 4


class Agent:
    """The service of a system, which may be killed and comes back by its supervisor."""

    def __init__(self, system: System, port: int, *options: str) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.process = Process(system.command("serve", *options), system.folder / "serve.log", {})
        system.processes.append(self.process)

    def ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    def ask(self, Q: Any, k: int) -> dict[str, Any] | None:
        """The answer; None where there is none for now."""
        try:
            answer = httpx.post(
                f"{self.url}/search", json={"vectors": np.asarray(Q).tolist(), "k": k}, timeout=5
            )
        except httpx.HTTPError:
            return None
        assert answer.status_code in (200, 503), answer.text
        found: dict[str, Any] = answer.json()
        return found if answer.status_code == 200 else None

    def kill(self) -> None:
        """SIGKILL to the process that serves; its supervisor starts another one."""
        os.kill(self.process.worker_pid(), signal.SIGKILL)


def started(make: MakeSystem, kafka: KafkaBroker, **settings: Any) -> tuple[System, Agent]:
    port = free_port()
    search = {"learner": "opml", **settings}
    system = make(kafka, serve__spaces={SPACE: search}, serve__http_port=port, checkpoints__keep=1_000)
    for application in ("builder-one-pass", "learner-opml"):
        system.worker(application, "--create")
    return system, Agent(system, port)


def item_block(rng: np.random.Generator, truth: Truth) -> ItemBlock:
    """A random change of the catalogue, noted in the truth."""
    names = [f"item {n}" for n in rng.integers(0, 50, 5)]
    X = rng.normal(size=(5, D)).astype(np.float32)
    gone = tuple(f"item {n}" for n in rng.integers(0, 50, 2))
    truth.items.update(zip(names, X, strict=True))
    for name in gone:
        truth.items.pop(name, None)
    return ItemBlock(SPACE, tuple(names), (Table("x", X),), 1, gone)


def _more(answers: list[Any], least: int, broken: list[BaseException]) -> bool:
    return len(answers) > least or bool(broken)


def announced(system: System) -> dict[Any, Any]:
    """Every learner that was ever announced, from its own file."""
    found = {}
    section = system.settings.learners["opml"]
    for message in system.read("models"):
        try:
            version = decode_model(message.value)
        except BadRecord:
            continue
        if version.epoch >= 0 and not version.deleted and version.step:
            learner = learner_from(data_of(version, system.settings), section.kind, section.arguments())
            found[version.space, version.generation, version.epoch, version.step] = learner
    return found


@pytest.mark.long
@pytest.mark.parametrize("index", ["exact", "lazy"])
def test_killed_at_random_under_load_it_never_answers_wrong(
    kafka: KafkaBroker,
    systems: MakeSystem,
    index: str,
) -> None:
    options = {"candidates": 1000} if index == "lazy" else {}
    system, agent = started(systems, kafka, index=index, options=options)
    rng, truth = np.random.default_rng(12), Truth()
    answers: list[tuple[dict[str, Any], Any, int]] = []
    broken: list[BaseException] = []
    stop = threading.Event()

    def query(seed: int) -> None:
        own = np.random.default_rng([4, seed])
        try:
            while not stop.is_set():
                Q, k = own.normal(size=(2, D)).astype(np.float32), int(own.integers(1, 12))
                answer = agent.ask(Q, k)
                if answer is None:
                    stop.wait(0.05)
                else:
                    answers.append((answer, Q, k))
        except BaseException as error:
            broken.append(error)

    def change(blocks: int) -> None:
        for _ in range(blocks):
            block = item_block(rng, truth)
            ((_, offset),) = system.send([(SPACE, encode(block))])
            truth.note(offset)

    change(5)
    until(agent.ready, "ready")
    threads = [threading.Thread(target=query, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    try:
        learned = samples(SPACE, 60, d=D)
        for part in range(6):
            system.send([(SPACE, value) for value in learned[part * 10 : part * 10 + 10]])
            change(4)
            if part % 2:
                agent.kill()
            before = len(answers)
            until(partial(_more, answers, before + 10, broken), "it answers again")
        system.settle()
        # The newest checkpoint may still have to be announced.
        accepted = int(from_bytes(system.states("learner-opml")[SPACE])["accepted"])
        until(
            lambda: (
                answers[-1][0]["model"]["step"] == accepted
                and answers[-1][0]["catalogue"]["offset"] == max(truth.at)
            ),
            "the newest model and all items serve",
        )
    finally:
        stop.set()
        for thread in threads:
            thread.join(15)
    assert not broken
    assert agent.process.stop() == 0

    learners = announced(system)
    known = sorted(truth.at)
    named = set()
    for answer, Q, k in answers:
        at = known[bisect_right(known, answer["catalogue"]["offset"]) - 1]
        truth.check({**answer, "catalogue": {**answer["catalogue"], "offset": at}}, Q, k, learners)
        named.add((answer["model"]["step"], at))
    assert len({step for step, _ in named}) > 2 and len({at for _, at in named}) > 5


@pytest.mark.long
def test_it_reads_what_others_wrote_before_and_stops_when_told(
    kafka: KafkaBroker,
    systems: MakeSystem,
) -> None:
    port = free_port()
    system = systems(kafka, serve__spaces={SPACE: {"learner": "opml"}}, serve__http_port=port)
    truth, rng = Truth(), np.random.default_rng(3)
    records = [(SPACE, encode(item_block(rng, truth))) for _ in range(300)]
    system.send([*records, (SPACE, b"no record"), ("other", records[0][1])])
    truth.note(299)
    agent = Agent(system, port, "--unsupervised")
    until(agent.ready, "ready")
    Q = rng.normal(size=(2, D)).astype(np.float32)
    answer = agent.ask(Q, 5)
    assert answer is not None and answer["catalogue"]["partition"] == partition_of(SPACE, 2)
    truth.check(answer, Q, 5, {})
    page = httpx.get(f"{agent.url}/metrics").text
    assert 'kinstream_serve_records_refused_total{partition="' in page
    assert 'reason="undecodable"} 1.0' in page

    ((_, epoch),) = system.send([(SPACE, encode(Control(SPACE, Action.RESET, 1)))])
    until(lambda: (agent.ask(Q, 5) or {"catalogue": {}})["catalogue"].get("items") == 0, "the reset is seen")
    assert agent.process.stop() == 0 and "Traceback" not in agent.process.log()
    # It only reads: no group of it is known to the brokers.
    with system.cluster() as cluster:
        groups = cluster.admin.list_consumer_groups().result().valid
    assert not [group.group_id for group in groups if "serve" in group.group_id]
    assert epoch > 0


def test_a_catalogue_is_read_anew_where_its_topic_was_recreated(
    kafka: KafkaBroker,
    systems: MakeSystem,
) -> None:
    port = free_port()
    system = systems(kafka, serve__spaces={SPACE: {"learner": "opml"}}, serve__http_port=port)
    agent = Agent(system, port)
    until(agent.ready, "ready")
    kafka.delete_topic(system.topic("events"))
    system.create_topics()
    # Nothing was read of the old one, so by its offsets it is the same log.
    truth, rng = Truth(), np.random.default_rng(4)
    system.send([(SPACE, encode(item_block(rng, truth))) for _ in range(60)])
    truth.note(59)
    agent.process.expect(rf"{system.topic('events')} was re-created: its id was \S+ and is \S+")
    agent.process.expect("serve: ready", times=2)
    Q = rng.normal(size=(2, D)).astype(np.float32)
    until(
        lambda: (agent.ask(Q, 5) or {"catalogue": {}})["catalogue"].get("items") == len(truth.items),
        "the new log is read from its start",
    )
    answer = agent.ask(Q, 5)
    assert answer is not None
    truth.check(answer, Q, 5, {})
    assert agent.process.stop() == 0


@pytest.mark.long
def test_a_port_that_is_taken_and_a_missing_space_are_told_in_one_line(
    kafka: KafkaBroker,
    systems: MakeSystem,
) -> None:
    system = systems(kafka)
    status, told = system.run("serve", "--unsupervised")
    assert status != 0 and "name a space" in told and "Traceback" not in told


@pytest.mark.long
def test_it_ends_with_its_supervisor(kafka: KafkaBroker, systems: MakeSystem) -> None:
    port = free_port()
    system = systems(kafka, serve__spaces={SPACE: {"learner": "opml"}}, serve__http_port=port)
    agent = Agent(system, port)
    until(agent.ready, "ready")
    served = psutil.Process(agent.process.worker_pid())
    assert served.pid != agent.process.pid
    os.kill(agent.process.pid, signal.SIGKILL)
    until(lambda: not alive(served), "the process that served is gone")
    assert agent.process.said("the supervisor is gone; stopping") and not agent.process.said("Traceback")


@pytest.mark.long
def test_a_stop_that_comes_before_the_server_has_begun_is_heeded(
    kafka: KafkaBroker, systems: MakeSystem, tmp_path: Path
) -> None:
    system = systems(kafka, serve__spaces={SPACE: {"learner": "opml"}}, serve__http_port=free_port())
    environment = patched(
        tmp_path / "patch",
        """
        import os, signal
        import uvicorn

        run = uvicorn.Server.run

        def _run(self, *args, **kwargs):
            os.kill(os.getpid(), signal.SIGTERM)
            return run(self, *args, **kwargs)

        uvicorn.Server.run = _run
        """,
    )
    command = system.command("serve", "--unsupervised")
    process = Process(command, system.folder / "early.log", environment)
    system.processes.append(process)
    assert process.status() == 0 and not process.said("Traceback")
