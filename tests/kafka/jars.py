"""Brings Apache Kafka's jars with Maven, once, into a folder that git ignores."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".cache" / "kafka-jars"
#: A copy of the pom whose jars are all here.
COMPLETE = FOLDER / ".complete"
#: Of the classes that a broker loads, made by archive.py. Java ignores it where it is of another Java or other jars.
ARCHIVE = FOLDER / "classes.jsa"
POM = Path(__file__).with_name("pom.xml")
MIN_JAVA = 17


def missing() -> str | None:
    """Why a real Kafka cannot run here, or None."""
    if shutil.which("java") is None:
        return "Java 17 is not installed"
    told = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', told)
    if version is None or int(version[1]) < MIN_JAVA:
        return f"Java {version[1] if version else '?'} is too old for Kafka 4; it needs {MIN_JAVA}"
    if not _complete() and shutil.which("mvn") is None:
        return "Maven is not installed"
    return None


def _complete() -> bool:
    return COMPLETE.exists() and COMPLETE.read_bytes() == POM.read_bytes()


def bring() -> Path:
    """The folder with the jars, fetched if they are not there.

    Raises
    ------
    RuntimeError : Maven failed; with the end of what it said.
    """
    if not _complete():
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(parents=True)
        command = [
            "mvn",
            "-q",
            "-B",
            "-f",
            str(POM),
            "dependency:copy-dependencies",
            f"-DoutputDirectory={FOLDER}",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        if done.returncode != 0:
            raise RuntimeError(f"Maven could not bring Kafka: {(done.stdout + done.stderr)[-1500:]}")
        shutil.copyfile(POM, COMPLETE)
    return FOLDER


if __name__ == "__main__":
    reason = missing()
    if reason is not None:
        print(f"real Kafka: {reason}; its tests will be left out")
        sys.exit(0)
    print(f"real Kafka: {len(list(bring().glob('*.jar')))} jars are here")
