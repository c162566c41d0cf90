"""`kinstream init`: settings to begin with, from options or from answers at a terminal."""

from __future__ import annotations

import os
import pty
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kinstream.cli.main import cli
from kinstream.cli.shared.agents import agent_spec
from kinstream.cli.shared.context import checked
from kinstream.cli.system.first_settings import DATA, first_settings
from kinstream.streams.operations.checkpoints import agents


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


def steps(told: str) -> list[list[str]]:
    """The commands that `init` names at its end, as words."""
    return [shlex.split(step) for step in told.partition("Next: ")[2].split(";")]


@pytest.mark.parametrize("data", DATA)
def test_settings_to_begin_with_are_accepted_by_every_command(data: str, tmp_path: Path) -> None:
    file = tmp_path / "my settings.toml"
    given = ("--brokers", "a:1, [::1]:2", "--checkpoints", "s3://bucket/folder")
    result = run("init", "--data", data, *given, "-o", str(file))
    assert result.exit_code == 0, result.output
    named = ["kinstream", "--config", str(file)]
    assert steps(result.stderr) == [[*named, "check"], [*named, "topics", "create"], [*named, "up"]]
    settings = checked(str(file))
    assert settings.kafka.bootstrap_servers == "a:1,[::1]:2"
    assert settings.checkpoints.url == "s3://bucket/folder"
    (learner,) = settings.learners.values()
    assert set(learner.follows) == set(settings.builders)
    every = [agent_spec(settings, agent.role, agent.name) for agent in agents(settings)]
    assert [spec.application.partition("-")[0] for spec in every] == ["builder", "learner", "metrics"]


def test_the_service_in_the_comments_can_be_used(tmp_path: Path) -> None:
    file = tmp_path / "kinstream.toml"
    text, mark, service = first_settings("embeddings", "a:1", "./b").partition("# [serve")
    file.write_text(text + (mark + service).replace("# ", ""))
    assert checked(str(file)).serve.spaces["NAME"].learner == "ranking"


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "ü", "a'b", "#"])
def test_odd_characters_of_an_answer_stay_what_they_are(name: str) -> None:
    found = tomllib.loads(first_settings("labels", name, name))
    assert found["kafka"]["bootstrap_servers"] == found["checkpoints"]["url"] == name


def test_a_file_is_never_replaced(tmp_path: Path) -> None:
    file = tmp_path / "kinstream.toml"
    file.write_text("# mine")
    refused = run("init", "--data", "labels", "-o", str(file))
    assert refused.exit_code == 2 and "remove it" in refused.stderr
    assert file.read_text() == "# mine"


def test_without_a_terminal_the_data_must_be_given(tmp_path: Path) -> None:
    result = run("init", "-o", str(tmp_path / "a.toml"))
    assert result.exit_code == 2 and "--data is missing" in result.stderr


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("missing/a.toml", "missing is not a folder"),
        ("file/a.toml", "file is not a folder"),
        ("/dev/full", "/dev/full: No space left on device"),
    ],
)
def test_where_nothing_can_be_written_one_line_says_so(
    output: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    result = run("init", "--data", "labels", "-o", output)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith(f"Error: {told}") and "another file" in result.stderr


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--brokers", "", "not empty"),
        ("--brokers", " , ", "not empty"),
        ("--brokers", "nonsense", '"nonsense" is not'),
        ("--brokers", "a:1,localhost:99999", '"localhost:99999" is not'),
        ("--brokers", "me:secret@b:1", "without a user or a password"),
        ("--checkpoints", "", "not empty"),
        ("--checkpoints", "a\udcff", "can be printed"),
    ],
)
def test_an_option_that_cannot_be_right_is_refused_with_its_name(
    option: str, value: str, told: str, tmp_path: Path
) -> None:
    file = tmp_path / "a.toml"
    result = run("init", "--data", "labels", option, value, "-o", str(file))
    assert result.exit_code == 2 and not file.exists()
    assert f"Invalid value for '{option}'" in result.stderr and told in result.stderr
    assert "secret" not in result.stderr


def at_a_terminal(folder: Path, *answers: str, typed: bool = True) -> tuple[int, str]:
    """Status and text of `kinstream init` at a terminal, where these answers are typed if anything is."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "kinstream.cli.main", "init"],
        cwd=folder,
        stdin=theirs if typed else subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    os.write(ours, "".join(f"{answer}\n" for answer in answers).encode())
    found = b""
    # The other side of a terminal that nobody holds any more is an input error.
    while True:
        try:
            found += os.read(ours, 65536)
        except OSError:
            break
    os.close(ours)
    return process.wait(60), found.decode()


def test_at_a_terminal_it_asks_and_asks_again_after_a_wrong_answer(tmp_path: Path) -> None:
    status, told = at_a_terminal(tmp_path, "clikcs", "clicks", "nonsense", "a:1,b:2", "")
    assert status == 0, told
    assert "'clikcs' is not one of" in told and '"nonsense" is not' in told
    assert steps(told) == [["kinstream", "check"], ["kinstream", "topics", "create"], ["kinstream", "up"]]
    written = (tmp_path / "kinstream.toml").read_text(encoding="utf-8")
    assert written == first_settings("clicks", "a:1,b:2", "./checkpoints")


def test_where_nobody_can_answer_it_does_not_ask(tmp_path: Path) -> None:
    status, told = at_a_terminal(tmp_path, typed=False)
    assert status == 2 and "--data is missing" in told
