"""The command line costs nothing until something is done: help loads no heavy library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kinstream.cli.main import _COMMANDS
from kinstream.cli.shared.context import checked
from kinstream.streams.errors import SettingsError

_HEAVY = ("faust", "torch", "numba", "numpy", "confluent_kafka", "rich", "sklearn", "pydantic")
_SCRIPT = """
import sys
from kinstream.cli.main import cli
try:
    cli(sys.argv[1:])
except SystemExit as end:
    assert not end.code, end.code
print("loaded", *sorted({name.partition(".")[0] for name in sys.modules}))
"""


_CHECK = """
import sys
from kinstream.cli.shared.context import checked
from kinstream.streams.errors import SettingsError
try:
    checked(sys.argv[1], apart=True)
except SettingsError as error:
    print(error)
print("loaded", *sorted({name.partition(".")[0] for name in sys.modules}))
"""


def output(script: str, *arguments: str) -> list[str]:
    run = subprocess.run(
        [sys.executable, "-c", script, *arguments], check=True, capture_output=True, text=True, timeout=60
    )
    return run.stdout.splitlines()


def loaded(*arguments: str) -> set[str]:
    return set(output(_SCRIPT, *arguments)[-1].split()[1:])


def test_the_list_of_commands_loads_no_library_but_click() -> None:
    assert not loaded("--help") & set(_HEAVY)


@pytest.mark.parametrize("command", ["spaces", "models", "dead-letters", "skip", "accept-gap"])
def test_the_help_of_a_command_loads_neither_clients_nor_kernels(command: str) -> None:
    assert command in _COMMANDS
    assert not loaded(command, "--help") & {"faust", "torch", "numba", "confluent_kafka", "rich", "sklearn"}


@pytest.mark.parametrize("option", ["gamma = 1.0", "gama = 1.0", "gamma = -1.0"])
def test_a_process_that_only_starts_others_has_settings_checked_without_loading_kernels(
    tmp_path: Path, option: str
) -> None:
    file = tmp_path / "kinstream.toml"
    file.write_text(
        '[builders.one-pass]\nkind = "one-pass"\n'
        f'[learners.opml]\nkind = "opml"\nfrom = ["one-pass"]\n{option}\n'
    )
    *refused, last = output(_CHECK, str(file))
    assert not set(last.split()) & {"faust", "numba", "numpy", "scipy", "confluent_kafka"}
    if option == "gamma = 1.0":
        assert not refused
        return
    with pytest.raises(SettingsError) as error:
        checked(str(file))
    assert refused == str(error.value).splitlines()
