"""Our own index through HTTP while constraints arrive, beside FAISS on a metric that stands still.

The agent runs in a process of its own with its real server, catalogue, index and stepping. What brokers would bring
comes from a thread in that process: the update records of a learner that learned before, at a steady rate, and its
model every two seconds, five times as often as with the default interval of checkpoints. So the learner's own work,
which is another machine's in a real system, is not in the figures. Two clients ask one query a request, as fast as
they are answered. Items and queries are images of EMNIST, as they are and on 64 principal components.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
from copy import deepcopy
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import Figure, percentile
from benchmarks.online_search import SEARCH
from benchmarks.search_log import prepared
from benchmarks.shared_sets import load
from kinstream.streams.errors import SettingsError

ITEMS: Final = 100_000
QUICK_ITEMS: Final = 10_000
RATE: Final = 1_000
BLOCK: Final = 50
MODEL_SECONDS: Final = 2.0
NEIGHBOURS: Final = 10
CLIENTS: Final = 2
QUERIES: Final = 40
DATA: Final = "emnist_bymerge"
#: Index, and whether the metric changes meanwhile.
RUNS: Final = (
    ("exact", True),
    ("lazy", True),
    ("exact", False),
    ("faiss-flat", False),
    ("faiss-hnsw", False),
)


@cache
def images(d: int) -> NDArray[np.float32]:
    """Images of EMNIST in random order, (n, d): as they are with 784 features, else on principal components.

    Raises
    ------
    SettingsError
        They are not there.
    """
    data = load(DATA)
    if data is None:
        raise SettingsError(f"{DATA} is not there: set KINSTREAM_DATA to its folder")
    X = data.X[np.random.default_rng(31).permutation(len(data.y))]
    return prepared(X, ITEMS, None if d == X.shape[1] else d)


def rows(number: int, d: int, seed: int) -> NDArray[np.float32]:
    """Images (number, d); those of seed 1 are the items, all others are none of them."""
    if seed == 1:
        return images(d)[:number]
    others = images(d)[ITEMS:]
    return np.asarray(others[np.random.default_rng([37, d, seed]).integers(0, len(others), number)])


# ---- the process that serves ----------------------------------------------------------------------------------------


class _Learning:
    """A learner's blocks, learned before: update records, and models after every so many of them."""

    def __init__(self, d: int, blocks: int, publishes: bool) -> None:
        from kinstream.learners.registry import create
        from kinstream.learners.updates import Before, UpdateOrigin
        from kinstream.streams.records.values import ConstraintBlock, Kind, Table

        rng = np.random.default_rng([41, d])
        learner: Any = create("lego", dtype="float32")
        X = rows(2_000, d, 7)
        self.models: list[tuple[int, Any]] = []
        self.updates: list[list[Any]] = []
        step = 0
        for number in range(blocks + 1):
            table = X[rng.integers(0, len(X), 2 * BLOCK)]
            index = np.arange(2 * BLOCK, dtype=np.int32).reshape(BLOCK, 2)
            signs = rng.choice(np.array([-1, 1], np.int8), BLOCK)
            far = ((table[0::2] - table[1::2]) ** 2).sum(axis=1)
            one = ConstraintBlock(
                "shop",
                Kind.PAIR,
                (Table("x", table),),
                index,
                signs,
                ("r",),
                np.zeros(BLOCK, np.uint8),
                np.zeros(BLOCK, np.bool_),
                np.ones(BLOCK, np.float32),
                1,
                targets=(far * np.where(signs > 0, 0.9, 1.1)).astype(np.float32),
            )
            before = Before(learner) if publishes else None
            outcomes = learner.learn(one)
            base, step = step, step + outcomes.counts().seen
            origin = UpdateOrigin("shop", "opml", 1, 0, "t", 0, number, base, step, 1)
            records = [] if before is None else before.updates(origin, one, outcomes)
            if number:
                self.updates.append(records)
            if number % int(MODEL_SECONDS * RATE / BLOCK) == 0:
                self.models.append((number, deepcopy(learner)))
        self.steps = step


