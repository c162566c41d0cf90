"""A .zip of this working tree, as `git archive` makes it, unpacked as pip unpacks it."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

from tests.docs.pages import ROOT
from tests.support.packages import PACKAGES as PACKAGES


def unpack(folder: Path) -> Path:
    """A new folder in this one with all files that are in git, as they are here, committed or not."""
    # Its own index and objects: what is staged stays as it is.
    store = folder / "objects"
    store.mkdir()
    own = {
        "GIT_INDEX_FILE": str(shutil.copy(_inside("index"), folder)),
        "GIT_OBJECT_DIRECTORY": str(store),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": _inside("objects"),
    }
    git("add", "--all", environment=own)
    archive = folder / "kinstream.zip"
    git("archive", "--format=zip", f"--output={archive}", git("write-tree", environment=own), environment=own)
    unpacked = folder / "kinstream"
    with zipfile.ZipFile(archive) as file:
        file.extractall(unpacked)
    return unpacked


def packaged(folder: Path) -> set[str]:
    """The names in a wheel that the files of the packages have: all that are in git."""
    found = {path.relative_to(folder / "src").as_posix() for path in (folder / "src" / "kinstream").iterdir()}
    for name in PACKAGES:
        files = (path for path in (folder / name).rglob("*") if path.is_file())
        found |= {f"kinstream/{path.relative_to(folder).as_posix()}" for path in files}
    return found


def _inside(name: str) -> str:
    """The path of a part of this repository."""
    return git("rev-parse", "--path-format=absolute", "--git-path", name)


def git(*arguments: str, environment: dict[str, str] | None = None) -> str:
    command = ["git", *arguments]
    whole = {**os.environ, **(environment or {})}
    done = subprocess.run(command, cwd=ROOT, env=whole, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
