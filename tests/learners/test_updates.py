"""What a learner publishes of its changes: after each outcome, the same after a crash, and enough to follow the map."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinstream.learners.agent import learner_spec
from kinstream.learners.steps import KINDS
from kinstream.processors.agent import builder_spec
from kinstream.processors.base.builder import MAX_BLOCK_BYTES
from kinstream.search.updates.replica import At, MapReplica
from kinstream.streams.agents.generations.open_generation import open_generation
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.errors import GenerationMismatch, SettingsError
from kinstream.streams.records.codec.codec import decode_outcome, decode_update, encode
from kinstream.streams.records.values import Action, Control, Kind, ModelUpdate, Outcome
from kinstream.streams.settings import Settings
from kinstream.testing.blocks import block as block_of
from kinstream.testing.blocks import pair_blocks
from tests.streams.growing_system import GrowingCluster
from tests.streams.test_machine import Chain, _no_files, place
from tests.support.crashes import disturbed
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent, samples, settings

UPDATES, OUTCOMES = "kinstream.updates", "kinstream.outcomes"
SPACES = ("a", "b", "c")
LEGO: dict[str, Any] = {
    "kind": "lego",
    "unit": "published",
    "eta": 1e-3,
    "y_similar": 2.0,
    "y_dissimilar": 20.0,
}


def config(**changes: Any) -> Settings:
    section = LEGO | {"from": ["one-pass"], "publish_updates": True} | changes
    return settings(learners={"lego": section})


def spec_of(**changes: Any) -> AgentSpec:
    return learner_spec(config(**changes), "lego")


def filled(events: int = 10) -> MemoryLog:
    """Three spaces, of which one is reset half-way, as their builder leaves them."""
    log = MemoryLog(2)
    made = {space: samples(space, events) for space in SPACES}
    for number in range(events):
        for space in SPACES:
            log.append("kinstream.events", space.encode(), made[space][number])
        if number == events // 2:
            log.append("kinstream.events", b"b", encode(Control("b", Action.RESET, 1)))
    return log


def built(folder: Path) -> MemoryLog:
    log = filled()
    Agent(builder_spec(config(), "one-pass"), config(), log, folder / "builder").run()
    return log


def written(log: MemoryLog, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    return [(m.key, m.value) for p in range(log.partitions) for m in log.read(topic, p, 0)]


def updates(log: MemoryLog) -> list[ModelUpdate]:
    return [decode_update(value) for _, value in written(log, UPDATES)]


def same_maps(log: MemoryLog, agent: Agent) -> None:
    """A replica of each space, on the first announced model of its epoch, ends in the learner's own map."""
    for space, state in agent.states().items():
        mine = [u for u in updates(log) if u.space == space]
        epoch = max(u.epoch for u in mine)
        replica = MapReplica(space, "lego")
        first = min(u.step for u in mine if u.epoch == epoch)
        replica.announce(At(1, epoch, first), map_at(log, space, epoch, first))
        for update in mine:
            replica.take(update)
        assert not replica.behind and replica.at is not None
        assert replica.at.step == state["accepted"] > first
        assert np.linalg.norm(replica.map - state["G"]) <= 1e-12 * np.linalg.norm(state["G"])


def map_at(log: MemoryLog, space: str, epoch: int, step: int) -> Any:
    """The map at a step, from a learner of its own over the same constraints."""
    agent = Agent(spec_of(), config(), MemoryLog(2), Path("/nonexistent"))
    for runner in agent.runners.values():
        for message in log.read("kinstream.constraints", runner.machine.place.partition, 0):
            runner.machine.step(message)
            found = runner.machine.find(space)
            if found is not None and (found.epoch, found.step) == (epoch, step):
                return found.core.state()["G"]  # type: ignore[union-attr]
    raise AssertionError(f"no step {step} of {space}")


