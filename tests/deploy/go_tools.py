"""Helm, the API server of Kubernetes, and the loader that `docker compose` is made of.

They are built with Go, once, into a folder that git ignores.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.deploy import go_toolchain
from tests.support.commands import output_of

ROOT: Final = Path(__file__).resolve().parents[2]


class GoTool(NamedTuple):
    """A program of a Go module: where its source is, at which version, and what `go install` calls it.

    `module` is given if `go install` refuses it: a module whose go.mod replaces others by folders of its repository.
    """

    package: str
    version: str
    binary: str
    module: str = ""


HELM: Final = GoTool("helm.sh/helm/v3/cmd/helm", "v3.19.2", "helm")
COMPOSE: Final = GoTool("github.com/compose-spec/compose-go/v2/cmd", "v2.16.2", "cmd")
#: The newest minor version that Go 1.24 builds; Helm has the client libraries of the same one.
API_SERVER: Final = GoTool(
    "k8s.io/kubernetes/cmd/kube-apiserver", "v1.34.4", "kube-apiserver", "k8s.io/kubernetes"
)
TOOLS: Final = {"helm": HELM, "the Compose loader": COMPOSE, "the API server of Kubernetes": API_SERVER}
#: Seconds for one build: the API server takes minutes on two cores.
BUILD_SECONDS: Final = 1500.0


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
        # The compiler collects its garbage less often.
        environment = go_toolchain.environment(ROOT / ".cache" / "go") | {"GOBIN": str(made), "GOGC": "400"}
        made.mkdir(parents=True)
        try:
            if tool.module:
                module_around(tool, made, environment)
                version = tool.version.removeprefix("v").split(".")
                names = {"gitVersion": tool.version, "gitMajor": version[0], "gitMinor": version[1]}
                flags = " ".join(
                    f"-X k8s.io/component-base/version.{name}={one}" for name, one in names.items()
                )
                # It runs for a minute, and takes several to be compiled with all optimisations.
                command = ["build", "-mod=mod", "-p", "2", "-gcflags=all=-N -l", "-ldflags", f"-s -w {flags}"]
                _go([*command, "-o", tool.binary, tool.package], made, environment)
            else:
                _go(["install", f"{tool.package}@{tool.version}"], made, environment)
            path.parent.mkdir(parents=True, exist_ok=True)
            (made / tool.binary).rename(path)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return path


def module_around(tool: GoTool, folder: Path, environment: dict[str, str]) -> None:
    """Write a go.mod that requires the tool's module, with the published modules for those in its repository."""
    found = json.loads(
        _go(["mod", "download", "-json", f"{tool.module}@{tool.version}"], folder, environment)
    )
    text = Path(found["GoMod"]).read_text()
    version = f"v0.{tool.version.removeprefix('v1.')}"
    lines = ["module kinstream", *re.findall(r"^go .*|^godebug .*", text, re.M)]
    lines.append(f"require {tool.module} {tool.version}")
    staged = re.findall(r"^\s*(?:replace )?(\S+) => \./staging/", text, re.M)
    lines += [f"replace {one} => {one} {version}" for one in staged]
    (folder / "go.mod").write_text("\n".join(lines) + "\n")


def _go(arguments: list[str], folder: Path, environment: dict[str, str]) -> str:
    return output_of(["go", *arguments], seconds=BUILD_SECONDS, folder=folder, environment=environment)


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
            began = time.monotonic()
            if not path_of(one).exists():
                bring(one)
                print(f"{name} was built in {time.monotonic() - began:.0f} s", flush=True)
    sys.exit(0)
