"""`kinstream replay`: its JSON, its tables, its status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from kinstream.cli.main import cli
from kinstream.streams.errors import KinstreamError, SettingsError
from tests.replay.conftest import MakeSystem
from tests.replay.system import CONSTRAINTS, MemoryCluster, System

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
    *("versions", "comparisons", "counterfactual", "held_out"),
}


class Command:
    """Runs the command over a system in memory."""

    def __init__(self, system: System, config: Path) -> None:
        self.system = system
        self.config = config

    def __call__(self, *arguments: str) -> Result:
        result = CliRunner().invoke(cli, ["--config", str(self.config), "replay", *arguments])
        if isinstance(result.exception, KinstreamError):
            raise result.exception
        return result

    def json(self, *arguments: str, status: int = 0) -> Any:
        result = self(*arguments, "--json")
        assert result.exit_code == status, result.output
        return json.loads(result.stdout)


@pytest.fixture
def command(make_system: MakeSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    system = make_system()
    system.load()
    system.run()

    class Connected(MemoryCluster):
        def __init__(self, kafka: object) -> None:
            super().__init__(system.log)

        def wait(self, seconds: float) -> None:
            """It is there."""

        def close(self) -> None:
            """Nothing is open."""

    monkeypatch.setattr("kinstream.streams.kafka.cluster.Cluster", Connected)
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


@pytest.mark.long
def test_other_settings_end_as_they_would_in_the_settings_file(command: Command) -> None:
    def digests(*arguments: str) -> list[str]:
        return [row["digest"] for row in command.json("--learner", "opml", *arguments)["learners"]]

    config = command.config.read_text()
    tried = digests("--set", "gamma=0.25", "--set", "scaler=unit")
    assert digests("--set", "learners.opml.gamma=0.25", "--set", "scaler=unit") == tried != digests()
    command.config.write_text(config.replace("gamma = 0.01", 'gamma = 0.25\nscaler = "unit"'))
    assert digests() == tried
    assert digests("--set", "gamma=null") != tried
    command.config.write_text(config.replace('kind = "opml"', 'kind = "oasis"').replace("gamma = 0.01", ""))
    oasis = digests()
    command.config.write_text(config)
    assert digests("--set", "kind=oasis") == oasis


def test_other_settings_make_no_claim_and_write_nothing(command: Command) -> None:
    before = {file: file.read_bytes() for file in command.system.root.rglob("*") if file.is_file()}
    found = command.json("--learner", "opml", "--set", "gamma=0.25")
    assert found["bit_identical"] == {"learners": [], "builders": []}
    assert "the settings of learner-opml are not those of generation 1" in found["claim"]
    assert {file: file.read_bytes() for file in command.system.root.rglob("*") if file.is_file()} == before


def test_a_data_set_needs_no_broker(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("kinstream.streams.kafka.cluster.Cluster")
    found = command.json(
        "--from", "sklearn:iris", "--space", "iris", "--learner", "opml", "--shuffle-seed", "2"
    )
    assert [(row["space"], row["seen"] > 100) for row in found["learners"]] == [("iris", True)]
    assert found["ranges"] == {}


def test_held_out_rows_are_graded(command: Command) -> None:
    options = ("--from", "sklearn:wine", "--space", "w", "--shuffle-seed", "2", "--hold-out", "0.4")
    found = command.json(*options)["held_out"]
    assert (found["train_rows"] + found["test_rows"], found["neighbours"]) == (178, 5)
    errors = {row["metric"]: row["error"] for row in found["errors"]}
    assert list(errors) == ["euclidean", "opml", "copml"]
    table = command(*options, "--learner", "opml").output
    for metric in ("euclidean", "opml"):
        assert f"{metric} {errors[metric]:.4f}" in " ".join(table.split())
    assert "5-NN ERROR" in table and "copml" not in table
    assert command.json(*options[:-2])["held_out"] is None


def test_learners_of_several_modalities_are_graded_beside_each_other(
    command: Command, tmp_path: Path
) -> None:
    draw = np.random.default_rng(5)
    y = draw.integers(0, 3, 240)
    path = tmp_path / "two.npz"
    shape, noise = draw.normal(size=(2, 240, 4))
    np.savez(path, y=y, shape=(shape + y[:, None]).astype(np.float32), noise=4.0 * noise)
    config = tmp_path / "kinstream.toml"
    config.write_text(
        config.read_text()
        + '[learners.omdml]\nkind = "omdml"\nfrom = ["one-pass"]\nbeta = 0.9\nmargin = 1.0\nscaler = "minmax"\n'
    )
    features = ("--features", "shape=shape", "--features", "noise=noise")
    found = command.json(
        "--from", f"file:{path}", "--space", "s", "--label", "y", "--hold-out", "0.3", *features
    )
    errors = {row["metric"]: row["error"] for row in found["held_out"]["errors"]}
    # OPML and COPML refuse blocks of two modalities: nothing has reached them.
    assert errors.pop("opml") is errors.pop("copml") is None
    assert list(errors) == [
        *("euclidean", "euclidean, shape alone", "euclidean, noise alone", "euclidean, minmax", "omdml")
    ]
    assert errors["omdml"] < errors["euclidean"] < errors["euclidean, noise alone"]


def test_a_file_is_read_with_the_options_that_loaded_it(command: Command, tmp_path: Path) -> None:
    rows = [f"{n % 5};{n % 3};{n}" for n in range(40)]
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["a;kind;n", *rows]))
    options = ("--features", "a", "--label", "kind", "--delimiter", ";", "--block-rows", "9")
    found = command.json("--from", f"file:{path}", "--space", "s", "--learner", "opml", *options)
    assert (found["messages"], found["learners"][0]["seen"]) == (5, 37)


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--from", "sklearn:iris"), "needs --space"),
        (("--from", "sklearn:iris", "--space", "s", "--compare"), "--compare: only for --from events"),
        (("--from", "log", "--space", "s"), "file:PATH or sklearn:NAME"),
        (("--from", "events", "--start", "soon"), "neither an offset nor an ISO 8601 time"),
        (("--from", "events", "--learner", "lego"), r"no \[learners.lego\]"),
        (("--set", "gamma=0.1"), "changes one learner"),
        (("--learner", "opml", "--learner", "copml", "--set", "gamma=0.1"), "changes one learner"),
        (("--learner", "opml", "--set", "gamma=0.1", "--compare"), "--compare checks states against"),
        (("--learner", "opml", "--set", "gama=0.1"), "opml has no setting gama"),
        (("--learner", "opml", "--set", "gamma=-1"), "gamma"),
        (("--learner", "opml", "--set", "topics.prefix=x"), "put it before: kinstream --set"),
        (("--learner", "opml", "--set", "from=[]"), r"\[learners.opml\] as changed: from"),
        (("--learner", "opml", "--set", 'from=["two-pass"]'), "no such builder here"),
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
