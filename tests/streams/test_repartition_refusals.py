"""What a repartition refuses, what a killed one leaves behind, and what stands around one."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from replay.claims import Origin
from replay.compare import Verdict
from replay.pipeline import state_digest
from replay.run import Replay, Request
from replay.what_if import WhatIf, WhatIfRequest
from replay.what_if_settings import what_if_settings
from streams import failpoints
from streams.birth import read_birth
from streams.errors import CheckpointError, KinstreamError, SettingsError
from streams.generation import newest_generation, open_generation
from streams.parking import Parking
from streams.topics import partition_of
from tests.streams.growing import (
    CONSTRAINTS,
    DEAD,
    EVENTS,
    OUTCOMES,
    GrowingSystem,
    Worker,
    comparable,
    files,
    in_memory,
)
from tests.support.pipeline import samples

SPACES = tuple(f"space {number}" for number in range(5))
SMALL: dict[str, Any] = {
    "builders": {"one-pass": {"kind": "one-pass", "seed": 3}},
    "learners": {"opml": {"kind": "opml", "from": ["one-pass"], "gamma": 0.01}},
}
#: Agents, and partitions of the larger input.
AGENTS, LARGER = 3, 5


def load(system: GrowingSystem, name: str = "load", blocks: int = 3) -> None:
    for space in SPACES:
        system.send(space, *samples(space, blocks, load=name, seed=len(name)))


def small(root: Path, partitions: int = 2, **changes: Any) -> GrowingSystem:
    """One that has learned and ended."""
    made = GrowingSystem(root, partitions, **{**SMALL, **changes})
    load(made)
    made.send(SPACES[0], b"\x00 nothing that decodes")
    made.drain()
    return made


@pytest.fixture
def system(tmp_path: Path) -> Iterator[GrowingSystem]:
    with in_memory():
        yield small(tmp_path / "checkpoints")


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
    from learners.agent import learner_spec
    from streams.settings import LearnerSettings

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
    (not_ended, r"learner-opml: kinstream.constraints partition \d did not end cleanly"),
    (parked, r"learner-opml: kinstream.constraints partition 1 is parked at offset \d+.*kinstream skip"),
    (never_ran, "learner-late of the settings has never run"),
    (lost, "learner-opml has no birth record .* and its group kinstream-learner-opml-v1 has read this topic"),
    (not_in_the_settings, "learner-old has read kinstream.constraints .* --leave learner-old"),
    (other_settings, "metrics generation 1 does not match its birth record: setting window: was 50, is 77"),
    (pinned, "the settings pin learner-opml to generation 1, so nobody would open generation 2"),
    (other_cluster, "another cluster: it began on memory, this is elsewhere"),
    (made_again, "topic kinstream.constraints was re-created"),
    (some_added, "kinstream.events has 3 partitions, and builder-one-pass began with 2.*--partitions 3"),
    (topic_gone, "topic kinstream.outcomes does not exist: kinstream topics create"),
    (trimmed, r"kinstream.events partition 0 was read up to offset \d+, and the log now starts at"),
    (
        shorter,
        r"kinstream.events partition 0 was read up to offset \d+, and the log ends at \d+: this is another log",
    ),
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
        CheckpointError, match=r"written once more, [\d,]+ bytes, and 1,000 are free: make room"
    ):
        system.plan(LARGER)


@pytest.mark.parametrize(
    ("partitions", "message"),
    [(2, "have that many; it must be larger"), (1, "have 2, and none is ever taken away")],
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


# ---- killed ---------------------------------------------------------------------------------------------------------

PLACES = [
    *(f"repartition.after-birth=raise@{n}" for n in (1, 2, AGENTS)),
    "repartition.after-record=raise",
    *(f"repartition.after-topic=raise@{n}" for n in (1, 2, 3)),
    *(f"repartition.after-partition=raise@{n}" for n in (1, LARGER, 2 * LARGER + 1, AGENTS * LARGER)),
    *(f"repartition.after-commit=raise@{n}" for n in (1, 2, AGENTS)),
    "checkpoint.between-space-files=raise",
    "checkpoint.before-manifest=raise@4",
    "checkpoint.after-manifest=raise@7",
]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What becomes of the small system without a kill, by application."""
    with in_memory():
        made = small(tmp_path_factory.mktemp("undisturbed"))
        made.repartition(LARGER)
        load(made, "more")
        return _ended(made)


