"""What the gate leaves out by a rule: kept with its reason, and sent again by people so that it counts exactly once."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from kinstream.gate.agent import gate_spec
from kinstream.gate.core import SpaceGate
from kinstream.gate.values import Fate
from kinstream.streams.agents.letter import redrive
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.message import Message
from kinstream.streams.settings import Settings
from tests.gate.gates import MODEL, SECRET, block, click, drafted
from tests.support.crashes import deduplicated, disturbed, letters
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent

EVENTS, LETTERS = "kinstream.events", "kinstream.dead-letters"
SPACES = ("docs", "shop")


def config(**section: Any) -> Settings:
    plain = {
        "min_learned": 0,
        "every_minutes": 0,
        "late_minutes": 1,
        "min_sessions": 400,
        "max_sessions": 400,
    } | section
    changes: dict[str, Any] = {"gate": dict.fromkeys(SPACES, plain), "gate_key": SECRET}
    return Settings(**changes)


def append(log: MemoryLog, record: Any, space: str = "docs") -> None:
    log.append(EVENTS, space.encode(), encode(record))


def send_again(log: MemoryLog, letter: Message) -> None:
    back = redrive(letter)
    log.append(EVENTS, back.key, back.value, back.headers, back.partition)


def letters_of(log: MemoryLog) -> list[tuple[str, str]]:
    return sorted(((reason or b"").decode(), (rows or b"").decode()) for _, _, reason, rows in letters(log))


def gate_of(agent: Agent, space: str = "docs") -> SpaceGate:
    for runner in agent.runners.values():
        found = runner.machine.find(space)
        if found is not None:
            assert isinstance(found.core, SpaceGate)
            return found.core
    raise AssertionError(space)


def test_each_list_that_a_rule_leaves_out_is_a_dead_letter_with_its_reason(tmp_path: Path) -> None:
    log = MemoryLog(partitions=1)
    # Of two lists of a user, one counts; of lists of one address, the first 16 count.
    for n in range(2):
        append(log, click(drafted(n), 1, user="greedy"))
    for n in range(10, 30):
        append(log, click(drafted(n), n % 2, user=f"u{n}", address="farm"))
    append(log, click(drafted(40), user="greedy"))
    agent = Agent(gate_spec(config(per_user=1, per_item=0)), config(), log, tmp_path)
    agent.run()
    gate = gate_of(agent)
    # Both rules about items see 19 clicks at most on one item within the window.
    assert letters_of(log) == [("burst-address", "0-9")] * 4 + [("capped-user", "0-9")]
    assert (gate.fates[Fate.CAPPED_USER], gate.fates[Fate.BURST_ADDRESS], gate.fates[Fate.SHOWN]) == (1, 4, 1)
    assert gate.evidence.wins + gate.evidence.losses == 17


def test_of_a_block_only_the_lists_that_were_left_out_come_again(tmp_path: Path) -> None:
    log = MemoryLog(partitions=1)
    append(log, block([(drafted(n), (1,) if n < 25 else (0,)) for n in range(50)]))
    spec = gate_spec(config(per_user=0, per_item=20))
    agent = Agent(spec, config(), log, tmp_path)
    agent.run()
    gate = gate_of(agent)
    assert (gate.evidence.wins, gate.evidence.losses, gate.fates[Fate.CAPPED_ITEM]) == (20, 20, 10)
    assert letters_of(log) == [("capped-item", "200-249,450-499")]
    (letter,) = log.read(LETTERS, 0, 0)
    for _ in range(3):
        send_again(log, letter)
    agent.run()
    assert (gate.evidence.wins, gate.evidence.losses, gate.impressions) == (25, 25, 50)
    machine = agent.runners[0].machine
    assert (machine.counts["redriven"], machine.counts["redrives_ignored"]) == (1, 2)
    assert len(machine.refusals) == 0


def test_a_list_that_is_sent_again_late_counts_and_its_client_cannot_add_to_it(tmp_path: Path) -> None:
    log = MemoryLog(partitions=1)
    for n in range(2):
        append(log, click(drafted(n), 1, user="u"))
    spec = gate_spec(config(per_user=1, per_item=0))
    agent = Agent(spec, config(), log, tmp_path)
    agent.run()
    (letter,) = log.read(LETTERS, 0, 0)
    # The client repeats its clicks, at once and when the list is too old.
    append(log, click(drafted(1), 1, user="u"))
    append(log, click(drafted(2, time_ms=90_000), user="u"))
    for _ in range(2):
        back = redrive(letter)
        log.append(EVENTS, back.key, back.value, back.headers, back.partition)
        append(log, click(drafted(1), 1, user="u"))
    agent.run()
    gate = gate_of(agent)
    assert (gate.evidence.wins, gate.impressions) == (2, 3)
    assert gate.fates[Fate.REPEATED] == 3 and gate.challenger == MODEL


def test_a_list_of_a_comparison_that_is_over_is_not_evidence_in_the_next_one(tmp_path: Path) -> None:
    log = MemoryLog(partitions=1)
    for n in range(30):
        append(log, click(drafted(n), 0, user=f"u{n}" if n else "u1"))
    spec = gate_spec(config(per_user=1, per_item=0, min_sessions=20))
    agent = Agent(spec, config(), log, tmp_path)
    agent.run()
    assert gate_of(agent).verdicts["retire"] == 1
    (letter,) = log.read(LETTERS, 0, 0)
    send_again(log, letter)
    agent.run()
    gate = gate_of(agent)
    assert (gate.challenger, gate.evidence.wins, gate.evidence.losses) == (None, 0, 0)
    assert agent.runners[0].machine.counts["redriven"] == 1


def filled(seed: int) -> MemoryLog:
    """Lists of few users and addresses in both forms, and redrives of what a calm run refuses, most of them twice."""
    rng, log = random.Random(seed), MemoryLog(partitions=2)
    for n in range(120):
        for space in SPACES:
            if n % 7:
                places = (rng.randrange(4),)
                record: Any = click(
                    drafted(n, space=space),
                    *places,
                    space=space,
                    user=rng.choice([None, None, None, "u", "v"]),
                    address=rng.choice([None, "a", "b"]),
                )
            else:
                record = block(
                    [(drafted(1_000 + 10 * n + k, space=space), (k % 3,)) for k in range(6)], space
                )
            append(log, record, space)
    return log


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_what_was_left_out_and_sent_again_counts_once_whatever_crashes(seed: int, tmp_path: Path) -> None:
    spec = gate_spec(config(per_user=5, per_item=40))
    log = filled(seed)
    calm = Agent(spec, config(), log, tmp_path / "first")
    calm.run()
    found = [m for p in range(2) for m in log.read(LETTERS, p, 0)]
    assert len(found) > 30 and {r.split("-")[0] for r, _ in letters_of(log)} == {"capped", "burst"}
    again = random.Random(seed).sample(found, 20)
    # The same log, and then the redrives; some twice.
    logs = [filled(seed), filled(seed)]
    for one in logs:
        for letter in [*again, *again[:12]]:
            send_again(one, letter)
    whole = Agent(spec, config(), logs[0], tmp_path / "whole")
    whole.run()
    broken, crashes = disturbed(spec, config(), logs[1], tmp_path / "broken", random.Random(seed))
    assert crashes > 0
    for space in SPACES:
        left, right = gate_of(whole, space), gate_of(broken, space)
        assert left.evidence == right.evidence and left.fates == right.fates
    assert letters(logs[0]) == letters(logs[1])
    assert deduplicated(logs[0], "kinstream.models") == deduplicated(logs[1], "kinstream.models")
    counts = [r.machine.counts for r in broken.runners.values()]
    assert sum(c["redriven"] for c in counts) == 20
    assert sum(c["redrives_ignored"] for c in counts) == 12
    # Each letter that was sent again has added its lists to the evidence, once.
    rows = sum(len(_lists(letter)) for letter in again)
    before = sum(_decided(gate_of(calm, space)) for space in SPACES)
    assert sum(_decided(gate_of(broken, space)) for space in SPACES) == before + rows


def _lists(letter: Message) -> set[int]:
    """The lists of a letter: each of them has ten impressions."""
    text = (dict(letter.headers)["kinstream-dead-rows"] or b"").decode()
    found: set[int] = set()
    for run in text.split(","):
        first, last = map(int, run.split("-"))
        found |= {row // 10 for row in range(first, last + 1)}
    return found


def _decided(gate: SpaceGate) -> int:
    return gate.evidence.wins + gate.evidence.losses
