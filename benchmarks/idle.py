"""What `kinstream up` takes while nothing happens: builder, learner, gate, metrics agent and service on a real Kafka,
and then nine agents, and what a session of clicks that comes alone costs all of those.

Every process of it is counted, `up` itself too; the broker is not. Memory is the proportional set size:
pages that processes share are counted once.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import psutil
from confluent_kafka import Producer

from benchmarks.figures import Figure
from kinstream.cli.local.system import free_port
from kinstream.streams.topics import PARTITIONER
from tests.kafka.broker import KafkaBroker
from tests.support.kafka_system import KafkaSystem
from tests.support.processes import until

PARTITIONS: Final = 6
AGENTS: Final = 4
NINE: Final = 9
TEXT: Final = """
[checkpoints]
url = "{folder}/checkpoints"

[builders.clicks]
kind = "clicks"
rules = ["click-list"]

[learners.ranking]
kind = "ranking"
from = ["clicks"]

[gate.docs]
share = 0.2

[serve]
http_port = {port}

[serve.spaces.docs]
learner = "ranking"
"""
#: Items and clicked lists that all have worked on before.
ITEMS: Final = 1_797
LOG: Final = ("produce", "simulated-clicks", "sklearn:digits", "--space", "docs", "--lists", "1000")
#: What comes after the last session has ended by then.
LAST_SECONDS: Final = 3.0
#: What is done at the start has ended by then.
QUIET_SECONDS: Final = 20.0
PERCENT: Final = 2.0
MEGABYTES: Final = 350.0
#: More builders and learners, and what nine agents may take.
MORE: Final = """
[builders.one-pass]
kind = "one-pass"

[learners.adapter]
kind = "adapter"
from = ["clicks"]

[learners.mixture]
kind = "mixture"
from = ["one-pass"]

[learners.opml]
kind = "opml"
from = ["one-pass"]

[learners.oasis]
kind = "oasis"
from = ["one-pass"]
"""
MEGABYTES_OF_NINE: Final = 1_200.0
#: Sessions a second, each of one list of ten with one click, and how much processor time one may take.
SESSIONS: Final = 5.0
SESSION_MS: Final = 6.0


class Measured(NamedTuple):
    """Megabytes of each process by its command, percent of a core for all of them, and milliseconds of a session."""

    megabytes: dict[str, float]
    share: float
    session_ms: float


def measured(folder: Path, seconds: float, *, together: bool, nine: bool = False) -> Measured:
    """Idle for so long; with nine agents, sessions come for as long then."""
    with KafkaBroker(folder / "kafka", extra={"log.cleaner.enable": "false"}) as broker:
        text = (TEXT + (MORE if nine else "")).format(folder=folder, port=free_port())
        key = folder / "key"
        key.write_text("00" * 24)
        key.chmod(0o600)
        changes = {"worker.together": together, "gate_key_file": str(key)}
        on = KafkaSystem(folder, broker.bootstrap, "idle", PARTITIONS, text, changes)
        try:
            on.finished("topics", "create", seconds=240.0).check_returncode()
            up = on.start("up", "up")
            agents = NINE if nine else AGENTS
            until(lambda: up.said("ready after", agents) and up.said("answers at"), "all are ready")
            loads = ["--progress-folder", str(folder / "loads")]
            on.finished(*LOG, *loads, seconds=240.0).check_returncode()
            time.sleep(QUIET_SECONDS)
            family = up.family()
            before, began = sum(map(_used, family)), time.monotonic()
            time.sleep(seconds)
            share = (sum(map(_used, family)) - before) / (time.monotonic() - began)
            memory = {f"{one.pid} {_name(one)}": one.memory_full_info().pss / 1e6 for one in family}
            session = _session_ms(on, family, seconds, share) if nine else 0.0
            up.stop()
        finally:
            on.close()
    return Measured(memory, 100.0 * share, session)


def _session_ms(on: KafkaSystem, family: list[psutil.Process], seconds: float, share: float) -> float:
    """Processor time of a session beyond what all take while nothing happens."""
    draw = np.random.default_rng(0)
    producer = Producer({"bootstrap.servers": on.bootstrap, "partitioner": PARTITIONER})
    learned = len(on.read("constraints"))
    before, began, sent = sum(map(_used, family)), time.monotonic(), 0
    while (passed := time.monotonic() - began) < seconds:
        shown, at = draw.choice(ITEMS, 10, replace=False), int(time.time() * 1000)
        event = {
            "kind": "click",
            "space": "docs",
            "list_id": f"list-{sent}",
            "user": f"user-{sent}",
            "items": [str(item) for item in shown],
            "clicks": [{"item": str(shown[draw.integers(10)]), "time_ms": at - 500}],
            "shown_at_ms": at - 2_000,
            "query_vector": draw.normal(size=64).tolist(),
        }
        producer.produce(on.topic("events"), json.dumps(event).encode(), b"docs")
        producer.poll(0)
        sent += 1
        time.sleep(max(0.0, sent / SESSIONS - passed))
    producer.flush()
    time.sleep(LAST_SECONDS)
    own = sum(map(_used, family)) - before - share * (time.monotonic() - began)
    refused, learned = len(on.read("dead-letters")), len(on.read("constraints")) - learned
    if refused or learned < sent:
        raise RuntimeError(f"of {sent} sessions, {learned} gave constraints; {refused} records were refused")
    return 1000.0 * own / sent


def _used(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _name(process: psutil.Process) -> str:
    words = process.cmdline()
    begin = next((n for n, word in enumerate(words) if word in ("up", "serve", "worker")), 0)
    return " ".join(words[begin:])


def run(quick: bool) -> list[Figure]:
    """All agents in one process, and each in its own; nine in one."""
    found = []
    for together, nine in ((True, False), (False, False), (True, True)):
        with tempfile.TemporaryDirectory(prefix="kinstream-bench-", ignore_cleanup_errors=True) as name:
            seen = measured(Path(name), 10.0 if quick else 60.0, together=together, nine=nine)
        own = sum(size for process, size in seen.megabytes.items() if not process.endswith(" up"))
        facts = {"megabytes": seen.megabytes, "load": os.getloadavg()[0]}
        way = f"{NINE if nine else AGENTS} agents, {len(seen.megabytes)} processes"
        most = MEGABYTES_OF_NINE if nine else MEGABYTES if together else None
        found += [
            Figure("idle", f"{way}: memory of agents and service", own, "MB", at_most=most, facts=facts),
            Figure("idle", f"{way}: with `kinstream up`", sum(seen.megabytes.values()), "MB"),
            Figure("idle", f"{way}: share of a core", seen.share, "%", at_most=PERCENT if together else None),
        ]
        if nine:
            title = f"{way}: a session at {SESSIONS:g} a second"
            found.append(Figure("idle", title, seen.session_ms, "ms", at_most=SESSION_MS))
    return found
