"""A Go that is new enough to build the tools, also where the machine's own is older.

Go's toolchains are modules, so the Go that is there fetches a newer one as it fetches any module: from the proxies that
it is set up with, verified by its checksum database. Before 1.21 it does not by itself know what to do with it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

#: The oldest Go whose modules the tools can be built with, and the toolchain that is fetched where there is less.
NEEDED: Final = (1, 24)
TOOLCHAIN: Final = "1.24.9"
#: Hashes of the toolchain's files, as go.sum has them, by what Go calls the processor.
SUMS: Final = {"amd64": "h1:XCaHFxbYbAFzirf0FlQ6XUJ3WM+yR7FdDHZvREoPVDI="}
_MODULE: Final = "golang.org/toolchain"


def new_enough(version: str) -> bool:
    """Whether a Go is, by what `go env GOVERSION` says; a development version counts as new."""
    found = re.match(r"go(\d+)\.(\d+)", version)
    return found is None or (int(found[1]), int(found[2])) >= NEEDED


def environment(folder: Path, go: str = "go") -> dict[str, str]:
    """The environment in which `go` is new enough.

    Parameters
    ----------
    folder : where a toolchain is kept once it was fetched.
    go : the program that is there.

    Raises
    ------
    RuntimeError : it is too old, and no newer one can be had.
    """
    known = _env(go, "GOVERSION", "GOARCH", "GOOS")
    if new_enough(known["GOVERSION"]):
        return dict(os.environ)
    root = folder / f"go{TOOLCHAIN}"
    if not root.exists():
        _bring(root, go, known)
    path = os.pathsep.join((str(root / "bin"), os.environ.get("PATH", "")))
    return {**os.environ, "GOROOT": str(root), "PATH": path, "GOTOOLCHAIN": "local"}


def _env(go: str, *names: str) -> dict[str, str]:
    found = _run([go, "env", "-json", *names])
    return {name: str(json.loads(found.stdout)[name]) for name in names}


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    # Outside of any module, whose go.mod would be read, and may be newer than this Go understands.
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, cwd="/")


def _bring(root: Path, go: str, known: dict[str, str]) -> None:
    """Fetch the toolchain and lay it out at `root`."""
    wanted = SUMS.get(known["GOARCH"]) if known["GOOS"] == "linux" else None
    told = f"{known['GOVERSION']} is too old, the tools need {'.'.join(map(str, NEEDED))}"
    if wanted is None:
        raise RuntimeError(
            f"{told}, and no hash of Go {TOOLCHAIN} is known for {known['GOOS']}/{known['GOARCH']}"
        )
    module = f"{_MODULE}@v0.0.1-go{TOOLCHAIN}.linux-{known['GOARCH']}"
    done = _run([go, "mod", "download", "-json", module])
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        found = {}
    if done.returncode != 0 or "Dir" not in found:
        raise RuntimeError(
            f"{told}, and {module} cannot be fetched: {found.get('Error') or done.stderr[-1500:]}"
        )
    if found["Sum"] != wanted:
        raise RuntimeError(f"{told}, and {module} has the hash {found['Sum']}, not {wanted}")
    made = root.with_name(f"{root.name}.{os.getpid()}")
    try:
        # The module cache is read-only.
        shutil.copytree(found["Dir"], made, copy_function=shutil.copyfile)
        _prepare(made)
        made.rename(root)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _prepare(root: Path) -> None:
    """Make of the files of the module what they are in a distribution: a module holds no other one and no programs."""
    for folder in [root, *(path for path in root.rglob("*") if path.is_dir())]:
        folder.chmod(0o755)
    for path in (*root.glob("bin/*"), *root.glob("pkg/tool/*/*")):
        path.chmod(0o755)
    for path in (root / "src" / "_go.mod", root / "src" / "cmd" / "_go.mod"):
        path.rename(path.with_name("go.mod"))
