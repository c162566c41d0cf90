"""What outcomes of constraints add up to."""

import numpy as np

from kinstream.learners.base import Outcomes
from kinstream.streams.records.values import Counts


def some() -> Outcomes:
    """Rows: right, wrong, split and right, split and wrong, split and undefined, split and rejected."""
    made = Outcomes.blank(6)
    made.mistake[:] = [0, 1, 0, 1, -1, 1]
    made.rejected[5] = True
    made.split[2:] = True
    made.utilised[:2] = True
    made.loss[:] = [0.5, 1.5, 0.25, 2.0, 0.0, 0.0]
    return made


def test_split_rows_are_seen_but_counted_apart_from_the_mistake_rate() -> None:
    assert some().counts() == Counts(
        seen=5,
        scored=2,
        mistakes=1,
        utilised=2,
        rejected=1,
        loss_sum=4.25,
        split_scored=2,
        split_mistakes=1,
    )


def test_counts_of_disjoint_rows_add_up_with_the_split_ones() -> None:
    made, rows = some(), np.arange(6) % 2 == 0
    assert made.counts(rows) + made.counts(~rows) == made.counts()


def test_outcomes_are_not_split_unless_the_learner_says_so_and_slices_keep_it() -> None:
    assert not Outcomes.blank(3).split.any()
    assert some()[1:3].split.tolist() == [False, True]
