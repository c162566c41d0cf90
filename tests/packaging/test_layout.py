"""Git holds no links: those of a checkout are made when it is installed, and again when they are gone."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

import pytest

from tests.packaging.archive import PACKAGES, git, unpack
from tests.packaging.test_beside_other_code import run


def test_no_link_is_in_git() -> None:
    links = [line for line in git("ls-files", "--stage").splitlines() if line.startswith("120000 ")]
    assert links == []


def test_git_ignores_the_links_of_a_checkout() -> None:
    links = [f"src/kinstream/{name}" for name in PACKAGES]
    assert git("check-ignore", "--no-index", *links).splitlines() == links
    assert git("ls-files", "src").splitlines() == ["src/kinstream/__init__.py", "src/kinstream/py.typed"]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_make_brings_back_the_links_of_an_installed_checkout(tmp_path: Path) -> None:
    source = unpack(tmp_path)
    inside = source / "src" / "kinstream"
    python = source / ".venv" / "bin" / "python"
    run(sys.executable, "-m", "venv", source / ".venv", cwd=source)
    packages = source / ".venv" / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    shared = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "dependencies.pth").write_text("\n".join(shared) + "\n")
    # It was installed. Git has then written a link as text, and removed the others; one is of a folder that is gone.
    stamp = source / ".venv" / ".installed-run"
    stamp.write_bytes((source / "pyproject.toml").read_bytes())
    (inside / "cli").write_text("../../cli")
    (inside / "gone").symlink_to("../../gone")
    run("make", stamp.relative_to(source), cwd=source)
    assert {path.name for path in inside.iterdir()} == {"__init__.py", "py.typed", *PACKAGES}
    for name in PACKAGES:
        assert (inside / name).samefile(source / name)
    where = run(python, "-c", "import kinstream.streams; print(kinstream.streams.__file__)", cwd=tmp_path)
    assert Path(where.strip()) == inside / "streams" / "__init__.py"
    # With all links there is nothing to do.
    assert run("make", "--question", stamp.relative_to(source), cwd=source) == ""
