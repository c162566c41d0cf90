"""What `record` adds to an answer, and how long feedback takes: one client, a broker on this machine.

`python -m benchmarks.studies.feedback --requests 2000`
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from kinstream.cli.local.system import free_port
from tests.crash.feedback import SECRET, Loop
from tests.kafka.broker import KafkaBroker
from tests.support.processes import until


def _timed(client: httpx.Client, path: str, body: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    began = time.perf_counter()
    answer = client.post(path, json=body)
    took = time.perf_counter() - began
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return 1000 * took, found


def measure(loop: Loop, requests: int) -> dict[str, Any]:
    """Milliseconds of searches without and with `record`, in turns, and of feedback."""
    port = free_port()
    told = ("--set", f"serve.http_port={port}", "--set", "serve.spaces.docs.record=false")
    loop.start("plain", *told, "serve", "--unsupervised")
    plain, recorded = (httpx.Client(base_url=url) for url in (f"http://127.0.0.1:{port}", loop.url))
    for client in (plain, recorded):
        until(lambda c=client: _ready(c), "ready")  # type: ignore[misc]
    rng = np.random.default_rng(1)
    times: dict[str, list[float]] = {"search": [], "search with record": [], "feedback": []}
    for number in range(requests + 100):
        body = {"vectors": [rng.normal(size=8).tolist()], "k": 10}
        # Who is first finds other caches than who is second.
        if number % 2:
            first, _ = _timed(plain, "/search", body)
        second, answer = _timed(recorded, "/search", body)
        if not number % 2:
            first, _ = _timed(plain, "/search", body)
        result = answer["results"][0]
        given = {"list_id": result["list_id"], "item": result["neighbours"][0]["id"]}
        third, _ = _timed(recorded, "/feedback", {"feedback": [given]})
        if number >= 100:
            for name, took in zip(times, (first, second, third), strict=True):
                times[name].append(took)
    found: dict[str, Any] = {
        name: {f"p{q}": round(float(np.percentile(took, q)), 2) for q in (50, 90, 99)}
        for name, took in times.items()
    }
    return found | {"load": [round(one, 1) for one in os.getloadavg()]}


def _ready(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").status_code == 200
    except httpx.HTTPError:
        return False


def main() -> None:
    """The run of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2000)
    asked = parser.parse_args()
    os.environ["KINSTREAM_GATE_KEY"] = SECRET
    with tempfile.TemporaryDirectory() as folder, KafkaBroker(Path(folder) / "kafka") as broker:
        loop = Loop(Path(folder), broker)
        try:
            print(json.dumps(measure(loop, asked.requests)))
        finally:
            loop.close()


if __name__ == "__main__":
    main()
