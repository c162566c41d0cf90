"""Helm, the API server of Kubernetes, and the loader that `docker compose` is made of.

They are built with Go, once, into a folder that git ignores.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.deploy import go_toolchain
from tests.support.commands import output_of

ROOT: Final = Path(__file__).resolve().parents[2]


class GoTool(NamedTuple):
    """A program of a Go module: where its source is, at which version, and what `go build` calls it."""

    module: str
    package: str
    version: str
    binary: str


HELM: Final = GoTool("helm.sh/helm/v3", "helm.sh/helm/v3/cmd/helm", "v3.19.2", "helm")
COMPOSE: Final = GoTool(
    "github.com/compose-spec/compose-go/v2", "github.com/compose-spec/compose-go/v2/cmd", "v2.16.2", "cmd"
)
#: The newest minor version that Go 1.24 builds; Helm has the client libraries of the same one.
API_SERVER: Final = GoTool(
    "k8s.io/kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver", "v1.34.4", "kube-apiserver"
)
TOOLS: Final = {"helm": HELM, "the Compose loader": COMPOSE, "the API server of Kubernetes": API_SERVER}
#: Seconds for a build: all together take minutes on two cores.
BUILD_SECONDS: Final = 1500.0


def path_of(tool: GoTool) -> Path:
    """Where the program lies once it is built."""
    return ROOT / ".cache" / "go" / f"{tool.package.replace('/', '-')}@{tool.version}" / tool.binary


def missing(tool: GoTool) -> str | None:
    """Why the program cannot be had, or None."""
    return None if path_of(tool).exists() or shutil.which("go") else "Go is not installed"


def bring(*tools: GoTool) -> None:
    """Build those of the programs that are not there, all together: most of what they use is the same.

    Raises
    ------
    RuntimeError : Go failed; with the end of what it said.
    """
    wanted = [tool for tool in tools if not path_of(tool).exists()]
    if not wanted:
        return
    folder = ROOT / ".cache" / "go"
    folder.mkdir(parents=True, exist_ok=True)
    # The compiler collects its garbage less often.
    environment = go_toolchain.environment(folder) | {"GOGC": "400"}
    with tempfile.TemporaryDirectory(dir=folder) as made:
        write_module(Path(made), environment)
        version = API_SERVER.version.removeprefix("v").split(".")
        names = {"gitVersion": API_SERVER.version, "gitMajor": version[0], "gitMinor": version[1]}
        flags = " ".join(f"-X k8s.io/component-base/version.{name}={one}" for name, one in names.items())
        # They run for a minute, and take several to be compiled with all optimisations.
        command = [
            "build",
            "-mod=mod",
            "-p",
            "2",
            "-gcflags=all=-N -l -dwarf=false",
            f"-ldflags=-s -w {flags}",
        ]
        _go([*command, "-o", "built/", *(tool.package for tool in wanted)], Path(made), environment)
        for tool in wanted:
            path_of(tool).parent.mkdir(parents=True, exist_ok=True)
            (Path(made) / "built" / tool.binary).rename(path_of(tool))


def write_module(folder: Path, environment: dict[str, str]) -> None:
    """Write a go.mod that requires the modules of all tools.

    The go.mod of Kubernetes replaces modules by folders of its repository: here they are replaced by the published
    modules of the same release.
    """
    found = json.loads(
        _go(["mod", "download", "-json", f"{API_SERVER.module}@{API_SERVER.version}"], folder, environment)
    )
    text = Path(found["GoMod"]).read_text()
    version = f"v0.{API_SERVER.version.removeprefix('v1.')}"
    lines = ["module kinstream", *re.findall(r"^go .*|^godebug .*", text, re.M)]
    lines += [f"require {tool.module} {tool.version}" for tool in TOOLS.values()]
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
    bring(wanted)
    return path_of(wanted)


if __name__ == "__main__":
    reasons = {name: missing(one) for name, one in TOOLS.items()}
    for name, reason in reasons.items():
        if reason is not None:
            print(f"{name}: {reason}; its tests will be left out")
    built = {name: one for name, one in TOOLS.items() if reasons[name] is None and not path_of(one).exists()}
    if built:
        told = ", ".join(f"{name} {one.version}" for name, one in built.items())
        print(f"Go builds {told}; this takes some minutes", flush=True)
        began = time.monotonic()
        bring(*built.values())
        print(f"Go was done in {time.monotonic() - began:.0f} s", flush=True)
    sys.exit(0)
