"""`kinstream replay` with a changed setting, and `kinstream models promote`: options, JSON, tables, statuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kinstream.cli.main import cli
from kinstream.streams.errors import GenerationMismatch, KinstreamError, SettingsError
from tests.replay.conftest import MakeSystem
from tests.replay.promoting import Worker, recorded, total
from tests.replay.system import CONSTRAINTS, SPACES, MemoryCluster, System

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
gamma = {gamma}
[learners.copml]
kind = "copml"
from = ["one-pass"]
[learners.strong]
kind = "opml"
from = ["one-pass"]
gamma = 0.25
"""


class Commands:
    """Runs commands over a system in memory."""

    def __init__(self, system: System, config: Path) -> None:
        self.system = system
        self.config = config
        self.configure(0.01)

    def configure(self, gamma: float) -> None:
        self.config.write_text(CONFIG.format(root=self.system.root.as_posix(), gamma=gamma))

    def __call__(self, *arguments: str, before: tuple[str, ...] = ()) -> Result:
        result = CliRunner().invoke(cli, ["--config", str(self.config), *before, *arguments])
        if isinstance(result.exception, KinstreamError):
            raise result.exception
        return result

    def json(self, *arguments: str) -> Any:
        result = self(*arguments, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)


@pytest.fixture
def commands(make_system: MakeSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    system = make_system()
    system.load()
    system.run_builders()
    Worker(system).stop()
    system.learners["copml"].run()

    class Connected(MemoryCluster):
        def __init__(self, kafka: object) -> None:
            super().__init__(system.log, system.members)

        def wait(self, seconds: float) -> None:
            """It is there."""

        def close(self) -> None:
            """Nothing is open."""

    monkeypatch.setattr("kinstream.streams.kafka.cluster.Cluster", Connected)
    return Commands(system, tmp_path / "kinstream.toml")


def test_json_holds_both_sides_the_test_the_curve_and_what_has_no_counterpart(commands: Commands) -> None:
    found = commands.json("replay", "--learner", "opml", "--set", "gamma=0.05", "--set", "scaler=unit")
    assert found["settings"] == {"kind": "opml", "from": ["one-pass"], "gamma": 0.05, "scaler": "unit"}
    assert [(row["against"], row["space"]) for row in found["comparisons"]] == [("opml", s) for s in SPACES]
    told = recorded(commands.system.log, "opml")
    for row in found["comparisons"]:
        counts = total(told, row["space"])
        assert row["recorded"]["mistakes"] == counts.mistakes
        assert row["recorded"]["mistake_rate"] == counts.mistakes / counts.scored
        assert row["what_if"]["scored"] == counts.scored == row["certain"]
        assert row["test"]["difference"] == pytest.approx(
            row["what_if"]["mistake_rate"] - row["recorded"]["mistake_rate"]
        )
        assert row["curve"][-1]["constraints"] == counts.scored
        assert row["curve"][-1]["what_if_so_far"] == row["what_if"]["mistake_rate"]
        assert set(row["unmatched"].values()) == {0}
        assert row["matched"]["by_generation"] == {"1": row["matched"]["blocks"]}
    assert found["recorded"][0]["outcomes"] == len(told)
    assert found["saved"] is None
    assert "sign test" in found["method"]
    assert len(found["models"]) == 3 and all(len(row["digest"]) == 64 for row in found["models"])


def test_the_same_model_comes_of_every_way_to_say_the_settings(commands: Commands, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(CONFIG.format(root="elsewhere", gamma=0.25))
    ways: list[tuple[str, ...]] = [
        ("--set", "gamma=0.25"),
        ("--set", "learners.opml.gamma=0.25"),
        ("--section", "strong"),
        ("--settings", str(other)),
        ("--settings", str(other), "--section", "copml", "--set", "kind=opml", "--set", "gamma=0.25"),
    ]
    models = [commands.json("replay", "--learner", "opml", *way)["models"] for way in ways]
    assert all(model == models[0] for model in models)
    whole = commands("--set", "learners.opml.gamma=0.25", "replay", "--learner", "opml", "--json")
    assert [row["digest"] for row in json.loads(whole.stdout)["learners"]] == [
        row["digest"] for row in models[0]
    ]


def test_tables_are_for_people(commands: Commands) -> None:
    result = commands(
        "replay", "--learner", "opml", "--set", "gamma=0.05", "--against", "opml", "--against", "copml"
    )
    text = " ".join(result.output.split())
    assert result.exit_code == 0
    for words in (
        "[learners.opml] kind",
        "gamma = 0.05",
        "MISTAKE RATE",
        "opml, recorded",
        "copml, recorded",
        "95 % INTERVAL",
        "where generation 1 of learner-opml began to learn, with nothing learned",
        "Difference of the mistake rates",
    ):
        assert words in text, words


def test_a_state_is_saved_and_promoted_and_the_worker_goes_on(commands: Commands, tmp_path: Path) -> None:
    folder = tmp_path / "what-if"
    found = commands.json("replay", "--learner", "opml", "--set", "gamma=0.05", "--save", str(folder))
    ends = {str(p): commands.system.log.end(CONSTRAINTS, p) for p in range(2)}
    assert found["saved"] == {"folder": str(folder), "digest": found["saved"]["digest"], "offsets": ends}
    with pytest.raises(GenerationMismatch, match=r"gamma: was 0\.05, is 0\.01"):
        commands("models", "promote", str(folder), "--learner", "opml")
    commands.configure(0.05)
    dry = commands.json("models", "promote", str(folder), "--learner", "opml", "--dry-run")
    assert (dry["written"], dry["generation"]) == (False, 2)
    assert not (commands.system.root / "learner-opml" / "2").exists()
    commands.system.members = {"kinstream-learner-opml-v1": 1}
    with pytest.raises(GenerationMismatch, match="generation 1 still has 1 members"):
        commands("models", "promote", str(folder))
    commands.system.members = {}
    result = commands("models", "promote", str(folder), "--learner", "opml")
    assert result.exit_code == 0
    for words in (
        "GENERATION 1 ENDED AT",
        "learner-opml: generation 2 begins",
        "kinstream worker learner opml",
    ):
        assert words in result.output
    assert "warning" not in result.output
    listed = commands.json("models", "list", "--checkpoints")
    told = {row["space"]: (row["generation"], row["sha256"]) for row in listed if row["learner"] == "opml"}
    assert {space: generation for space, (generation, _) in told.items()} == dict.fromkeys(SPACES, 2)
    with pytest.raises(GenerationMismatch, match=r"setting learners\.opml\.gamma"):
        commands("models", "promote", str(folder), before=("--set", "learners.opml.gamma=1.5"))


def test_what_is_counted_twice_or_never_is_a_warning(commands: Commands, tmp_path: Path) -> None:
    folder = str(tmp_path / "what-if")
    commands("replay", "--learner", "opml", "--set", "gamma=0.05", "--end", "5", "--save", folder)
    commands.configure(0.05)
    result = commands("models", "promote", folder, "--dry-run", "--allow-missing-spaces")
    ends = sum(commands.system.log.end(CONSTRAINTS, p) for p in range(2))
    assert (
        f"warning: {ends - 10} records were learned by generation 1 and will be learned by the new one"
        in result.output
    )
    assert "would begin" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--set", "gamma=0.1"), "plays one learner"),
        (("--learner", "opml", "--learner", "copml", "--set", "gamma=0.1"), "plays one learner"),
        (
            ("--learner", "opml", "--set", "gamma=0.1", "--compare"),
            "--compare checks states against checkpoints",
        ),
        (("--learner", "opml", "--set", "gamma=0.1", "--from", "events"), "--from constraints, not events"),
        (("--learner", "opml", "--set", "gamma=0.1", "--from", "sklearn:iris"), "--from constraints"),
        (("--learner", "opml", "--set", "gama=0.1"), "opml has no setting gama"),
        (("--learner", "opml", "--set", "gamma=-1"), "gamma"),
        (("--learner", "opml", "--set", "topics.prefix=x"), "put it before: kinstream --set"),
        (("--learner", "opml", "--section", "weak"), r"no \[learners.weak\]"),
        (("--learner", "opml", "--set", "gamma=1", "--against", "lego"), r"no \[learners.lego\]"),
        (("--learner", "opml", "--settings", "nowhere.toml"), "nowhere.toml"),
        (("--learner", "opml", "--save", "x", "--space", "a"), "leave out --space"),
        (("--learner", "opml", "--save", "nostore://x"), "nostore"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    commands: Commands, arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(KinstreamError, match=message):
        commands("replay", *arguments)


def test_a_plain_replay_reads_constraints_where_nothing_else_is_said(commands: Commands) -> None:
    assert commands.json("replay", "--learner", "opml")["source"] == "constraints"
    with pytest.raises(SettingsError, match="file:PATH or sklearn:NAME"):
        commands("replay", "--from", "log", "--space", "s")
