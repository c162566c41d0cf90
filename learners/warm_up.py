"""Compiles the kernels of learners in advance, so that no record waits for compilation."""

from __future__ import annotations

from typing import Any

import numpy as np

from kinstream.learners.base.events import compile_events
from kinstream.learners.registry import create, has
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.held_out import ShownLists
from kinstream.streams.records.scores import Scores
from kinstream.streams.records.values import (
    DEFAULT_MODALITY,
    LIST_RULE,
    ConstraintBlock,
    Kind,
    Table,
    Vectors,
)

_D = 4
_NEVER = 10**9
#: Constraints after the warm-up of scalers and targets: enough for a blocked step.
_ROWS = 64


def warm_up(kind: str, arguments: dict[str, Any] | None = None) -> None:
    """Run the kernels of one learner: seconds the first time, then a load from numba's cache.

    Parameters
    ----------
    kind, arguments : as `kinstream.learners.registry.create` takes them.
    """
    compile_events()
    settings = _own_targets(dict(arguments or {}))
    if has(kind, "refit_every"):
        settings["refit_every"] = _NEVER  # a fit of a batch learner is not a kernel, and takes seconds
    learner = create(kind, **settings)
    base = getattr(learner, "base", None)
    if base is not None:
        warm_up(base, learner.settings)  # type: ignore[attr-defined]
    if has(kind, "subspace"):
        _run(kind, settings | {"subspace": _D // 2})
    if getattr(learner, "kernel", None) != "auto":
        _run(kind, settings)
        return
    for kernel in ("sequential", "blocked"):
        _run(kind, settings | {"kernel": kernel})


def part(kind: str, arguments: dict[str, Any] | None = None) -> tuple[str, str | None] | None:
    """A kind and its number type, if it has one; None for a learner that cannot be made here.

    Parameters
    ----------
    kind, arguments : as `warm_up` takes them; the number type is left out if the kind has none.
    """
    settings = dict(arguments or {})
    if not has(kind, "dtype"):
        settings.pop("dtype", None)
    try:
        learner = create(kind, **settings)
    except SettingsError:
        return None  # `warm_up` reports it
    dtype = getattr(learner, "dtype", None)
    return kind, None if dtype is None or not has(kind, "dtype") else str(np.dtype(dtype))


def _own_targets(settings: dict[str, Any]) -> dict[str, Any]:
    """The constraints of a warm-up have no targets; the kernels are the same with own targets."""
    if settings.get("targets") == "block":
        settings["targets"] = "own"
    if isinstance(settings.get("settings"), dict):
        settings["settings"] = _own_targets(dict(settings["settings"]))
    return settings


def _run(kind: str, arguments: dict[str, Any]) -> None:
    draw = np.random.default_rng(0)
    learner: Any = create(kind, **arguments)
    if not hasattr(learner, "learn_triplets"):
        return
    m = 4 * learner.warm_up + _ROWS
    x, y, z = draw.normal(size=(3, m, _D)).astype(np.float32)
    signs = np.where(np.arange(m) % 2, 1, -1).astype(np.int8)
    # Unusable constraints give blocks of another layout: one with equal vectors, one with NaN.
    x[-1] = y[-1] = z[-1]
    x[-2] = np.nan
    if Kind.PAIR in learner.accepts:
        learner.learn_pairs(x, y, signs)
    if Kind.TRIPLET in learner.accepts:
        learner.learn_triplets(x, y, z)
    if getattr(learner, "whole_lists", False):
        learner.learn(_lists(x[:4]))
    # The weights in an outcome of a learner of several modalities.
    _ = getattr(learner, "weights", None)


def _lists(vectors: Vectors) -> ConstraintBlock:
    """Two lists of a query and three items, with a score."""
    rows, numbers = np.array([[0, 1, 2], [0, 1, 3]] * 2, np.int32), np.array([1, 1, 2, 2], np.int32)
    lists = ShownLists(
        query=np.zeros(2, np.int32),
        starts=np.array([0, 3, 6], np.int32),
        item=np.array([1, 2, 3] * 2, np.int32),
        clicked=np.array([True, False, False] * 2),
        actor=np.arange(1, 3, dtype=np.uint64),
        exponent=0.5,
        scores=Scores.of({"text": [1.0, 2.0, 3.0] * 2}),
        names=np.array([1, 2, 3] * 2, np.uint64),
    )
    return ConstraintBlock(
        "",
        Kind.TRIPLET,
        (Table(DEFAULT_MODALITY, vectors),),
        rows,
        np.zeros(len(rows), np.int8),
        (LIST_RULE,),
        np.zeros(len(rows), np.uint8),
        np.zeros(len(rows), np.bool_),
        np.ones(len(rows), np.float32),
        0,
        events=numbers,
        lists=lists,
    )
