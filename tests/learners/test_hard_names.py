"""Modalities may have any name that is text: no state of a learner mixes them up, or loses one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kinstream.learners import registry
from kinstream.streams.checkpoints.state_bytes import from_bytes, to_bytes
from kinstream.streams.records.values import ConstraintBlock, Table
from tests.learners.multi import multi_blocks

KINDS = ("fusion", "lomdml", "omdl-lr-like", "omdml", "omks")
NAMES = (
    ("", "\0", "x"),
    ("rows", "rows.first", "__metadata__"),
    ("a", "a.b", "a.b.map"),
    ("0", "1", "first"),
    ("e\u0301", "\u00e9", "\u202e\U0001f600"),
    ("n" * 4096, "n" * 4095, "scaler.rows.x"),
)


def renamed(block: ConstraintBlock, names: tuple[str, ...]) -> ConstraintBlock:
    tables = tuple(Table(name, table.vectors) for name, table in zip(names, block.tables, strict=True))
    return replace(block, tables=tables)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("names", NAMES, ids=range(len(NAMES)))
def test_a_learner_goes_on_from_its_state_whatever_the_modalities_are_called(
    kind: str, names: tuple[str, ...]
) -> None:
    settings = {"warm_up": 8} if registry.has(kind, "warm_up") else {}
    blocks = [renamed(block, names) for block in multi_blocks(3, (3, 4, 2))]
    straight = registry.create(kind, **settings)
    for block in blocks:
        straight.learn(block)
    stopped = registry.create(kind, **settings)
    for block in blocks:
        stopped.learn(block)
        again = registry.create(kind, **settings)
        again.restore(from_bytes(to_bytes(stopped.state())))
        assert to_bytes(again.state()) == to_bytes(stopped.state())
        stopped = again
    assert to_bytes(stopped.state()) == to_bytes(straight.state())
    assert np.isfinite(straight.learn(blocks[0]).loss).any()
