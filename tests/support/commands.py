"""Commands that build what tests need."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def output_of(
    command: Sequence[str], *, seconds: float, folder: Path, environment: Mapping[str, str] | None = None
) -> str:
    """Standard output of a command that is run in a folder.

    Raises
    ------
    RuntimeError : its status is not 0; with the command and the end of what it printed.
    """
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
        cwd=folder,
        env=environment,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout
