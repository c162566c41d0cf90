"""What a repartition refuses, each in one line and before anything is written."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kinstream.streams.agents.generations.parking import Parking
from kinstream.streams.errors import CheckpointError, KinstreamError, SettingsError
from tests.streams.growing_system import (
    AGENTS,
    CONSTRAINTS,
    EVENTS,
    LARGER,
    OUTCOMES,
    SMALL,
    GrowingSystem,
    Worker,
    files,
    load,
)

# ---- refusals -------------------------------------------------------------------------------------------------------


def running(system: GrowingSystem) -> None:
    system.cluster.members["kinstream-learner-opml-v1"] = 2


def running_the_next(system: GrowingSystem) -> None:
    system.cluster.members["kinstream-metrics-v2"] = 1


def unread_events(system: GrowingSystem) -> None:
    load(system, "more", 1)


def unread_constraints(system: GrowingSystem) -> None:
    load(system, "more", 1)
    Worker(system, system.builders[0]).work().stop()


def unread_outcomes(system: GrowingSystem) -> None:
    load(system, "more", 1)
    for spec in (system.builders[0], system.learners[0]):
        Worker(system, spec).work().stop()


def not_ended(system: GrowingSystem) -> None:
    Worker(system, system.learners[0]).work()


def parked(system: GrowingSystem) -> None:
    end = system.log.end(CONSTRAINTS, 1)
    for _ in range(3):
        Parking(str(system.root), "learner-opml", 1).record_fault(CONSTRAINTS, 1, end, "ValueError")


def never_ran(system: GrowingSystem) -> None:
    from kinstream.learners.agent import learner_spec
    from kinstream.streams.settings import LearnerSettings

    system.settings.learners["late"] = LearnerSettings.model_validate({"kind": "opml", "from": ["one-pass"]})
    system.learners.append(learner_spec(system.settings, "late"))


def lost(system: GrowingSystem) -> None:
    shutil.rmtree(system.root / "learner-opml")
    system.cluster.strangers["kinstream-learner-opml-v1"] = CONSTRAINTS


def not_in_the_settings(system: GrowingSystem) -> None:
    system.cluster.strangers["kinstream-learner-old-v3"] = CONSTRAINTS


def other_settings(system: GrowingSystem) -> None:
    changed = GrowingSystem(system.root, 2, **{**SMALL, "metrics": {"top_spaces": 3, "window": 77}})
    system.metrics = changed.metrics


def pinned(system: GrowingSystem) -> None:
    section = {**SMALL["learners"]["opml"], "generation": 1}
    system.learners = GrowingSystem(system.root, 2, **{**SMALL, "learners": {"opml": section}}).learners


def other_cluster(system: GrowingSystem) -> None:
    system.cluster.id = "elsewhere"


def made_again(system: GrowingSystem) -> None:
    system.cluster.topic_ids[CONSTRAINTS] = "another id"


def some_added(system: GrowingSystem) -> None:
    system.cluster.counts[EVENTS] = 3


def topic_gone(system: GrowingSystem) -> None:
    del system.cluster.counts[OUTCOMES]


def trimmed(system: GrowingSystem) -> None:
    place = EVENTS, 0
    last = system.log.entries[place][-1]
    system.log.ends[place] = last.offset + 9
    system.log.append(EVENTS, b"space 0", b"", (), 0)
    del system.log.entries[place][:-1]


def shorter(system: GrowingSystem) -> None:
    system.log.ends[EVENTS, 0] -= 1


def not_allowed(system: GrowingSystem) -> None:
    system.cluster.allowed = {EVENTS: frozenset({"ALL"}), OUTCOMES: frozenset({"READ", "DESCRIBE"})}


def damaged(system: GrowingSystem) -> None:
    (file,) = list((system.root / "learner-opml" / "1").glob(f"{CONSTRAINTS}-1/spaces/*"))[:1]
    file.write_bytes(b"")


REFUSED: list[tuple[Callable[[GrowingSystem], None], str]] = [
    (running, "learner-opml generation 1 still has 2 members; stop its workers first"),
    (running_the_next, "metrics generation 2 still has 1 members"),
    (
        unread_events,
        r"builder-one-pass: kinstream.events partition \d was read up to offset \d+, and there is a record",
    ),
    (
        unread_constraints,
        r"learner-opml: kinstream.constraints partition \d was read up to offset \d+, and there is",
    ),
    (
        unread_outcomes,
        r"metrics: kinstream.outcomes partition \d was read up to offset \d+, and there is a record",
    ),
    (
        not_ended,
        r"learner-opml generation 1 did not end cleanly on partition \d: .* wait until its /readyz answers 200",
    ),
    (parked, r"learner-opml: kinstream.constraints partition 1 is parked at offset \d+.*kinstream skip"),
    (never_ran, "learner-late of the settings has never run"),
    (lost, "learner-opml has no birth record .* and its group kinstream-learner-opml-v1 has read this topic"),
    (not_in_the_settings, "learner-old has read kinstream.constraints .* --leave learner-old"),
    (
        other_settings,
        "metrics generation 1 does not match its birth record: setting metrics.window: was 50, is 77",
    ),
    (pinned, "the settings pin learner-opml to generation 1, so no worker would open generation 2"),
    (other_cluster, "another cluster: it began on memory, this is elsewhere"),
    (made_again, "topic kinstream.constraints was re-created"),
    (some_added, "kinstream.events has 3 partitions, and builder-one-pass began with 2.*--partitions 3"),
    (topic_gone, "topic kinstream.outcomes does not exist: kinstream topics create"),
    (trimmed, r"kinstream.events partition 0 was read up to offset \d+, and the log now starts at"),
    (
        shorter,
        r"kinstream.events partition 0 was read up to offset \d+, and the log ends at \d+: this is another log",
    ),
    (not_allowed, "ALTER.*topic kinstream.outcomes"),
    (damaged, "spaces/.*missing|bytes, and"),
]


@pytest.mark.parametrize(("cause", "message"), REFUSED, ids=[cause.__name__ for cause, _ in REFUSED])
def test_each_obstacle_is_refused_in_one_line_before_anything_is_written(
    system: GrowingSystem, cause: Callable[[GrowingSystem], None], message: str
) -> None:
    cause(system)
    before, topics = files(system.root), dict(system.cluster.counts)
    with pytest.raises(KinstreamError, match=message) as refused:
        system.plan(LARGER)
    assert "\n" not in str(refused.value)
    assert (files(system.root), system.cluster.counts) == (before, topics)


def test_a_full_volume_is_refused(system: GrowingSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(system.root)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage._replace(free=1_000))
    with pytest.raises(
        CheckpointError, match=r"written once more, [\d,]+ bytes, and 1,000 are free: free some space"
    ):
        system.plan(LARGER)


@pytest.mark.parametrize(
    ("partitions", "message"),
    [(2, "have that many; it must be larger"), (1, "have 2, and partitions are never removed")],
)
def test_only_a_larger_number_is_taken(system: GrowingSystem, partitions: int, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        system.plan(partitions)


def test_an_agent_that_was_taken_out_of_the_settings_may_be_left_behind(system: GrowingSystem) -> None:
    not_in_the_settings(system)
    assert len(system.plan(LARGER, leave=["learner-old"]).moves) == AGENTS


def test_a_metrics_agent_that_never_ran_is_in_nobodys_way(system: GrowingSystem, tmp_path: Path) -> None:
    made = GrowingSystem(tmp_path / "without", 2, **SMALL)
    load(made)
    for spec in (*made.builders, *made.learners):
        Worker(made, spec, create=True).work().stop()
    ends = {p: made.log.end(OUTCOMES, p) for p in range(2)}
    plan = made.repartition(LARGER)
    assert (plan.absent, len(plan.moves)) == (("metrics",), 2)
    load(made, "more")
    # It begins where the partitions were added: what is older lies in another order.
    metrics = made.drain()["metrics"]
    assert metrics.counts().get("dead wrong-key", 0) == 0
    later = sum(made.log.end(OUTCOMES, p) - ends.get(p, 0) for p in range(LARGER))
    assert metrics.counts()["applied"] == later > 0
