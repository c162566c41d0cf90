"""What a space and a partition cost: bytes in memory and in a checkpoint, and how long a checkpoint takes.

    python -m benchmarks.capacity

No broker is needed. Memory is what Python and numpy have allocated (tracemalloc); bytes of a checkpoint are those of
its files. The tables of docs/operations.md come from here.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import click
import numpy as np

from kinstream.learners import registry as learners
from kinstream.processors import registry as builders
from kinstream.processors.base.builder import Builder, Origin
from kinstream.streams.agents.space import SegmentedCore
from kinstream.streams.checkpoints.state_bytes import State, to_bytes
from kinstream.streams.checkpoints.store import CheckpointStore
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.values import (
    ConstraintBlock,
    ItemBlock,
    Kind,
    LoadPosition,
    RelationBlock,
    SampleBlock,
    Table,
)

DIMENSIONS: Final = (64, 310, 784)
#: Of these the state is of one size from the first constraints on.
LEARNERS: Final = (
    "opml",
    "lego",
    "oasis",
    "soml-tg",
    "sors",
    "mdml",
    "kernel-lego",
    "oahu",
    "euclidean",
)
#: Spaces of which the memory is measured together.
SPACES: Final = 4
CONSTRAINTS: Final = 300
ITEMS: Final = (1_000, 10_000)
ITEM_DIMENSION: Final = 64


def block(d: int, kind: Kind, count: int, seed: int) -> ConstraintBlock:
    """Random constraints of one rule over rows of three classes."""
    rng = np.random.default_rng([seed, d])
    labels = rng.integers(0, 3, count * 3)
    vectors = (rng.normal(size=(count * 3, d)) + labels[:, None]).astype(np.float32) / np.sqrt(d)
    arity = 2 if kind is Kind.PAIR else 3
    index = rng.integers(0, count * 3, (count, arity)).astype(np.int32)
    target = np.where(labels[index[:, 0]] == labels[index[:, 1]], 1, -1).astype(np.int8)
    return ConstraintBlock(
        "space",
        kind,
        (Table("x", vectors),),
        index,
        target if kind is Kind.PAIR else np.zeros(count, np.int8),
        ("capacity",),
        np.zeros(count, np.uint8),
        np.zeros(count, bool),
        np.ones(count, np.float32),
        1_700_000_000_000,
        0,
        None,
    )


def allocated(make: Callable[[], Any]) -> float:
    """Bytes that what is made keeps."""
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = make()
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del kept
    return float(after - before)


def learner_rows() -> Iterator[tuple[str, int, float, int]]:
    """Kind, dimension, bytes of memory and of a checkpoint of a space."""
    for kind in LEARNERS:
        for d in DIMENSIONS:

            def spaces(kind: str = kind, d: int = d, count: int = SPACES) -> list[Any]:
                made = []
                for number in range(count):
                    learner = learners.create(kind)
                    learner.learn(block(d, learner.form, CONSTRAINTS, number))
                    made.append(learner)
                return made

            (one,) = spaces(count=1)  # compiled before anything is measured
            yield kind, d, allocated(spaces) / SPACES, len(to_bytes(one.state()))


def builder_rows() -> Iterator[tuple[str, float, int]]:
    """What a builder holds, bytes of memory and of a checkpoint."""
    for kind in ("one-pass", "random-pairs"):
        for d in DIMENSIONS:

            def filled(kind: str = kind, d: int = d) -> Builder:
                return _fed(builders.create(kind), _samples(d))

            size = _size(filled())
            yield f"`{kind}`, 10 classes, d = {d}", allocated(filled), size
    for kind in ("clicks", "closure"):
        for count in ITEMS:

            def known(kind: str = kind, count: int = count) -> Builder:
                events = _items(count) if kind == "clicks" else [*_items(count), *_relations(count)]
                return _fed(builders.create(kind), events)

            what = "" if kind == "clicks" else f" and {count:,} relations"
            size = _size(known())
            yield f"`{kind}`, {count:,} items of d = {ITEM_DIMENSION}{what}", allocated(known), size


def _fed(builder: Builder, events: list[Any]) -> Builder:
    for offset, event in enumerate(events):
        builder.process(event, Origin(offset, 1_700_000_000_000))
    return builder


def _samples(d: int) -> list[Any]:
    rng = np.random.default_rng(d)
    vectors = rng.normal(size=(256, d)).astype(np.float32)
    return [
        SampleBlock("s", (Table("x", vectors),), rng.integers(0, 10, 256), 1, None, LoadPosition("load", n))
        for n in range(4)
    ]


def _items(count: int) -> list[Any]:
    rng = np.random.default_rng(count)
    made: list[Any] = []
    for first in range(0, count, 500):
        vectors = rng.normal(size=(500, ITEM_DIMENSION)).astype(np.float32)
        ids = tuple(f"item-{first + n}" for n in range(500))
        load = LoadPosition("items", first // 500)
        made.append(ItemBlock("s", ids, (Table("x", vectors),), 1_700_000_000_000, (), load))
    return made


def _relations(count: int) -> list[Any]:
    rng = np.random.default_rng([count, 1])
    made: list[Any] = []
    for number in range(count // 500):
        pairs = np.stack([rng.choice(count, 2, replace=False) for _ in range(500)])
        ids, index = np.unique(pairs, return_inverse=True)
        rows = index.reshape(pairs.shape).astype(np.int32)
        made.append(
            RelationBlock(
                space="s",
                ids=tuple(f"item-{n}" for n in ids.tolist()),
                left=rows[:, 0],
                right=rows[:, 1],
                similar=rng.random(500) < 0.9,
                time_ms=np.full(500, 1_700_000_000_000, np.int64),
                sources=(),
                source=np.full(500, -1, np.int32),
                load=LoadPosition("relations", number),
            )
        )
    return made


def _size(builder: Builder) -> int:
    """Bytes of its files in a checkpoint, segments among them."""
    size = len(to_bytes(builder.state()))
    if isinstance(builder, SegmentedCore):
        size += sum(len(to_bytes(builder.segment(name))) for name in builder.segments())
    return size


def checkpoint_rows() -> Iterator[tuple[int, int, float, float, float]]:
    """Spaces, dimension, seconds for a checkpoint of all and of a hundredth of them, bytes of the manifest a space."""
    for spaces, d in ((100, 64), (1_000, 64), (10_000, 64), (100, 784)):
        learner = learners.create("opml")
        learner.learn(block(d, learner.form, 50, 1))
        state: State = learner.state()
        names = [f"space-{n}" for n in range(spaces)]
        with tempfile.TemporaryDirectory() as folder:
            store = CheckpointStore(folder, "learner-opml", 1, "t", 0)
            begun = time.perf_counter()
            whole = store.save(
                1, changed=dict.fromkeys(names, state), unchanged={}, partition={"x": 1}, last_record=None
            )
            middle = time.perf_counter()
            few = names[: max(1, spaces // 100)]
            rest = {name: file for name, file in whole.spaces.items() if name not in set(few)}
            store.save(
                2, changed=dict.fromkeys(few, state), unchanged=rest, partition={"x": 1}, last_record=None
            )
            ended = time.perf_counter()
            (manifest,) = Path(folder).rglob("*1.manifest.json")
            yield spaces, d, middle - begun, ended - middle, manifest.stat().st_size / spaces


def worker_megabytes(role: str) -> float:
    """Resident size of a process that has loaded an agent of that role and compiled its kernels."""
    spec = {
        "builder": "from kinstream.processors.agent import builder_spec as s; spec = s(settings, 'one-pass')",
        "learner": "from kinstream.learners.agent import learner_spec as s; spec = s(settings, 'opml')",
        "metrics": "from kinstream.monitoring.agent import metrics_spec as s; spec = s(settings)",
    }[role]
    program = (
        "import psutil\n"
        "from kinstream.streams.settings import Settings\n"
        "settings = Settings.model_validate({'builders': {'one-pass': {'kind': 'one-pass'}}, "
        "'learners': {'opml': {'kind': 'opml', 'from': ['one-pass']}}})\n"
        f"{spec}; spec.warm_up()\n"
        "import kinstream.streams.worker.worker, faust, confluent_kafka, kinstream.streams.worker.transport\n"
        "print(psutil.Process().memory_info().rss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={**os.environ}
    )
    return int(done.stdout.split()[-1]) / 1e6


def message_bytes() -> Iterator[tuple[str, int]]:
    """Size of a message of the wire, by what it holds."""
    for d in DIMENSIONS:
        rng = np.random.default_rng(d)
        table = (Table("x", rng.normal(size=(64, d)).astype(np.float32)),)
        yield f"64 samples, d = {d}", len(encode(SampleBlock("s", table, rng.integers(0, 10, 64), 1)))


@click.command()
def main() -> None:
    """Measure, and print tables."""
    print("| `kind`, defaults | d | memory a space, KB | checkpoint a space, KB |\n|---|---|---|---|")
    for kind, d, memory, size in learner_rows():
        print(f"| `{kind}` | {d} | {memory / 1e3:,.0f} | {size / 1e3:,.0f} |", flush=True)
    print("\n| Builder of one space | memory, KB | checkpoint, KB |\n|---|---|---|")
    for name, memory, size in builder_rows():
        print(f"| {name} | {memory / 1e3:,.0f} | {size / 1e3:,.0f} |", flush=True)
    print(
        "\n| Spaces | d | all changed, s | 1 % changed, s | manifest, bytes a space |\n|---|---|---|---|---|"
    )
    for spaces, d, whole, few, manifest in checkpoint_rows():
        print(f"| {spaces:,} | {d} | {whole:.2f} | {few:.2f} | {manifest:.0f} |", flush=True)
    print("\n| Worker without partitions | resident, MB |\n|---|---|")
    for role in ("builder", "learner", "metrics"):
        print(f"| {role} | {worker_megabytes(role):.0f} |", flush=True)
    print("\n| Message | KB |\n|---|---|")
    for name, size in message_bytes():
        print(f"| {name} | {size / 1e3:.0f} |")


if __name__ == "__main__":
    main()
