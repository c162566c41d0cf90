"""What `kinstream up` takes while nothing happens: builder, learner, gate, metrics agent and service on a real Kafka.

Every process of it is counted, supervisors and `up` itself too; the broker is not. Memory is the proportional set size:
pages that processes share are counted once.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Final

import psutil

from benchmarks.figures import Figure
from kinstream.cli.local.system import free_port
from tests.kafka.broker import KafkaBroker
from tests.support.kafka_system import KafkaSystem
from tests.support.processes import until

PARTITIONS: Final = 6
AGENTS: Final = 4
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
LOG: Final = ("produce", "simulated-clicks", "sklearn:digits", "--space", "docs", "--lists", "1000")
#: What is done at the start has ended by then.
QUIET_SECONDS: Final = 20.0
PERCENT: Final = 2.0
MEGABYTES: Final = 350.0


def idle(folder: Path, seconds: float, *, together: bool) -> tuple[dict[str, float], float]:
    """Megabytes of each process, by its command, and percent of a core for all of them."""
    with KafkaBroker(folder / "kafka", extra={"log.cleaner.enable": "false"}) as broker:
        text = TEXT.format(folder=folder, port=free_port())
        key = folder / "key"
        key.write_text("00" * 24)
        key.chmod(0o600)
        changes = {"worker.together": together, "gate_key_file": str(key)}
        on = KafkaSystem(folder, broker.bootstrap, "idle", PARTITIONS, text, changes)
        try:
            on.finished("topics", "create", seconds=240.0).check_returncode()
            up = on.start("up", "up")
            until(lambda: up.said("ready after", AGENTS) and up.said("answers at"), "all are ready")
            loads = ["--progress-folder", str(folder / "loads")]
            on.finished(*LOG, *loads, seconds=240.0).check_returncode()
            time.sleep(QUIET_SECONDS)
            family = up.family()
            before, began = [_used(one) for one in family], time.monotonic()
            time.sleep(seconds)
            used = sum(map(_used, family)) - sum(before)
            share = 100 * used / (time.monotonic() - began)
            memory = {f"{one.pid} {_name(one)}": one.memory_full_info().pss / 1e6 for one in family}
            up.stop()
        finally:
            on.close()
    return memory, share


def _used(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _name(process: psutil.Process) -> str:
    words = process.cmdline()
    begin = next((n for n, word in enumerate(words) if word in ("up", "serve", "worker")), 0)
    return " ".join(words[begin:])


def run(quick: bool) -> list[Figure]:
    """All agents in one process, and each in its own."""
    found = []
    for together in (True, False):
        with tempfile.TemporaryDirectory(prefix="kinstream-bench-", ignore_cleanup_errors=True) as name:
            memory, share = idle(Path(name), 10.0 if quick else 60.0, together=together)
        own = sum(size for process, size in memory.items() if not process.endswith(" up"))
        facts = {"megabytes": memory, "load": os.getloadavg()[0]}
        way = f"{len(memory)} processes"
        most, percent = (MEGABYTES, PERCENT) if together else (None, None)
        found += [
            Figure("idle", f"{way}: memory of agents and service", own, "MB", at_most=most, facts=facts),
            Figure("idle", f"{way}: with `kinstream up`", sum(memory.values()), "MB"),
            Figure("idle", f"{way}: share of a core", share, "%", at_most=percent),
        ]
    return found
