"""What outcomes of constraints add up to."""

import numpy as np

from kinstream.learners.base.learner import Outcomes
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


def test_every_row_is_counted_as_its_own_flags_say() -> None:
    draw = np.random.default_rng(5)
    for m in (0, 1, 7, 400):
        made, chosen = Outcomes.blank(m), draw.random(m) < 0.5
        for name in ("utilised", "clipped", "rejected", "degenerate", "ignored", "split"):
            getattr(made, name)[:] = draw.random(m) < 0.3
        made.mistake[:] = draw.integers(-1, 2, m)
        made.loss[:] = np.where(
            draw.random(m) < 0.1, draw.choice([np.nan, np.inf], m), draw.integers(0, 9, m)
        )
        for rows, some_rows in (None, range(m)), (chosen, np.flatnonzero(chosen).tolist()):
            wanted = Counts()
            for t in some_rows:
                wanted += one_row(made, t)
            assert made.counts(rows) == wanted


def one_row(made: Outcomes, t: int) -> Counts:
    left_out = {"rejected": int(made.rejected[t]), "ignored": int(made.ignored[t])}
    if any(left_out.values()):
        return Counts(**left_out)
    prefix = "split_" if made.split[t] else ""
    judged = {
        f"{prefix}scored": int(made.mistake[t] >= 0),
        f"{prefix}mistakes": int(made.mistake[t] == 1),
    }
    return Counts(
        seen=1,
        utilised=int(made.utilised[t]),
        clipped=int(made.clipped[t]),
        degenerate=int(made.degenerate[t]),
        loss_sum=float(made.loss[t]) if np.isfinite(made.loss[t]) else 0.0,
        **judged,
    )
