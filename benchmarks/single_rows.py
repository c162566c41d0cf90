"""Labelled rows as JSON, one in a message: what a builder and a learner do of them in a second."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from benchmarks.figures import Figure
from benchmarks.system import System, system
from kinstream.streams.records.message import Output

_CLASSES: Final = 10
_REQUIRED: Final = 5_000
_DRAIN_SECONDS: Final = 300.0
_TIME: Final = 1_777_636_800_000


def figures(quick: bool) -> list[Figure]:
    """Messages a second of a builder worker, and then of a learner worker over what it has made."""
    found = []
    for d in (64, 784):
        number = (5_000 if quick else 40_000) * 64 // max(64, d // 4)
        with system() as on:
            on.append(_rows(d, number))
            for role, name, output in (
                ("builder", "one-pass", "constraints"),
                ("learner", "opml", "outcomes"),
            ):
                rate = _drained(on, role, name, output, number - 2 * _CLASSES)
                label = f"{role} {name}, single rows of JSON, d = {d}"
                at_least = _REQUIRED if d == 64 else None
                found.append(Figure("single-rows", label, rate, "messages/s", at_least=at_least))
    return found


def _rows(d: int, number: int) -> Iterator[Output]:
    rng = np.random.default_rng(d)
    vectors = rng.standard_normal((number, d)).round(5)
    labels = rng.integers(0, _CLASSES, number)
    for row in range(number):
        event: dict[str, Any] = {
            "kind": "samples",
            "space": "space",
            "vectors": [vectors[row].tolist()],
            "labels": [int(labels[row])],
            "time_ms": _TIME + row,
        }
        yield Output("kinstream.events", b"space", json.dumps(event).encode(), ())


def _drained(on: System, role: str, name: str, output: str, least: int) -> float:
    """Outputs a second of one worker between its first and its last, by the times at which they were sent.

    Parameters
    ----------
    least : outputs that there are at least once it is at the end of its input.
    """
    worker = on.run("worker", role, name, "--create")
    on.wait(
        lambda: on.end(output) >= least and worker.ready(),
        f"{name} drains {least} messages",
        _DRAIN_SECONDS,
        0.5,
    )
    worker.stop()
    made = on.read(output)
    assert len(made) >= least, f"{len(made)} of {least} outputs"
    seconds = (made[-1].timestamp_ms - made[0].timestamp_ms) / 1000
    return len(made) / seconds