def serve(index: str, d: int, number: int, seconds: float) -> None:
    """Serve until a line comes in; then tell recall and counters, and end."""
    from kinstream.search.service.answers import Answering
    from kinstream.search.service.metrics import ServiceMetrics
    from tests.search.index_service import Agent, items, served

    changing = seconds > 0
    learning = _Learning(d, int(seconds * RATE / BLOCK) if changing else 1, index == "lazy")
    follows = index == "lazy"
    options = SEARCH if follows else {}
    space = {"learner": "opml", "index": index, "updates": follows, "options": options}
    agent = Agent(spaces={"shop": space}, threads=2, request_seconds=60.0)
    agent.service.start()
    X = rows(number, d, 1)
    many = 400_000 // (4 * d)  # what fits into one record
    for at in range(0, number, many):
        names = [f"item-{n}" for n in range(at, min(at + many, number))]
        agent.events.append(items("shop", names, X[at : at + many]))
    learner = learning.models[0][1]
    agent.announced.announce("shop", learner, BLOCK)
    agent.wait(lambda: agent.space("shop").searcher.glance().model.step > 0, "the model serves", 600.0)
    stop = threading.Event()

    def bring() -> None:
        began, models = time.monotonic(), dict(learning.models[1:])
        for done, records in enumerate(learning.updates, 1):
            if stop.wait(max(0.0, began + done * BLOCK / RATE - time.monotonic())):
                return
            if follows:
                for record in records:
                    agent.indexes.updates.give(record)
            if done in models:
                agent.announced.announce("shop", models[done], (done + 1) * BLOCK)

    with served(agent) as url:
        print(json.dumps({"port": int(url.rpartition(":")[2])}), flush=True)
        sys.stdin.readline()
        if changing:
            threading.Thread(target=bring, daemon=True).start()
        sys.stdin.readline()
        stop.set()
        searcher = agent.space("shop").searcher
        Q = rows(QUERIES, d, 3)
        found = searcher.search(Q, NEIGHBOURS)
        true = searcher.scan(found.used, Q, NEIGHBOURS) or []
        share = np.mean([len(set(a) & set(b)) for a, b in zip(found.names, true, strict=True)]) / NEIGHBOURS
        answering = Answering(agent.service, ServiceMetrics(agent.service))
        told = json.loads(answering.spaces())["spaces"][0]
        facts = {
            "recall": float(share),
            "examined": float(found.examined.mean()),
            "step": told["model"]["step"],
            "counts": dict(searcher.counts),
            "build_seconds": searcher.build_seconds,
            "bytes": searcher.nbytes,
        }
        print(json.dumps(facts), flush=True)
    agent.service.stop(1.0)


# ---- the process that asks ------------------------------------------------------------------------------------------


def ask(port: int, Q: NDArray[np.float32], until: float, found: list[float]) -> None:
    """One client: a request after the other, on one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    bodies = [json.dumps({"vectors": row, "k": NEIGHBOURS}) for row in np.round(Q, 4).tolist()]
    number = 0
    while time.monotonic() < until:
        began = time.monotonic()
        connection.request(
            "POST", "/search", bodies[number % len(bodies)], {"Content-Type": "application/json"}
        )
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{answer.status}: {body!r}")
        found.append(time.monotonic() - began)
        number += 1
    connection.close()


def measure(
    index: str, d: int, number: int, seconds: float, changing: bool
) -> tuple[list[float], dict[str, Any]]:
    """Seconds of every request, and what the agent says at the end."""
    command = [sys.executable, "-m", "benchmarks.own_index", index, str(d), str(number)]
    process = subprocess.Popen(
        [*command, str(seconds if changing else 0.0)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        port = json.loads(process.stdout.readline())["port"]
        ask(port, rows(10, d, 2), time.monotonic() + 1.0, [])
        process.stdin.write("begin\n")
        process.stdin.flush()
        taken: list[float] = []
        until = time.monotonic() + seconds
        clients = [
            threading.Thread(target=ask, args=(port, rows(200, d, 10 + client), until, taken))
            for client in range(CLIENTS)
        ]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        process.stdin.write("end\n")
        process.stdin.flush()
        facts = json.loads(process.stdout.readline())
        process.wait(30)
    finally:
        process.kill()
        process.wait()
    return taken, facts


def figures(quick: bool) -> list[Figure]:
    """Every index at both dimensions: queries a second, p50 and p99 of a request, recall."""
    number, seconds = (QUICK_ITEMS, 5.0) if quick else (ITEMS, 30.0)
    if load(DATA) is None:
        return [Figure("own-index", f"{DATA}: not there, set KINSTREAM_DATA", float("nan"), "")]
    found = []
    for d in (64, 784):
        for index, changing in RUNS:
            taken, facts = measure(index, d, number, seconds, changing)
            how = f"{RATE} constraints/s" if changing else "metric stands still"
            name = f"{number:,} images, d={d}, {index}, {how}"
            facts |= {"requests": len(taken), "clients": CLIENTS, "items": number}
            found += [
                Figure("own-index", f"{name}: queries", len(taken) / seconds, "1/s", facts=facts),
                Figure("own-index", f"{name}: p50", percentile(taken, 0.5) * 1e3, "ms"),
                Figure("own-index", f"{name}: p99", percentile(taken, 0.99) * 1e3, "ms"),
                Figure("own-index", f"{name}: recall@{NEIGHBOURS}", facts["recall"], ""),
                Figure("own-index", f"{name}: examined", facts["examined"] / number, "of the items"),
            ]
    return found


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
