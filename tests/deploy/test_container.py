"""The files of the image: what its build sees, its arguments, and its entry point. `image/` builds and runs it."""

from __future__ import annotations

import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Final

import pytest

import kinstream
from tests.deploy.go_tools import ROOT

DEPLOY: Final = ROOT / "deploy"
CONTAINERFILE: Final = (DEPLOY / "Containerfile").read_text()
STEPS: Final = DEPLOY / "image" / "build_steps.sh"
ENTRY: Final = DEPLOY / "image" / "entrypoint.py"


def instructions(word: str) -> list[str]:
    """The instructions of the Containerfile that begin with a word, continued lines joined."""
    joined = CONTAINERFILE.replace("\\\n", " ")
    return [re.sub(r"\s+", " ", line) for line in joined.splitlines() if line.startswith(f"{word} ")]


def visible(path: str) -> bool:
    """Whether the build sees a file: the rules of the ignore file, the last that fits."""
    parts = PurePosixPath(path).parts
    seen = True
    for line in (DEPLOY / "Containerfile.dockerignore").read_text().splitlines():
        pattern = line.strip()
        if not pattern or pattern.startswith("#"):
            continue
        keeps = pattern.startswith("!")
        pattern = pattern.removeprefix("!")
        if pattern.startswith("**/"):
            fits = any(fnmatch(part, pattern.removeprefix("**/")) for part in parts)
        else:
            # A pattern that fits a folder holds for all that is in it.
            fits = any(fnmatch("/".join(parts[: n + 1]), pattern) for n in range(len(parts)))
        if fits:
            seen = keeps
    return seen


# ---- the files --------------------------------------------------------------------------------------------------


def test_the_script_can_be_read() -> None:
    assert subprocess.run(["sh", "-n", STEPS], check=False).returncode == 0
    assert os.access(STEPS, os.X_OK)


def test_nothing_of_the_base_is_in_the_image_but_what_the_build_has_chosen() -> None:
    first, last = instructions("FROM")
    assert (first, last) == ("FROM ${PYTHON_IMAGE} AS build", "FROM scratch")
    build, final = CONTAINERFILE.split("\nFROM ")[1:]
    assert re.findall(r"^RUN (.+)$", build, re.M) == [
        "/src/deploy/image/build_steps.sh /src /opt/kinstream",
        "python3 /src/deploy/image/root.py /opt/kinstream /image",
    ]
    owned = "--from=build --chown=10001:10001"
    assert re.findall(r"^COPY (.+)$", final, re.M) == [
        "--from=build /image /",
        f"{owned} /image/var/lib/kinstream /var/lib/kinstream",
        f"{owned} /image/work /work",
    ]
    assert not re.findall(r"^RUN ", final, re.M)


def test_the_version_of_the_image_is_that_of_the_project() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"ARG VERSION={version}" in instructions("ARG")


def test_the_build_arguments_are_those_of_the_script() -> None:
    told = dict(re.findall(r"^#   ([A-Z_]+) +(.+)$", STEPS.read_text(), re.M))
    taken = {}
    for line in instructions("ARG"):
        name, _, default = line.removeprefix("ARG ").partition("=")
        taken[name] = default
    image = taken.pop("PYTHON_IMAGE")
    # Of labels alone.
    del taken["VERSION"], taken["REVISION"]
    assert re.fullmatch(r"docker\.io/library/python:\d+\.\d+\.\d+-bookworm", image)
    assert told.keys() == taken.keys()
    defaults = {
        name: found[1] for name, text in told.items() if (found := re.search(r"\(([\w,-]+)\)$", text))
    }
    assert {name: value for name, value in taken.items() if value} == defaults
    # What the script takes where nothing is said is what it says of itself.
    used = dict(re.findall(r"\$\{([A-Z_]+):?-([^}\s]+)\}", STEPS.read_text()))
    assert {name: value for name, value in used.items() if name in told} == defaults
    page = (ROOT / "docs" / "deploying.md").read_text()
    assert f"| `EXTRAS` | `{defaults['EXTRAS']}` |" in page


