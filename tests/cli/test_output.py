"""What commands print: names in full at any width, plain columns where the output is piped, and our own words."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kinstream.cli.demo.summary import _print
from kinstream.cli.main import cli
from kinstream.cli.views.tables import echo_table
from kinstream.streams.errors import BrokerUnavailable
from kinstream.streams.kafka.embedded_broker import EmbeddedBroker
from kinstream.streams.settings import Settings
from kinstream.streams.topics import CATALOGUE
from tests.kafka.broker import reserve_port

ROOT = Path(__file__).resolve().parents[2]
PREFIX = "a-prefix-of-a-department-that-likes-its-names-to-be-long-and-clear"
DRAWN = set("─│━┃┏┡╇┓┩└┘┌┐├┤…")
TOML = f"""
[topics]
prefix = "{PREFIX}"
partitions = 2

[builders.one-pass]
kind = "one-pass"

[learners.opml]
kind = "opml"
from = ["one-pass"]
"""


@pytest.fixture(scope="module")
def brokers() -> Iterator[str]:
    broker = EmbeddedBroker(Settings.model_validate({"topics": {"prefix": PREFIX}}))
    yield broker.bootstrap_servers
    broker.close()


def at_80_columns(folder: Path, brokers: str, *command: str) -> str:
    """What a command prints to a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "kinstream.cli.main", *command],
        cwd=folder,
        env={**os.environ, "KAFKA_BOOTSTRAP_SERVERS": brokers, "PYTHONPATH": str(ROOT), "TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    found = b""
    # The other side of a terminal that nobody holds any more is an input error.
    while True:
        try:
            more = os.read(ours, 65536)
        except OSError:
            break
        if not more:
            break
        found += more
    os.close(ours)
    assert process.wait(120) == 0, found.decode()
    return found.decode().replace("\r\n", "\n")


def piped(folder: Path, brokers: str, *command: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "kinstream.cli.main", *command],
        cwd=folder,
        env={**os.environ, "KAFKA_BOOTSTRAP_SERVERS": brokers, "PYTHONPATH": str(ROOT), "COLUMNS": "40"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout


@pytest.mark.long
@pytest.mark.parametrize("printed", [at_80_columns, piped])
def test_topics_are_listed_with_their_names_in_full_and_a_line_each(
    tmp_path: Path, brokers: str, printed: object
) -> None:
    (tmp_path / "kinstream.toml").write_text(TOML, encoding="utf-8")
    assert callable(printed)
    text: str = printed(tmp_path, brokers, "topics", "create")
    # As awk -F '  +' takes them apart.
    # A terminal shows the warning of a small cluster before them.
    lines = [re.split(r" {2,}", line) for line in text.splitlines()[-len(CATALOGUE) :]]
    assert lines == [[topic.name(PREFIX), "exists"] for topic in CATALOGUE]
    assert not DRAWN & set(text) and "\x1b" not in text


@pytest.mark.long
def test_programs_get_the_topics_as_json(tmp_path: Path, brokers: str) -> None:
    (tmp_path / "kinstream.toml").write_text(TOML, encoding="utf-8")
    names = [topic.name(PREFIX) for topic in CATALOGUE]
    assert json.loads(piped(tmp_path, brokers, "topics", "create", "--json")) == dict.fromkeys(
        names, "exists"
    )


#: Commands that run until they are stopped, whose lines are logs; and `init`, whose result is a file.
NO_JSON = {"up", "demo", "worker", "serve", "vectors watch", "warm-up", "init"}


def commands(group: click.Group, *path: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        one = group.get_command(context, name)
        assert one is not None
        if isinstance(one, click.Group):
            yield from commands(one, *path, name)
        else:
            yield " ".join((*path, name)), one


def test_every_command_with_a_result_has_json() -> None:
    found = {
        name for name, command in commands(cli) if not any("--json" in one.opts for one in command.params)
    }
    assert found == NO_JSON


def test_a_cell_is_never_empty_and_a_row_never_two_lines(capsys: pytest.CaptureFixture[str]) -> None:
    echo_table(("SPACE", "NOTE", "LAST"), [("a\nb\x1b[2J", "", "x" * 300), ("c", "d e", 3)])
    header, first, second = capsys.readouterr().out.splitlines()
    assert re.split(r" {2,}", header) == ["SPACE", "NOTE", "LAST"]
    assert re.split(r" {2,}", first) == ["a\ufffdb\ufffd[2J", "-", "x" * 300]
    assert re.split(r" {2,}", second) == ["c", "d e", "3"]


def test_the_summary_of_a_demonstration_is_columns_where_it_is_piped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    long = "a-metric-with-a-name-that-is-longer-than-what-any-terminal-has-room-for-in-a-table-of-six-columns"
    _print("the title", ("metric", "5-NN error"), [(long, "0.1000"), ("opml", "")], "the caption")
    title, header, first, second, caption = capsys.readouterr().out.splitlines()
    assert (title, caption) == ("the title", "the caption")
    assert header.split("  ")[0] == "metric" and first.split() == [long, "0.1000"]
    assert second.split() == ["opml", "-"]


@pytest.mark.long
@pytest.mark.parametrize(
    "command",
    [
        ("topics", "create"),
        ("spaces", "create", "s", "--dimension", "3"),
        ("models", "list"),
        ("dead-letters", "list"),
        ("dead-letters", "show", "0/0"),
        ("dead-letters", "redrive", "--all", "--yes"),
        ("produce", "labelled", "sklearn:wine", "--space", "s"),
        ("replay",),
        ("evaluate", "--from", "events:s"),
        ("worker", "metrics", "--new-generation"),
    ],
    ids=" ".join,
)
def test_where_no_broker_answers_every_command_says_so_in_the_same_words(
    command: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "kinstream.toml").write_text(TOML, encoding="utf-8")
    with reserve_port() as reserved:
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", address)
        monkeypatch.chdir(tmp_path)
        result = CliRunner().invoke(cli, ["--set", "worker.startup_seconds=1", *command])
    assert isinstance(result.exception, BrokerUnavailable), result.exception
    told = str(result.exception)
    assert re.match(rf"No broker answers at {address}( within 1 s)?: check KAFKA_BOOTSTRAP_SERVERS", told)
    # This one waits for minutes by default.
    hints = [line for line in caplog.messages if "worker.startup_seconds is how long" in line]
    assert len(hints) == (command == ("topics", "create"))
