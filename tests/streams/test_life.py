"""The life of a worker: what may follow what, and since when."""

from __future__ import annotations

import asyncio
import itertools
import os
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kinstream.streams.errors import LogGap, PartitionTaken
from kinstream.streams.processes.supervisor import REFUSED, RESTART
from kinstream.streams.worker.life import FOLLOWING, IllegalTransition, Life, LifeCycle
from kinstream.streams.worker.worker import Worker


class Clock:
    """Counts its readings."""

    def __init__(self) -> None:
        self._ticks = itertools.count()

    def __call__(self) -> float:
        return float(next(self._ticks))


def lived(*states: Life) -> tuple[LifeCycle, list[IllegalTransition]]:
    """A worker that has been in these states, and the errors that were reported."""
    errors: list[IllegalTransition] = []
    life = LifeCycle(errors.append, Clock())
    for state in states:
        life.enter(state)
    return life, errors


WAYS = {
    Life.REBALANCING: (),
    Life.ASSIGNED: (Life.ASSIGNED,),
    Life.RESTORING: (Life.ASSIGNED, Life.RESTORING),
    Life.SERVING: (Life.ASSIGNED, Life.RESTORING, Life.SERVING),
    Life.STOPPING: (Life.STOPPING,),
    Life.FAILED: (Life.FAILED,),
}


@pytest.mark.parametrize("before", Life)
@pytest.mark.parametrize("after", Life)
def test_only_the_transitions_of_the_table_are_possible(before: Life, after: Life) -> None:
    life, errors = lived(*WAYS[before])
    if after in FOLLOWING[before]:
        life.enter(after)
        assert life.state is after and not errors
        return
    with pytest.raises(IllegalTransition, match=f"that is {before.value} cannot become {after.value}"):
        life.enter(after)
    # faust swallows some of what its callbacks raise: the error is reported as well, and nothing has changed.
    assert len(errors) == 1 and life.state is before


def test_nothing_is_served_that_was_not_taken_over_and_nothing_follows_a_failure() -> None:
    assert {state for state in Life if Life.SERVING in FOLLOWING[state]} == {Life.RESTORING}
    assert not FOLLOWING[Life.FAILED]
    assert FOLLOWING[Life.STOPPING] == {Life.FAILED}
    assert all(Life.FAILED in FOLLOWING[state] for state in Life if state is not Life.FAILED)


def test_the_time_of_a_state_is_known_in_that_state_alone() -> None:
    life, _ = lived()
    assert life.since(Life.REBALANCING) == 0.0
    life.rebalanced()
    assert life.since(Life.REBALANCING) is None and life.since(Life.ASSIGNED) == 1.0
    life.enter(Life.RESTORING)
    assert life.since(Life.RESTORING) == 2.0
    life.revoked()
    # The limit for a rebalance begins anew with every revocation.
    assert life.since(Life.RESTORING) is None and life.since(Life.REBALANCING) == 3.0


def test_a_revocation_makes_what_was_begun_before_it_out_of_date() -> None:
    life, _ = lived(*WAYS[Life.RESTORING])
    before = life.assignment
    life.revoked()
    assert life.assignment != before


def test_a_rebalance_that_is_reported_late_changes_nothing() -> None:
    for state in (Life.RESTORING, Life.SERVING, Life.STOPPING):
        life, _ = lived(*WAYS[state])
        life.rebalanced()
        assert life.state is state


def test_a_worker_that_stops_is_not_held_up_by_the_group() -> None:
    life, _ = lived(*WAYS[Life.SERVING])
    assert life.stop() and life.stopping and life.ending
    assert not life.stop()
    life.revoked()
    assert life.state is Life.STOPPING
    asyncio.run(asyncio.wait_for(life.stopped(), 10.0))


@pytest.mark.parametrize(
    "error, status",
    [
        (PartitionTaken("another has it"), RESTART),
        (LogGap("records are gone"), REFUSED),
        (OSError(), RESTART),
    ],
)
def test_a_worker_that_fails_is_started_again_unless_an_operator_must_act(
    error: Exception, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = cast(Any, Worker.__new__(Worker))
    worker._failure, worker.life = None, lived()[0]
    worker.spec, worker.generation = SimpleNamespace(application="builder-a"), SimpleNamespace(number=1)
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    worker.fail(error)
    assert ended == [status]
