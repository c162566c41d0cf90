"""Checks that every learner has to pass, for any kind of model.

A check takes a `Case`: how to create the learner, and messages that it accepts. It returns if the learner passes, and
raises AssertionError otherwise. `check_learner` runs all of them; `LEARNER_CHECKS` lists them for your own test runner.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kinstream.learners.base.learner import Learner, Outcomes, State
from kinstream.streams.errors import BadRecord
from kinstream.streams.records.values import ConstraintBlock, Kind, Table
from kinstream.testing.blocks import rows_of, singles
from kinstream.testing.contents import arrays, contents
from kinstream.testing.refusals import refused

#: State entries that are counters, and so change with constraints that teach nothing.
COUNTERS = frozenset({"accepted"})


@dataclass(frozen=True)
class Case:
    """A learner under test.

    Parameters
    ----------
    name : of the case, for test reports.
    make : new learner; a function or a `functools.partial` of one that can be imported, for other processes call it.
    blocks : messages to learn from, in order.
    tolerance : of entries, relative to the largest, between two groupings of the same constraints.
    watching : names of state entries that follow the input even if nothing is learned (statistics).
    elsewhere : whether to compare with other processes too, which takes seconds.
    """

    name: str
    make: Callable[[], Learner]
    blocks: Sequence[ConstraintBlock]
    tolerance: float = 1e-9
    watching: frozenset[str] = frozenset()
    elsewhere: bool = False


def digest(state: State) -> str:
    """Digest of names, types, shapes and bits."""
    found = hashlib.sha256()
    for name in sorted(state):
        value = state[name]
        if isinstance(value, np.ndarray):
            found.update(
                f"{name} {value.dtype} {value.shape}".encode() + np.ascontiguousarray(value).tobytes()
            )
        else:
            assert type(value) in (int, float, str, bool), f"{name} is a {type(value).__name__}"
            found.update(f"{name} {value!r}".encode())
    return found.hexdigest()


def digest_of_outcomes(outcomes: Outcomes) -> str:
    """Digest of the bits of all arrays."""
    return hashlib.sha256(
        b"".join(getattr(outcomes, n).tobytes() for n in Outcomes.__dataclass_fields__)
    ).hexdigest()


def parameters(case: Case, learner: Learner) -> str:
    """Digest of what was learned, without counters and input statistics."""
    left_out = COUNTERS | case.watching
    return digest({name: value for name, value in learner.state().items() if name not in left_out})


def run(case: Case, blocks: Sequence[ConstraintBlock] | None = None) -> Learner:
    """A new learner that has learned from the messages."""
    learner = case.make()
    for message in case.blocks if blocks is None else blocks:
        learner.learn(message)
    return learner


def keeps_the_contract(case: Case) -> None:
    """It has every member of `Learner`, a name with a version, and a kind of constraint that it accepts."""
    learner = case.make()
    assert isinstance(learner, Learner)
    name, version = learner.algorithm.split("/")
    assert name and int(version) >= 1
    assert learner.accepts <= frozenset(Kind) and learner.accepts


def leaves_the_input_alone(case: Case) -> None:
    """The arrays of a block are read-only to a learner."""
    before = contents(case.blocks)
    for message in case.blocks:
        for array in arrays(message):
            array.setflags(write=False)
    run(case)
    assert contents(case.blocks) == before


def ends_the_same_twice(case: Case) -> None:
    """Equal input gives equal bits, for any state of numpy's global generator."""
    np.random.seed(1)
    first, second = case.make(), case.make()
    for message in case.blocks:
        one = digest_of_outcomes(first.learn(message))
        np.random.seed(2)
        assert digest_of_outcomes(second.learn(message)) == one
    assert digest(first.state()) == digest(second.state())


def continues_from_every_message(case: Case) -> None:
    """A learner that is restored after any message continues like one that was not interrupted."""
    learner = case.make()
    for message in case.blocks:
        restored = case.make()
        restored.restore(learner.state())
        assert digest(restored.state()) == digest(learner.state())
        outcomes = learner.learn(message)
        assert digest_of_outcomes(restored.learn(message)) == digest_of_outcomes(outcomes)
        assert digest(restored.state()) == digest(learner.state())


def gives_copies_of_its_state(case: Case) -> None:
    """Changing what `state` returned changes no learner, and learning changes no state that was returned."""
    learner = run(case)
    before = digest(learner.state())
    for value in learner.state().values():
        if isinstance(value, np.ndarray) and value.size:
            value += 1
    assert digest(learner.state()) == before
    state = learner.state()
    other = case.make()
    other.restore(state)
    other.learn(case.blocks[-1])
    assert digest(state) == before