def _ended(system: GrowingSystem) -> dict[str, Any]:
    ended = system.drain()
    return {name: (comparable(worker.spaces()), worker.counts()) for name, worker in ended.items()}


@pytest.mark.parametrize("place", PLACES)
def test_one_that_was_killed_has_changed_nothing_and_is_completed_by_the_same_command(
    system: GrowingSystem, undisturbed: dict[str, Any], place: str
) -> None:
    old = {name: data for name, data in files(system.root).items() if not name.endswith("newest")}
    with failpoints.installed(place), pytest.raises(RuntimeError, match="failpoint"):
        system.repartition(LARGER)
    now = files(system.root)
    assert {name: now[name] for name in old} == old
    done = [spec for spec in system.specs if newest_generation(system.settings, spec.application) == 2]
    for spec in system.specs:
        if read_birth(str(system.root), spec.application, 2) is None:
            continue
        if spec in done:
            assert open_generation(spec, system.settings, system.asked).number == 2
        else:
            with pytest.raises(
                KinstreamError, match="a repartition to 5 partitions was begun and did not end"
            ):
                open_generation(spec, system.settings, system.asked)
            with pytest.raises(
                KinstreamError, match="a repartition to 5 partitions was begun and did not end"
            ):
                open_generation(spec, system.settings, system.asked, new=True, from_start=True)
    # Whoever may start finds everything that reads from it moved.
    order = [spec.application for spec in (system.metrics, *system.learners, *system.builders)]
    assert [
        spec.application for spec in (system.metrics, *system.learners, *system.builders) if spec in done
    ] == (order[: len(done)])
    again = system.repartition(LARGER)
    assert again.resumed or len(done) == AGENTS
    assert not system.plan(LARGER).moves
    load(system, "more")
    assert _ended(system) == undisturbed


def test_before_the_topics_are_touched_it_can_be_left(system: GrowingSystem) -> None:
    with failpoints.installed("repartition.after-birth=raise@2"), pytest.raises(RuntimeError):
        system.repartition(LARGER)
    with pytest.raises(KinstreamError, match="delete the folder") as refused:
        Worker(system, system.metrics)
    (folder,) = re.findall(r"delete the folder (\S+) under", str(refused.value))
    for application in (folder.partition("/")[0], "learner-opml"):
        shutil.rmtree(system.root / application / "2")
    load(system, "more")
    assert {worker.generation.number for worker in system.drain().values()} == {1}


def test_another_number_is_refused_while_one_is_unfinished(system: GrowingSystem) -> None:
    with failpoints.installed("repartition.after-topic=raise"), pytest.raises(RuntimeError):
        system.repartition(LARGER)
    with pytest.raises(KinstreamError, match=r"has 5 partitions, and .* began with 2.*--partitions 5"):
        system.plan(LARGER + 1)


def test_producers_that_know_the_new_number_lose_nothing_while_it_is_unfinished(
    system: GrowingSystem,
) -> None:
    with failpoints.installed("repartition.after-topic=raise"), pytest.raises(RuntimeError):
        system.repartition(LARGER)
    load(system, "more")
    system.log.append(EVENTS, SPACES[0].encode(), samples(SPACES[0], 1, load="old number")[0], (), 1)
    plan = system.repartition(LARGER)
    assert "1 of them stand where their key no longer belongs" in " ".join(plan.notes)
    ended = system.drain()["builder-one-pass"]
    assert ended.counts()["applied"] == 2 * 3 * len(SPACES)
    assert ended.counts()["dead wrong-key"] == 1


# ---- around ---------------------------------------------------------------------------------------------------------


