"""Checks that every builder has to pass, whatever it builds.

A check takes a `Case`: how to make the builder (picklable, for another process) and sample blocks that it accepts.
Add a builder by adding its case to `test_checks.py`.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from processors.base import MAX_BLOCK_BYTES, Builder, Origin, State
from streams.codec import decode, encode
from streams.errors import BadRecord
from streams.records import ConstraintBlock, Kind, SampleBlock, Table
from streams.state import from_bytes, to_bytes

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Case:
    """A builder under test.

    Parameters
    ----------
    make : new builder; a function or a `functools.partial` of one that can be imported.
    blocks : events, in order.
    grouping_free : whether no choice of vectors depends on how the samples are cut into blocks.
    """

    name: str
    make: Callable[[], Builder]
    blocks: Sequence[SampleBlock]
    grouping_free: bool = False


def digest(state: State) -> str:
    """Of the bytes that a checkpoint would hold."""
    return hashlib.sha256(to_bytes(state)).hexdigest()


def run(builder: Builder, blocks: Iterable[SampleBlock], first: int = 0) -> list[bytes]:
    """The encoded outputs."""
    return [
        encode(made)
        for offset, block in enumerate(blocks, first)
        for made in builder.process(block, Origin(offset)).blocks
    ]


def rows_of(blocks: Iterable[ConstraintBlock]) -> list[tuple[Any, ...]]:
    """Every constraint with its vectors in place of its index, in order."""
    rows: list[tuple[Any, ...]] = []
    for block in blocks:
        for number, index in enumerate(block.index):
            vectors = tuple(tuple(t.vectors[i].tobytes() for i in index) for t in block.tables)
            rule = block.rules[block.rule[number]]
            rows.append((block.kind, rule, int(block.signs[number]), float(block.weights[number]), vectors))
    return rows


def singles(block: SampleBlock) -> list[SampleBlock]:
    """The same samples as blocks of one."""
    return [
        replace(
            block,
            tables=tuple(Table(t.name, t.vectors[row : row + 1]) for t in block.tables),
            labels=block.labels[row : row + 1],
        )
        for row in range(len(block.labels))
    ]


def keeps_the_contract(case: Case) -> None:
    builder = case.make()
    assert isinstance(builder, Builder)
    name, version = builder.algorithm.split("/")
    assert name
    assert int(version) >= 1


def leaves_the_input_alone(case: Case) -> None:
    before = pickle.dumps(list(case.blocks))
    for block in case.blocks:
        for table in block.tables:
            table.vectors.setflags(write=False)
    run(case.make(), case.blocks)
    assert pickle.dumps(list(case.blocks)) == before


def does_not_keep_the_input(case: Case) -> None:
    """What a caller does with its arrays afterwards does not matter."""
    expected = run(case.make(), case.blocks)
    builder = case.make()
    made = []
    for offset, block in enumerate(case.blocks):
        own = replace(block, tables=tuple(Table(t.name, t.vectors.copy()) for t in block.tables))
        made += [encode(b) for b in builder.process(own, Origin(offset)).blocks]
        for table in own.tables:
            table.vectors[:] = np.nan
    assert made == expected


def gives_sound_blocks(case: Case) -> None:
    """They decode, stay small, hold each vector once, and need every vector that they hold."""
    builder = case.make()
    for offset, event in enumerate(case.blocks):
        for block in builder.process(event, Origin(offset)).blocks:
            encoded = encode(block)
            assert len(encoded) <= getattr(builder, "max_bytes", MAX_BLOCK_BYTES)
            assert isinstance(decode(encoded, ConstraintBlock), ConstraintBlock)
            assert block.space == event.space
            assert block.time_ms == event.time_ms
            assert len(block)
            table = block.tables[0].vectors
            assert sorted(set(block.index.ravel().tolist())) == list(range(len(table)))
            assert block.index.shape[1] == (2 if block.kind is Kind.PAIR else 3)


def does_the_same_twice(case: Case) -> None:
    np.random.seed(1)
    first = case.make()
    one = run(first, case.blocks)
    np.random.seed(2)
    second = case.make()
    assert run(second, case.blocks) == one
    assert digest(first.state()) == digest(second.state())


def continues_from_every_message(case: Case) -> None:
    """Saved and restored before each event, through the bytes of a checkpoint."""
    builder = case.make()
    for offset, block in enumerate(case.blocks):
        restored = case.make()
        restored.restore(from_bytes(to_bytes(builder.state())))
        assert digest(restored.state()) == digest(builder.state())
        assert run(restored, [block], offset) == run(builder, [block], offset)
        assert digest(restored.state()) == digest(builder.state())


def state_is_a_copy(case: Case) -> None:
    builder = case.make()
    run(builder, case.blocks)
    before = digest(builder.state())
    for value in builder.state().values():
        if isinstance(value, np.ndarray):
            value[:] = 0
    saved = builder.state()
    restored = case.make()
    restored.restore(saved)
    run(restored, case.blocks)
    assert digest(builder.state()) == before == digest(saved)


def refuses_what_is_not_finite(case: Case) -> None:
    builder = case.make()
    run(builder, case.blocks[:-1])
    before = digest(builder.state())
    last = case.blocks[-1]
    table = last.tables[-1].vectors.copy()
    table[0, -1] = np.inf
    with pytest.raises(BadRecord, match="not-finite"):
        builder.process(
            replace(last, tables=(*last.tables[:-1], Table(last.tables[-1].name, table))), Origin(0)
        )
    assert digest(builder.state()) == before


def does_not_depend_on_the_grouping(case: Case) -> None:
    """A block of N makes the constraints that N blocks of one make, but for random choices keyed by the block."""
    whole, single = case.make(), case.make()
    for block in case.blocks:
        together = rows_of(whole.process(block, Origin(0)).blocks)
        apart = [row for one in singles(block) for row in rows_of(single.process(one, Origin(0)).blocks)]
        if case.grouping_free:
            assert together == apart
        assert [row[:-1] for row in together] == [row[:-1] for row in apart]
    assert digest(whole.state()) == digest(single.state())


def memory_is_bounded(case: Case) -> None:
    """The same events again and again take no more room."""
    builder = case.make()
    tracemalloc.start()
    try:
        sizes = []
        for _ in range(4):
            for offset, block in enumerate(case.blocks):
                builder.process(block, Origin(offset))
            sizes.append((tracemalloc.get_traced_memory()[0], len(to_bytes(builder.state()))))
    finally:
        tracemalloc.stop()
    assert sizes[-1][0] - sizes[1][0] < 20_000
    assert sizes[-1][1] == sizes[1][1]


CHECKS = (
    keeps_the_contract,
    leaves_the_input_alone,
    does_not_keep_the_input,
    gives_sound_blocks,
    does_the_same_twice,
    continues_from_every_message,
    state_is_a_copy,
    refuses_what_is_not_finite,
    does_not_depend_on_the_grouping,
    memory_is_bounded,
)

_OTHER_PROCESS = """
import hashlib, pickle, sys
from tests.processors.checks import digest, run
for case in pickle.load(sys.stdin.buffer):
    builder = case.make()
    half = len(case.blocks) // 2
    made = run(builder, case.blocks[:half])
    restored = case.make()
    restored.restore(builder.state())
    made += run(restored, case.blocks[half:], half)
    print(digest(restored.state()), hashlib.sha256(b"".join(made)).hexdigest())
"""


def do_the_same_in_another_process(cases: Sequence[Case], hash_seed: int) -> None:
    """Under another PYTHONHASHSEED, and saved and restored half-way."""
    found = subprocess.run(
        [sys.executable, "-c", _OTHER_PROCESS],
        input=pickle.dumps(list(cases)),
        capture_output=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        timeout=120,
    )
    expected = []
    for case in cases:
        builder = case.make()
        made = run(builder, case.blocks)
        expected.append(f"{digest(builder.state())} {hashlib.sha256(b''.join(made)).hexdigest()}")
    assert found.stdout.decode().splitlines() == expected
