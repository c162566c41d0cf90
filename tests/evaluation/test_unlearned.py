"""Un-learned metrics have one set of names, in one order, in records, in the mixture and in evaluations."""

from __future__ import annotations

from kinstream.evaluation.experiment import contenders
from kinstream.learners.mixture import learner as mixture
from kinstream.streams.records import held_out


def test_the_names_are_the_same_everywhere() -> None:
    assert list(held_out.UNLEARNED) == list(mixture.UNLEARNED) == list(contenders.UNLEARNED)
