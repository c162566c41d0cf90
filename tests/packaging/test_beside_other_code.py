"""An installed Kinstream has one import name, and works in a folder whose own modules are named as its packages are."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

import kinstream
from kinstream.learners import registry
from tests.docs.pages import MARK, ROOT, blocks
from tests.packaging.archive import PACKAGES, packaged, unpack
from tests.support.machine_code import take_machine_code

#: What a service of the user's may hold; each raises where it is imported for one of ours.
THEIRS = "raise RuntimeError(f'{__name__} of the user was imported')\n"
TYPED = """
from kinstream import OPML, ModelFollower, __version__
from kinstream.learners.base.learner import Outcomes
from kinstream.streams.records.values import ConstraintBlock


def learned(model: OPML, block: ConstraintBlock) -> int:
    outcomes: Outcomes = model.learn(block)
    return outcomes.counts().mistakes


def follow(space: str) -> ModelFollower:
    print(__version__)
    return ModelFollower(space, "opml")
"""


def run(*command: str | Path, cwd: Path, seconds: float = 300.0) -> str:
    """Run a command to its end, without settings of ours and without this checkout; its output."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _environment() -> Mapping[str, str]:
    ours = ("KAFKA_", "KINSTREAM_", "PYTHONPATH")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A .zip of the repository, unpacked."""
    return unpack(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def built(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel that is made of it, and in `zip` the wheel that is made of the .zip."""
    folder = tmp_path_factory.mktemp("dist")
    # They change sys.argv.
    script = "import sys; from setuptools import build_meta as build; _, dist, zip = sys.argv; "
    script += "build.build_sdist(dist); build.build_wheel(zip)"
    run(sys.executable, "-c", script, folder, folder / "zip", cwd=source)
    (sdist,) = folder.glob("*.tar.gz")
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    run(*pip, "--wheel-dir", folder, sdist, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def python(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with the wheel installed, beside the packages that it depends on; nothing of this checkout."""
    folder = tmp_path_factory.mktemp("venv")
    run(sys.executable, "-m", "venv", folder, cwd=built)
    packages = folder / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    # The editable installation of this checkout is a .pth file there, which a .pth file of another folder does not run.
    shared = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "dependencies.pth").write_text("\n".join(shared) + "\n")
    found = folder / "bin" / "python"
    (wheel,) = built.glob("*.whl")
    run(found, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", wheel, cwd=built)
    ours = Path(kinstream.__file__).parent
    for source in (packages / "kinstream").rglob("*.py"):
        assert source.read_bytes() == (ours / source.relative_to(packages / "kinstream")).read_bytes(), source
    take_machine_code(packages / "kinstream")
    return found


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder of a user whose modules have the names of our packages."""
    for name in PACKAGES[:4]:
        (tmp_path / f"{name}.py").write_text(THEIRS)
    for name in PACKAGES[4:]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(THEIRS)
    (tmp_path / "cli.py").write_text(THEIRS)
    return tmp_path


@pytest.mark.long
@pytest.mark.parametrize("wheel", ["*.whl", "zip/*.whl"], ids=["sdist", "zip"])
def test_a_wheel_holds_all_files_of_the_packages_under_one_import_name(
    wheel: str, source: Path, built: Path
) -> None:
    (file,) = built.glob(wheel)
    with zipfile.ZipFile(file) as opened:
        names = {name for name in opened.namelist() if ".dist-info/" not in name}
    wanted = {"kinstream/__init__.py", "kinstream/py.typed", "kinstream/streams/schemas/ConstraintBlock.avsc"}
    wanted |= {f"kinstream/{name}/__init__.py" for name in PACKAGES}
    assert wanted <= names
    assert names == packaged(source)


@pytest.mark.long
def test_the_sdist_holds_no_links(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        assert not [member.name for member in archive if member.issym() or member.islnk()]


def test_what_is_imported_is_the_wheel(python: Path, theirs: Path) -> None:
    where = run(python, "-c", "import kinstream.streams; print(kinstream.streams.__file__)", cwd=theirs)
    assert where.startswith(str(python.parents[1]))


@pytest.mark.parametrize("number", range(2))
def test_examples_of_the_readme_run_among_modules_of_the_same_names(
    number: int, python: Path, theirs: Path
) -> None:
    examples = [block for block in blocks(ROOT / "README.md", "python") if block.before == MARK]
    if number >= len(examples):
        assert examples, "README has no example that is run"
        return
    (theirs / "example.py").write_text(examples[number].text)
    run(python, "example.py", cwd=theirs)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_supervised_workers_and_the_demonstration_run_among_modules_of_the_same_names(
    python: Path, theirs: Path
) -> None:
    # The demonstration starts every agent by its supervisor, in this folder.
    output = run(python, "-m", "kinstream.cli.main", "demo", "--repeat", "1", cwd=theirs, seconds=500.0)
    assert "5-NN error" in output
    logs = "".join(path.read_text() for path in theirs.glob(".kinstream/demo/logs/*.log"))
    assert "of the user was imported" not in logs
    assert "serves http://" in logs


def test_a_strictly_typed_script_is_accepted(python: Path, tmp_path: Path) -> None:
    (tmp_path / "typed.py").write_text(TYPED)
    mypy = (sys.executable, "-m", "mypy", "--strict", "--python-executable", python)
    run(*mypy, "--cache-dir", tmp_path / "cache", "typed.py", cwd=tmp_path, seconds=500.0)


def test_a_bare_name_is_an_error_of_the_linter(tmp_path: Path) -> None:
    for name in PACKAGES:
        command = [
            sys.executable,
            "-m",
            "ruff",
            "check",
            "--stdin-filename",
            str(ROOT / "tests" / "example.py"),
            "-",
        ]
        found = subprocess.run(
            command,
            input=f"import {name}.base\n\nprint({name})\n",
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert found.returncode == 1 and f"import kinstream.{name}" in found.stdout, found.stdout


def test_the_public_names_are_all_learners_and_what_services_use() -> None:
    learners = {type(registry.create(kind)).__name__ for kind in registry.own_names() if kind != "fusion"}
    assert set(kinstream.__all__) == learners | {
        "BlockSettings",
        "Fusion",
        "LabelledLoad",
        "MapReplica",
        "MetricLearner",
        "ModelFeed",
        "ModelFollower",
        "QueryAdapter",
        "QueryModel",
        "SearchClient",
        "TripletRule",
        "open_source",
        "__version__",
    }
    for name in kinstream.__all__:
        assert getattr(kinstream, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'OMPL'"):
        kinstream.OMPL  # noqa: B018


def test_the_import_loads_nothing() -> None:
    script = (
        "import sys; import kinstream; print(*(m for m in ('numpy', 'faust', 'numba') if m in sys.modules))"
    )
    assert run(sys.executable, "-c", script, cwd=ROOT).strip() == ""
