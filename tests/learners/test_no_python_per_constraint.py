"""What `learn` does for a constraint is compiled: four times as many of them take no more steps in Python."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any

import numpy as np
import pytest

from kinstream.learners import registry
from kinstream.learners.base.learner import Learner
from kinstream.learners.base.several_modalities import MultiModal
from kinstream.learners.kernels.matrices import rank_one
from kinstream.learners.registry import has, names
from kinstream.learners.several_modalities import fusion
from kinstream.learners.several_modalities.fusion import HOWS
from kinstream.streams.records.values import ConstraintBlock, Kind
from kinstream.testing.blocks import pair_blocks, rows_of, triplet_blocks
from tests.learners.multi import multi_blocks
from tests.learners.published_unit import Fusion, create

FEW, MANY = 512, 2048
#: Constraints that a blocked way takes at once, at least; and fewer, which it takes at once too.
CHUNK, SHORT = 32, 16
#: Those that work in chunks of so many, whichever way they take.
IN_CHUNKS = {"oahu"}
#: Those that take a step of their model, in numpy, for so many constraints. LDA does so for 32 differences of a kind; a
#: mixture judges 64 rows, too; and compares windows of vectors.
STEPPING = {"adapter": 16, "lda": 32, "mixture": 16, "ranking": 16, "softmax": 16}
#: Lines that a block may take more than another for what is in it, such as an eigendecomposition for some pair.
SLACK = 4


def steps(learner: Learner, message: ConstraintBlock) -> int:
    """Lines of Python that run while the learner learns, and calls of functions in Python."""
    count = 0

    def counted(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event in ("call", "line")
        return counted

    before = sys.gettrace()
    # What others have called at a collection is no step of the learner.
    gc.disable()
    sys.settrace(counted)
    try:
        learner.learn(message)
    finally:
        sys.settrace(before)
        gc.enable()
    return count


def settings_of(kind: str) -> dict[str, Any]:
    """A fit of a batch algorithm is no part of a constraint."""
    return {"refit_every": 10**9} if has(kind, "refit_every") else {}


def takes_no_steps(
    learner: Learner, messages: Sequence[ConstraintBlock], in_chunks: bool, stepping: int | None = None
) -> None:
    """Once it is warm and compiled. Of what works in chunks, constraints of one take none, and each takes as many.

    Of what takes a step of its model for every so many constraints, no more than these steps.
    """
    warming, few, many = messages
    for message in (warming, many, few, rows_of(few, slice(0, CHUNK))):
        learner.learn(message)
    growth = steps(learner, many) - steps(learner, few)
    if stepping is not None:
        assert growth <= (MANY - FEW) // stepping * steps(learner, rows_of(few, slice(0, 2 * stepping)))
        return
    if not in_chunks:
        assert abs(growth) <= SLACK
        return
    of_chunk = steps(learner, rows_of(few, slice(0, CHUNK)))
    assert of_chunk - steps(learner, rows_of(few, slice(0, SHORT))) < CHUNK - SHORT
    assert growth <= (MANY - FEW) // CHUNK * of_chunk


def drawn(make: Callable[[int, int], ConstraintBlock]) -> list[ConstraintBlock]:
    return [make(seed, m) for seed, m in enumerate((MANY, FEW, MANY))]


def pairs(seed: int, m: int) -> ConstraintBlock:
    return pair_blocks(seed, 8, 1, m)[0]


def triplets(seed: int, m: int) -> ConstraintBlock:
    return triplet_blocks(seed, 8, 1, m)[0]


def of_two(seed: int, m: int) -> ConstraintBlock:
    return multi_blocks(seed, (8, 6), 1, m)[0]


def kernels(kind: str) -> tuple[str | None, ...]:
    return ("sequential", "blocked") if getattr(create(kind), "kernel", None) == "auto" else (None,)


ALONE = [
    pytest.param(kind, form, kernel, id=f"{kind}-{form}s-{kernel or 'only'}")
    for kind in names()
    if kind != "fusion"
    for form in sorted(create(kind).accepts)
    for kernel in kernels(kind)
]
BASES = [kind for kind in names() if not isinstance(create(kind), (MultiModal, fusion.Fusion))]


@pytest.mark.parametrize(("kind", "form", "kernel"), ALONE)
def test_constraints_take_no_steps(kind: str, form: Kind, kernel: str | None) -> None:
    learner = create(kind, **settings_of(kind), **({} if kernel is None else {"kernel": kernel}))
    several = isinstance(learner, MultiModal)
    make = pairs if form is Kind.PAIR else of_two if several else triplets
    takes_no_steps(learner, drawn(make), kernel == "blocked" or kind in IN_CHUNKS, STEPPING.get(kind))


def test_products_and_eigendecompositions_take_no_steps() -> None:
    wide = drawn(lambda seed, m: pair_blocks(seed, rank_one.SMALL + 8, 1, m)[0])
    takes_no_steps(create("mdml"), wide, False)
    takes_no_steps(create("omdml", psd_every=3, margin=1.0), drawn(of_two), False)


@pytest.mark.parametrize(("kind", "form", "kernel"), ALONE)
def test_events_take_no_steps(kind: str, form: Kind, kernel: str | None) -> None:
    """Four times as many events of eight constraints, each judged before it is learned."""
    learner = create(kind, **settings_of(kind), **({} if kernel is None else {"kernel": kernel}))
    several = isinstance(learner, MultiModal)
    make = pairs if form is Kind.PAIR else of_two if several else triplets
    messages = [
        replace(message, events=np.arange(len(message), dtype=np.int32) // 8 + 1) for message in drawn(make)
    ]
    takes_no_steps(learner, messages, kernel == "blocked" or kind in IN_CHUNKS, STEPPING.get(kind))


#: Learners with a unit whose own steps are compiled, and not in chunks.
FOLLOWING = [
    kind
    for kind in names()
    if kind != "fusion" and has(kind, "unit") and kind not in STEPPING and kind not in IN_CHUNKS
]


@pytest.mark.parametrize("kind", FOLLOWING)
def test_a_scaler_that_follows_takes_steps_for_windows_alone(kind: str) -> None:
    learner = registry.create(kind)
    made = pairs if learner.accepts == {Kind.PAIR} else triplets
    warming, few, many = drawn(made)
    for message in (warming, many, few):
        learner.learn(message)
    windows = (MANY - FEW) * 3 / 256
    assert steps(learner, many) - steps(learner, few) <= 200 * windows


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("base", BASES)
def test_constraints_of_several_modalities_take_no_steps(base: str, how: str) -> None:
    takes_no_steps(
        Fusion(base, how, settings=settings_of(base)), drawn(of_two), base in IN_CHUNKS, STEPPING.get(base)
    )


def test_a_step_for_each_constraint_is_seen() -> None:
    class Slow:
        def __init__(self) -> None:
            self._fast = create("opml")

        def learn(self, block: ConstraintBlock) -> None:
            for t in range(len(block)):
                self._fast.learn(rows_of(block, slice(t, t + 1)))

    for in_chunks in (False, True):
        with pytest.raises(AssertionError):
            slow: Any = Slow()
            takes_no_steps(slow, drawn(triplets), in_chunks)
