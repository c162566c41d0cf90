"""The scaler that a space declares, under kinds of learners with and without that setting."""

from __future__ import annotations

import pytest

from kinstream.learners.agent import learner_spec
from kinstream.learners.models.export import learner_from
from kinstream.learners.registry import has, names
from kinstream.processors.agent import builder_spec
from kinstream.streams.checkpoints.state_bytes import to_bytes
from kinstream.streams.records.values import Action, Control, Declaration
from tests.clicks.stream import Stream
from tests.support.pipeline import samples, settings

SPACE = "space"
NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize("kind", ["mixture", "opml"])
def test_a_kind_that_scales_by_itself_learns_in_a_space_with_a_scaler(kind: str) -> None:
    assert has(kind, "scaler") == (kind != "mixture")
    assert kind in names()
    # What the settings say gives way to what the space says.
    own = {"scaler": "zscore"} if has(kind, "scaler") else {}
    made = settings(learners={"it": {"kind": kind, "from": ["one-pass"], "held_out": 0.0, **own}})
    builder = Stream(builder_spec(made, "one-pass"), NOW_MS, SPACE)
    learner = Stream(learner_spec(made, "it"), NOW_MS, SPACE)
    found = [*builder(Control(SPACE, Action.CREATE, NOW_MS, Declaration((), "any", "minmax")))]
    for value in samples(SPACE, 3):
        found += builder(value)
    for sent in found:
        learner(sent.value or b"", sent.headers)
    space = learner.machine.find(SPACE)
    assert space is not None
    assert space.step > 0
    restored = learner_from(to_bytes(space.state()), kind, {})
    assert restored is not None
    assert getattr(restored, "scaler", None) == getattr(space.core, "scaler", None)
    assert kind == "mixture" or getattr(restored, "scaler", None) == "minmax"
