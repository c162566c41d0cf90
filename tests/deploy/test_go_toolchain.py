"""An old Go fetches a newer one as a module; one whose files are not those that are known is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.deploy import go_toolchain
from tests.deploy.go_toolchain import SUMS, environment, new_enough


@pytest.mark.parametrize(
    ("version", "enough"),
    [
        ("go1.19.8", False),
        ("go1.23.12", False),
        ("go1.24", True),
        ("go1.26.8", True),
        ("devel go1.27-a", True),
    ],
)
def test_versions(version: str, enough: bool) -> None:
    assert new_enough(version) is enough


def fake(folder: Path, version: str, total: str, arch: str = "amd64") -> str:
    """A Go that answers as a real one does, with a toolchain of few files."""
    module = folder / "module"
    for name in ("bin/go", "pkg/tool/linux_amd64/compile", "src/_go.mod", "src/cmd/_go.mod"):
        (module / name).parent.mkdir(parents=True, exist_ok=True)
        (module / name).unlink(missing_ok=True)
        (module / name).write_text("x")
        (module / name).chmod(0o444)
    known = json.dumps({"GOVERSION": version, "GOARCH": arch, "GOOS": "linux"})
    found = json.dumps({"Dir": str(module), "Sum": total})
    go = folder / "go"
    go.write_text(f"#!/bin/sh\nif [ $1 = env ]; then echo '{known}'; else echo '{found}'; fi\n")
    go.chmod(0o755)
    return str(go)


def test_an_old_go_is_put_behind_a_new_one(tmp_path: Path) -> None:
    made = environment(tmp_path / "kept", fake(tmp_path, "go1.19.8", SUMS["amd64"]))
    root = tmp_path / "kept" / f"go{go_toolchain.TOOLCHAIN}"
    assert made["GOROOT"] == str(root) and made["PATH"].startswith(f"{root}/bin{os.pathsep}")
    assert os.access(root / "bin" / "go", os.X_OK)
    assert os.access(root / "pkg/tool/linux_amd64/compile", os.X_OK)
    assert (root / "src" / "go.mod").exists() and (root / "src" / "cmd" / "go.mod").exists()
    assert environment(tmp_path / "kept", fake(tmp_path, "go1.19.8", "h1:other")) == made, "it is kept"


def test_a_new_go_is_left_alone(tmp_path: Path) -> None:
    assert environment(tmp_path / "kept", fake(tmp_path, "go1.26.8", "h1:other")) == dict(os.environ)
    assert not (tmp_path / "kept").exists()


def test_another_hash_or_processor_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"go1\.19\.8 is too old.* has the hash h1:other, not h1:"):
        environment(tmp_path / "kept", fake(tmp_path, "go1.19.8", "h1:other"))
    with pytest.raises(RuntimeError, match=r"no hash of Go .* is known for linux/riscv64"):
        environment(tmp_path / "kept", fake(tmp_path, "go1.19.8", SUMS["amd64"], "riscv64"))
    assert not (tmp_path / "kept").exists()