def test_every_outcome_that_moved_the_model_is_followed_by_its_update(tmp_path: Path) -> None:
    log = built(tmp_path)
    agent = Agent(spec_of(), config(), log, tmp_path / "learner")
    for partition, runner in agent.runners.items():
        for message in log.read("kinstream.constraints", partition, 0):
            before = {name: space.step for name in SPACES if (space := runner.machine.find(name)) is not None}
            outputs = runner.machine.step(message)
            if not outputs:
                continue
            assert outputs[0].topic == OUTCOMES and outputs[0].partition == partition
            outcome = decode_outcome(outputs[0].value)
            assert isinstance(outcome, Outcome)
            found = [decode_update(output.value) for output in outputs[1:]]
            assert {(o.topic, o.key, o.partition) for o in outputs[1:]} <= {(UPDATES, message.key, None)}
            old = before.get(outcome.space, 0) if outcome.step != outcome.counts.seen else 0
            assert bool(found) == (outcome.counts.seen > 0)
            for update in found:
                assert (update.base_step, update.step) == (old, outcome.step)
                assert (update.generation, update.epoch) == (outcome.generation, outcome.epoch)
                assert (update.topic, update.partition, update.offset) == (
                    message.topic,
                    partition,
                    message.offset,
                )
                assert update.time_ms == outcome.time_ms and update.whole == (old > 0)


def test_the_updates_lead_from_a_model_to_the_map(tmp_path: Path) -> None:
    log = built(tmp_path)
    agent = Agent(spec_of(), config(), log, tmp_path / "learner")
    agent.run()
    assert {u.epoch > 0 for u in updates(log) if u.space == "b"} == {False, True}
    assert [u.rank for u in updates(log) if not u.whole] == [0] * 4
    same_maps(log, agent)


@pytest.mark.long
def test_a_learner_restored_before_every_message_writes_the_same(tmp_path: Path) -> None:
    log, other = built(tmp_path), built(tmp_path / "other")
    Agent(spec_of(), config(), log, tmp_path / "learner").run()
    waiting = True
    while waiting:
        agent = Agent(spec_of(), config(), other, tmp_path / "restored")
        waiting = False
        for partition, runner in agent.runners.items():
            waiting |= agent.step(partition, 1) > 0
            runner.checkpoint()
    for topic in (OUTCOMES, UPDATES):
        assert written(log, topic) == written(other, topic) != []


@pytest.mark.parametrize("seed", [2, 3])
def test_a_crash_writes_some_of_them_again_and_nothing_else(seed: int, tmp_path: Path) -> None:
    calm, rough = built(tmp_path), built(tmp_path / "rough")
    Agent(spec_of(), config(), calm, tmp_path / "learner").run()
    agent, crashes = disturbed(spec_of(), config(), rough, tmp_path / "crashed", random.Random(seed))
    assert crashes > 0
    assert set(written(rough, UPDATES)) == set(written(calm, UPDATES))
    same_maps(rough, agent)


def test_the_setting_changes_no_outcome_and_no_generation(tmp_path: Path) -> None:
    log, plain = built(tmp_path), built(tmp_path / "plain")
    Agent(spec_of(), config(), log, tmp_path / "learner").run()
    silent = config(publish_updates=False)
    spec = learner_spec(silent, "lego")
    Agent(spec, silent, plain, tmp_path / "silent").run()
    assert spec.shaping == spec_of().shaping
    assert written(plain, UPDATES) == []
    assert written(plain, OUTCOMES) == written(log, OUTCOMES)


def learn(machine_spec: AgentSpec, blocks: list[Any]) -> list[list[ModelUpdate]]:
    chain = Chain(machine_spec.make_machine(place(machine_spec), _no_files))
    found = []
    for offset, one in enumerate(blocks):
        value = encode(one)
        outputs = chain(offset, value=value)
        found.append([decode_update(o.value) for o in outputs if o.topic == UPDATES])
    return found


def named(blocks: list[Any]) -> list[Any]:
    from dataclasses import replace

    return [replace(block, space="a", rules=("one-pass",)) for block in blocks]


