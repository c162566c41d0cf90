"""Compiles the kernels of the builders in advance, so that no event waits for them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kinstream.processors.base.builder import Origin
from kinstream.processors.clicks.clicks import RULES, Clicks
from kinstream.processors.closure.closure import Closure
from kinstream.processors.registry import create
from kinstream.streams.records.values import (
    Click,
    ItemBlock,
    ItemClick,
    RelationBlock,
    SampleBlock,
    Table,
    Vectors,
)

#: Kinds that follow labelled samples, with settings under which they run all of their kernels.
_OF_SAMPLES: Final[dict[str, dict[str, Any]]] = {
    "adjacent-pairs": {"targets": "frozen"},
    "random-pairs": {"max_classes": 3, "targets": "frozen"},
    "random-triplets": {"max_classes": 3},
}
_ITEMS = 40
_NOW = 1_000


#: Kinds of builders that have kernels.
COMPILED: Final = ("adjacent-pairs", "clicks", "closure", "random-pairs", "random-triplets")


class _SmallClicks(Clicks):
    """Blocks so small that they must be cut."""

    max_bytes = 2_048


class _SmallClosure(Closure):
    max_bytes = 2_048


def warm_up(kinds: tuple[str, ...] = COMPILED) -> None:
    """Run every kernel of these builders once: a minute the first time, then a load from numba's cache."""
    names = tuple(f"item {n}" for n in range(_ITEMS))
    vectors = np.random.default_rng(0).normal(size=(_ITEMS, 8)).astype(np.float32)
    items = ItemBlock("warm-up", names, (Table("x", vectors),), _NOW)
    clicked = tuple(ItemClick(name, _NOW + n) for n, name in enumerate(names[2::3]))
    shown = Click("warm-up", "list", names[1:], tuple(range(_ITEMS - 1)), clicked, _NOW, "s", "u", names[0])
    places = np.arange(_ITEMS - 1, dtype=np.int32)
    relations = RelationBlock(
        "warm-up",
        names,
        places,
        places + 1,
        places % 4 != 3,
        np.full(len(places), _NOW, np.int64),
        (),
        np.full(len(places), -1, np.int32),
    )
    gone = ItemBlock("warm-up", (), (), _NOW, names[:1])
    for bias in ("none", "thinning") if "clicks" in kinds else ():
        builder = _SmallClicks(RULES, bias=bias, co_click_support=1)
        builder.process(items, Origin(0))
        builder.process(shown, Origin(1, _NOW))
        builder.process(gone, Origin(2))
    for contradictions in ("reject", "support") if "closure" in kinds else ():
        closure = _SmallClosure(contradictions=contradictions, support=1, co_click_support=1)
        closure.process(items, Origin(0))
        closure.process(relations, Origin(1))
        closure.process(shown, Origin(2, _NOW))
        closure.process(gone, Origin(3))
        fresh = _SmallClosure(contradictions=contradictions, support=1, co_click_support=1)
        fresh.restore(closure.state())
        fresh.restore_segments(closure.segment)
    for kind in kinds:
        if kind in _OF_SAMPLES:
            _run_samples(kind, names, vectors)


def _run_samples(kind: str, names: tuple[str, ...], vectors: Vectors) -> None:
    """Enough classes that some are forgotten, blocks that have to be cut, and an erasure."""
    settings = {"max_bytes": 1_024, **_OF_SAMPLES[kind]}
    builder = create(kind, **settings)
    samples = SampleBlock("warm-up", (Table("x", vectors),), names, _NOW, names)
    builder.process(samples, Origin(0))
    builder.process(ItemBlock("warm-up", (), (), _NOW, names[-1:]), Origin(1))
    create(kind, **settings).restore(builder.state())
