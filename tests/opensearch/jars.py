"""Brings the jars of OpenSearch with Maven, once, into a folder that git ignores."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / ".cache" / "opensearch-jars"
#: A copy of the pom whose jars are all here.
COMPLETE: Final = FOLDER / ".complete"
POM: Final = Path(__file__).with_name("pom.xml")


def missing() -> str | None:
    """What is not there for a real OpenSearch, or None."""
    # The class of the node is compiled when it starts.
    found = [name for name in ("java", "javac") if shutil.which(name) is None]
    if not _complete() and shutil.which("mvn") is None:
        found.append("mvn")
    return f"a real OpenSearch needs {', '.join(found)} (JDK 17, Maven)" if found else None


def _complete() -> bool:
    return COMPLETE.exists() and COMPLETE.read_bytes() == POM.read_bytes()


def bring() -> Path:
    """The folder with the jars, fetched if they are not there; one process at a time does so.

    Raises
    ------
    RuntimeError : Maven failed; with the end of what it said.
    """
    FOLDER.parent.mkdir(exist_ok=True)
    with (FOLDER.parent / "opensearch-jars.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _complete():
            shutil.rmtree(FOLDER, ignore_errors=True)
            FOLDER.mkdir()
            copy = ("dependency:copy-dependencies", f"-DoutputDirectory={FOLDER}")
            command = ["mvn", "-q", "-B", "-f", str(POM), *copy]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
            if done.returncode != 0:
                raise RuntimeError(f"Maven could not bring OpenSearch: {(done.stdout + done.stderr)[-1500:]}")
            for plugin in FOLDER.glob("*.zip"):
                with zipfile.ZipFile(plugin) as packed:
                    for name in packed.namelist():
                        if name.endswith(".jar"):
                            (FOLDER / Path(name).name).write_bytes(packed.read(name))
            shutil.copyfile(POM, COMPLETE)
    return FOLDER
