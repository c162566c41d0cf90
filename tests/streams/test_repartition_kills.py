"""A repartition that is killed is completed by the same command; what replays, letters and later starts see of one."""

from __future__ import annotations

import re
import shutil
from typing import Any

import pytest

from kinstream.cli.views.repartition import as_plain, show
from kinstream.replay.log.comparison import Agreement
from kinstream.replay.log.guarantees import LogKind
from kinstream.replay.log.pipeline import state_digest
from kinstream.replay.log.run import Replay, Request
from kinstream.streams import failpoints
from kinstream.streams.agents.generations.birth import read_birth
from kinstream.streams.agents.generations.numbers import newest_generation
from kinstream.streams.agents.generations.open_generation import open_generation
from kinstream.streams.errors import KinstreamError
from kinstream.streams.topics import partition_of
from tests.streams.growing_system import (
    AGENTS,
    CONSTRAINTS,
    DEAD,
    EVENTS,
    LARGER,
    OUTCOMES,
    SPACES,
    GrowingSystem,
    Worker,
    comparable,
    files,
    in_memory,
    load,
    small,
)
from tests.support.pipeline import samples

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
    assert "1 of them are on a partition where their key no longer belongs" in " ".join(plan.notes)
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


def test_the_plan_is_told_in_words_and_as_plain_values(
    system: GrowingSystem, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = system.plan(LARGER)
    show(plan, True, ["a note"])
    told = capsys.readouterr().out.splitlines()
    assert told[0].split() == ["AGENT", "GENERATION", "SPACES", "MOVED", "BYTES", "REFUSED"]
    assert told[3].split()[:5] == ["builder-one-pass", "1", "->", "2", str(len(SPACES))]
    assert told[3].split()[-1] == "1"
    assert "kinstream.events: 2 -> 5 partitions" in told
    assert told[-2:] == ["warning: a note", "nothing was written"]
    assert as_plain(plan, True, ["a note"])["written"] is False
    plan.carry_out(system.asked)
    assert as_plain(plan, False, [])["written"] is True
    show(plan, False, [])
    assert "Set topics.partitions = 5" in capsys.readouterr().out
    show(system.plan(LARGER), False, [])
    assert "nothing to do" in capsys.readouterr().out


def test_a_replay_of_the_larger_system_equals_it_bit_for_bit(system: GrowingSystem) -> None:
    system.repartition(LARGER)
    for name in ("more", "and more", "and yet more", "and still more", "and so on"):
        # So many checkpoints that the first would have been pruned.
        load(system, name)
        system.drain()
    request = Request(("opml",), LogKind.CONSTRAINTS, compare=True)
    compared = Replay(request, system.settings, system.asked).run().comparisons
    assert {comparison.verdict for comparison in compared} == {Agreement.EQUAL}, compared
    assert {comparison.space for comparison in compared} >= set(SPACES)
    again = Replay(Request(("opml",), LogKind.EVENTS), system.settings, system.asked).run()
    # The builder's part of it begins with its own moved states.
    running = Worker(system, system.builders[0]).spaces()
    found = {model.space: model.digest for model in again.models if model.agent == "builder-one-pass"}
    assert found == {space: state_digest(facts["core"]) for space, facts in running.items()}


def test_a_replay_with_other_settings_of_the_larger_system_begins_there_with_nothing_learned(
    system: GrowingSystem,
) -> None:
    system.repartition(LARGER)
    load(system, "more")
    system.drain()
    opml = system.settings.learners["opml"].model_copy(update={"gamma": 0.5})
    changed = system.settings.model_copy(update={"learners": {**system.settings.learners, "opml": opml}})
    result = Replay(Request(("opml",), LogKind.CONSTRAINTS), changed, system.asked).run()
    assert result.claim.learners == ()
    steps = {model.space: model.step for model in result.models}
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
