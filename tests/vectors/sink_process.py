"""A sink over a log in a file, for a test that kills it: `python -m ... LOG URL CHECKPOINTS MESSAGES`.

The partition's runner, its checkpoints and the writer are those of a worker. It applies the first messages of the log,
prints `began` and `ended`, and then waits to be killed.
"""

from __future__ import annotations

import base64
import json
import signal
import sys
from pathlib import Path

from kinstream.vectors.sinks.agent import sink_spec
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent
from tests.vectors.material import VECTORS
from tests.vectors.stores import sink_settings

#: Messages of a batch, and batches between two checkpoints.
BATCH, BATCHES = 6, 4


def save(log: MemoryLog, path: Path) -> None:
    """The topic `vectors` of a log of one partition, a line for each message."""
    with path.open("w") as file:
        for m in log.read(VECTORS, 0, 0):
            parts = [m.key, m.value, *(part for name, value in m.headers for part in (name.encode(), value))]
            file.write(json.dumps([base64.b64encode(part or b"").decode() for part in parts]) + "\n")


def load(path: Path, most: int) -> MemoryLog:
    """The inverse of `save`, of the first messages."""
    log = MemoryLog(partitions=1)
    for line in path.read_text().splitlines()[:most]:
        key, value, *rest = (base64.b64decode(part) for part in json.loads(line))
        headers = tuple((name.decode(), held) for name, held in zip(rest[::2], rest[1::2], strict=True))
        log.append(VECTORS, key, value, headers, 0)
    return log


if __name__ == "__main__":
    path, url, root, most = sys.argv[1:]
    settings = sink_settings("pgvector", url)
    agent = Agent(sink_spec(settings, "main"), settings, load(Path(path), int(most)), Path(root))
    print("began", flush=True)
    while any(agent.step(0, BATCH) for _ in range(BATCHES)):
        agent.runners[0].checkpoint()
    print("ended", flush=True)
    signal.pause()
