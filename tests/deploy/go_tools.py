"""Helm, and the loader that `docker compose` is made of: built with Go, once, into a folder that git ignores."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.deploy import go_toolchain

ROOT: Final = Path(__file__).resolve().parents[2]


class GoTool(NamedTuple):
    """A program of a Go module: where its source is, at which version, and what `go install` calls it."""

    package: str
    version: str
    binary: str


HELM: Final = GoTool("helm.sh/helm/v3/cmd/helm", "v3.19.2", "helm")
COMPOSE: Final = GoTool("github.com/compose-spec/compose-go/v2/cmd", "v2.16.2", "cmd")
TOOLS: Final = {"helm": HELM, "the Compose loader": COMPOSE}


def path_of(tool: GoTool) -> Path:
    """Where the program lies once it is built."""
    return ROOT / ".cache" / "go" / f"{tool.package.replace('/', '-')}@{tool.version}" / tool.binary


def missing(tool: GoTool) -> str | None:
    """Why the program cannot be had, or None."""
    return None if path_of(tool).exists() or shutil.which("go") else "Go is not installed"


def bring(tool: GoTool) -> Path:
    """The program, built if it is not there.

    Raises
    ------
    RuntimeError : Go failed; with the end of what it said.
    """
    path = path_of(tool)
    if not path.exists():
        made = path.parent.with_name(f"{path.parent.name}.{os.getpid()}")
        command = ["go", "install", f"{tool.package}@{tool.version}"]
        environment = go_toolchain.environment(ROOT / ".cache" / "go") | {"GOBIN": str(made)}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=900, env=environment
            )
            if done.returncode != 0:
                raise RuntimeError(f"Go could not build {tool.package}: {done.stderr[-1500:]}")
            path.parent.mkdir(parents=True, exist_ok=True)
            (made / tool.binary).rename(path)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return path


def tool(wanted: GoTool) -> Path:
    """The program for a test, which fails in CI where it cannot be had, and is left out elsewhere."""
    reason = missing(wanted)
    if reason is not None:
        told = f"{wanted.binary} {wanted.version} of {wanted.package}: {reason}"
        if os.environ.get("CI") == "true":
            pytest.fail(told)
        pytest.skip(told)
    return bring(wanted)


if __name__ == "__main__":
    for name, one in TOOLS.items():
        reason = missing(one)
        if reason is not None:
            print(f"{name}: {reason}; its tests will be left out")
        else:
            told = "is here" if path_of(one).exists() else "is being built; this takes a few minutes"
            print(f"{name} {one.version} {told}", flush=True)
            bring(one)
    sys.exit(0)
