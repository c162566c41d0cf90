"""A what-if counts what the changed learner does, and holds it against what the running one wrote down."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinstream.learners.agent import learner_spec
from kinstream.replay.log.pipeline import state_digest
from kinstream.replay.log.sources import Point
from kinstream.replay.what_if.outcomes import Outcomes, SideBySide, Unmatched, side_by_side
from kinstream.replay.what_if.settings import as_toml, section_of, what_if_settings
from kinstream.replay.what_if.statistics import paired
from kinstream.streams.agents.generations.parking import Parking
from kinstream.streams.agents.letter import redrive
from kinstream.streams.errors import GenerationMismatch, LogGap, SettingsError
from kinstream.streams.records.codec.every_kind import encode
from kinstream.streams.records.identity import Identity, Position, read_identity
from kinstream.streams.records.values import Action, Control, Counts, Outcome, SampleBlock, Table
from tests.replay.conftest import MakeSystem
from tests.replay.promoting import OUTCOMES, changed, learner_section, recorded, total, what_if
from tests.replay.system import CONSTRAINTS, EVENTS, SPACES, System
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent, samples, settings

# ---- settings -------------------------------------------------------------------------------------------------------


def test_a_change_leaves_the_rest_of_the_section_and_null_takes_a_setting_out() -> None:
    running = settings()
    assert section_of(what_if_settings(running, "opml", {"scaler": "unit"}).learners["opml"]) == {
        "kind": "opml",
        "from": ["one-pass"],
        "gamma": 0.01,
        "scaler": "unit",
    }
    assert what_if_settings(running, "opml", {"gamma": None}).learners["opml"].arguments() == {}
    assert what_if_settings(running, "copml", {}).learners == running.learners


def test_another_kind_keeps_only_what_the_learner_follows() -> None:
    found = what_if_settings(settings(), "opml", {"kind": "oasis", "scaler": "unit"}).learners["opml"]
    assert section_of(found) == {"kind": "oasis", "from": ["one-pass"], "scaler": "unit"}


def test_a_section_may_come_from_elsewhere_and_what_is_pinned_stays() -> None:
    pinned = {"kind": "opml", "from": ["one-pass"], "generation": 1}
    running = settings(
        learners={"opml": pinned, "next": {"kind": "opml", "from": ["one-pass"], "gamma": 0.5}}
    )
    found = what_if_settings(running, "opml", {}, section="next").learners["opml"]
    assert (found.arguments(), found.generation) == ({"gamma": 0.5}, 1)
    other = settings(learners={"opml": {"kind": "copml", "from": ["one-pass"], "generation": 7}})
    found = what_if_settings(running, "opml", {}, others=other).learners["opml"]
    assert (found.kind, found.generation) == ("copml", 1)
    assert what_if_settings(running, "fresh", {}, section="next").learners["fresh"].generation is None


@pytest.mark.parametrize(
    ("learner", "changes", "message"),
    [
        ("lego", {}, r"no \[learners.lego\]"),
        ("opml", {"from": ["closure"]}, "'closure', but there is no such builder here"),
        ("opml", {"from": []}, r"\[learners.opml\] as changed: from"),
        ("opml", {"kind": 3}, r"\[learners.opml\] as changed: kind"),
    ],
)
def test_sections_that_cannot_be_are_refused(learner: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        what_if_settings(settings(), learner, changes)


def test_a_section_can_be_pasted_into_the_settings_file() -> None:
    section = {
        "kind": "opml",
        "from": ["a", "b"],
        "gamma": 1e-9,
        "raw": True,
        "n": 3,
        "s": 'x"y',
        "m": {"k v": 1.5},
    }
    assert tomllib.loads(as_toml("opml", section)) == {"learners": {"opml": section}}


# ---- the test -------------------------------------------------------------------------------------------------------


def test_the_interval_is_that_of_a_ratio_estimate_over_blocks() -> None:
    n, recorded, what_if = (np.array(v) for v in ([10, 20, 30, 0], [4, 6, 9, 0], [3, 2, 9, 0]))
    found = paired(n, recorded, what_if)
    # By hand: D = -5 / 60; residuals d - D n are -1/6, -14/6, 15/6.
    error = math.sqrt(3 / 2 * (1 + 196 + 225) / 36) / 60
    assert (found.blocks, found.constraints) == (3, 60)
    assert found.difference == pytest.approx(-5 / 60)
    assert found.low is not None and found.high is not None
    assert (found.high - found.low) / 2 == pytest.approx(1.959964 * error, rel=1e-6)
    assert found.p == pytest.approx(math.erfc(5 / 60 / error / math.sqrt(2)))
    assert (found.better, found.worse, found.equal, found.sign_p) == (2, 0, 1, 0.5)


def test_the_interval_holds_the_true_difference_as_often_as_it_says() -> None:
    rng = np.random.default_rng([7, 1])
    inside = 0
    for _ in range(400):
        n = rng.integers(5, 40, 80)
        hard = rng.beta(2, 5, 80)  # blocks differ, and both learners meet the same ones
        old, new = rng.binomial(n, hard), rng.binomial(n, hard * 0.9)
        found = paired(n, old, new)
        assert found.low is not None and found.high is not None
        inside += found.low <= -0.1 * 2 / 7 <= found.high
    assert 0.92 < inside / 400 < 0.98


def test_the_sign_test_is_that_of_scipy() -> None:
    from scipy.stats import binomtest

    n = np.full(40, 10)
    old = np.full(40, 5)
    new = old + np.repeat([-1, 1, 0], [22, 9, 9])
    assert paired(n, old, new).sign_p == pytest.approx(binomtest(9, 31).pvalue)


def test_too_little_says_nothing() -> None:
    one = paired(np.array([5]), np.array([2]), np.array([1]))
    assert one.difference == pytest.approx(-0.2)
    assert (one.low, one.high, one.p) == (None, None, None)
    none = paired(np.array([0]), np.array([0]), np.array([0]))
    assert (none.difference, none.sign_p, none.blocks) == (None, None, 0)
    same = paired(np.array([5, 6]), np.array([2, 3]), np.array([2, 3]))
    assert (same.difference, same.p, same.sign_p) == (0.0, 1.0, None)


# ---- two outcomes of a block ----------------------------------------------------------------------------------------


def outcome(space: str = "a", learner: str = "opml", generation: int = 1, **by_rule: Counts) -> Outcome:
    counts = sum(by_rule.values(), Counts())
    return Outcome(space, learner, generation, 0, "one-pass", 1, 0, counts, 0, dict(by_rule))


def test_rules_of_which_one_scored_fewer_are_counted_apart() -> None:
    side = SideBySide("opml", "a", 0)
    same = Counts(seen=4, scored=4, mistakes=2, utilised=3)
    lost = Counts(seen=3, scored=3, mistakes=1, rejected=1)
    side.add((0, 5), outcome(x=same, y=lost), outcome(x=same, y=Counts(seen=4, scored=4, mistakes=4)))
    assert (side.recorded, side.what_if, side.uneven, side.certain) == (same, same, 1, 4)
    assert (side.recorded_all.rejected, side.what_if_all.mistakes) == (1, 6)
    # Both left out one: as many, and perhaps not the same ones.
    side.add((0, 6), outcome(y=lost), outcome(y=lost))
    assert (side.recorded, side.certain) == (same + lost, 4)
    assert side.test().constraints == 7


def test_a_curve_has_every_constraint_once_in_the_order_of_the_log() -> None:
    side = SideBySide("opml", "a", 0)
    rng = np.random.default_rng([3])
    rows = {
        int(o): (int(n), int(n) // 2, int(n) // 3)
        for o, n in zip(rng.permutation(500), rng.integers(1, 9, 500), strict=True)
    }
    for offset, (n, old, new) in rows.items():
        counts = (Counts(seen=n, scored=n, mistakes=wrong) for wrong in (old, new))
        side.add((0, offset), *(outcome(x=c) for c in counts))
    curve = side.curve(40)
    assert 30 < len(curve) <= 40
    assert curve[-1].offset == 499
    assert curve[-1].constraints == sum(n for n, _, _ in rows.values())
    cut = curve[9]
    before = [rows[o] for o in range(cut.offset + 1)]
    assert cut.constraints == sum(n for n, _, _ in before)
    assert cut.recorded_so_far == sum(old for _, old, _ in before) / cut.constraints
    assert cut.what_if_so_far == sum(new for _, _, new in before) / cut.constraints
    part = [rows[o] for o in range(curve[8].offset + 1, cut.offset + 1)]
    assert cut.recorded == sum(old for _, old, _ in part) / sum(n for n, _, _ in part)
    assert [p.offset for p in side.curve(1)] == [499]


def note(outcomes: Outcomes, offset: int, value: Outcome, generation: int = 1, partition: int = 0) -> None:
    identity = Identity(value.learner, Position(generation, 0, offset, 0), CONSTRAINTS, partition, None)
    outcomes.take(value.space, identity, encode(value))


def test_what_has_no_counterpart_is_counted_by_reason() -> None:
    ranges = {0: (10, 100)}
    here, there = Outcomes(CONSTRAINTS, ranges), Outcomes(CONSTRAINTS, ranges)
    four = outcome(x=Counts(seen=4, scored=4))
    for offset in (10, 20, 30, 40, 50, 60):
        note(here, offset, four)
    for offset in (30, 50, 55):
        note(there, offset, four)
    note(there, 60, outcome(x=Counts(seen=3, scored=3)))
    note(there, 5, four)  # before the range
    note(there, 40, four, partition=3)  # a partition that is not replayed
    found = side_by_side("opml", there, here, births={0: 15}, trimmed={})
    assert [(s.space, s.blocks, dict(s.unmatched)) for s in found] == [
        (
            "a",
            2,
            {
                Unmatched.BEFORE_GENERATION: 1,
                Unmatched.LEFT_OUT: 2,
                Unmatched.OTHER_BLOCK: 1,
                Unmatched.ONLY_RECORDED: 1,
            },
        )
    ]
    there.first["a"] = 30
    found = side_by_side("opml", there, here, births={0: 15}, trimmed={"a": True})
    assert (found[0].unmatched[Unmatched.TRIMMED], found[0].unmatched[Unmatched.LEFT_OUT]) == (1, 1)
    note(here, 70, four)
    assert side_by_side("opml", there, here, births={}, trimmed={})[0].unmatched[Unmatched.NOT_YET] == 1


def test_of_several_generations_the_newest_counts_and_of_an_identity_the_first() -> None:
    outcomes = Outcomes(CONSTRAINTS, {0: (0, 9)}, frozenset({1, 2}))
    values = {n: outcome(generation=n, x=Counts(seen=n)) for n in (1, 2, 3)}
    for generation in (1, 1, 2, 1, 3):
        note(outcomes, 4, values[generation], generation)
    held = outcomes.read((0, 4))
    assert held is not None
    assert (held.generation, outcomes.again, +outcomes.by_generation) == (2, 1, {2: 1})


# ---- beside a running system ----------------------------------------------------------------------------------------


def test_the_same_settings_make_no_difference(system: System) -> None:
    result = what_if(system, settings=system.settings)
    assert {(side.learner, side.space) for side in result.sides} == {("opml", space) for space in SPACES}
    for side in result.sides:
        assert (
            side.recorded
            == side.what_if
            == side.recorded_all
            == total(recorded(system.log, "opml"), side.space)
        )
        assert side.certain == side.recorded.scored > 0
        assert not side.unmatched and not side.uneven
        assert (side.test().difference, side.test().equal) == (0.0, side.test().blocks)


def test_a_changed_setting_is_compared_with_what_was_recorded(system: System, tmp_path: Path) -> None:
    result = what_if(system)
    # The changed learner alone, over a log that holds the same constraints and nothing else.
    alone = MemoryLog(2)
    for p in range(2):
        alone.entries[CONSTRAINTS, p] = list(system.log.entries[CONSTRAINTS, p])
        alone.ends[CONSTRAINTS, p] = system.log.end(CONSTRAINTS, p)
    other = Agent(learner_spec(changed(system), "opml"), changed(system), alone, tmp_path / "other")
    other.run()
    ours, theirs = recorded(system.log, "opml"), recorded(alone, "opml")
    assert {side.space for side in result.sides} == set(SPACES)
    for side in result.sides:
        assert side.recorded == total(ours, side.space)
        assert side.what_if == total(theirs, side.space)
        assert side.recorded != side.what_if
        test = side.test()
        mine = [(ours[p].counts, theirs[p].counts) for p in ours if ours[p].space == side.space]
        assert test.better == sum(new.mistakes < old.mistakes for old, new in mine)
        assert test.worse == sum(new.mistakes > old.mistakes for old, new in mine)
    digests = {model.space: model.digest for model in result.replayed.models}
    assert digests == {space: state_digest(state) for space, state in other.states().items()}


def test_blocks_whose_outcomes_retention_has_taken_are_told_apart(system: System) -> None:
    whole = {side.space: side.blocks for side in what_if(system).sides}
    del system.log.entries[OUTCOMES, 0][:7]  # of spaces a and b
    left = recorded(system.log, "opml").values()
    held = {space: sum(o.space == space for o in left) for space in SPACES}
    found = {side.space: side for side in what_if(system).sides}
    assert {space: side.blocks for space, side in found.items()} == held
    assert {s: side.unmatched[Unmatched.TRIMMED] for s, side in found.items()} == {
        space: whole[space] - held[space] for space in SPACES
    }
    assert sum(whole.values()) == sum(held.values()) + 7


def test_blocks_that_the_learner_has_not_reached_are_told_apart(system: System) -> None:
    system.load(3, load="more")
    system.run_builders()
    found = {side.space: dict(side.unmatched) for side in what_if(system).sides}
    assert found == {space: {Unmatched.NOT_YET: 3} for space in SPACES}


def test_a_range_that_begins_in_the_middle_is_said_to_be_unfair(system: System) -> None:
    result = what_if(system, start=Point(offset=6))
    assert sum(side.blocks for side in result.sides) == sum(at >= 6 for _, at in recorded(system.log, "opml"))
    assert any("had learned before this range began (on 2 of 2 partitions)" in text for text in result.notes)
    assert result.replayed.input["learner-opml"]["adopted"] == 3
    assert not any("had learned before" in text for text in what_if(system).notes)


def test_what_the_learner_was_told_to_skip_is_skipped_by_the_what_if_too(system: System) -> None:
    system.load(3, load="later")
    system.builders["one-pass"].run()
    learner = system.learners["opml"]
    at = learner.runners[0].machine.next_offset
    Parking(str(system.root), learner.spec.application, 1).skip(CONSTRAINTS, 0, at)
    skipping = Agent(
        learner.spec,
        system.settings,
        system.log,
        system.root,
        place_changes=lambda p: {"skipped": frozenset({at}) if p == 0 else frozenset()},
    )
    skipping.run()
    result = what_if(system)
    assert result.replayed.dead == {"learner-opml": {"skipped": 1}}
    assert not any(side.unmatched for side in result.sides)


def test_what_a_crashed_learner_recorded_twice_counts_once(make_system: MakeSystem) -> None:
    system = make_system()
    system.load()
    system.builders["one-pass"].run()
    learner = system.learners["opml"]
    for p in range(2):
        learner.step(p, 5)
    learner.sink.deliver(len(learner.sink.waiting))
    system.learners["opml"] = Agent(learner.spec, system.settings, system.log, system.root)
    system.run()
    result = what_if(system, settings=system.settings)
    assert result.recorded[0].again == 10
    assert all(side.test().difference == 0.0 and not side.unmatched for side in result.sides)


def test_constraints_that_a_builder_sent_twice_are_learned_once_by_both(make_system: MakeSystem) -> None:
    system = make_system()
    system.load()
    builder = system.builders["one-pass"]
    builder.step(0, 7)
    builder.sink.deliver(6)
    builder.sink.waiting.clear()
    system.builders["one-pass"] = Agent(builder.spec, system.settings, system.log, system.root)
    system.run()
    result = what_if(system)
    assert result.replayed.input["learner-opml"]["duplicates"] == 6
    assert not any(side.unmatched for side in result.sides)


def test_resets_redrives_and_holes_are_matched(make_system: MakeSystem) -> None:
    system = make_system()
    system.load(4)
    for partition in range(2):
        system.log.hole(CONSTRAINTS, partition)
    system.log.append(EVENTS, b"d", encode(Control("d", Action.RESET, 5)))
    system.load(4, load="second")
    system.run()
    # A block of another dimension is refused, and redriven after a reset.
    system.log.append(EVENTS, b"a", encode(Control("a", Action.RESET, 6)))
    for value in samples("a", 3, d=5, load="wide"):
        system.log.append(EVENTS, b"a", value)
    system.run()
    result = what_if(system)
    assert sum(side.blocks for side in result.sides) == len(recorded(system.log, "opml"))
    assert not any(side.unmatched for side in result.sides)


def test_a_redriven_constraint_is_compared_under_its_own_place(system: System) -> None:
    system.log.append(CONSTRAINTS, b"a", b"\xc3\x01rubbish", _next_headers(system, "a"))
    for learner in system.learners.values():
        learner.run()
    letters = [m for p in range(2) for m in system.log.read("kinstream.dead-letters", p, 0)]
    for letter in letters:
        again = redrive(letter)
        system.log.append(again.topic, again.key, again.value, again.headers, again.partition)
    for learner in system.learners.values():
        learner.run()
    result = what_if(system)
    assert result.replayed.input["learner-opml"]["redriven"] == 1
    assert result.replayed.dead["learner-opml"] == {"undecodable": 2}
    assert not any(side.unmatched for side in result.sides)


def _next_headers(system: System, space: str) -> Any:
    last = [m for p in range(2) for m in system.log.read(CONSTRAINTS, p, 0) if m.key == space.encode()][-1]
    before = read_identity(last.headers)
    position = before.position._replace(offset=before.position.offset + 1)
    return Identity(before.emitter, position, before.topic, before.partition, before.position).headers()


def test_a_learner_that_does_not_run_is_compared_with_those_that_do(system: System) -> None:
    fresh = learner_section(kind="oasis")
    tried = system.settings.model_copy(update={"learners": {**system.settings.learners, "fresh": fresh}})
    result = what_if(system, "fresh", tried)
    assert {(side.learner, side.space) for side in result.sides} == {
        (learner, space) for learner in ("opml", "copml") for space in SPACES
    }
    assert "fresh" in {m.agent.removeprefix("learner-") for m in result.replayed.models}
    only = what_if(system, "fresh", tried, against=("copml",))
    assert {side.learner for side in only.sides} == {"copml"}
    with pytest.raises(GenerationMismatch, match="learner-fresh has no birth record"):
        what_if(system, "fresh", tried, until_checkpoint=True)


def test_pairs_that_are_never_scored_are_compared_by_what_they_changed(make_system: MakeSystem) -> None:
    system = make_system()
    # One class alone makes pairs of rows that follow each other, and no triplet.
    vectors = np.random.default_rng([2]).normal(size=(8, 4)).astype(np.float32)
    alone = SampleBlock("a", (Table("x", vectors),), np.zeros(8, np.int64), 900)
    system.log.append(EVENTS, b"a", encode(alone))
    system.load()
    system.run()
    result = what_if(system, "copml", what_if_settings(system.settings, "copml", {"gamma1": 1e-6}))
    sides = {side.space: side for side in result.sides}
    assert sides["a"].recorded.seen >= sides["a"].recorded.scored + 7
    assert sides["a"].what_if.utilised >= 7
    for side in sides.values():
        assert side.recorded == total(recorded(system.log, "copml"), side.space)
        assert side.test().constraints == side.recorded.scored == side.certain


def test_a_range_a_space_and_a_partition_narrow_it(system: System) -> None:
    whole = {side.space: side for side in what_if(system).sides}
    one = what_if(system, space="b")
    assert [(s.space, s.recorded, s.what_if) for s in one.sides] == [
        ("b", whole["b"].recorded, whole["b"].what_if)
    ]
    assert {side.space for side in what_if(system, partitions=(1,)).sides} == {"d"}
    half = what_if(system, end=Point(offset=5))
    assert sum(side.blocks for side in half.sides) == 10
    system.load(3, load="more")
    system.run_builders()
    stopped = what_if(system, until_checkpoint=True)
    assert not any(side.unmatched for side in stopped.sides)
    assert {s.space: s.what_if for s in stopped.sides} == {name: side.what_if for name, side in whole.items()}


def test_without_records_there_is_nothing_to_compare_with(system: System) -> None:
    for p in range(2):
        system.log.entries[OUTCOMES, p].clear()
    result = what_if(system)
    assert all(side.unmatched.total() and not side.blocks for side in result.sides)
    assert any("No recorded outcomes were found" in text for text in result.notes)


def test_outcomes_of_a_generation_on_another_log_are_not_compared(system: System) -> None:
    spec = system.learners["opml"].spec
    root = system.root / spec.application
    (root / "1" / "birth.json").unlink()
    system.bear(spec, 2, starts={0: 0, 1: 0})
    (root / "newest").write_text("2")
    result = what_if(system)
    assert all(not side.blocks for side in result.sides)
    assert result.recorded[0].outcomes == 0


def test_lost_constraints_stop_a_what_if_as_they_stop_the_learner(system: System) -> None:
    entries = system.log.entries[CONSTRAINTS, 0]
    del entries[len(entries) // 2]
    with pytest.raises(LogGap, match="kinstream accept-gap"):
        what_if(system)


def test_a_what_if_writes_nothing(system: System) -> None:
    before = {path: path.stat().st_mtime_ns for path in system.root.rglob("*")}
    ends = dict(system.log.ends)
    what_if(system, until_checkpoint=True)
    assert {path: path.stat().st_mtime_ns for path in system.root.rglob("*")} == before
    assert dict(system.log.ends) == ends


def test_two_what_ifs_end_in_the_same_bits(system: System) -> None:
    first, second = what_if(system), what_if(system)
    assert first.replayed.models == second.replayed.models
    assert [(s.recorded, s.what_if, s.curve()) for s in first.sides] == [
        (s.recorded, s.what_if, s.curve()) for s in second.sides
    ]
    assert first.settings_digest == second.settings_digest
