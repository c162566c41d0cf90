"""Checks of constraints that share an event: a learner judges all of them before it learns the first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.learner import Outcomes
from kinstream.streams.errors import BadRecord
from kinstream.streams.records.values import ConstraintBlock, Kind, Table
from kinstream.testing.blocks import rows_of
from kinstream.testing.learners import Case, digest, digest_of_outcomes, parameters
from kinstream.testing.refusals import refused

#: Rows of the events of a block, over and over. Some are longer than a blocked step of few features.
SIZES: Final = (1, 9, 2, 1, 1, 18, 4, 3)
#: State entries that events do not affect.
LEARNED: Final = ("utilised", "clipped", "rejected", "degenerate", "ignored")


def in_events(message: ConstraintBlock, number: int = 0) -> ConstraintBlock:
    """The same vectors in events of several rows, most of which share their anchor and their positive.

    Parameters
    ----------
    number : of the message; other messages begin with events of other sizes.
    """
    m, index = len(message), message.index.copy()
    sizes = np.roll(SIZES, -number)
    ends = np.minimum(np.cumsum(np.resize(sizes, m)), m)
    events = np.searchsorted(ends, np.arange(m), side="right").astype(np.int32) + 1
    for event in np.unique(events):
        rows = np.flatnonzero(events == event)
        # As in a list of results: a query and the clicked item, against the others. One in three events is no list.
        if event % 3:
            index[rows[:-1], : index.shape[1] - 1] = index[rows[0], :-1]
    return replace(message, index=index, events=events)


def lists(case: Case) -> list[ConstraintBlock]:
    """The messages of a case in events; a vector of the last one is NaN."""
    found = [in_events(message, number) for number, message in enumerate(case.blocks)]
    spoiled = []
    for table in found[-1].tables:
        X = table.vectors.copy()
        X[found[-1].index[len(found[-1]) // 2, -1], 0] = np.nan
        spoiled.append(Table(table.name, X))
    return [*found[:-1], replace(found[-1], tables=tuple(spoiled))]


def alone(message: ConstraintBlock) -> ConstraintBlock:
    """The same constraints, each an event of its own."""
    return replace(message, events=None)


def borders(message: ConstraintBlock) -> list[slice]:
    """The rows of each event."""
    assert message.events is not None
    starts = np.flatnonzero(np.diff(message.events, prepend=message.events[0] - 1))
    return [slice(int(a), int(b)) for a, b in pairwise([*starts, len(message)])]


def same_verdicts(
    case: Case, message: ConstraintBlock, found: Outcomes, wanted: Outcomes, *, loss: bool
) -> None:
    """Equal to rounding; if a margin is almost zero, both verdicts are accepted."""
    tolerance = max(case.tolerance, 1e-9)
    np.testing.assert_array_equal(found.rejected, wanted.rejected)
    np.testing.assert_array_equal(np.isnan(found.margin), np.isnan(wanted.margin))
    known = np.isfinite(wanted.margin)
    scale = float(np.abs(wanted.margin[known]).max(initial=1e-300))
    np.testing.assert_allclose(found.margin[known], wanted.margin[known], rtol=0, atol=50 * tolerance * scale)
    sure = ~known | (np.abs(wanted.margin) > 50 * tolerance * scale) | (wanted.margin == 0.0)
    np.testing.assert_array_equal(found.mistake[sure], wanted.mistake[sure])
    np.testing.assert_array_equal(found.mistake < 0, wanted.mistake < 0)
    if loss:
        top = float(wanted.loss.max(initial=0.0)) + scale * bool(message.kind is Kind.TRIPLET)
        np.testing.assert_allclose(found.loss, wanted.loss, rtol=0, atol=100 * tolerance * top)


def judges_events_before_it_learns_them(case: Case) -> None:
    """The report on a row equals the report of a copy from before the event on that row alone."""
    learner, other, single = case.make(), case.make(), case.make()
    for message in lists(case):
        found = learner.learn(message)
        wanted = Outcomes.blank(len(message))
        for rows in borders(message):
            state = other.state()
            for t in range(rows.start, rows.stop):
                single = case.make()
                single.restore(state)
                _put(wanted, t, single.learn(rows_of(alone(message), slice(t, t + 1))))
            other.learn(rows_of(message, rows))
        two = learner.form is Kind.PAIR and message.kind is Kind.TRIPLET
        # Only the loss of the second pair of a triplet is measured after the first pair was learned.
        same_verdicts(case, message, found, wanted, loss=not two)


def learns_as_without_events(case: Case) -> None:
    """Events change no bit of the learned state or its reports."""
    learner, other = case.make(), case.make()
    for message in lists(case):
        found, wanted = learner.learn(message), other.learn(alone(message))
        for name in LEARNED:
            np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name), err_msg=name)
        assert parameters(case, learner) == parameters(case, other)


def takes_events_of_one_row_as_none(case: Case) -> None:
    """If each constraint is its own event, the numbers of the events change nothing."""
    learner, other = case.make(), case.make()
    for message in case.blocks:
        numbered = replace(message, events=np.arange(1, len(message) + 1, dtype=np.int32))
        assert digest_of_outcomes(learner.learn(numbered)) == digest_of_outcomes(other.learn(message))
        assert digest(learner.state()) == digest(other.state())


def cuts_between_events_as_it_likes(case: Case) -> None:
    """A block that is cut between two events gives the same verdicts."""
    learner, other = case.make(), case.make()
    for message in lists(case):
        found, wanted = learner.learn(message), Outcomes.blank(len(message))
        for rows in borders(message):
            part = other.learn(rows_of(message, rows))
            for name in Outcomes.__dataclass_fields__:
                getattr(wanted, name)[rows] = getattr(part, name)
        same_verdicts(case, message, found, wanted, loss=True)


def counts_apart_what_began_earlier(case: Case) -> None:
    """Rows of event 0 are judged like all others and marked as split."""
    learner, other = case.make(), case.make()
    for message in lists(case):
        assert message.events is not None
        earlier = replace(message, events=message.events - 1)
        found, wanted = learner.learn(earlier), other.learn(message)
        np.testing.assert_array_equal(found.split, earlier.events == 0)
        assert not wanted.split.any()
        wanted.split[:] = found.split
        assert digest_of_outcomes(found) == digest_of_outcomes(wanted)
        assert digest(learner.state()) == digest(other.state())


def counts_apart_what_follows_the_other_kind(case: Case) -> None:
    """If an event's pairs came before, a learner of pairs has learned from them, and others have not."""
    learner, other = case.make(), case.make()
    for message in lists(case):
        kind = Kind.PAIR if message.kind is Kind.TRIPLET else Kind.TRIPLET
        found, wanted = learner.learn(replace(message, earlier=kind)), other.learn(message)
        knows = message.kind is Kind.PAIR or learner.form is Kind.PAIR
        assert found.split.all() == (
            (knows and not learner.algorithm.startswith("euclidean/")) or message.kind is Kind.PAIR
        )
        assert found.split.any() == found.split.all()
        assert (found.mistake == wanted.mistake).all()


def continues_within_events(case: Case) -> None:
    """Restored before every message, with events: judging leaves nothing in the state."""
    learner = case.make()
    for message in lists(case):
        restored = case.make()
        restored.restore(learner.state())
        assert digest_of_outcomes(restored.learn(message)) == digest_of_outcomes(learner.learn(message))
        assert digest(restored.state()) == digest(learner.state())


def refuses_events_that_do_not_fit(case: Case) -> None:
    """Too few numbers of events, or decreasing ones, raise BadRecord."""
    learner = case.make()
    message = in_events(case.blocks[0])
    assert message.events is not None
    before = digest(learner.state())
    for events in (message.events[:-1], message.events[::-1]):
        wrong = replace(message, events=events)
        refused(BadRecord, learner.learn, wrong)
    assert digest(learner.state()) == before


def _put(outcomes: Outcomes, t: int, one: Outcomes) -> None:
    for name in Outcomes.__dataclass_fields__:
        values: NDArray[Any] = getattr(outcomes, name)
        values[t] = getattr(one, name)[0]


EVENT_CHECKS: tuple[Callable[[Case], None], ...] = (
    judges_events_before_it_learns_them,
    learns_as_without_events,
    takes_events_of_one_row_as_none,
    cuts_between_events_as_it_likes,
    counts_apart_what_began_earlier,
    counts_apart_what_follows_the_other_kind,
    continues_within_events,
    refuses_events_that_do_not_fit,
)