def test_while_the_scaler_watches_nothing_can_be_added_up() -> None:
    blocks = named(pair_blocks(3, 5, messages=8, m=6))
    found = learn(spec_of(scaler="zscore", warm_up=25), blocks)
    whole = [update.whole for (update,) in found]
    assert whole == sorted(whole) and 2 <= whole.index(True) < 8


def test_a_block_that_only_counts_has_an_update_without_directions() -> None:
    X = np.random.default_rng(2).normal(size=(3, 4))
    first = block_of(X, np.array([[0, 1]]), Kind.PAIR)
    same = block_of(X, np.array([[1, 1], [2, 2]]), Kind.PAIR)
    found = learn(spec_of(), named([first, same]))
    (update,) = found[1]
    assert update.whole and (update.rank, update.base_step, update.step) == (0, 1, 3)


def test_a_block_of_which_nothing_counts_has_none() -> None:
    # Of pairs, COPML uses those of one rule alone.
    X = np.random.default_rng(2).normal(size=(3, 4))
    copml = settings(learners={"lego": {"kind": "copml", "from": ["one-pass"], "publish_updates": True}})
    pair = block_of(X, np.array([[0, 1]]), Kind.PAIR, rule="other")
    assert learn(learner_spec(copml, "lego"), named([pair])) == [[]]


@pytest.mark.long
def test_a_large_update_comes_in_parts_below_the_limit_of_a_block() -> None:
    d = 400
    first, block = named(pair_blocks(5, d, messages=2, m=200))
    spec = spec_of(loss="squared", eta=1e-7, y_similar=100.0, y_dissimilar=1_500.0)
    chain = Chain(spec.make_machine(place(spec), _no_files))
    chain(0, value=encode(first))
    outputs = [o for o in chain(1, value=encode(block)) if o.topic == UPDATES]
    assert len(outputs) > 2
    assert all(len(output.value or b"") <= MAX_BLOCK_BYTES for output in outputs)
    found = [decode_update(output.value) for output in outputs]
    assert [u.part for u in found] == list(range(len(found))) and {u.parts for u in found} == {len(found)}
    assert [u.first for u in found] == np.cumsum([0, *(len(u.V) for u in found[:-1])]).tolist()
    assert {u.rank for u in found} == {sum(len(u.V) for u in found)}
    replica = MapReplica("a", "lego")
    replica.announce(At(1, 0, found[0].base_step), np.eye(d))
    told = [one for update in reversed(found) for one in replica.take(update)]
    assert len(told) == 1 and not replica.behind


def test_a_kind_without_such_changes_is_refused() -> None:
    for kind in ("oasis", "pola", "mixture"):
        with pytest.raises(
            SettingsError, match=f"publish_updates: the changes of {kind}.*{', '.join(KINDS)}"
        ):
            learner_spec(
                settings(learners={"lego": {"kind": kind, "from": ["one-pass"], "publish_updates": True}}),
                "lego",
            )


def test_a_cluster_without_the_topic_serves_who_publishes_nothing(tmp_path: Path) -> None:
    topics = {f"kinstream.{role}": 2 for role in ("constraints", "outcomes", "models", "dead-letters")}
    cluster: Any = GrowingCluster(MemoryLog(2), topics)
    url = {"url": str(tmp_path)}
    silent = settings(learners={"lego": {**LEGO, "from": ["one-pass"]}}, checkpoints=url)
    open_generation(learner_spec(silent, "lego"), silent, cluster, create=True)
    section = {**LEGO, "from": ["one-pass"], "publish_updates": True}
    loud = settings(learners={"lego": section}, checkpoints=url)
    spec = learner_spec(loud, "lego")
    with pytest.raises(
        GenerationMismatch, match=r"topic kinstream\.updates does not exist: kinstream topics create"
    ):
        open_generation(spec, loud, cluster)
    cluster.counts[UPDATES] = 3
    assert open_generation(spec, loud, cluster).number == 1
