"""Checks that every builder has to pass, for any kind of constraint.

A check takes a `Case`: how to create the builder, and events that it accepts. It returns if the builder passes, and
raises AssertionError otherwise. `BUILDER_CHECKS` are for every builder, `SAMPLE_CHECKS` for those that follow
labelled samples alone; `check_builder` runs them.
"""

from __future__ import annotations

import gc
import hashlib
import os
import pickle
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kinstream.processors.base.builder import MAX_BLOCK_BYTES, Builder, Origin, Segmented, State
from kinstream.streams.checkpoints.state_bytes import from_bytes, to_bytes
from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.codec.codec import decode, encode
from kinstream.streams.records.values import ConstraintBlock, Kind, Relation, SampleBlock, Table
from kinstream.testing.contents import arrays, contents
from kinstream.testing.refusals import refused, runs_assertions


@dataclass(frozen=True)
class Case:
    """A builder under test.

    Parameters
    ----------
    name : of the case, for test reports.
    make : new builder; a function or a `functools.partial` of one that can be imported, for other processes call it.
    blocks : events, in order; the checks of samples take sample blocks.
    grouping_free : whether the choice of vectors is independent of how the samples are cut into blocks.
    """

    name: str
    make: Callable[[], Builder]
    blocks: Sequence[Any]
    grouping_free: bool = False


def digest(state: State) -> str:
    """Digest of the bytes that a checkpoint would hold."""
    return hashlib.sha256(to_bytes(state)).hexdigest()


#: When the log took the events.
APPENDED_MS = 5_000


def origin(offset: int) -> Origin:
    return Origin(offset, APPENDED_MS)


def whole(builder: Builder) -> str:
    """Digest of the state, with its segments if it has any."""
    sha = hashlib.sha256(digest(builder.state()).encode())
    if isinstance(builder, Segmented):
        for name in builder.segments():
            sha.update(f"{name} {digest(builder.segment(name))}".encode())
    return sha.hexdigest()


def restored(case: Case, builder: Builder) -> Builder:
    """A new builder that continues from another's checkpoint."""
    fresh = case.make()
    fresh.restore(from_bytes(to_bytes(builder.state())))
    if isinstance(fresh, Segmented):
        assert isinstance(builder, Segmented)
        old = builder
        fresh.restore_segments(lambda name: from_bytes(to_bytes(old.segment(name))))
    return fresh


def run(builder: Builder, blocks: Iterable[Any], first: int = 0) -> list[bytes]:
    """The encoded outputs."""
    return [
        encode(made)
        for offset, block in enumerate(blocks, first)
        for made in builder.process(block, origin(offset)).blocks
    ]


def rows_of(blocks: Iterable[ConstraintBlock]) -> list[tuple[Any, ...]]:
    """Every constraint with its vectors instead of its index, in order."""
    rows: list[tuple[Any, ...]] = []
    for block in blocks:
        for number, index in enumerate(block.index):
            vectors = tuple(tuple(t.vectors[i].tobytes() for i in index) for t in block.tables)
            rule = block.rules[block.rule[number]]
            target = None if block.targets is None else float(block.targets[number])
            rows.append(
                (block.kind, rule, int(block.signs[number]), float(block.weights[number]), target, vectors)
            )
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
    """It has every member of `Builder`, and a name with a version."""
    builder = case.make()
    assert isinstance(builder, Builder)
    name, version = builder.algorithm.split("/")
    assert name
    assert int(version) >= 1


def leaves_the_input_alone(case: Case) -> None:
    """The arrays of an event are read-only to a builder."""
    before = contents(case.blocks)
    for block in case.blocks:
        for array in arrays(block):
            array.setflags(write=False)
    run(case.make(), case.blocks)
    assert contents(case.blocks) == before


def does_not_keep_the_input(case: Case) -> None:
    """A caller may change its arrays afterwards."""
    expected = run(case.make(), case.blocks)
    builder = case.make()
    made = []
    for offset, block in enumerate(case.blocks):
        own = pickle.loads(pickle.dumps(block))
        made += [encode(b) for b in builder.process(own, origin(offset)).blocks]
        for array in arrays(own):
            if array.flags.writeable:
                array[:] = 77
    assert made == expected