def test_the_image_runs_as_nobody_in_particular() -> None:
    (user,) = instructions("USER")
    uid, gid = map(int, user.removeprefix("USER ").split(":"))
    assert uid > 0 and gid > 0
    assert CONTAINERFILE.index("\nUSER ") > CONTAINERFILE.index("\nCOPY --from")
    assert instructions("ENTRYPOINT") == ['ENTRYPOINT ["kinstream"]']


def test_torch_comes_from_no_index_by_itself() -> None:
    assert "ARG TORCH_INDEX_URL" in instructions("ARG")
    assert '--index-url "$TORCH_INDEX_URL"' in STEPS.read_text()


@pytest.mark.parametrize(
    "file", ["Containerfile", "image/build_steps.sh", "compose.yaml", "helm/kinstream/values.yaml"]
)
def test_no_index_of_packages_is_named(file: str) -> None:
    assert not re.search(r"https?://(?!127\.0\.0\.1|prometheus:|localhost)", (DEPLOY / file).read_text())


def test_the_build_sees_every_package_and_nothing_else() -> None:
    packages = {module.name for module in pkgutil.iter_modules(kinstream.__path__)} | {"src"}
    assert len(packages) > 8
    for package in packages:
        files = [path.relative_to(ROOT).as_posix() for path in (ROOT / package).rglob("*") if path.is_file()]
        assert files
        for file in files:
            made = re.search(r"__pycache__|\.egg-info", file)
            assert visible(file) is (made is None), file
    single = {"pyproject.toml", "setup.py", "README.md", "LICENSE"}
    for file in single | {"deploy/image/build_steps.sh"}:
        assert visible(file), file
    for name in {path.name for path in ROOT.iterdir()} - packages - single - {"deploy"}:
        assert not visible(f"{name}/x"), name
    assert not visible("deploy/compose.yaml")


# ---- the entry point ----------------------------------------------------------------------------------------------


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """The folder of an image whose `kinstream` tells its arguments and its environment."""
    folder = tmp_path / "opt"
    (folder / "venv" / "bin").mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "kernels" / "a").mkdir(parents=True)
    (folder / "kernels" / "a" / "one.nbi").write_text("built")
    (folder / "cpu").write_text("generic\n")
    shutil.copy2(ENTRY, folder / "bin" / "kinstream")
    inner = folder / "venv" / "bin" / "kinstream"
    inner.write_text(
        '#!/bin/sh\necho "$NUMBA_CPU_NAME/$NUMBA_CPU_FEATURES $NUMBA_CACHE_DIR $#: $*"\nexit 3\n'
    )
    inner.chmod(0o755)
    return folder


def enter(prefix: Path, temporary: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    temporary.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-IS", prefix / "bin" / "kinstream", *arguments],
        env={"PATH": os.environ["PATH"], "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_entry_point_passes_on_arguments_and_status(prefix: Path, tmp_path: Path) -> None:
    done = enter(prefix, tmp_path / "tmp", "produce", "a b", "--x")
    kernels = tmp_path / "tmp" / "kinstream-kernels"
    assert (done.returncode, done.stdout) == (3, f"generic/ {kernels} 3: produce a b --x\n")


def test_kernels_are_read_in_the_image_and_written_beside_it(prefix: Path, tmp_path: Path) -> None:
    enter(prefix, tmp_path / "tmp")
    kernels = tmp_path / "tmp" / "kinstream-kernels"
    link = kernels / "a" / "one.nbi"
    assert link.resolve() == prefix / "kernels" / "a" / "one.nbi"
    # As numba writes: beside it, and renamed.
    (kernels / "a" / "new").write_text("compiled here")
    os.replace(kernels / "a" / "new", link)
    assert (prefix / "kernels" / "a" / "one.nbi").read_text() == "built"
    # A second process of the container finds what the first one made.
    enter(prefix, tmp_path / "tmp")
    assert link.read_text() == "compiled here"
    assert os.listdir(tmp_path / "tmp") == ["kinstream-kernels"]
