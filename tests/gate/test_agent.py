"""The gate agent over a log: every decision once, at the same place, whatever crashes; and no record stops it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kinstream.gate.agent import GateMachine, decision_key, gate_spec
from kinstream.gate.core import SpaceGate
from kinstream.gate.values import Fate
from kinstream.streams.agents.letter import redrive
from kinstream.streams.agents.machine import Machine
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.codec.codec import decode_decision, encode
from kinstream.streams.records.gate import UNADAPTED, GateDecision, GateOrder, Order, Version
from kinstream.streams.records.identity import read_identity
from kinstream.streams.records.scores import Scores
from kinstream.streams.records.values import Action, Control, ModelVersion, Record
from kinstream.streams.settings import Settings
from tests.gate.gates import ITEMS, MODEL, SECRET, block, click, drafted
from tests.support.crashes import deduplicated, disturbed, letters
from tests.support.equal import same_states
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent, samples

NEWER = Version(1, 0, 200)
NEWEST = Version(1, 0, 300)
SPACES = ("docs", "shop", "news")
WIN, LOSS = 1, 0


def config(min_sessions: int = 12, **changes: Any) -> Settings:
    # The times of this log are its offsets, in milliseconds. So many lists of one side decide; see `lists`.
    section = {
        "every_minutes": 0.0001,
        "min_learned": 0,
        "late_minutes": 1,
        "min_sessions": min_sessions,
        "max_sessions": 400,
        "bought_votes": 0,
        "user_votes": 2,
        "per_user": 0,
        "per_item": 0,
        "burst_minutes": 0,
    }
    return Settings(**{"gate": {space: section for space in SPACES}, "gate_key": SECRET, **changes})


def lists(
    space: str, first: int, candidate: Version, serving: Version, place: int, n: int = 14
) -> Iterator[Record]:
    """Clicks that decide: n lists that one side wins, in records of both forms, and one of them again."""
    made = [drafted(first + k, candidate, serving, space=space) for k in range(n)]
    for k, list_id in enumerate(made[: n // 2]):
        # The queries of one comparison come again in the next.
        yield replace(click(list_id, place, space=space, user=f"u{k}"), query_item=f"query {k}")
    yield click(made[0], place, space=space)
    rest = [(list_id, (place,)) for list_id in made[n // 2 :]]
    yield block([*rest, ("an ordinary list", (0,))], space)


def events(space: str) -> Iterator[bytes]:
    """A model wins, another loses; forged ids, bad records, orders, a reset, and a model of the new epoch."""
    yield from samples(space, 25)
    yield encode(click("an ordinary list", 3, space=space))
    yield from map(encode, lists(space, 0, MODEL, UNADAPTED, WIN))
    yield b"\x00 of no use"
    yield encode(GateOrder(space, Order.RESUME, 5))
    yield from map(encode, lists(space, 100, NEWER, MODEL, LOSS))
    yield encode(click("ki1.forged", 1, space=space))
    yield encode(GateOrder(space, Order.PIN, 5, NEWEST, "by me"))
    yield from map(encode, lists(space, 200, MODEL, NEWEST, WIN))
    yield encode(GateOrder(space, Order.ROLLBACK, 5))
    yield encode(Control(space, Action.PAUSE, 5))
    yield encode(Control(space, Action.RESUME, 5))
    yield encode(GateOrder(space, Order.RESUME, 5))
    yield encode(Control(space, Action.RESET, 5))
    yield from map(encode, lists(space, 300, MODEL, UNADAPTED, WIN))
    yield encode(Control(space, Action.DELETE, 5))


def filled() -> MemoryLog:
    log = MemoryLog()
    made = {space: list(events(space)) for space in (*SPACES, "without a gate")}
    for number in range(max(map(len, made.values()))):
        for space, some in made.items():
            if number < len(some):
                log.append("kinstream.events", space.encode(), some[number])
    return log


def decisions(log: MemoryLog, space: str) -> list[GateDecision]:
    found = deduplicated(log, "kinstream.models").get((b"gate", decision_key(space)), [])
    return [decode_decision(value) for value in found]


def calm(root: Path) -> tuple[MemoryLog, Agent]:
    log = filled()
    agent = Agent(gate_spec(config()), config(), log, root)
    agent.run()
    return log, agent


def test_the_decisions_follow_from_the_log(tmp_path: Path) -> None:
    log, _ = calm(tmp_path)
    for space in SPACES:
        found = decisions(log, space)
        assert [(d.verdict.value, d.serving, d.challenger) for d in found] == [
            ("challenge", UNADAPTED, MODEL),
            ("promote", MODEL, None),
            ("challenge", MODEL, NEWER),
            ("retire", MODEL, None),
            ("pin", NEWEST, None),
            ("rollback", MODEL, None),
            ("resume", MODEL, None),
            ("begin", UNADAPTED, None),
            ("begin", UNADAPTED, None),
        ]
        assert [d.rank for d in found] == sorted(d.rank for d in found)
        assert found[4].reason == "ordered: by me"
        assert (found[1].losses, found[3].wins) == (0, 0)
        assert found[1].checks["tail_wins"] == found[1].wins
        # Of seven lists whose queries come again, some came back while the pause lasted.
        assert 1 <= found[3].losses - found[3].checks["tail_losses"] <= 7
        for decision in found:
            cause = log.read("kinstream.events", decision.partition, decision.offset)[0]
            assert cause.key == space.encode()
            assert decision.time_ms == cause.timestamp_ms
        reset, deleted = found[-2:]
        assert (reset.epoch, deleted.epoch) == (reset.offset, deleted.offset)
    assert set(deduplicated(log, "kinstream.models")) == {(b"gate", decision_key(space)) for space in SPACES}
    reasons = [reason for _, _, reason, _ in letters(log)]
    assert sorted(reasons, key=str) == [b"bad-shape"] * 3 + [b"forged-list"] * 3 + [b"undecodable"] * 3


@pytest.mark.parametrize("seed", range(8))
def test_random_crashes_change_nothing(seed: int, tmp_path: Path) -> None:
    calm_log, theirs = calm(tmp_path / "calm")
    log, rng = filled(), random.Random(seed)
    mine, crashes = disturbed(gate_spec(config()), config(), log, tmp_path / "rough", rng)
    assert crashes > 0
    assert deduplicated(log, "kinstream.models") == deduplicated(calm_log, "kinstream.models")
    assert letters(log) == letters(calm_log)
    assert same_states(mine.states(), theirs.states())


def test_a_replay_gives_the_same_decisions_at_the_same_offsets(tmp_path: Path) -> None:
    logs = [calm(tmp_path / name)[0] for name in ("one", "two")]
    for partition in range(2):
        first, second = ([*log.read("kinstream.models", partition, 0)] for log in logs)
        assert [(m.offset, m.key, m.value, m.headers) for m in first] == [
            (m.offset, m.key, m.value, m.headers) for m in second
        ]


def test_the_chain_of_a_space_has_no_gap(tmp_path: Path) -> None:
    log, _ = calm(tmp_path)
    for space in SPACES:
        before = None
        for partition in range(2):
            for message in log.read("kinstream.models", partition, 0):
                if message.key == decision_key(space):
                    identity = read_identity(message.headers)
                    new_epoch = before is None or identity.position.epoch > before.epoch
                    assert identity.previous == (None if new_epoch else before)
                    before = identity.position
        assert before is not None


def test_every_decision_names_the_model_up_to_which_none_challenges(tmp_path: Path) -> None:
    log, _ = calm(tmp_path)
    for space in SPACES:
        floor, challenger, epoch = UNADAPTED, None, 0
        for one in decisions(log, space):
            if one.epoch != epoch:
                floor, challenger, epoch = UNADAPTED, None, one.epoch
            # A challenger whose comparison has ended, and one that people took back.
            if challenger is not None and one.challenger != challenger:
                floor = max(floor, challenger)
            if one.verdict.value == "rollback":
                floor = max(floor, one.before)
            challenger = one.challenger
            assert one.floor == floor


def test_a_refused_order_is_obeyed_after_a_redrive(tmp_path: Path) -> None:
    log = MemoryLog(partitions=1)
    log.append("kinstream.events", b"docs", encode(GateOrder("docs", Order.PROMOTE, 5)))
    agent = Agent(gate_spec(config()), config(), log, tmp_path)
    agent.run()
    assert decisions(log, "docs") == []
    log.append("kinstream.events", b"docs", encode(click(drafted(0), 1)))
    letter = log.read("kinstream.dead-letters", 0, 0)[0]
    for _ in range(2):
        back = redrive(letter)
        log.append("kinstream.events", back.key, back.value, back.headers, back.partition)
    agent.run()
    assert [d.verdict.value for d in decisions(log, "docs")] == ["challenge", "promote"]
    assert counts(agent.runners[0].machine, "redriven", "redrives_ignored") == [1, 1]


def counts(machine: Machine, *names: str) -> list[int]:
    return [machine.counts[name] for name in names]


def test_records_of_other_spaces_are_not_even_decoded(tmp_path: Path) -> None:
    log = MemoryLog(partitions=1)
    log.append("kinstream.events", b"other", b"\x00 of no use")
    log.append("kinstream.events", b"docs", encode(click(drafted(0), 1)))
    agent = Agent(gate_spec(config()), config(), log, tmp_path)
    agent.run()
    machine = agent.runners[0].machine
    assert counts(machine, "not_followed", "applied") == [1, 1]
    assert list(machine.names()) == ["docs"]
    assert not letters(log)


def test_a_block_and_scores_give_the_same_evidence_as_plain_lists(tmp_path: Path) -> None:
    rng = random.Random(3)
    some = [(drafted(n), tuple(rng.sample(range(10), rng.randint(0, 3)))) for n in range(60)]
    states = []
    for form in ("lists", "block", "lists with scores", "block with scores"):
        log = MemoryLog(partitions=1)
        singles: list[Any] = [click(one, *places, user=f"u{n}") for n, (one, places) in enumerate(some)]
        records = [block(some)] if form.startswith("block") else singles
        if form.endswith("scores"):
            # The first has other names than the rest.
            records = [
                replace(
                    one, scores=Scores.of({name: [rng.random() for _ in range(rows)], "age": [None] * rows})
                )
                for one, name in zip(records, ["price", *["bm25"] * 59], strict=False)
                for rows in [len(ITEMS) * (60 if form.startswith("block") else 1)]
            ]
        for record in records:
            log.append("kinstream.events", b"docs", encode(record))
        all_counted = config(min_sessions=100)
        agent = Agent(gate_spec(all_counted), all_counted, log, tmp_path / form)
        agent.run()
        space = agent.runners[0].machine.find("docs")
        assert space is not None
        assert isinstance(space.core, SpaceGate)
        states.append((space.core.evidence, space.core.fates, space.core.impressions, space.core.challenger))
    assert states[1:] == states[:1] * 3
    assert sum(states[0][1][fate] for fate in (Fate.WON, Fate.LOST, Fate.TIED, Fate.SHOWN)) == 60


def test_other_settings_are_another_generation_and_neither_the_share_nor_the_key_is() -> None:
    shapes = [
        gate_spec(config(**changes)).shaping
        for changes in (
            {},
            {"gate_key": "another secret of the tests"},
            {"gate": {"docs": {"error": 0.01}}},
            {"gate": {space: {"share": 0.5, **section} for space, section in _plain().items()}},
        )
    ]
    assert shapes[0] != shapes[2]
    # A key may retire while a comparison runs; the share is the services' own matter.
    assert shapes[0] == shapes[1] == shapes[3]
    assert SECRET not in str(shapes)


def _plain() -> dict[str, dict[str, Any]]:
    return {name: section.model_dump(exclude={"share"}) for name, section in config().gate.items()}


def test_a_new_generation_goes_on_with_who_serves(tmp_path: Path) -> None:
    log = MemoryLog(partitions=1)
    for record in lists("docs", 0, MODEL, UNADAPTED, WIN):
        log.append("kinstream.events", b"docs", encode(record))
    old = Agent(gate_spec(config()), config(), log, tmp_path)
    old.run()
    machine = old.runners[0].machine
    space = machine.find("docs")
    assert space is not None
    place = machine.place
    fresh = gate_spec(config()).make_machine(place, lambda name: {})
    assert isinstance(fresh, GateMachine)
    fresh.inherit(machine.partition_state(), {"docs": space.state()})
    inherited = fresh.find("docs")
    assert inherited is not None
    assert isinstance(inherited.core, SpaceGate)
    assert (inherited.core.serving, inherited.core.challenger, inherited.emitted) == (MODEL, None, None)


def test_without_a_gate_there_is_nothing_to_run() -> None:
    with pytest.raises(SettingsError, match=r"no \[gate.SPACE\]"):
        gate_spec(Settings())


@pytest.mark.parametrize("key", ["", "short"])
def test_a_gate_needs_a_long_key(key: str) -> None:
    with pytest.raises(ValueError, match="at least 16 characters"):
        config(gate_key=key)


def test_followers_of_models_keep_the_newest_decision_and_no_model_has_its_key(tmp_path: Path) -> None:
    from kinstream.streams.operations.models import NewestModels

    log, _ = calm(tmp_path)
    version = ModelVersion("docs", "opml", "opml/1", 1, 0, 9, "c", 0, 7, "file:///m", "ab" * 32, 5)
    log.append("kinstream.models", b"docs/opml/1", encode(version))
    newest = NewestModels()
    for partition in range(2):
        newest.read(log.read("kinstream.models", partition, 0))
    assert newest.unreadable == []
    assert newest.models() == {("docs", "opml"): version}