def gives_sound_blocks(case: Case) -> None:
    """Blocks decode, stay small, hold each vector once, and use every vector that they hold."""
    builder = case.make()
    for offset, event in enumerate(case.blocks):
        for block in builder.process(event, origin(offset)).blocks:
            encoded = encode(block)
            assert len(encoded) <= getattr(builder, "max_bytes", MAX_BLOCK_BYTES)
            assert isinstance(decode(encoded, ConstraintBlock), ConstraintBlock)
            assert block.space == event.space
            if isinstance(event, SampleBlock):
                assert block.time_ms == event.time_ms
            assert len(block)
            table = block.tables[0].vectors
            named = [block.index.ravel()]
            if block.lists is not None:
                named += [block.lists.query, block.lists.item]
            assert np.unique(np.concatenate(named)).tolist() == list(range(len(table)))
            assert len(block.without_lists().tables[0].vectors) == len(np.unique(block.index))
            assert block.index.shape[1] == (2 if block.kind is Kind.PAIR else 3)


def does_the_same_twice(case: Case) -> None:
    """Equal events give equal blocks and equal bits of state."""
    np.random.seed(1)
    first = case.make()
    one = run(first, case.blocks)
    np.random.seed(2)
    second = case.make()
    assert run(second, case.blocks) == one
    assert whole(first) == whole(second)


def continues_from_every_message(case: Case) -> None:
    """Saved and restored before each event, through the bytes of a checkpoint."""
    builder = case.make()
    for offset, block in enumerate(case.blocks):
        other = restored(case, builder)
        assert whole(other) == whole(builder)
        assert run(other, [block], offset) == run(builder, [block], offset)
        assert whole(other) == whole(builder)


def state_is_a_copy(case: Case) -> None:
    """Changing what `state` returned changes no builder, and events change no state that was returned."""
    builder = case.make()
    run(builder, case.blocks)
    before = digest(builder.state())
    for value in builder.state().values():
        if isinstance(value, np.ndarray):
            value[:] = 0
    saved = builder.state()
    other = case.make()
    other.restore(saved)
    if isinstance(other, Segmented) and isinstance(builder, Segmented):
        other.restore_segments(builder.segment)
    run(other, case.blocks, len(case.blocks))
    assert digest(builder.state()) == before == digest(saved)


def refuses_what_is_not_finite(case: Case) -> None:
    """An infinity raises BadRecord, and the state does not change."""
    builder = case.make()
    run(builder, case.blocks[:-1])
    before = digest(builder.state())
    last = case.blocks[-1]
    table = last.tables[-1].vectors.copy()
    table[0, -1] = np.inf
    spoiled = replace(last, tables=(*last.tables[:-1], Table(last.tables[-1].name, table)))
    error = refused(BadRecord, builder.process, spoiled, origin(0))
    assert error.reason is Reason.NOT_FINITE
    assert digest(builder.state()) == before


def refuses_what_does_not_fit(case: Case) -> None:
    """Another label type, other modalities or dimensions, parts of different lengths, nothing at all."""
    builder = case.make()
    run(builder, case.blocks)
    before = digest(builder.state())
    last = case.blocks[-1]
    n, (table, *more) = len(last.labels), last.tables
    other = np.arange(n) if isinstance(last.labels, tuple) else tuple(map(str, last.labels))
    wider = Table(table.name, np.zeros((n, table.vectors.shape[1] + 1), np.float32))
    bad = [
        (replace(last, labels=other), Reason.WRONG_LABEL_TYPE),
        (replace(last, labels=np.full(n, 0.5)), Reason.WRONG_LABEL_TYPE),
        (replace(last, tables=(wider, *more)), Reason.WRONG_DIMENSION),
        (replace(last, tables=(replace(table, name="another"), *more)), Reason.WRONG_DIMENSION),
        (replace(last, tables=(*last.tables, replace(table, name="another"))), Reason.WRONG_DIMENSION),
        (replace(last, labels=last.labels[:-1]), Reason.BAD_SHAPE),
        (replace(last, tables=(replace(table, vectors=table.vectors[:-1]), *more)), None),
        (replace(last, tables=()), Reason.EMPTY),
    ]
    for block, reason in bad:
        error = refused(BadRecord, builder.process, block, origin(0))
        assert reason in (None, error.reason)
        assert digest(builder.state()) == before
    unknown = Relation(last.space, "a", "b", True, 0)
    assert "does not follow Relation" in str(refused(TypeError, builder.process, unknown, origin(0)))


