"""Builds the image with buildah, once, into a folder that git ignores: its root file system and its configuration.

The base is a minimal Debian with Python, made of this machine's package sources, because no registry of images is
within reach of the test machines.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.support.commands import output_of

ROOT: Final = Path(__file__).resolve().parents[3]
DEPLOY: Final = ROOT / "deploy"
CACHE: Final = ROOT / ".cache" / "image"
#: Program -> Debian package.
PROGRAMS: Final = {
    "buildah": "buildah",
    "mmdebstrap": "mmdebstrap",
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
}
BASE: Final = "localhost/kinstream-base"
#: What the base has besides Debian's essential packages.
PACKAGES: Final = "python3,python3-venv,binutils,ca-certificates"
BUILD_SECONDS: Final = 1500.0
#: Settings of pip that say how packages are reached from this machine.
PIP: Final = re.compile(r"^(?:global|install|:env:)\.([a-z-]+)='(.*)'$", re.M)


class Image:
    """What was built: `root` is its file system, `config` the runtime part of the OCI configuration."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        found: dict[str, Any] = json.loads((folder / "image.json").read_text())
        self.config: dict[str, Any] = found["config"]
        #: Bytes of all layers, unpacked.
        self.size: int = found["size"]

    @property
    def environment(self) -> dict[str, str]:
        return dict(one.split("=", 1) for one in self.config["Env"])


def missing() -> str | None:
    """Why the image cannot be built and run here, or None."""
    lacking = {package for program, package in PROGRAMS.items() if shutil.which(program) is None}
    if lacking:
        return f"Debian packages are missing: {', '.join(sorted(lacking))}"
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], check=False).returncode != 0:
        return "building and running the image need root with the right to make namespaces"
    return None


def visible_files() -> list[Path]:
    """Files of which the image is made; the build itself sees what its ignore file lets through."""
    tops = re.findall(r"^!([\w./-]+)$", (DEPLOY / "Containerfile.dockerignore").read_text(), re.M)
    found = [DEPLOY / "Containerfile", Path(__file__)]
    for top in tops:
        path = ROOT / top
        found += [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
    return sorted({one for one in found if not re.search(r"__pycache__|\.egg-info", str(one))})


def key() -> str:
    """Changes with every file of the image."""
    whole = hashlib.sha256()
    for path in visible_files():
        whole.update(f"{path.relative_to(ROOT)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()


def bring() -> Image:
    """The image, built unless it is there.

    Raises
    ------
    RuntimeError : a step failed; with the end of what it printed.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE.parent / "image.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = key()
        stamp = CACHE / "key"
        if not stamp.exists() or stamp.read_text() != wanted:
            shutil.rmtree(CACHE)
            CACHE.mkdir()
            _build(CACHE)
            stamp.write_text(wanted)
    return Image(CACHE)


def _build(folder: Path) -> None:
    with _storage() as (work, buildah):
        base = work / "base.tar"
        _run("mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(base))
        container = _run(*buildah, "from", "scratch").strip()
        _run(*buildah, "add", "--quiet", container, str(base), "/")
        _run(*buildah, "commit", "--quiet", "--rm", container, BASE)
        base.unlink()
        network = [word for mount in _pip(work) for word in ("--volume", mount)]
        revision = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
        ).stdout.strip()
        arguments = {"PYTHON_IMAGE": BASE, "REVISION": revision or "unknown", "TORCH_INDEX_URL": ""}
        told = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
        file = str(DEPLOY / "Containerfile")
        _run(
            *buildah,
            "bud",
            "--isolation",
            "chroot",
            *network,
            *told,
            "-f",
            file,
            "-t",
            "kinstream",
            str(ROOT),
        )
        inspected = json.loads(_run(*buildah, "inspect", "--type", "image", "kinstream"))
        container = _run(*buildah, "from", "kinstream").strip()
        mounted = _run(*buildah, "mount", container).strip()
        _run("cp", "-a", mounted, str(folder / "root"))
        size = _run("du", "--summarize", "--apparent-size", "--block-size=1", mounted).split()[0]
        told_of = {"config": inspected["OCIv1"]["config"], "size": int(size)}
        (folder / "image.json").write_text(json.dumps(told_of, indent=1))


@contextmanager
def _storage() -> Iterator[tuple[Path, list[str]]]:
    """A working folder, and the command of a buildah that keeps everything there; removed at the end."""
    work = Path(tempfile.mkdtemp(prefix="image-", dir=CACHE.parent))
    buildah = ["buildah", "--root", str(work / "storage"), "--runroot", str(work / "run")]
    try:
        yield work, buildah
    finally:
        subprocess.run([*buildah, "umount", "--all"], capture_output=True, check=False)
        subprocess.run([*buildah, "rm", "--all"], capture_output=True, check=False)
        subprocess.run([*buildah, "rmi", "--all", "--force"], capture_output=True, check=False)
        # The overlay driver leaves its own folder mounted.
        subprocess.run(["umount", str(work / "storage" / "overlay")], capture_output=True, check=False)
        shutil.rmtree(work)


def _pip(work: Path) -> list[str]:
    """Mounts by which pip reaches its index in the build as it does here."""
    told = dict(PIP.findall(_run(sys.executable, "-m", "pip", "config", "list")))
    folder = work / "machine"
    folder.mkdir()
    known = ("index-url", "extra-index-url", "trusted-host", "proxy", "default-timeout")
    lines = ["[global]", *(f"{name} = {told[name]}" for name in known if name in told)]
    authorities = told.get("cert") or os.environ.get("SSL_CERT_FILE")
    if authorities:
        shutil.copyfile(authorities, folder / "authorities.pem")
        lines.append("cert = /run/machine/authorities.pem")
    (folder / "pip.conf").write_text("\n".join(lines) + "\n")
    return [f"{folder}:/run/machine:ro", f"{folder / 'pip.conf'}:/etc/pip.conf:ro"]


def _run(*command: str) -> str:
    return output_of(command, seconds=BUILD_SECONDS, folder=ROOT)


if __name__ == "__main__":
    reason = missing()
    if reason is not None:
        print(f"the image: {reason}; its tests will fail in CI and be left out elsewhere")
        sys.exit(0)
    print(f"the image is built: {bring().size / 1e6:.0f} MB")
