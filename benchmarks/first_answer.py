"""From a click to the first answer that has learned it, where checkpoints are written every second.

`kinstream up` with a click builder, a learner of the kind `ranking` and the service, on a real Kafka. Lists of ten come
one at a time, with pauses of .5 to 2.5 s; the clock runs from the send of a list until an answer names another step.
"""

from __future__ import annotations

import json
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Final

import numpy as np
from confluent_kafka import Producer

from benchmarks.figures import Figure, percentile
from kinstream.cli.local.system import free_port
from kinstream.streams.topics import PARTITIONER
from tests.kafka.broker import KafkaBroker
from tests.support.kafka_system import KafkaSystem
from tests.support.processes import until

NAME: Final = "first-answer"
LIMIT_SECONDS: Final = 1.0
LISTS, QUICK = 100, 10
AGENTS: Final = 3
ITEMS, D, PLACES = 1_797, 64, 10
LOG: Final = ("produce", "simulated-clicks", "sklearn:digits", "--space", "docs", "--lists", "1000")
TEXT: Final = """
[checkpoints]
url = "{folder}/checkpoints"
interval_seconds = 1.0

[builders.clicks]
kind = "clicks"
rules = ["click-list"]

[learners.ranking]
kind = "ranking"
from = ["clicks"]
held_out = 0.0

[serve]
http_port = {port}

[serve.spaces.docs]
learner = "ranking"
"""


def waits(folder: Path, lists: int) -> list[float]:
    """Seconds of each list."""
    port, draw = free_port(), np.random.default_rng(0)
    body = json.dumps({"vectors": [0.5] * D, "k": 1}).encode()
    search = urllib.request.Request(
        f"http://127.0.0.1:{port}/search", body, {"content-type": "application/json"}
    )

    def step() -> int:
        with urllib.request.urlopen(search) as answer:
            return int(json.load(answer)["model"]["step"])

    found = []
    with KafkaBroker(folder / "kafka") as broker:
        text = TEXT.format(folder=folder, port=port)
        on = KafkaSystem(folder, broker.bootstrap, "first", 6, text, {})
        try:
            on.finished("topics", "create", seconds=240.0).check_returncode()
            up = on.start("up", "up")
            until(lambda: up.said("ready after", AGENTS) and up.said("answers at"), "all are ready")
            on.finished(*LOG, "--progress-folder", str(folder / "loads"), seconds=240.0).check_returncode()
            until(lambda: step() > 3_000, "the log is learned")
            producer = Producer(
                {"bootstrap.servers": on.bootstrap, "partitioner": PARTITIONER, "linger.ms": 0}
            )
            for number in range(lists):
                time.sleep(draw.uniform(0.5, 2.5))
                event = _event(number, draw)
                before, began = step(), time.monotonic()
                producer.produce(on.topic("events"), json.dumps(event).encode(), b"docs")
                producer.flush()
                until(lambda seen=before: step() != seen, f"list {number} is learned", every=0.01)  # type: ignore[misc]
                found.append(time.monotonic() - began)
            up.stop()
        finally:
            on.close()
    return found


def _event(number: int, draw: np.random.Generator) -> dict[str, object]:
    shown, at = draw.choice(ITEMS, PLACES, replace=False), int(time.time() * 1000)
    return {
        "kind": "click",
        "space": "docs",
        "list_id": f"list-{number}",
        "user": f"user-{number}",
        "items": [str(item) for item in shown],
        "clicks": [{"item": str(shown[-3]), "time_ms": at - 5}],
        "shown_at_ms": at - 2_000,
        "query_vector": draw.normal(size=D).tolist(),
    }


def run(quick: bool) -> list[Figure]:
    """The median and the longest."""
    with tempfile.TemporaryDirectory(prefix="kinstream-bench-", ignore_cleanup_errors=True) as name:
        found = waits(Path(name), QUICK if quick else LISTS)
    title = "a click to the first answer that has learned it"
    return [
        Figure(NAME, f"{title}, p50", percentile(found, 0.5), "s"),
        Figure(NAME, f"{title}, longest of {len(found)}", max(found), "s", at_most=LIMIT_SECONDS),
    ]
