"""`kinstream skip` and `kinstream accept-gap` write where the worker's next start reads."""

from __future__ import annotations

import json

import pytest

from kinstream.streams.agents.generations.birth import read_birth
from kinstream.streams.agents.generations.generation import Generation
from kinstream.streams.agents.generations.parking import Parking
from kinstream.streams.errors import CheckpointError, SettingsError
from tests.cli.system import EVENTS, System

CONSTRAINTS = "kinstream.constraints"


def test_a_skip_frees_the_parked_partition_and_says_what_will_happen(system: System) -> None:
    parking = Parking(str(system.root), "builder-one-pass", 1)
    for _ in range(3):
        parking.record_fault(EVENTS, 1, 5, "ValueError")
    result = system.cli("skip", "builder-one-pass", "--partition", "1", "--offset", "6")
    assert "stays parked at offset" in result.stdout
    told = json.loads(
        system.cli("skip", "builder-one-pass", "--partition", "1", "--offset", "6", "--json").stdout
    )
    assert told["parked_at"] == 5 and (told["topic"], told["partition"], told["offset"]) == (EVENTS, 1, 6)
    assert parking.parked_offset(EVENTS, 1) == 5
    result = system.cli("skip", "builder-one-pass", "--partition", "1", "--offset", "5")
    assert result.exit_code == 0, result.output
    assert "kinstream worker builder one-pass" in result.stdout
    assert parking.parked_offset(EVENTS, 1) is None
    assert parking.skipped(EVENTS, 1) == {5, 6}


def test_a_skip_behind_a_checkpoint_is_refused(system: System) -> None:
    system.samples("a", 4)
    system.run()
    partition = next(p for p in (0, 1) if system.log.end(EVENTS, p))
    result = system.cli("skip", "builder-one-pass", "--partition", str(partition), "--offset", "2")
    assert isinstance(result.exception, CheckpointError)


def fill(system: System) -> None:
    """The log of constraints ends at 12."""
    for _ in range(12):
        system.log.append(CONSTRAINTS, b"a", b"", partition=0)


def test_a_gap_beyond_the_end_of_the_log_is_refused(system: System) -> None:
    fill(system)
    result = system.cli("accept-gap", "opml", "--partition", "0", "--offset", "13")
    assert isinstance(result.exception, SettingsError)
    assert "--offset 13: kinstream.constraints partition 0 ends at 12" in str(result.exception)
    agent = next(a for a in system.agents if a.spec.name == "opml")
    birth = read_birth(str(system.root), "learner-opml", 1)
    assert birth is not None
    assert not Generation(agent.spec, system.settings, birth).accepted_gaps(0)


@pytest.mark.parametrize("name", ["opml", "learner-opml"])
def test_a_gap_is_accepted_by_either_name(system: System, name: str) -> None:
    fill(system)
    result = system.cli("accept-gap", name, "--partition", "0", "--offset", "12")
    assert result.exit_code == 0, repr(result.exception)
    assert "kinstream worker learner opml" in result.stdout
    told = json.loads(system.cli("accept-gap", name, "--partition", "0", "--offset", "12", "--json").stdout)
    assert told["application"] == "learner-opml" and (told["topic"], told["offset"]) == (CONSTRAINTS, 12)
    agent = next(a for a in system.agents if a.spec.name == "opml")
    birth = read_birth(str(system.root), "learner-opml", 1)
    assert birth is not None
    assert Generation(agent.spec, system.settings, birth).accepted_gaps(0) == {12}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("skip", "nobody", "--partition", "0"),
            "there are: builder-one-pass, learner-opml, learner-copml, metrics",
        ),
        (
            ("accept-gap", "opml", "--partition", "2"),
            "kinstream.constraints has no partition 2: its partitions are 0 to 1",
        ),
        (("skip", "metrics", "--partition", "0"), "metrics has no birth record"),
    ],
)
def test_what_cannot_be_decided_is_said(system: System, arguments: tuple[str, ...], said: str) -> None:
    result = system.cli(*arguments, "--offset", "3")
    assert isinstance(result.exception, SettingsError)
    assert said in str(result.exception)


def test_a_name_that_two_agents_share_must_be_told_apart(system: System) -> None:
    config = system.folder / "kinstream.toml"
    config.write_text(
        config.read_text(encoding="utf-8").replace("[learners.copml]", "[learners.one-pass]"), "utf-8"
    )
    result = system.cli("accept-gap", "one-pass", "--partition", "0", "--offset", "3")
    assert isinstance(result.exception, SettingsError)
    assert "builder-one-pass or learner-one-pass" in str(result.exception)
    assert system.cli("accept-gap", "builder-one-pass", "--partition", "0", "--offset", "0").exit_code == 0
