"""How a demonstration begins and ends: its folder, its processes, its exit status."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

import click

from kinstream.cli.local.system import Process, status_of, tail


def fresh_folder(folder: Path) -> Path:
    """A folder for this run. The embedded broker forgets its log, so checkpoints of an earlier run are of no use."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return folder


def tell_failure(process: Process) -> int:
    """Print the end of a process's log; the exit status of the demonstration."""
    click.echo(f"{process.name} ended with status {process.popen.returncode}; {process.log}:", err=True)
    click.echo(tail(process.log), err=True)
    return status_of(process.popen.returncode)


def end(status: int) -> NoReturn:
    """End this process: the broker's threads run in it and are no longer needed."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
