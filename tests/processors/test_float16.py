"""Vectors as float16: what a builder writes by option, and what a load sends."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kinstream.processors.agent import builder_spec
from kinstream.streams.records.codec.codec import decode_constraints
from kinstream.streams.records.values import ConstraintBlock
from kinstream.streams.settings import Settings
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent, samples


def settings(**more: bool) -> Settings:
    return Settings.model_validate({"builders": {"b": {"kind": "one-pass", **more}}})


def constraints(folder: Path, **more: bool) -> list[tuple[bytes, ConstraintBlock]]:
    """What a builder makes of a log."""
    log = MemoryLog(partitions=1)
    for value in samples("space", 6):
        log.append("kinstream.events", b"space", value)
    made = settings(**more)
    Agent(builder_spec(made, "b"), made, log, folder).run()
    values = [message.value for message in log.read("kinstream.constraints", 0, 0)]
    blocks = [(value, decode_constraints(value)) for value in values if value is not None]
    return [(value, block) for value, block in blocks if isinstance(block, ConstraintBlock)]


def test_a_builder_writes_the_same_constraints_with_rounded_vectors(tmp_path: Path) -> None:
    whole, half = constraints(tmp_path / "whole"), constraints(tmp_path / "half", float16=True)
    assert len(whole) == len(half) > 0
    for (long, left), (short, right) in zip(whole, half, strict=True):
        vectors = left.tables[0].vectors
        assert len(long) - len(short) >= 2 * vectors.size > 0
        np.testing.assert_array_equal(right.tables[0].vectors, vectors.astype(np.float16))
        np.testing.assert_array_equal(right.index, left.index)
        np.testing.assert_array_equal(right.rule, left.rule)


def test_it_shapes_the_outputs_and_a_generation_without_it_is_as_it_was() -> None:
    assert "float16" not in builder_spec(settings(), "b").shaping
    assert builder_spec(settings(float16=False), "b").shaping == builder_spec(settings(), "b").shaping
    assert builder_spec(settings(float16=True), "b").shaping["float16"] is True
