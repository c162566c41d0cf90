"""Standard output may be full, closed, or ASCII: a command ends with one line and a status, or prints what it can."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: No UTF-8 mode, as in a cron job or a container without a locale.
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
COMMAND = (sys.executable, "-m", "kinstream.cli.main")
#: Prints at once, or little by little, or ends with another error after it has printed.
PRINTING = """
import sys
from unittest import mock
import click
from rich.console import Console
from kinstream.cli import main
from kinstream.streams.errors import SettingsError

@click.command()
def printing():
    if sys.argv[1] == "rich":
        Console().print("\\n".join(["a line"] * 10_000))
    elif sys.argv[1] == "print":
        print("one word \\u00b1 \\udce9")
    else:
        click.echo("x" * 100_000)
    if sys.argv[2:]:
        raise SettingsError(sys.argv[2])

with mock.patch.object(main, "cli", lambda: printing([])):
    main.main()
"""
HELP = [[], ["--help"], ["--version"], ["evaluate", "--help"]]
RESULTS = [["spaces", "list"], ["check", "--json"]]
SLOW_RESULTS = [
    pytest.param(words, marks=pytest.mark.long) for words in (["check"], ["warm-up", "euclidean"])
]


@pytest.fixture(autouse=True)
def no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [
        name for name in os.environ if name.startswith(("KAFKA_", "KINSTREAM_", "PYTHONIOENCODING"))
    ]:
        monkeypatch.delenv(name)


def run(
    *command: str, stdout: int = subprocess.PIPE, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **(environment or {})},
        stdout=stdout,
        stderr=subprocess.PIPE,
        timeout=120,
        check=False,
    )


@contextmanager
def full() -> Iterator[int]:
    device = os.open("/dev/full", os.O_WRONLY)
    try:
        yield device
    finally:
        os.close(device)


@pytest.mark.parametrize("words", [*HELP[1:], *RESULTS, *SLOW_RESULTS], ids=" ".join)
def test_a_full_standard_output_is_one_line_and_a_status(words: list[str]) -> None:
    with full() as device:
        done = run(*COMMAND, *words, stdout=device)
    assert (
        done.stderr.decode() == "kinstream: standard output cannot be written: No space left on device\n"
    ), done
    assert done.returncode == 1


@pytest.mark.parametrize("how", ["rich", "print", "echo"])
def test_however_much_is_printed_and_by_whom(how: str) -> None:
    with full() as device:
        done = run(sys.executable, "-c", PRINTING, how, stdout=device)
    assert done.stderr == b"kinstream: standard output cannot be written: No space left on device\n"
    assert done.returncode == 1


def test_an_error_that_comes_first_is_the_one_that_is_told() -> None:
    with full() as device:
        words = ("print", "the setting is wrong")
        # What is printed is kept back until the end.
        own = {"PYTHONUNBUFFERED": ""}
        done = run(sys.executable, "-c", PRINTING, *words, stdout=device, environment=own)
    assert done.stderr == b"kinstream: the setting is wrong\n"
    assert done.returncode == 2


@pytest.mark.parametrize(
    "environment", [ASCII, {"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "latin-1"}]
)
def test_a_character_that_standard_output_lacks_is_an_escape(environment: dict[str, str]) -> None:
    done = run(sys.executable, "-c", PRINTING, "print", environment=environment)
    assert (done.returncode, done.stderr) == (0, b"")
    sign = b"\xb1" if environment.get("PYTHONIOENCODING") == "latin-1" else b"\\xb1"
    assert done.stdout == b"one word " + sign + b" \\udce9\n"


@pytest.mark.parametrize("words", [*HELP, *RESULTS, *SLOW_RESULTS], ids=" ".join)
def test_commands_print_in_ascii_what_they_print_in_utf_8(words: list[str]) -> None:
    plain, ascii_only = run(*COMMAND, *words), run(*COMMAND, *words, environment=ASCII)
    assert b"Traceback" not in ascii_only.stderr
    assert ascii_only.returncode == plain.returncode
    assert len(ascii_only.stdout.splitlines()) == len(plain.stdout.splitlines())


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_standard_error_changes_no_status(unbuffered: str) -> None:
    with full() as device:
        done = subprocess.run(
            [sys.executable, "-c", PRINTING, "print", "the setting is wrong"],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": unbuffered},
            stdout=subprocess.DEVNULL,
            stderr=device,
            timeout=120,
            check=False,
        )
    assert done.returncode == 2


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_lines_are_kept_back_only_if_python_would(unbuffered: str) -> None:
    # A worker ends so.
    script = "import os; from kinstream.streams.processes.output import begin_output; begin_output(); "
    script += "print('a line'); os._exit(0)"
    done = run(sys.executable, "-c", script, environment={"PYTHONUNBUFFERED": unbuffered})
    assert done.stdout == (b"a line\n" if unbuffered else b"")
