"""A replay ends in the state of the agents, bit for bit, and says when it cannot."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from kinstream.learners.held_out.judge import Judge
from kinstream.replay.log.agents import open_builder
from kinstream.replay.log.comparison import Agreement, Goal, SpaceComparison, newest_checkpoints
from kinstream.replay.log.guarantees import LogKind
from kinstream.replay.log.pipeline import VirtualLog, state_digest
from kinstream.replay.log.run import Result
from kinstream.replay.log.sources import Point
from kinstream.streams.agents.generations.generation import Generation
from kinstream.streams.agents.generations.parking import Parking
from kinstream.streams.agents.letter import redrive
from kinstream.streams.agents.machine import RecordsMissed
from kinstream.streams.errors import GenerationMismatch, SettingsError
from kinstream.streams.records.codec.codec import decode, encode
from kinstream.streams.records.held_out import HeldOut
from kinstream.streams.records.message import Output
from kinstream.streams.records.values import Action, Control, Outcome
from tests.replay.conftest import MakeSystem
from tests.replay.system import CONSTRAINTS, EVENTS, SPACES, System
from tests.support.memory_log import MemorySink
from tests.support.pipeline import CONFIG, Agent, samples, settings

TOPICS = (LogKind.EVENTS, LogKind.CONSTRAINTS)


def digests(result: Result, role: str = "learner") -> dict[tuple[str, str], str | None]:
    return {(m.agent, m.space): m.digest for m in result.models if m.agent.startswith(role)}


def agents_digests(system: System) -> dict[tuple[str, str], str | None]:
    return {
        (agent.spec.application, space): state_digest(state)
        for agent in system.learners.values()
        for space, state in agent.states().items()
    }


def differing(result: Result) -> list[SpaceComparison]:
    return [c for c in result.comparisons if c.verdict is not Agreement.EQUAL]


@pytest.mark.long
def test_replays_of_events_and_of_constraints_end_in_the_agents_state(system: System) -> None:
    of_events, of_constraints = (system.replay(origin) for origin in TOPICS)
    assert digests(of_events) == digests(of_constraints) == agents_digests(system)
    assert of_events.outcomes == of_constraints.outcomes
    assert len(digests(of_events)) == 6


@pytest.mark.long
@pytest.mark.parametrize("origin", TOPICS)
def test_verdicts_on_held_out_events_are_those_of_the_agents(
    make_system: MakeSystem, origin: LogKind
) -> None:
    sections = {name: {**section, "held_out": 0.3} for name, section in CONFIG["learners"].items()}
    system = make_system(learners=sections)
    system.load()
    system.run()
    told: dict[tuple[str, str], HeldOut] = {}
    for partition in range(2):
        for message in system.log.read("kinstream.outcomes", partition, 0):
            record = decode(message.value, Outcome)
            assert isinstance(record, Outcome)
            key = (record.learner, record.space)
            if record.held_out is not None:
                told[key] = told[key] + record.held_out if key in told else record.held_out
    result = system.replay(origin, compare=True)
    assert len(told) == 6 and result.held_out == told
    assert not differing(result)
    judges = {name: agent.judges() for name, agent in system.learners.items()}
    for (learner, space), found in told.items():
        assert np.asarray(judges[learner][space]["total.weights"]).tolist() == [found.block.weight] * 2
    # Another judge is another state.
    held = system.learners["opml"].runners[0].machine.open("a")
    assert isinstance(held.judge, Judge)
    held.judge._latest = {1: np.ones((2, 4))}
    system.learners["opml"].runners[0].machine.next_offset += 1
    system.learners["opml"].runners[0].checkpoint()
    # The checkpoint has an offset that the log has not reached: only the models are compared there.
    if origin is LogKind.EVENTS:
        assert {(c.agent, c.space) for c in differing(system.replay(origin, compare=True))} == {
            ("learner-opml", "a")
        }


@pytest.mark.parametrize("origin", TOPICS)
@pytest.mark.parametrize("until_checkpoint", [False, True])
def test_every_space_and_partition_equals_its_checkpoint(
    system: System, origin: LogKind, until_checkpoint: bool
) -> None:
    result = system.replay(origin, compare=True, until_checkpoint=until_checkpoint)
    assert not differing(result)
    # From constraints two partitions of two learners as a whole; from events those of the builder.
    wholes = 4 if origin is LogKind.CONSTRAINTS else 2
    spaces = 6 if origin is LogKind.CONSTRAINTS else 9
    assert len(result.comparisons) == wholes + spaces


@pytest.mark.long
@pytest.mark.parametrize("origin", TOPICS)
def test_a_replay_stops_at_the_checkpoints_of_a_system_that_goes_on(system: System, origin: LogKind) -> None:
    learned = agents_digests(system)
    system.load(load="later")
    for agent in system.builders.values():
        agent.run()
    system.learners["opml"].step(0)
    stopped = system.replay(origin, compare=True, until_checkpoint=True)
    assert not differing(stopped)
    assert digests(stopped) == learned
    if origin is LogKind.CONSTRAINTS:
        stops = {p: stop for p, (_, stop) in stopped.ranges.items()}
        assert stops == {p: r.checkpointed_offset for p, r in system.learners["opml"].runners.items()}
    whole = system.replay(origin, compare=True)
    assert not differing(whole)
    assert digests(whole) != learned


def test_checkpoints_that_are_pruned_while_they_are_read(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def newest(generation: Generation, partitions: Iterable[int]) -> dict[int, Goal]:
        found = newest_checkpoints(generation, partitions)
        read.append(generation.spec.application)
        if len(read) == 1 + len(system.learners):
            for turn in range(system.settings.checkpoints.keep):
                system.load(1, load=f"meanwhile {turn}")
                system.run()
        return found

    monkeypatch.setattr("kinstream.replay.log.run.newest_checkpoints", newest)
    result = system.replay(LogKind.EVENTS, compare=True)
    assert read[3:] == read[1:3] and len(read) == 5
    assert not [c for c in differing(result) if c.verdict is not Agreement.ELSEWHERE]
    assert {c.agent for c in result.comparisons if c.verdict is Agreement.EQUAL} >= set(read[1:3])


def test_two_learners_stop_at_their_own_checkpoints(system: System) -> None:
    system.load(load="later")
    system.builders["one-pass"].run()
    system.learners["copml"].run()
    result = system.replay(LogKind.CONSTRAINTS, compare=True, until_checkpoint=True)
    assert not differing(result)
    assert digests(result) == {
        (agent.spec.application, space): state_digest(state)
        for agent in system.learners.values()
        for space, state in agent.states().items()
    }


def test_what_a_crashed_builder_sends_again_changes_nothing(make_system: MakeSystem) -> None:
    crashed = make_system()
    crashed.load()
    builder = crashed.builders["one-pass"]
    builder.step(0, 7)
    builder.step(1, 5)
    builder.sink.deliver(6)
    builder.sink.waiting.clear()
    again = Agent(builder.spec, crashed.settings, crashed.log, crashed.root)
    crashed.builders["one-pass"] = again
    crashed.run()
    held = sum(len(crashed.log.read(CONSTRAINTS, p, 0)) for p in range(2))
    result = crashed.replay(LogKind.CONSTRAINTS, compare=True)
    assert not differing(result)
    assert result.input["learner-opml"]["duplicates"] == 6
    assert held == result.input["learner-copml"]["applied"] + 6
    assert digests(result) == digests(crashed.replay(LogKind.EVENTS)) == agents_digests(crashed)


def test_bad_records_redrives_resets_and_holes_are_replayed(make_system: MakeSystem) -> None:
    system = make_system()
    broken = samples("a", 4, load="broken")
    system.load(4)
    system.log.append(EVENTS, b"a", b"\xc3\x01rubbish")
    system.log.append(EVENTS, b"b", broken[0])
    for partition in range(2):
        system.log.hole(EVENTS, partition)
    system.log.append(EVENTS, b"d", encode(Control("d", Action.RESET, 5)))
    system.run()
    for partition in range(2):
        for letter in system.log.read("kinstream.dead-letters", partition, 0):
            system.log.append(*_record(redrive(letter)))
    system.load(4, load="second")
    system.run()
    for origin in TOPICS:
        result = system.replay(origin, compare=True)
        assert not differing(result), origin
        if origin is LogKind.EVENTS:
            assert result.dead["builder-one-pass"]["undecodable"] == 2
            assert result.input["builder-one-pass"]["redriven"] == 2


def _record(output: Any) -> tuple[Any, ...]:
    return output.topic, output.key, output.value, output.headers, output.partition


def test_a_record_that_an_operator_skipped_is_skipped(system: System) -> None:
    system.load(3, load="later")
    partition, builder = 0, system.builders["one-pass"]
    at = builder.runners[partition].machine.next_offset
    Parking(str(system.root), builder.spec.application, 1).skip(EVENTS, partition, at)
    skipping = Agent(
        builder.spec,
        system.settings,
        system.log,
        system.root,
        place_changes=lambda p: {"skipped": frozenset({at}) if p == partition else frozenset()},
    )
    system.builders["one-pass"] = skipping
    system.run()
    result = system.replay(LogKind.EVENTS, compare=True)
    assert result.dead["builder-one-pass"] == {"skipped": 1}
    assert not differing(result)


@pytest.mark.long
def test_a_generation_that_goes_on_from_another_is_replayed_from_where_that_ended(system: System) -> None:
    system.log.append(EVENTS, b"a", encode(Control("a", Action.RESET, 5)))
    system.load(2, load="unread")
    system.run()
    ends = {p: system.log.end(EVENTS, p) for p in range(2)}
    spec = system.builders["one-pass"].spec
    system.bear(spec, 2, starts=ends, inherits=1)
    (system.root / spec.application / "newest").write_text("2")
    system.load(5, load="next")
    opened = open_builder(system.settings, "one-pass", system.cluster)
    assert opened.generation is not None
    for p, end in ends.items():
        runner = opened.generation.runner(p, MemorySink(system.log))
        runner.restore(end, 0, system.log.end(EVENTS, p))
        runner.work(system.log.read(EVENTS, p, end))
        runner.checkpoint()
    for learner in system.learners.values():
        learner.run()
    of_events = system.replay(LogKind.EVENTS, compare=True)
    assert not [c for c in differing(of_events) if c.agent == "builder-one-pass"]
    assert of_events.claim.learners == ()
    assert "generation 2" in of_events.claim.sentences[0]
    assert not differing(system.replay(LogKind.CONSTRAINTS, compare=True))


def test_one_space_is_replayed_and_compared_alone(system: System) -> None:
    for origin in TOPICS:
        result = system.replay(origin, "opml", space="b", compare=True)
        assert not differing(result)
        assert {c.space for c in result.comparisons} == {"b"}
        assert set(result.outcomes) == {("opml", "b")}
        assert digests(result) == {("learner-opml", "b"): agents_digests(system)["learner-opml", "b"]}


def test_one_partition_is_replayed_and_compared_alone(system: System) -> None:
    for origin in TOPICS:
        result = system.replay(origin, partitions=(1,), compare=True)
        assert set(result.ranges) == {1}
        assert {c.partition for c in result.comparisons} == {1}
        assert not differing(result)


@pytest.mark.long
def test_a_range_that_does_not_reach_the_checkpoint_is_elsewhere(system: System) -> None:
    for request in ({"end": Point(offset=3)}, {"start": Point(offset=2)}, {"end": Point(time_ms=3)}):
        for origin in TOPICS:
            result = system.replay(origin, compare=True, **request)
            spaces = [c for c in result.comparisons if c.space is not None]
            assert spaces
            if "end" in request or origin is LogKind.CONSTRAINTS:
                assert {c.verdict for c in spaces} == {Agreement.ELSEWHERE}
    assert not system.replay(LogKind.CONSTRAINTS, start=Point(offset=2)).claim.learners


def test_a_time_after_the_last_record_is_the_end(system: System) -> None:
    assert system.replay(LogKind.EVENTS, start=Point(time_ms=10_000)).messages == 0


def test_several_builders_of_one_space_leave_the_learner_unclaimed(make_system: MakeSystem) -> None:
    system = make_system(
        builders={"first": {"kind": "one-pass", "seed": 1}, "second": {"kind": "one-pass", "seed": 2}},
        learners={"opml": {"kind": "opml", "from": ["first", "second"]}},
    )
    system.load()
    system.builders["second"].run()
    system.run()
    of_events = system.replay(LogKind.EVENTS, compare=True)
    assert of_events.claim.builders == ("first", "second")
    assert of_events.claim.learners == ()
    assert not differing(of_events)
    assert {c.agent for c in of_events.comparisons} == {"builder-first", "builder-second"}
    of_constraints = system.replay(LogKind.CONSTRAINTS, compare=True)
    assert of_constraints.claim.learners == ("opml",)
    assert not differing(of_constraints)
    assert digests(of_constraints) == agents_digests(system) != digests(of_events)


def test_the_claim_of_each_origin(system: System) -> None:
    of_events, of_constraints = (system.replay(origin, "opml").claim for origin in TOPICS)
    assert (of_events.builders, of_events.learners) == (("one-pass",), ("opml",))
    assert (of_constraints.builders, of_constraints.learners) == ((), ("opml",))
    assert "from constraints is bit-identical" in " ".join(of_constraints.sentences)


def test_other_settings_are_replayed_without_a_claim(system: System) -> None:
    other = settings(learners={"opml": {"kind": "opml", "from": ["one-pass"], "gamma": 0.5}})
    system.settings = system.settings.model_copy(update={"learners": other.learners})
    result = system.replay(LogKind.CONSTRAINTS, compare=True)
    assert result.claim.learners == ()
    assert "settings of learner-opml are not those of generation 1" in result.claim.sentences[0]
    assert Agreement.DIFFERS in {c.verdict for c in result.comparisons}


def test_without_birth_records_there_is_a_condition_and_nothing_to_compare(
    system: System, tmp_path_factory: pytest.TempPathFactory
) -> None:
    empty = system.settings.checkpoints.model_copy(update={"url": str(tmp_path_factory.mktemp("empty"))})
    system.settings = system.settings.model_copy(update={"checkpoints": empty})
    result = system.replay(LogKind.CONSTRAINTS, "opml")
    assert digests(result) == {k: v for k, v in agents_digests(system).items() if k[0] == "learner-opml"}
    assert any("nothing here confirms" in sentence for sentence in result.claim.sentences)
    for request in ({"compare": True}, {"until_checkpoint": True}):
        with pytest.raises(GenerationMismatch, match="learner-opml has no birth record"):
            system.replay(LogKind.CONSTRAINTS, "opml", **request)


def test_unknown_names_are_refused(system: System) -> None:
    with pytest.raises(SettingsError, match=r"no \[learners.lego\]"):
        system.replay(LogKind.EVENTS, "lego")
    with pytest.raises(SettingsError, match="partitions 0 to 1, not 7"):
        system.replay(LogKind.EVENTS, partitions=(7,))


def test_a_replay_writes_nothing(system: System) -> None:
    before = {path: path.stat().st_mtime_ns for path in system.root.rglob("*")}
    ends = dict(system.log.ends)
    system.replay(LogKind.EVENTS, compare=True)
    assert {path: path.stat().st_mtime_ns for path in system.root.rglob("*")} == before
    assert dict(system.log.ends) == ends


def test_outputs_need_a_partition_in_the_virtual_log() -> None:
    log = VirtualLog("t")
    assert [log.append(Output("t", b"k", b"v", (), 3), 0).offset for _ in range(2)] == [0, 1]
    with pytest.raises(ValueError, match="names its partition"):
        log.append(Output("t", b"k", b"v", ()), 0)


# ---- two builders, each followed by its own learner -----------------------------------------------------------------

TWO: dict[str, Any] = {
    "builders": {
        "first": {"kind": "one-pass", "seed": 3},
        "second": {"kind": "random-triplets", "seed": 5},
    },
    "learners": {
        "opml": {"kind": "opml", "from": ["first"], "gamma": 0.01},
        "oasis": {"kind": "oasis", "from": ["second"]},
    },
}


@pytest.fixture
def two(make_system: MakeSystem) -> System:
    running = make_system(**TWO)
    running.load()
    running.run()
    return running


@pytest.mark.long
@pytest.mark.parametrize("origin", TOPICS)
@pytest.mark.parametrize("until_checkpoint", [False, True])
def test_each_learner_of_its_own_builder_equals_its_checkpoints(
    two: System, origin: LogKind, until_checkpoint: bool
) -> None:
    result = two.replay(origin, compare=True, until_checkpoint=until_checkpoint)
    assert not differing(result)
    assert digests(result) == agents_digests(two)
    assert result.claim.learners == ("opml", "oasis")
    compared = {(c.agent, c.space) for c in result.comparisons if c.space is not None}
    assert {(f"learner-{name}", space) for name in two.learners for space in SPACES} <= compared


@pytest.mark.long
@pytest.mark.parametrize("behind", ["opml", "oasis", "both"])
@pytest.mark.parametrize("ahead", ["first", "second", "both"])
def test_agents_that_stand_at_different_offsets_are_each_compared_at_their_own(
    two: System, behind: str, ahead: str
) -> None:
    """Every builder and learner goes on by itself, so that the checkpoints of no two of them belong together."""
    two.load(5, load="later")
    for name, builder in two.builders.items():
        if ahead in (name, "both"):
            builder.run()
    for turn, (name, learner) in enumerate(two.learners.items()):
        if behind not in (name, "both"):
            learner.step(0, 3 + turn)
            learner.step(1, 2 + turn)
            for runner in learner.runners.values():
                runner.checkpoint()
    stopped = two.replay(LogKind.EVENTS, compare=True, until_checkpoint=True)
    assert not differing(stopped)
    assert digests(stopped) == agents_digests(two)
    assert not differing(two.replay(LogKind.EVENTS, "opml", compare=True, until_checkpoint=True))
    assert not differing(two.replay(LogKind.EVENTS, compare=True, until_checkpoint=True, space="b"))


def test_a_replay_still_notices_records_that_its_client_drops(
    two: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = two.read_range

    def dropping(*arguments: Any) -> Any:
        for number, message in enumerate(read(*arguments)):
            if number != 4:
                yield message

    monkeypatch.setattr("kinstream.replay.log.sources.read_range", dropping)
    with pytest.raises(RecordsMissed):
        two.replay(LogKind.EVENTS, compare=True, until_checkpoint=True)
