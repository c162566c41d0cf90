"""`kinstream replay`: its JSON, its tables, its status."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kinstream.cli.main import cli
from kinstream.streams.errors import KinstreamError, SettingsError
from tests.replay.conftest import MakeSystem
from tests.replay.system import CONSTRAINTS, System, connect

CONFIG = """
[checkpoints]
url = "{root}"
[topics]
partitions = 2
[builders.one-pass]
kind = "one-pass"
seed = 3
[learners.opml]
kind = "opml"
from = ["one-pass"]
gamma = 0.01
[learners.copml]
kind = "copml"
from = ["one-pass"]
"""
LEARNER_FIELDS = {
    *("learner", "space", "epoch", "step", "status", "seen", "scored", "mistakes", "utilised", "clipped"),
    *("rejected", "degenerate", "ignored", "loss_sum", "split_scored", "split_mistakes"),
    *("held_out", "mistake_rate", "utilisation", "held_out_events", "digest"),
}
FIELDS = {
    *(
        "source",
        "messages",
        "ranges",
        "learners",
        "builders",
        "input",
        "dead_letters",
        "bit_identical",
        "claim",
    ),
    *("versions", "comparisons"),
}


class Command:
    """Runs the command over a system in memory."""

    def __init__(self, system: System, config: Path) -> None:
        self.system = system
        self.config = config

    def __call__(self, *arguments: str, changes: Sequence[str] = ()) -> Result:
        root = ["--config", str(self.config), *(word for change in changes for word in ("--set", change))]
        result = CliRunner().invoke(cli, [*root, "replay", *arguments])
        if isinstance(result.exception, KinstreamError):
            raise result.exception
        return result

    def json(self, *arguments: str, status: int = 0, changes: Sequence[str] = ()) -> Any:
        result = self(*arguments, "--json", changes=changes)
        assert result.exit_code == status, result.output
        return json.loads(result.stdout)


@pytest.fixture
def command(make_system: MakeSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    system = make_system()
    system.load()
    system.run()

    connect(system.log, monkeypatch)
    config = tmp_path / "kinstream.toml"
    config.write_text(CONFIG.format(root=system.root.as_posix()))
    return Command(system, config)


@pytest.mark.long
@pytest.mark.parametrize("source", ["events", "constraints"])
def test_json_holds_counters_digests_claim_and_comparisons(command: Command, source: str) -> None:
    found = command.json("--from", source, "--compare")
    assert found.keys() == FIELDS
    assert all(row.keys() == LEARNER_FIELDS for row in found["learners"])
    assert {row["learner"] for row in found["learners"]} == {"opml", "copml"}
    assert all(len(row["digest"]) == 64 for row in found["learners"])
    row = found["learners"][0]
    assert row["mistake_rate"] == row["mistakes"] / row["scored"]
    assert row["utilisation"] == row["utilised"] / row["seen"]
    assert {c["verdict"] for c in found["comparisons"]} == {"equal"}
    assert found["bit_identical"]["learners"] == ["opml", "copml"]
    assert len(found["builders"]) == (3 if source == "events" else 0)


def test_the_counters_are_the_sums_of_what_the_agents_reported(command: Command) -> None:
    from kinstream.streams.records.codec.codec import decode
    from kinstream.streams.records.values import Outcome

    told: dict[tuple[str, str], int] = {}
    for partition in range(2):
        for message in command.system.log.read("kinstream.outcomes", partition, 0):
            record = decode(message.value, Outcome)
            assert isinstance(record, Outcome)
            place = (record.learner, record.space)
            told[place] = told.get(place, 0) + record.counts.mistakes
    found = command.json("--from", "events")["learners"]
    assert {(row["learner"], row["space"]): row["mistakes"] for row in found} == told


def test_tables_and_the_claim_are_for_people(command: Command) -> None:
    result = command("--learner", "opml", "--from", "constraints", "--until-checkpoint", "--compare")
    assert result.exit_code == 0
    for text in (
        "MISTAKE RATE",
        "UTILISATION",
        "checkpoints: 5 equal",
        "bit-identical to the agents: learner opml",
    ):
        assert text in " ".join(result.output.split())


def test_a_difference_is_status_1(command: Command) -> None:
    runner = command.system.learners["opml"].runners[0]
    runner.machine.counts["applied"] += 1
    command.system.load(1, load="more")
    command.system.run()
    found = command.json("--from", "constraints", "--compare", status=1)
    differing = [
        (c["agent"], c["space"], c["detail"]) for c in found["comparisons"] if c["verdict"] != "equal"
    ]
    assert differing == [("learner-opml", None, "differs in count.applied")]


def test_a_comparison_of_nothing_is_status_1(command: Command) -> None:
    assert command("--from", "constraints", "--compare", "--end", "1").exit_code == 1
    assert command("--from", "constraints", "--end", "1").exit_code == 0


def test_other_settings_end_as_they_would_in_the_settings_file_and_claim_nothing(command: Command) -> None:
    changes = ("learners.opml.gamma=0.25", 'learners.opml.scaler="unit"')
    before = {file: file.read_bytes() for file in command.system.root.rglob("*") if file.is_file()}
    tried = command.json("--learner", "opml", changes=changes)
    assert tried["bit_identical"] == {"learners": [], "builders": []}
    assert "the settings of learner-opml are not those of generation 1" in tried["claim"]
    assert {file: file.read_bytes() for file in command.system.root.rglob("*") if file.is_file()} == before
    plain = command.json("--learner", "opml")
    config = command.config.read_text()
    command.config.write_text(config.replace("gamma = 0.01", 'gamma = 0.25\nscaler = "unit"'))
    written = command.json("--learner", "opml")
    digests = [[row["digest"] for row in found["learners"]] for found in (tried, written, plain)]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--from", "events", "--start", "soon"), "neither an offset nor an ISO 8601 time"),
        (("--from", "events", "--learner", "lego"), r"no \[learners.lego\]"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    command: Command, arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        command(*arguments)


def test_a_lost_output_stops_the_replay_and_says_what_accepts_it(command: Command) -> None:
    from kinstream.streams.errors import LogGap

    entries = command.system.log.entries[CONSTRAINTS, 0]
    del entries[len(entries) // 2]
    with pytest.raises(LogGap, match="kinstream accept-gap"):
        command("--from", "constraints")
