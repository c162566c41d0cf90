"""`kinstream check` and `status`: what is wrong and what mends it, what runs."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kinstream.cli.main import cli
from kinstream.cli.system import checks
from kinstream.cli.system.first_settings import first_settings
from kinstream.streams.settings import Settings
from tests.cli.test_on_kafka import Operator
from tests.kafka.broker import KafkaBroker, reserve_port


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


def lines(result: Result) -> dict[str, str]:
    """The last line about each thing."""
    return {line[6:].partition(":")[0]: line for line in result.stdout.splitlines() if line[0] != " "}


def test_faults_of_the_settings_are_a_line(tmp_path: Path) -> None:
    file = tmp_path / "kinstream.toml"
    file.write_text("[builders.a]\nkind = 'one-pas'\n")
    result = run("--config", str(file), "check", "--json")
    assert result.exit_code == 1
    (found,) = json.loads(result.stdout)
    assert found["about"] == "settings" and "one-pass" in found["text"]


def test_a_store_that_refuses_and_brokers_that_are_away_are_both_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "ANSWER_SECONDS", 1.0)
    (tmp_path / "file").write_text("")
    with reserve_port() as reserved:
        file, address = tmp_path / "kinstream.toml", f"127.0.0.1:{reserved.getsockname()[1]}"
        file.write_text(first_settings("labels", address, str(tmp_path / "file")))
        result = run("--config", str(file), "check")
    assert result.exit_code == 1
    found = lines(result)
    assert found["checkpoints"].startswith("FAIL") and "checkpoints.url" in found["checkpoints"]
    assert found["brokers"].startswith("FAIL") and address in found["brokers"]
    assert found["packages of worker"].startswith("ok")


def test_a_missing_package_is_reported_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checks, "installed", lambda name: name != "psycopg")
    space = {"learner": "a", "backend": "pgvector", "collection": "docs"}
    settings = Settings(serve={"spaces": {"docs": space}})  # type: ignore[arg-type]
    found = {one.about: one for one in checks.packages(settings)}
    assert found["packages of serve"].good
    assert not found["packages of pgvector"].good
    assert found["packages of pgvector"].mend == "pip install 'kinstream[pgvector]'"


@pytest.mark.parametrize("ahead", [True, False])
def test_events_from_the_future_mean_that_clocks_differ(ahead: bool) -> None:
    def view(names: list[str]) -> Any:
        return SimpleNamespace(topics={name: SimpleNamespace(partitions=3) for name in names})

    cluster = SimpleNamespace(view=view, offset_at=lambda topic, one, ms: 7 if ahead and one == 2 else None)
    (found,) = checks._clock(cluster, Settings())  # type: ignore[arg-type]
    assert found.good is not ahead
    assert ("NTP" in found.mend) is ahead


@pytest.mark.long
@pytest.mark.kafka
def test_a_system_is_checked_and_shown_from_its_first_hour_on(
    kafka: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", kafka.bootstrap)
    system = Operator(tmp_path, "first-hour")
    config = Path(system.config)

    result = run("--config", system.config, "check")
    assert result.exit_code == 1
    assert "first-hour.events: missing -> kinstream topics create" in result.stdout
    system.cli("topics", "create")
    found = lines(system.cli("check"))
    assert {line[:4] for line in found.values()} == {"ok  "}
    assert "may begin" in found["learner-opml"] and "--create" in found["builder-one-pass"]

    # It has begun, and 4 records wait.
    system.run("builder", "one-pass")
    system.produce("space", "first", 4)
    assert "generation 1 fits" in lines(system.cli("check"))["builder-one-pass"]
    shown = run("--config", system.config, "status", "--json")
    assert shown.exit_code == 1, shown.output
    agents = {one["agent"]: one for one in json.loads(shown.stdout)["agents"]}
    assert agents["builder-one-pass"]["behind"] == 4 and agents["builder-one-pass"]["members"] == 0
    assert agents["learner-opml"]["generation"] is None
    system.run("builder", "one-pass")
    system.run("learner", "opml")
    metrics = system.run("metrics", "metrics")
    assert sum(machine.counts["applied"] for machine in metrics) > 0
    found_now = json.loads(run("--config", system.config, "status", "--json").stdout)
    assert {one["behind"] for one in found_now["agents"]} == {0}
    (model,) = found_now["models"]
    assert (model["space"], model["learner"]) == ("space", "opml") and model["step"] > 0
    assert 0.0 <= model["mistake_rate"] <= 1.0
    table = run("--config", system.config, "status").stdout
    assert "RECORDS BEHIND" in table and "MISTAKE RATE" in table and "space" in table

    # Other settings need a new generation.
    config.write_text(config.read_text().replace("gamma = 0.01", "gamma = 0.02"))
    result = run("--config", system.config, "check", "--json")
    (fault,) = (one for one in json.loads(result.stdout) if not one["good"])
    assert result.exit_code == 1 and fault["about"] == "learner-opml"
    assert "gamma" in fault["text"] and "--new-generation" in fault["text"]
    # Every line of a text is below its own.
    text = run("--config", system.config, "check").stdout
    assert all(line.startswith(("ok    ", "FAIL  ", "      ")) for line in text.splitlines())