def test_a_dry_run_tells_what_moves_and_writes_nothing(system: GrowingSystem) -> None:
    before = files(system.root)
    plan = system.plan(LARGER)
    assert files(system.root) == before
    assert [move.spec.application for move in plan.moves] == ["metrics", "learner-opml", "builder-one-pass"]
    moved = sum(partition_of(space, 2) != partition_of(space, LARGER) for space in SPACES)
    assert {(move.spaces, move.moved) for move in plan.moves} == {(len(SPACES), moved)}
    assert 0 < moved < len(SPACES)
    assert plan.raised == dict.fromkeys((EVENTS, CONSTRAINTS, OUTCOMES), LARGER)


def test_a_replay_of_the_larger_system_equals_it_bit_for_bit(system: GrowingSystem) -> None:
    system.repartition(LARGER)
    for name in ("more", "and more", "and yet more", "and still more", "and so on"):
        # So many checkpoints that the first would have been pruned.
        load(system, name)
        system.drain()
    request = Request(("opml",), Origin.CONSTRAINTS, compare=True)
    compared = Replay(request, system.settings, system.asked).run().comparisons
    assert {comparison.verdict for comparison in compared} == {Verdict.EQUAL}, compared
    assert {comparison.space for comparison in compared} >= set(SPACES)
    again = Replay(Request(("opml",), Origin.EVENTS), system.settings, system.asked).run()
    # The builder's part of it begins with its own moved states.
    running = Worker(system, system.builders[0]).spaces()
    found = {model.space: model.digest for model in again.models if model.agent == "builder-one-pass"}
    assert found == {space: state_digest(facts["core"]) for space, facts in running.items()}


def test_a_what_if_of_the_larger_system_begins_there_with_nothing_learned(system: GrowingSystem) -> None:
    system.repartition(LARGER)
    load(system, "more")
    system.drain()
    changed = what_if_settings(system.settings, "opml", {"gamma": 0.5})
    result = WhatIf(WhatIfRequest("opml"), system.settings, changed, system.asked).run()
    assert any("had learned before this range began" in note for note in result.notes)
    steps = {model.space: model.step for model in result.replayed.models}
    running = Worker(system, system.learners[0]).spaces()
    assert all(0 < steps[space] < running[space]["step"] for space in SPACES)


def test_a_generation_after_it_begins_as_any_other(system: GrowingSystem) -> None:
    system.repartition(LARGER)
    load(system, "more")
    system.drain()
    worker = Worker(system, system.learners[0], new=True)
    assert worker.generation.number == 3
    assert {facts["step"] for facts in worker.spaces().values()} == {0}


def test_reading_from_the_start_begins_where_the_partitions_were_added(system: GrowingSystem) -> None:
    ends = {p: system.log.end(CONSTRAINTS, p) for p in range(2)}
    system.repartition(LARGER)
    load(system, "more")
    system.drain()
    worker = Worker(system, system.learners[0], new=True, from_start=True).work()
    assert worker.generation.birth.start_offsets == {p: ends.get(p, 0) for p in range(LARGER)}
    assert worker.counts().get("dead wrong-key", 0) == 0
    assert worker.counts()["applied"] == sum(
        system.log.end(CONSTRAINTS, p) - ends.get(p, 0) for p in range(LARGER)
    )


def test_a_letter_of_before_is_taken_back_once_and_on_one_partition(system: GrowingSystem) -> None:
    system.repartition(LARGER)
    (letter,) = [m for p in range(LARGER) for m in system.log.read(DEAD, p, 0)]
    assert system.redrive(reason="undecodable") == 1
    assert system.redrive(reason="undecodable") == 1
    ended = system.drain()["builder-one-pass"]
    # Bytes that do not decode are refused again, under the redrive's own place.
    assert ended.counts()["redriven"] == 1
    assert ended.counts()["redrives_ignored"] == 1
    assert ended.counts()["refused"] == 1
    assert len([m for p in range(LARGER) for m in system.log.read(DEAD, p, 0)]) == 2
    assert letter.key == SPACES[0].encode()