#: Environments of processes that must give the same result.
ELSEWHERE = (
    {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"},
    {"PYTHONHASHSEED": "4711", "OPENBLAS_NUM_THREADS": "2"},
)


def ends_elsewhere(cases: Sequence[Case], folder: Path) -> list[dict[str, str]]:
    """Digests by case of states in other processes, under other hash seeds and thread counts.

    Each learner is restored there from the state after its first message, and continues with the others.
    """
    jobs = []
    for case in cases:
        first = case.make()
        first.learn(case.blocks[0])
        jobs.append((case.name, case.make, first.state(), list(case.blocks[1:])))
    (folder / "jobs").write_bytes(pickle.dumps(jobs))
    script = (
        "import json, pickle, sys; from kinstream.testing.learners import digest\n"
        "found = {}\n"
        "for name, make, state, blocks in pickle.load(open(sys.argv[1], 'rb')):\n"
        "    learner = make(); learner.restore(state)\n"
        "    for block in blocks: learner.learn(block)\n"
        "    found[name] = digest(learner.state())\n"
        "print(json.dumps(found))"
    )
    found: list[dict[str, str]] = []
    for chosen in ELSEWHERE:
        ended = subprocess.run(
            [sys.executable, "-c", script, str(folder / "jobs")],
            env=os.environ | chosen | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        found.append(json.loads(ended.stdout))
    return found


def rejects_what_is_not_finite(case: Case) -> None:
    """NaN and infinities are rejected and reported as rejected; the state does not change."""
    learner, fresh = run(case), case.make()
    before = digest(learner.state())
    for value in (np.nan, np.inf, -np.inf):
        for message in case.blocks:
            spoiled = replace(message, tables=tuple(_with(table, value) for table in message.tables))
            for outcomes in (learner.learn(spoiled), fresh.learn(spoiled)):
                assert outcomes.rejected.all() and not outcomes.utilised.any()
                assert (outcomes.mistake == -1).all() and (outcomes.loss == 0).all()
                assert np.isnan(outcomes.margin).all()
    assert digest(learner.state()) == before


def learns_around_what_is_not_finite(case: Case) -> None:
    """Constraints of spoiled vectors are skipped, the others of the block are learned as if alone."""
    whole = case.blocks[-1]
    anchor = int(whole.index[0, 0])
    touched = (whole.index == anchor).any(axis=1)
    spoiled = replace(whole, tables=tuple(_with(table, np.nan, anchor) for table in whole.tables))
    learner, other = run(case, case.blocks[:-1]), run(case, case.blocks[:-1])
    outcomes = learner.learn(spoiled)
    assert (outcomes.rejected[touched]).all()
    kept = np.flatnonzero(~touched)
    for t in kept:
        other.learn(rows_of(whole, slice(int(t), int(t) + 1)))
    same_to_rounding(case, learner, other)


def changes_only_what_it_says(case: Case) -> None:
    """One constraint at a time: not utilised means bit-identical parameters, utilised means changed ones."""
    learner = case.make()
    learner.learn(rows_of(case.blocks[0], slice(0, 1)))
    for message in case.blocks:
        for single in singles(message):
            before = parameters(case, learner)
            outcomes = learner.learn(single)
            assert (parameters(case, learner) != before) == bool(outcomes.utilised[0])
        consistent(message, learner.learn(message))


def groups_as_it_likes(case: Case) -> None:
    """A block of N is N blocks of 1 to rounding, and so is any other cut of it, one without rows too."""
    one, many, cut = run(case), case.make(), case.make()
    for message in case.blocks:
        for single in singles(message):
            many.learn(single)
        for start, stop in ((0, 3), (3, 3), (3, 20), (20, len(message))):
            part, before = rows_of(message, slice(start, stop)), digest(cut.state())
            assert len(cut.learn(part)) == len(part)
            assert len(part) or digest(cut.state()) == before, "a block without rows changes nothing"
    same_to_rounding(case, one, many)
    same_to_rounding(case, one, cut)


def stays_bounded(case: Case) -> None:
    """The same messages again and again take no more memory."""
    learner = run(case)
    for _ in range(3):
        for message in case.blocks:
            learner.learn(message)
    size = _size(learner)
    for _ in range(3):
        for message in case.blocks:
            learner.learn(message)
    assert _size(learner) == size


def refuses_blocks_that_do_not_fit(case: Case) -> None:
    """Wrong kinds, dimensions, indices and lengths raise BadRecord and leave the state as it was."""
    learner = run(case)
    before = digest(learner.state())
    whole = case.blocks[-1]
    names = [table.name for table in whole.tables]
    wider = tuple(
        Table(n, np.zeros((4, t.vectors.shape[1] + 1), np.float32))
        for n, t in zip(names, whole.tables, strict=True)
    )
    more = np.zeros((len(whole.tables[0].vectors), 2), np.float32)
    outside, negative = whole.index.copy(), whole.index.copy()
    outside[-1, -1] = len(whole.tables[0].vectors)
    negative[0, 0] = -1
    bad = [
        replace(whole, tables=wider, index=np.zeros_like(whole.index)),
        replace(whole, index=outside),
        replace(whole, index=negative),
        replace(whole, index=whole.index[:, :1]),
    ]
    bad += [replace(whole, tables=tables) for tables in ((), (*whole.tables, Table("another", more)))]
    bad += [replace(whole, kind=kind) for kind in Kind if kind not in learner.accepts]
    bad.append(replace(whole, signs=whole.signs[:-1]))
    for wrong in bad:
        refused(BadRecord, learner.learn, wrong)
    assert digest(learner.state()) == before


def measures_what_it_maps(case: Case) -> None:
    """`distance` is the squared Euclidean distance of what `transform` gives, for learners that are maps."""
    learner = run(case)
    mapped = learner.transform(vectors(case.blocks[0]))
    squares = np.sum((mapped[1:] - mapped[:-1]) ** 2, axis=1)
    found = learner.distance(
        vectors(case.blocks[0], slice(1, None)), vectors(case.blocks[0], slice(None, -1))
    )
    assert found.shape == (len(mapped) - 1,) and np.isfinite(found).all() and (found >= 0).all()
    np.testing.assert_allclose(found, squares, rtol=1e-3, atol=1e-4 * float(np.max(squares)))


def finds_tables_by_name(case: Case) -> None:
    """The order of the tables in later blocks does not matter."""
    if len(case.blocks[0].tables) == 1:
        return
    one, other = run(case, case.blocks[:1]), run(case, case.blocks[:1])
    for message in case.blocks[1:]:
        outcomes = one.learn(message)
        turned = replace(message, tables=message.tables[::-1])
        assert digest_of_outcomes(other.learn(turned)) == digest_of_outcomes(outcomes)
    assert digest(one.state()) == digest(other.state())


def vectors(message: ConstraintBlock, rows: slice = slice(None)) -> Any:
    """Vectors of a block as `transform` takes them: one table, or several by modality."""
    found = {table.name: table.vectors[rows] for table in message.tables}
    return found if len(found) > 1 else message.tables[0].vectors[rows]


def consistent(message: ConstraintBlock, outcomes: Outcomes) -> None:
    """The outcomes of a block agree with one another, as `Outcomes` defines them."""
    assert len(outcomes) == len(message)
    assert set(np.unique(outcomes.mistake)) <= {-1, 0, 1}
    assert np.isfinite(outcomes.loss).all() and (outcomes.loss >= 0).all()
    assert not (outcomes.utilised & (outcomes.rejected | outcomes.degenerate | outcomes.ignored)).any()
    assert (outcomes.utilised | ~outcomes.clipped).all()
    gone = outcomes.rejected | outcomes.ignored
    assert (outcomes.mistake[gone] == -1).all() and (outcomes.loss[gone] == 0).all()
    assert (outcomes.loss[outcomes.utilised] > 0).all()
    scored = outcomes.mistake >= 0
    if message.kind is Kind.PAIR:
        assert np.isnan(outcomes.margin).all()
    else:
        assert (outcomes.mistake[scored] == (outcomes.margin[scored] <= 0)).all()
    counts = outcomes.counts()
    assert counts.seen + counts.rejected + counts.ignored == len(message)
    assert counts.mistakes <= counts.scored <= counts.seen


def same_to_rounding(case: Case, one: Learner, other: Learner) -> None:
    """Two states are equal up to the tolerance of the case."""
    a, b = one.state(), other.state()
    assert set(a) == set(b)
    for name, value in a.items():
        if isinstance(value, str):
            assert b[name] == value
            continue
        found, wanted = np.asarray(b[name], np.float64), np.asarray(value, np.float64)
        scale = float(np.abs(wanted).max(initial=0.0))
        np.testing.assert_allclose(found, wanted, rtol=0, atol=case.tolerance * scale, err_msg=name)


def _with(table: Table, value: float, row: int | None = None) -> Table:
    vectors = table.vectors.copy()
    vectors[slice(None) if row is None else row, -1] = value
    return Table(table.name, vectors)


def _size(learner: Learner) -> int:
    return sum(np.asarray(value).nbytes for value in learner.state().values() if not isinstance(value, str))


CHECKS: tuple[Callable[..., Any], ...] = (
    keeps_the_contract,
    leaves_the_input_alone,
    ends_the_same_twice,
    continues_from_every_message,
    gives_copies_of_its_state,
    rejects_what_is_not_finite,
    learns_around_what_is_not_finite,
    changes_only_what_it_says,
    groups_as_it_likes,
    stays_bounded,
    refuses_blocks_that_do_not_fit,
    measures_what_it_maps,
    finds_tables_by_name,
)
