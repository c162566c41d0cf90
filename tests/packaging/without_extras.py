"""Runs Python code as if the packages of all extras were not installed, or some of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

from kinstream.streams.extras import EXTRAS

_REFUSE = """
import sys
from importlib.abc import MetaPathFinder


class Refuse(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in PACKAGES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Refuse())
"""


def without_extras(
    code: str, *arguments: str | Path, cwd: Path, packages: Collection[str] = EXTRAS
) -> subprocess.CompletedProcess[str]:
    """The process that has run the code, at its end; its output as text."""
    return subprocess.run(
        [sys.executable, "-c", f"PACKAGES = {set(packages)!r}" + _REFUSE + code, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
