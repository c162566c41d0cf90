"""The image: what its build sees, its entry point, and its steps in a clean environment under a read-only root."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Final

import pytest

from tests.deploy.go_tools import ROOT

DEPLOY: Final = ROOT / "deploy"
CONTAINERFILE: Final = (DEPLOY / "Containerfile").read_text()
STEPS: Final = DEPLOY / "build_steps.sh"
ENTRY: Final = DEPLOY / "entrypoint.sh"
READ_ONLY: Final = Path(__file__).with_name("read_only.sh")
#: Kernels of `kinstream demo`; LEGO is a member of the portfolio, whose own do not bring it along.
KERNELS: Final = "mixture lego opml copml one-pass search"
#: Of the machine's own: how the package index is reached from here.
NETWORK: Final = re.compile(r"PIP_.*|.*_proxy|.*_PROXY|SSL_CERT_.*|REQUESTS_CA_BUNDLE")


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


def context(folder: Path) -> Path:
    """What the build sees, copied."""
    tops = [top for top in ROOT.iterdir() if top.name == "deploy" or visible(top.name)]
    for path in [
        path for top in tops for path in (top, *top.rglob("*")) if path.is_file() or path.is_symlink()
    ]:
        inside = path.relative_to(ROOT)
        if visible(inside.as_posix()):
            (folder / inside).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, folder / inside, follow_symlinks=False)
    return folder


# ---- the files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", [STEPS, ENTRY, READ_ONLY], ids=lambda path: path.name)
def test_a_script_can_be_read(script: Path) -> None:
    assert subprocess.run(["sh", "-n", script], check=False).returncode == 0
    assert script == READ_ONLY or os.access(script, os.X_OK)


def test_the_image_is_built_in_stages_by_the_script_alone() -> None:
    assert len(instructions("FROM")) == 2
    build, final = CONTAINERFILE.split("\nFROM ")[1:]
    assert re.findall(r"^RUN (.+)$", build, re.M) == ["/src/deploy/build_steps.sh /src /opt/kinstream"]
    # Of what was built only the folder of the script comes along.
    assert re.findall(r"^COPY (.+)$", final, re.M) == ["--from=build /opt/kinstream /opt/kinstream"]


def test_the_build_arguments_are_those_of_the_script() -> None:
    told = dict(re.findall(r"^#   ([A-Z_]+) +(.+)$", STEPS.read_text(), re.M))
    taken = {}
    for line in instructions("ARG"):
        name, _, default = line.removeprefix("ARG ").partition("=")
        taken[name] = default
    image = taken.pop("PYTHON_IMAGE")
    assert re.fullmatch(r"docker\.io/library/python:\d+\.\d+\.\d+-slim-\w+", image)
    assert told.keys() == taken.keys()
    defaults = {name: found[1] for name, text in told.items() if (found := re.search(r"\(([\w,]+)\)$", text))}
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
    "file", ["Containerfile", "build_steps.sh", "compose.yaml", "helm/kinstream/values.yaml"]
)
def test_no_index_of_packages_is_named(file: str) -> None:
    assert not re.search(r"https?://(?!127\.0\.0\.1|prometheus:|localhost)", (DEPLOY / file).read_text())


def test_the_build_sees_every_package_and_nothing_else() -> None:
    links = [path for path in (ROOT / "src" / "kinstream").iterdir() if path.is_symlink()]
    packages = {path.resolve().relative_to(ROOT).as_posix() for path in links} | {"src"}
    assert len(packages) > 8
    for package in packages:
        files = [path.relative_to(ROOT).as_posix() for path in (ROOT / package).rglob("*") if path.is_file()]
        assert files
        for file in files:
            assert visible(file) is ("__pycache__" not in file), file
    for file in ("pyproject.toml", "README.md", "LICENSE", "deploy/build_steps.sh", "deploy/entrypoint.sh"):
        assert visible(file), file
    tops = (
        {path.name for path in ROOT.iterdir()}
        - packages
        - {"deploy", "pyproject.toml", "README.md", "LICENSE"}
    )
    for name in tops:
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
    (folder / "cpu.sh").write_text("export NUMBA_CPU_NAME=generic NUMBA_CPU_FEATURES=\n")
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
        [prefix / "bin" / "kinstream", *arguments],
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


# ---- the steps --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built() -> Iterator[Path]:
    """The steps of the image, run with an empty environment on what the build sees."""
    (ROOT / ".cache").mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="image-", dir=ROOT / ".cache"))
    try:
        source = context(folder / "src")
        network = {name: value for name, value in os.environ.items() if NETWORK.fullmatch(name)}
        environment = network | {"PATH": os.environ["PATH"], "PYTHON": sys.executable, "KERNELS": KERNELS}
        command = [source / "deploy" / "build_steps.sh", source, folder / "opt"]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=900
        )
        assert done.returncode == 0, done.stderr[-3000:]
        yield folder / "opt"
    finally:
        shutil.rmtree(folder)


def contained(prefix: Path, script: str) -> subprocess.CompletedProcess[str]:
    """A shell script as a container of the image would run it."""
    if not shutil.which("unshare") or subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        reason = "a read-only root needs the rights to make a mount namespace (root, and util-linux)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    environment = {
        "PATH": f"{prefix}/bin:/usr/bin:/bin",
        "HOME": "/tmp",
        "MPLCONFIGDIR": "/tmp/matplotlib",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "PREFIX": str(prefix),
    }
    return subprocess.run(
        ["unshare", "--mount", "sh", READ_ONLY, "sh", "-euc", script],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_the_steps_make_what_runs_without_rights_under_a_read_only_root(built: Path) -> None:
    assert not (built / "venv" / "bin" / "pip").exists()
    assert not list((built / "venv" / "lib").glob("python*/site-packages/torch"))
    requirements = (built / "requirements.txt").read_text()
    assert "numba==" in requirements and "kinstream" not in requirements

    rights = contained(
        built, 'id -u; grep CapEff /proc/self/status; touch "$PREFIX/x" "$PREFIX/kernels/x" /x || true'
    )
    assert rights.stdout.split() == ["10001", "CapEff:", "0000000000000000"]
    assert rights.stderr.count("Read-only file system") == 3

    helped = contained(built, "kinstream --help && kinstream --version")
    assert helped.returncode == 0 and "worker" in helped.stdout, helped.stderr

    warm = contained(built, f"NUMBA_DEBUG_CACHE=1 kinstream warm-up --jobs 1 {KERNELS}")
    assert warm.returncode == 0, warm.stderr
    assert warm.stdout.count("data loaded") > 10 and "data saved" not in warm.stdout

    # Every role at work on the embedded broker; what a real stream needs was compiled beforehand as well.
    demo = contained(
        built,
        "NUMBA_DEBUG_CACHE=1 kinstream demo > demo.txt 2>&1 || { tail -n 40 demo.txt; exit 1; }; "
        "grep -rho 'data saved.*' .kinstream/demo/logs && exit 4; grep -rlc 'data loaded' .kinstream/demo/logs; "
        'grep -rho \'"cpu":"[^"]*"\' .kinstream/demo/checkpoints | sort -u',
    )
    assert demo.returncode == 0, demo.stdout[-3000:] + demo.stderr[-1000:]
    assert ".kinstream/demo/logs/learner-opml.log" in demo.stdout
    assert set(re.findall(r'"cpu":"[^/]+/([^"]*)"', demo.stdout)) == {"generic"}


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_kernels_of_a_source_that_changed_are_compiled_and_kept_elsewhere(built: Path) -> None:
    # The check above can fail: a kernel that the image does not have is compiled, and nothing of the image changes.
    before = sorted(path.name for path in (built / "kernels").rglob("*"))
    done = contained(built, "NUMBA_DEBUG_CACHE=1 kinstream warm-up --jobs 1 rdml; ls /tmp/kinstream-kernels")
    assert done.returncode == 0, done.stderr
    assert "data saved to '/tmp/kinstream-kernels/" in done.stdout
    assert sorted(path.name for path in (built / "kernels").rglob("*")) == before
