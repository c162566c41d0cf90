"""The packages: each is a folder at the top, and is imported as kinstream.NAME.

An editable installation reads them through links in src/kinstream, because mypy and import-linter look for a package
where its name says. It makes these links; git has none, so that a .zip and a clone without links are whole.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from setuptools import find_packages, setup
from setuptools.command.editable_wheel import editable_wheel

NAMES: Final = (
    "streams",
    "producers",
    "processors",
    "learners",
    "monitoring",
    "gate",
    "search",
    "vectors",
    "replay",
    "evaluation",
    "cli",
    "testing",
)
SOURCE: Final = Path("src", "kinstream")


def link() -> None:
    """Make the links that are missing or lead elsewhere, and remove those of folders that are gone."""
    for path in SOURCE.iterdir():
        if not path.exists():
            path.unlink()
    for name in NAMES:
        path = SOURCE / name
        if path.exists() and path.samefile(name):
            continue
        path.unlink(missing_ok=True)
        if sys.platform == "win32":
            # Unlike a symbolic link, a junction needs no privilege.
            subprocess.run(["cmd", "/c", "mklink", "/J", str(path), str(Path(name).resolve())], check=True)
        else:
            path.symlink_to(Path(os.pardir, os.pardir, name))


class Editable(editable_wheel):
    """An installation that is one path, that of src."""

    def finalize_options(self) -> None:
        link()
        self.distribution.package_dir = {"": "src"}
        super().finalize_options()


setup(
    packages=[
        "kinstream",
        *(f"kinstream.{name}" for name in find_packages(include=[*NAMES, *(f"{name}.*" for name in NAMES)])),
    ],
    package_dir={"kinstream": str(SOURCE)} | {f"kinstream.{name}": name for name in NAMES},
    cmdclass={"editable_wheel": Editable},
)