def does_not_depend_on_the_grouping(case: Case) -> None:
    """A block of N makes the constraints that N blocks of one make, except for random choices keyed by the block."""
    whole, single = case.make(), case.make()
    for block in case.blocks:
        together = rows_of(whole.process(block, origin(0)).blocks)
        apart = [row for one in singles(block) for row in rows_of(single.process(one, origin(0)).blocks)]
        if case.grouping_free:
            assert together == apart
        assert [row[:-1] for row in together] == [row[:-1] for row in apart]
    assert digest(whole.state()) == digest(single.state())


def memory_is_bounded(case: Case) -> None:
    """The same events again and again take no more memory."""
    builder = case.make()
    tracemalloc.start()
    try:
        sizes = []
        for _ in range(4):
            for offset, block in enumerate(case.blocks):
                builder.process(block, origin(offset))
            length = len(to_bytes(builder.state()))
            gc.collect()
            sizes.append((tracemalloc.get_traced_memory()[0], length))
    finally:
        tracemalloc.stop()
    assert sizes[-1][0] - sizes[1][0] < 20_000
    assert sizes[-1][1] == sizes[1][1]


BUILDER_CHECKS: tuple[Callable[[Case], None], ...] = (
    keeps_the_contract,
    leaves_the_input_alone,
    does_not_keep_the_input,
    gives_sound_blocks,
    does_the_same_twice,
    continues_from_every_message,
    state_is_a_copy,
)
SAMPLE_CHECKS: tuple[Callable[[Case], None], ...] = (
    refuses_what_is_not_finite,
    refuses_what_does_not_fit,
    does_not_depend_on_the_grouping,
    memory_is_bounded,
)

_OTHER_PROCESS = """
import hashlib, pickle, sys
from kinstream.testing.builders import digest, restored, run
for case in pickle.load(sys.stdin.buffer):
    builder = case.make()
    half = len(case.blocks) // 2
    made = run(builder, case.blocks[:half])
    other = restored(case, builder)
    made += run(other, case.blocks[half:], half)
    print(digest(other.state()), hashlib.sha256(b"".join(made)).hexdigest())
"""


def do_the_same_in_another_process(cases: Sequence[Case], hash_seed: int) -> None:
    """Under another PYTHONHASHSEED, saved and restored half-way."""
    found = subprocess.run(
        [sys.executable, "-c", _OTHER_PROCESS],
        input=pickle.dumps(list(cases)),
        capture_output=True,
        check=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "PYTHONHASHSEED": str(hash_seed),
        },
        timeout=120,
    )
    expected = []
    for case in cases:
        builder = case.make()
        made = run(builder, case.blocks)
        expected.append(f"{digest(builder.state())} {hashlib.sha256(b''.join(made)).hexdigest()}")
    assert found.stdout.decode().splitlines() == expected


def check_builder(
    make: Callable[[], Builder],
    events: Sequence[Any],
    *,
    samples: bool = False,
    grouping_free: bool = False,
    elsewhere: bool = True,
) -> None:
    """Run every check on a builder.

    Parameters
    ----------
    make : new builder; a function or a `functools.partial` of one that can be imported.
    events : in order, of kinds that the builder follows; the constraints of one space.
    samples : whether all events are sample blocks of one layout, so that `SAMPLE_CHECKS` apply. The last of them is
        spoiled in several ways.
    grouping_free : whether random choices are independent of how the samples are cut into blocks.
    elsewhere : whether to compare with another process under another PYTHONHASHSEED too, which takes seconds.

    Raises
    ------
    AssertionError
        A check failed; its note names the check.
    RuntimeError
        Python runs with -O, which disables assertions.
    """
    runs_assertions()
    case = Case("builder", make, events, grouping_free)
    for check in (*BUILDER_CHECKS, *(SAMPLE_CHECKS if samples else ())):
        try:
            check(case)
        except Exception as error:
            error.add_note(f"in the check {check.__name__}")
            raise
    if elsewhere:
        do_the_same_in_another_process([case], 4711)
