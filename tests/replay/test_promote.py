"""A promoted what-if goes on as a learner that always had its settings; killed anywhere, it has begun or it has not."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kinstream.learners.agent import learner_spec
from kinstream.monitoring.agent import MetricsMachine, metrics_spec
from kinstream.replay.log.comparison import Agreement
from kinstream.replay.log.guarantees import Origin
from kinstream.replay.log.sources import Point
from kinstream.replay.what_if.run import WhatIfResult
from kinstream.replay.what_if.saved_state import RECORD, StateFolder
from kinstream.streams import failpoints
from kinstream.streams.agents.generations.birth import read_birth
from kinstream.streams.agents.generations.numbers import newest_generation
from kinstream.streams.agents.generations.parking import Parking
from kinstream.streams.errors import CheckpointError, GenerationMismatch, KinstreamError, SettingsError
from kinstream.streams.records.identity import read_identity
from tests.replay.conftest import MakeSystem
from tests.replay.promoting import (
    OUTCOMES,
    Worker,
    changed,
    files,
    learner_section,
    opened,
    planned,
    promote,
    recorded,
    what_if,
)
from tests.replay.system import CONSTRAINTS, SPACES, MemoryCluster, System
from tests.support.crashes import deduplicated
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent

#: Places of the code at which a promotion may be killed, each hit of each of them.
PLACES = ("checkpoint.between-space-files", "checkpoint.before-manifest", "checkpoint.after-manifest")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "what-if"


@pytest.fixture
def ended(make_system: MakeSystem) -> System:
    """A system whose learner has read all constraints and ended in order."""
    system = make_system()
    system.load()
    system.run_builders()
    Worker(system).stop()
    return system


def saved(system: System, folder: Path, **request: Any) -> WhatIfResult:
    return what_if(system, save=str(folder), **request)


def go_on(system: System, load: str = "after") -> None:
    """More events, up to constraints."""
    system.load(6, load=load)
    system.run_builders()


class Always:
    """A learner that had the new settings from the first constraint on, on a log of its own."""

    def __init__(self, system: System, root: Path) -> None:
        self.system = system
        self.log = MemoryLog(2)
        self._copy()
        config = changed(system)
        self.agent = Agent(learner_spec(config, "opml"), config, self.log, root)

    def _copy(self) -> None:
        for p in range(2):
            self.log.entries[CONSTRAINTS, p] = list(self.system.log.entries[CONSTRAINTS, p])
            self.log.ends[CONSTRAINTS, p] = self.system.log.end(CONSTRAINTS, p)

    def run(self) -> Always:
        self._copy()
        self.agent.run()
        return self

    def states(self) -> dict[str, bytes]:
        return Worker.states(self.agent)  # type: ignore[arg-type]


# ---- goes on --------------------------------------------------------------------------------------------------------


def test_it_equals_a_learner_that_ran_with_the_new_settings_all_along(
    ended: System, folder: Path, tmp_path: Path
) -> None:
    result = saved(ended, folder)
    always = Always(ended, tmp_path / "always").run()
    made = promote(ended, folder)
    assert (made.before, made.number) == (1, 2)
    worker = Worker(ended)
    assert worker.generation.number == 2
    assert worker.states() == always.states()
    go_on(ended)
    assert worker.run().states() == always.run().states()
    # A restart goes on from its own checkpoints.
    go_on(ended, "again")
    assert Worker(ended).run().states() == always.run().states()
    ours, theirs = recorded(ended.log, "opml", 2), recorded(always.log, "opml", 1)
    offsets = {} if result.saved is None else result.saved.birth.start_offsets
    assert set(ours) == {(p, at) for p, at in theirs if at >= offsets[p]}
    assert all((o.counts, o.step) == (theirs[at].counts, theirs[at].step) for at, o in ours.items())


def test_the_first_output_of_each_chain_has_no_predecessor_and_metrics_take_them_all(
    ended: System, folder: Path
) -> None:
    saved(ended, folder)
    promote(ended, folder)
    before = {p: ended.log.end(OUTCOMES, p) for p in range(2)}
    go_on(ended)
    Worker(ended).run()
    firsts: dict[bytes | None, int] = {}
    for p, start in before.items():
        for message in ended.log.read(OUTCOMES, p, start):
            identity = read_identity(message.headers)
            assert identity.position.generation == 2
            firsts[message.key] = firsts.get(message.key, 0) + (identity.previous is None)
    assert firsts == {space.encode(): 1 for space in SPACES}
    rows = _metrics(ended)
    for space in SPACES:
        told = [o for o in recorded(ended.log, "opml").values() if o.space == space]
        assert rows[space].totals.seen == sum(o.counts.seen for o in told)
        assert rows[space].step == max(o.step for o in told if o.generation == 2)


def _metrics(system: System) -> dict[str, Any]:
    agent = Agent(metrics_spec(system.settings), system.settings, system.log, system.root)
    agent.run()
    rows: dict[str, Any] = {}
    for runner in agent.runners.values():
        assert isinstance(runner.machine, MetricsMachine)
        assert not runner.machine.counts["adopted"]
        rows |= {row.space: row for row in runner.machine.tallies.snapshot().rows if row.learner == "opml"}
    return rows


def test_constraints_that_both_generations_learn_are_told_and_counted_twice(
    ended: System, folder: Path
) -> None:
    saved(ended, folder, end=Point(offset=8))
    made = planned_with_new_settings(ended, folder)
    assert {b.partition: (b.offset, b.ended, b.again, b.never, b.clean) for b in made.beginnings} == {
        p: (8, ended.log.end(CONSTRAINTS, p), ended.log.end(CONSTRAINTS, p) - 8, 0, True) for p in range(2)
    }
    made.carry_out()
    Worker(ended).run()
    once, again = recorded(ended.log, "opml", 1), recorded(ended.log, "opml", 2)
    assert set(again) == {(p, at) for p, at in once if at >= 8}
    rows = _metrics(ended)
    for space in SPACES:
        told = [o.counts.seen for o in (*once.values(), *again.values()) if o.space == space]
        assert rows[space].totals.seen == sum(told)


def planned_with_new_settings(system: System, folder: Path, **options: Any) -> Any:
    system.settings = changed(system)
    return planned(system, folder, **options)


def test_constraints_that_the_old_generation_did_not_reach_are_told(ended: System, folder: Path) -> None:
    ends = {p: ended.log.end(CONSTRAINTS, p) for p in range(2)}
    running = ended.settings
    go_on(ended)
    saved(ended, folder)
    made = planned_with_new_settings(ended, folder)
    assert {b.partition: (b.ended, b.again, b.never) for b in made.beginnings} == {
        p: (end, 0, ended.log.end(CONSTRAINTS, p) - end) for p, end in ends.items()
    }
    shutil.rmtree(folder)
    ended.settings = running
    saved(ended, folder, until_checkpoint=True)
    assert all(b.again == b.never == 0 for b in planned_with_new_settings(ended, folder).beginnings)


def test_an_old_generation_that_did_not_end_cleanly_is_told(make_system: MakeSystem, folder: Path) -> None:
    system = make_system()
    system.load()
    system.run_builders()
    Worker(system).run()  # and killed
    saved(system, folder)
    made = planned_with_new_settings(system, folder)
    assert [b.clean for b in made.beginnings] == [False, False]
    assert [b.ended for b in made.beginnings] == [system.log.end(CONSTRAINTS, p) for p in range(2)]


def test_a_killed_generation_is_followed_only_where_its_outcomes_are_not_counted_twice(
    ended: System, folder: Path
) -> None:
    running = ended.settings
    at = {p: ended.log.end(CONSTRAINTS, p) for p in range(2)}
    go_on(ended)
    killed = Worker(ended)
    for p in range(2):
        killed.step(p)
    killed.sink.confirm()
    reached = {p: ended.log.end(CONSTRAINTS, p) for p in range(2)}
    go_on(ended, "unread")
    saved(ended, folder, until_checkpoint=True)
    with pytest.raises(GenerationMismatch) as error:
        planned_with_new_settings(ended, folder)
    for p in range(2):
        assert (
            f"learner-opml generation 1 did not end cleanly on partition {p}: it may have emitted outcomes of records "
            f"up to offset {reached[p]}, its last checkpoint is at offset {at[p]}, and the state continues at {at[p]}: "
            f"{reached[p] - at[p]} records would count twice"
        ) in str(error.value)
    assert "wait until its /readyz answers 200" in str(error.value)
    assert newest_generation(ended.settings, "learner-opml") == 1
    # A state of the whole log repeats nothing; so does one of before, once the old generation has ended.
    shutil.rmtree(folder)
    ended.settings = running
    saved(ended, folder)
    assert [b.again for b in planned_with_new_settings(ended, folder).beginnings] == [0, 0]
    shutil.rmtree(folder)
    ended.settings = running
    Worker(ended).stop()
    saved(ended, folder, until_checkpoint=True)
    made = planned_with_new_settings(ended, folder)
    assert [(b.again, b.never, b.clean) for b in made.beginnings] == [(0, 0, True)] * 2


def test_a_replay_of_a_promoted_generation_equals_it_bit_for_bit(ended: System, folder: Path) -> None:
    saved(ended, folder)
    promote(ended, folder)
    go_on(ended)
    system_only_opml(ended)
    # Two spaces have new constraints, and of the third nothing was emitted by this generation.
    Worker(ended).run()
    result = ended.replay(Origin.CONSTRAINTS, compare=True)
    assert {c.verdict for c in result.comparisons} == {Agreement.EQUAL}
    assert result.claim.learners == ("opml",)
    ours = recorded(ended.log, "opml", 2)
    assert sum(c.seen for c in result.outcomes.values()) == sum(o.counts.seen for o in ours.values())


def test_a_replay_before_the_promoted_generation_has_emitted_anything_equals_it(
    ended: System, folder: Path
) -> None:
    saved(ended, folder)
    promote(ended, folder)
    system_only_opml(ended)
    ended.load(2, spaces=("a",), load="few")
    ended.run_builders()
    Worker(ended).run()
    result = ended.replay(Origin.CONSTRAINTS, compare=True)
    assert {c.verdict for c in result.comparisons} == {Agreement.EQUAL}
    assert {key for key, c in result.outcomes.items() if c.seen} == {("opml", "a")}


def system_only_opml(system: System) -> None:
    learners = {"opml": system.settings.learners["opml"]}
    system.settings = system.settings.model_copy(update={"learners": learners})


def test_a_what_if_of_a_promoted_generation_begins_where_its_state_began(ended: System, folder: Path) -> None:
    saved(ended, folder)
    promote(ended, folder)
    go_on(ended)
    Worker(ended).stop()
    again = what_if(ended, settings=changed(ended, gamma=0.2), save=str(folder) + "-2")
    assert all(start == 0 for start, _ in again.replayed.ranges.values())
    assert not any(side.unmatched for side in again.sides)
    assert {n for found in again.recorded for n in found.by_generation} == {1, 2}
    ended.settings = changed(ended, gamma=0.2)
    made = planned(ended, Path(str(folder) + "-2"))
    assert (made.before, made.number) == (2, 3)
    made.carry_out()
    assert Worker(ended).generation.number == 3


def test_a_generation_after_a_promoted_one_inherits_from_it(ended: System, folder: Path) -> None:
    saved(ended, folder)
    promote(ended, folder)
    worker = Worker(ended, new=True)  # before the promoted one was ever started
    assert worker.generation.number == 3
    birth = worker.generation.birth
    assert (birth.inherits, birth.promotion) == (2, None)
    assert {name for r in worker.runners.values() for name in r.machine.names()} == set(SPACES)


def test_a_what_if_that_begins_with_inherited_spaces_is_replayed_as_it_began(
    make_system: MakeSystem, folder: Path, tmp_path: Path
) -> None:
    system = make_system(builders={"one-pass": {"kind": "one-pass", "seed": 3}})
    system_only_opml(system)
    system.load(6)
    system.run_builders()
    Worker(system).stop()
    Worker(system, new=True).stop()
    system.load(6, spaces=("a", "d"), load="second")
    system.run_builders()
    Worker(system).stop()
    result = saved(system, folder)
    assert result.saved is not None
    assert (result.saved.birth.inherits, result.saved.inherited) == (1, (0, 1))
    # Space b has no constraints in the range, and is there all the same: with its epoch, and nothing learned.
    made = promote(system, folder)
    assert made.taken_over == ()
    system.load(3, load="third")
    system.run_builders()
    Worker(system).run()
    found = system.replay(Origin.CONSTRAINTS, compare=True)
    assert {c.verdict for c in found.comparisons} == {Agreement.EQUAL}
    assert {m.space: m.step > 0 for m in found.models} == dict.fromkeys(SPACES, True)


def test_a_generation_that_is_over_may_be_deleted(ended: System, folder: Path) -> None:
    Worker(ended, new=True).stop()
    saved(ended, folder)
    promote(ended, folder)
    assert opened(ended).birth.inherits == 1
    for number in ("1", "2"):
        shutil.rmtree(ended.root / "learner-opml" / number)
    go_on(ended)
    Worker(ended).stop()
    # So may the one before a generation that was not promoted, as soon as that has checkpoints.
    fourth = Worker(ended, new=True)
    go_on(ended, "more")
    fourth.stop()
    shutil.rmtree(ended.root / "learner-opml" / "3")
    go_on(ended, "most")
    assert Worker(ended).run().generation.number == 4


def test_the_first_generation_of_a_new_learner_may_be_promoted(ended: System, folder: Path) -> None:
    fresh = learner_section(kind="oasis")
    ended.settings = ended.settings.model_copy(
        update={"learners": {**ended.settings.learners, "fresh": fresh}}
    )
    what_if(ended, "fresh", ended.settings, save=str(folder))
    made = planned(ended, folder)
    assert (made.learner, made.number, made.before) == ("fresh", 1, None)
    with failpoints.installed("checkpoint.after-manifest=raise@1"), pytest.raises(RuntimeError):
        made.carry_out()
    # Nobody may take what is there for a first start, nor begin one beside it.
    assert newest_generation(ended.settings, "learner-fresh") is None
    for options in ({}, {"create": True}, {"new": True, "from_start": True}):
        with pytest.raises(GenerationMismatch, match=r"did not end|no birth record"):
            opened(ended, "fresh", **options)
    planned(ended, folder).carry_out()
    worker = Worker(ended, "fresh")
    assert (worker.generation.number, worker.step(0), worker.step(1)) == (1, 0, 0)


def test_what_operators_decided_holds_in_the_new_generation(ended: System, folder: Path) -> None:
    system_only_opml(ended)
    go_on(ended)
    last = ended.log.end(CONSTRAINTS, 0) - 1
    Parking(str(ended.root), "learner-opml", 1).skip(CONSTRAINTS, 0, last)
    Worker(ended).stop()
    saved(ended, folder)
    # Of a record that neither has met.
    Parking(str(ended.root), "learner-opml", 1).skip(CONSTRAINTS, 0, last + 4)
    opened(ended).accept_gap(1, 10_000)
    promote(ended, folder)
    generation = opened(ended)
    assert generation.place(0).skipped == {last, last + 4}
    assert not generation.place(1).skipped
    assert generation.place(1).accepted_gaps == {10_000}
    go_on(ended, "then")
    Worker(ended).run()
    result = ended.replay(Origin.CONSTRAINTS, compare=True)
    assert {c.verdict for c in result.comparisons} == {Agreement.EQUAL}
    assert result.dead == {"learner-opml": {"skipped": 2}}


# ---- killed ---------------------------------------------------------------------------------------------------------


def hits(system: System, folder: Path, tmp_path: Path) -> list[str]:
    """Every failpoint of a promotion of that state with the number of the hit, found by trying on a copy."""
    found = []
    real = system.root
    for place in PLACES:
        for number in range(1, 40):
            shutil.copytree(real, tmp_path / "trial")
            trial = system.settings.checkpoints.model_copy(update={"url": str(tmp_path / "trial")})
            before, system.settings = (
                system.settings,
                system.settings.model_copy(update={"checkpoints": trial}),
            )
            try:
                with failpoints.installed(f"{place}=raise@{number}"):
                    planned(system, folder).carry_out()
                break
            except RuntimeError:
                found.append(f"{place}=raise@{number}")
            finally:
                system.settings = before
                shutil.rmtree(tmp_path / "trial")
    return found


def test_killed_at_any_point_it_has_not_begun_and_the_same_command_completes_it(
    ended: System, folder: Path, tmp_path: Path
) -> None:
    saved(ended, folder)
    old = ended.settings
    ended.settings = new = changed(ended)
    undisturbed = tmp_path / "undisturbed"
    points = hits(ended, folder, tmp_path)
    # Of two partitions the files of three spaces, and before and after each manifest.
    assert len(points) >= 7
    shutil.copytree(ended.root, undisturbed)
    ended.settings = _at(new, undisturbed)
    planned(ended, folder).carry_out()
    expected = _without_times(files(undisturbed))
    for point in points:
        root = tmp_path / "killed"
        shutil.copytree(ended.root, root)
        ended.settings = _at(new, root)
        with failpoints.installed(point), pytest.raises(RuntimeError):
            planned(ended, folder).carry_out()
        # No new generation: the old one goes on with its settings, and nobody begins another in its place.
        assert newest_generation(ended.settings, "learner-opml") == 1, point
        ended.settings = _at(old, root)
        assert Worker(ended).stop().generation.number == 1
        with pytest.raises(GenerationMismatch, match="promotion to generation 2 was begun and did not end"):
            opened(ended, new=True)
        ended.settings = _at(new, root)
        made = planned(ended, folder)
        assert made.resumed
        made.carry_out()
        assert _without_times(files(root)) == expected, point
        assert newest_generation(ended.settings, "learner-opml") == 2
        shutil.rmtree(root)


def _at(settings: Any, root: Path) -> Any:
    checkpoints = settings.checkpoints.model_copy(update={"url": str(root)})
    return settings.model_copy(update={"checkpoints": checkpoints})


def _without_times(found: dict[str, bytes]) -> dict[str, bytes]:
    """Files of the new generation, without what names a moment of the clock."""
    kept = {}
    for name, data in found.items():
        if name.startswith("learner-opml/2/"):
            content = json.loads(data)["content"] if name.endswith(("birth.json", ".manifest.json")) else None
            if content is not None:
                moments = {n: v for n, v in content.items() if n not in ("created_ms", "written_ms")}
                data = json.dumps(moments, sort_keys=True).encode()
            kept[name] = data
    return kept


def test_killed_between_its_birth_record_and_its_number_it_is_completed(
    ended: System, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(ended, folder)
    ended.settings = changed(ended)

    def die(*arguments: Any) -> None:
        raise RuntimeError("killed")

    for name in ("_decide", "_save", "make_newest"):
        with monkeypatch.context() as patched:
            patched.setattr(f"kinstream.streams.operations.promotion.{name}", die)
            with pytest.raises(RuntimeError, match="killed"):
                planned(ended, folder).carry_out()
        assert newest_generation(ended.settings, "learner-opml") == 1
        pinned = learner_section(generation=2, gamma=0.05, scaler="unit")
        before = ended.settings
        ended.settings = before.model_copy(update={"learners": {"opml": pinned}})
        with pytest.raises(GenerationMismatch, match="did not end"):
            opened(ended)
        ended.settings = before
    planned(ended, folder).carry_out()
    assert Worker(ended).generation.number == 2


def test_killed_after_its_last_file_it_is_done(ended: System, folder: Path) -> None:
    saved(ended, folder)
    made = promote(ended, folder)
    before = files(ended.root)
    # Also beside workers that have begun meanwhile.
    ended.members = {"kinstream-learner-opml-v2": 1}
    again = planned(ended, folder)
    assert (again.done, again.number, again.before) == (True, made.number, 1)
    again.carry_out()
    assert files(ended.root) == before
    assert newest_generation(ended.settings, "learner-opml") == 2


def test_a_save_that_was_killed_is_no_state_and_its_remains_are_not_built_upon(
    ended: System, folder: Path
) -> None:
    with failpoints.installed("checkpoint.after-manifest=raise@2"), pytest.raises(RuntimeError):
        saved(ended, folder)
    with pytest.raises(CheckpointError, match=r"what-if\.json: does not exist"):
        planned_with_new_settings(ended, folder)
    with pytest.raises(SettingsError, match="remains of an interrupted replay"):
        saved(ended, folder)


@pytest.mark.parametrize("seed", range(6))
def test_killed_while_it_goes_on_it_ends_in_the_same_bits(
    seed: int, ended: System, folder: Path, tmp_path: Path
) -> None:
    saved(ended, folder)
    always = Always(ended, tmp_path / "always").run()
    promote(ended, folder)
    go_on(ended)
    rng = random.Random(seed)
    places = sorted(name for name in failpoints.NAMES if name.startswith(("agent.", "checkpoint.")))
    worker, crashes = Worker(ended), 0
    while any(ended.log.read(CONSTRAINTS, p, r.machine.next_offset) for p, r in worker.runners.items()):
        with failpoints.installed(f"{rng.choice(places)}=raise@{rng.randint(1, 2)}"):
            try:
                for p in rng.sample(sorted(worker.runners), 2):
                    worker.step(p, rng.randint(1, 3))
                    if worker.runners[p].dirty and rng.random() < 0.6:
                        worker.runners[p].checkpoint()
            except RuntimeError:
                crashes += 1
                worker.sink.deliver(rng.randint(0, len(worker.sink.waiting)))
                worker = _restarted(ended)
    worker.run()
    assert crashes > 0
    assert worker.states() == always.run().states()
    ours = deduplicated(ended.log, OUTCOMES)
    assert {key: values[-1] for key, values in ours.items()}.keys() >= {(b"opml", s.encode()) for s in SPACES}
    told = recorded(ended.log, "opml", 2)
    theirs = recorded(always.log, "opml", 1)
    assert all((o.counts, o.step) == (theirs[at].counts, theirs[at].step) for at, o in told.items())
    assert len(told) == sum(len(ended.log.read(CONSTRAINTS, p, 0)) for p in range(2)) - len(
        recorded(ended.log, "opml", 1)
    )


def _restarted(system: System) -> Worker:
    for _ in range(10):
        try:
            return Worker(system)
        except RuntimeError:
            continue
    raise AssertionError("restore never succeeds")


# ---- refused --------------------------------------------------------------------------------------------------------


def refused(
    system: System,
    folder: Path,
    message: str,
    kind: type[KinstreamError] = GenerationMismatch,
    learner: str | None = None,
    **options: Any,
) -> None:
    """A promotion is refused with that message, and writes nothing."""
    before = files(system.root)
    with pytest.raises(kind, match=message):
        planned(system, folder, learner, **options).carry_out()
    assert files(system.root) == before


def test_other_settings_are_refused_by_name_with_what_to_write(ended: System, folder: Path) -> None:
    saved(ended, folder)
    refused(ended, folder, r"setting learners\.\S+\.gamma: was 0\.05, is 0\.01")
    refused(ended, folder, r"setting learners\.\S+\.scaler: was \"unit\", is not set")
    refused(
        ended,
        folder,
        r'\[learners\.opml\]\nkind = "opml"\nfrom = \["one-pass"\]\ngamma = 0\.05\nscaler = "unit"',
    )


def test_another_learner_is_refused(ended: System, folder: Path) -> None:
    saved(ended, folder)
    refused(ended, folder, "was replayed as learner 'opml'", SettingsError, learner="copml")
    refused(ended, folder, r"no \[learners.lego\]", SettingsError, learner="lego")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": "other"}, "another cluster: it began on memory, this is other"),
        (
            {"topic_ids": {CONSTRAINTS: "new"}},
            "input topic kinstream.constraints was re-created: its id was id",
        ),
        ({"topic_ids": {OUTCOMES: "new"}}, "output topic kinstream.outcomes was re-created"),
    ],
)
def test_another_log_is_refused(
    ended: System, folder: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], message: str
) -> None:
    saved(ended, folder)
    ended.settings = changed(ended)
    for name, value in change.items():
        monkeypatch.setattr(MemoryCluster, name, value)
    refused(ended, folder, message)


def test_other_partition_counts_are_refused(ended: System, folder: Path) -> None:
    saved(ended, folder)
    ended.settings = changed(ended)
    ended.log.partitions = 3
    refused(ended, folder, "kinstream.constraints had 2 partitions and has 3")


def test_missing_partitions_are_refused(ended: System, folder: Path) -> None:
    saved(ended, folder, partitions=(1,))
    ended.settings = changed(ended)
    refused(ended, folder, "lacks partition 0 of kinstream.constraints")


def test_missing_spaces_are_refused_and_may_begin_with_what_was_declared(
    make_system: MakeSystem, folder: Path
) -> None:
    system = make_system()
    system.load(6)
    system.run_builders()
    where = {p: system.log.end(CONSTRAINTS, p) for p in range(2)}
    system.load(6, spaces=("a", "d"), load="second")
    system.run_builders()
    Worker(system).stop()
    # Retention has taken all that there was of space b.
    for p, start in where.items():
        system.log.entries[CONSTRAINTS, p] = system.log.read(CONSTRAINTS, p, start)
    saved(system, folder)
    system.settings = changed(system)
    refused(system, folder, "lacks 1 space that learner-opml generation 1 has: b")
    made = promote(system, folder, allow_missing_spaces=True)
    assert made.taken_over == ("b",)
    worker = Worker(system)
    space = worker.runners[0].machine.find("b")
    assert space is not None
    assert (space.epoch >= 0, space.step, space.core, space.emitted) == (True, 0, None, None)
    assert set(space.marks) == {"one-pass"}
    system.load(3, load="third")
    system.run_builders()
    worker.run()
    told = [o for o in recorded(system.log, "opml", 2).values() if o.space == "b"]
    assert len(told) == 3
    system_only_opml(system)
    assert "took spaces over (b)" in system.replay(Origin.CONSTRAINTS).claim.sentences[0]


def test_a_space_that_came_after_the_state_is_taken_over_without_its_marks(
    ended: System, folder: Path
) -> None:
    saved(ended, folder, end=Point(offset=1))
    ended.settings = changed(ended)
    refused(ended, folder, "lacks 1 space that learner-opml generation 1 has: b")
    promote(ended, folder, allow_missing_spaces=True)
    worker = Worker(ended).run()
    ours = recorded(ended.log, "opml", 2)
    assert sum(o.space == "b" for o in ours.values()) == sum(
        o.space == "b" for o in recorded(ended.log, "opml", 1).values()
    )
    assert worker.runners[0].machine.counts["adopted"] == 0


def test_a_log_that_no_longer_holds_the_offset_is_refused(ended: System, folder: Path) -> None:
    saved(ended, folder, end=Point(offset=8))
    ended.settings = changed(ended)
    ended.log.entries[CONSTRAINTS, 0] = ended.log.read(CONSTRAINTS, 0, 11)
    refused(
        ended,
        folder,
        "partition 0: the state needs offset 8, and the log now starts at 11: 3 records are gone",
    )


def test_a_log_that_ends_before_the_offset_or_holds_another_record_is_refused(
    ended: System, folder: Path
) -> None:
    saved(ended, folder)
    ended.settings = changed(ended)
    entries = ended.log.entries[CONSTRAINTS, 0]
    last = entries[-1]
    entries[-1] = type(last)(last.topic, 0, last.offset, 0, last.key, b"other", last.headers, last.previous)
    refused(ended, folder, f"the record at offset {last.offset} is not the one that was read")
    del entries[-3:]
    ended.log.ends[CONSTRAINTS, 0] -= 3
    refused(ended, folder, "the log ends at .*: this is another log")


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("pattern", ["what-if.json", "*.manifest.json", "partition@*", "a@*"])
@pytest.mark.parametrize("damage", [_flip, Path.unlink])
def test_a_damaged_state_is_refused(
    ended: System, folder: Path, pattern: str, damage: Callable[[Path], None]
) -> None:
    saved(ended, folder)
    ended.settings = changed(ended)
    path = next(iter(sorted(folder.rglob(pattern))))
    damage(path)
    refused(ended, folder, str(folder), CheckpointError)


def test_a_manifest_that_was_replaced_by_another_whole_one_is_refused(ended: System, folder: Path) -> None:
    saved(ended, folder)
    other = folder.with_name("other")
    what_if(ended, settings=changed(ended, gamma=0.3), save=str(other))
    ended.settings = changed(ended)
    for path in sorted(other.rglob("*")):
        if path.is_file() and path.name != RECORD:
            shutil.copy(path, folder / path.relative_to(other))
    refused(ended, folder, "not the manifest that the record names", CheckpointError)


def test_running_workers_are_refused(ended: System, folder: Path) -> None:
    saved(ended, folder)
    ended.settings = changed(ended)
    for number in (1, 2):
        ended.members = {f"kinstream-learner-opml-v{number}": 1}
        refused(ended, folder, f"generation {number} still has 1 members")


def test_a_number_that_is_taken_is_refused(ended: System, folder: Path) -> None:
    saved(ended, folder)
    what_if(ended, settings=changed(ended), save=str(folder) + "-2", end=Point(offset=9))
    ended.settings = changed(ended)
    ended.bear(learner_spec(ended.settings, "opml"), 2)
    refused(ended, folder, "generation 2 exists: it has a birth record")
    (ended.root / "learner-opml" / "2" / "birth.json").unlink()
    with failpoints.installed("checkpoint.after-manifest=raise"), pytest.raises(RuntimeError):
        planned(ended, folder).carry_out()
    refused(ended, Path(str(folder) + "-2"), "generation 2 exists: a promotion of another state")


def test_of_two_promotions_at_once_one_is_refused(ended: System, folder: Path) -> None:
    saved(ended, folder)
    what_if(ended, settings=changed(ended), save=str(folder) + "-2", end=Point(offset=9))
    ended.settings = changed(ended)
    first, second = planned(ended, folder), planned(ended, Path(str(folder) + "-2"))
    first.carry_out()
    before = files(ended.root)
    with pytest.raises(GenerationMismatch, match="generation 2 exists"):
        second.carry_out()
    assert files(ended.root) == before


def test_a_pinned_learner_is_refused(ended: System, folder: Path) -> None:
    saved(ended, folder)
    ended.settings = changed(ended)
    section = ended.settings.learners["opml"].model_copy(update={"generation": 1})
    ended.settings = ended.settings.model_copy(update={"learners": {"opml": section}})
    refused(ended, folder, "generation = 1 pins the learner")


def test_a_lost_store_is_refused(ended: System, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(ended, folder)
    ended.settings = changed(ended)
    shutil.rmtree(ended.root / "learner-opml")
    committed = {"kinstream-learner-opml-v1": {0: 3}}
    monkeypatch.setattr(MemoryCluster, "committed", lambda self, group, topic, n: committed.get(group, {}))
    refused(ended, folder, "its group kinstream-learner-opml-v1 has read this topic before")


def test_a_promoted_generation_without_its_checkpoints_is_never_begun_afresh(
    ended: System, folder: Path
) -> None:
    saved(ended, folder)
    promote(ended, folder)
    shutil.rmtree(ended.root / "learner-opml" / "2" / f"{CONSTRAINTS}-1")
    with pytest.raises(GenerationMismatch, match="began with checkpoints, and there is none here"):
        Worker(ended)


def test_folders_that_are_not_free_are_refused(ended: System, folder: Path) -> None:
    with pytest.raises(SettingsError, match="agents have their checkpoints there"):
        saved(ended, ended.root)
    with pytest.raises(SettingsError, match="leave out --space"):
        saved(ended, folder, space="a")
    saved(ended, folder)
    before = files(folder)
    with pytest.raises(SettingsError, match="it already holds a saved state"):
        saved(ended, folder)
    assert files(folder) == before


def test_a_state_says_what_it_was_made_from(ended: System, folder: Path) -> None:
    result = saved(ended, folder)
    found = StateFolder(str(folder)).read()
    assert found == result.saved
    assert (found.learner, found.beside, found.birth.cluster_id) == ("opml", 1, "memory")
    assert found.birth.settings["algorithm"] == "opml/3"
    assert found.birth.settings_digest == result.settings_digest
    assert (found.birth.input_topic_id, found.birth.input_partitions) == ("id", 2)
    assert dict(found.birth.start_offsets) == {p: ended.log.end(CONSTRAINTS, p) for p in range(2)}
    assert found.section == {"kind": "opml", "from": ["one-pass"], "gamma": 0.05, "scaler": "unit"}


def test_a_state_lies_in_any_store(ended: System) -> None:
    url = "memory://what-if-of-tests"
    what_if(ended, save=url)
    ended.settings = changed(ended)
    made = planned(ended, url)  # type: ignore[arg-type]
    made.carry_out()
    birth = read_birth(str(ended.root), "learner-opml", 2)
    assert birth is not None and birth.promotion is not None
    assert dict(birth.promotion.learned_from) == {0: 0, 1: 0}
