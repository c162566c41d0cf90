"""The command line costs nothing until something is done: help loads no heavy library."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kinstream.cli.main import _COMMANDS

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


def loaded(*arguments: str) -> set[str]:
    run = subprocess.run(
        [sys.executable, "-c", _SCRIPT, *arguments], check=True, capture_output=True, text=True, timeout=60
    )
    return set(run.stdout.splitlines()[-1].split()[1:])


def test_the_list_of_commands_loads_no_library_but_click() -> None:
    assert not loaded("--help") & set(_HEAVY)


@pytest.mark.parametrize("command", ["spaces", "models", "dead-letters", "skip", "accept-gap"])
def test_the_help_of_a_command_loads_neither_clients_nor_kernels(command: str) -> None:
    assert command in _COMMANDS
    assert not loaded(command, "--help") & {"faust", "torch", "numba", "confluent_kafka", "rich", "sklearn"}
