"""The builder of one's own in docs/building.md: it passes the checks, and settings find it by its entry point."""

from __future__ import annotations

from pathlib import Path

from tests.docs.pages import ROOT, blocks
from tests.docs.test_own_learner import distribution, run

PAGE = ROOT / "docs" / "building.md"


def installed(folder: Path) -> Path:
    """A folder with the files of the page, as a package whose entry points are a sound builder and two others."""
    folder.mkdir()
    for block in blocks(PAGE, "python"):
        if block.before.startswith("<!-- file: "):
            name = block.before.removeprefix("<!-- file: ").removesuffix(" -->")
            (folder / name).write_text(block.text, encoding="utf-8")
    offers = {
        "latest": "latest_builder:Latest",
        "gone": "no_such_module:Gone",
        "number": "latest_builder:Table",
    }
    distribution(
        folder, "others", "2.5", {**offers, "closure": "latest_builder:Latest"}, "kinstream.builders"
    )
    return folder


def test_it_passes_the_checks_of_builders(tmp_path: Path) -> None:
    folder = installed(tmp_path / "installed")
    done = run(folder, str(folder / "check_latest.py"))
    assert (done.returncode, done.stdout) == (0, "all checks pass\n"), done.stderr


def test_settings_find_it_and_a_fault_names_the_package(tmp_path: Path) -> None:
    folder = installed(tmp_path / "installed")
    (tmp_path / "kinstream.toml").write_text(
        '[builders.a]\nkind = "latest"\n'
        '[builders.b]\nkind = "gone"\n'
        '[builders.c]\nkind = "number"\n'
        '[builders.d]\nkind = "latest"\nsize = 3\n'
        '[builders.e]\nkind = "lattest"\n'
        '[builders.f]\nkind = "closure"\n'
        '[learners.opml]\nkind = "opml"\nfrom = ["a"]\n'
    )
    done = run(folder, "-m", "kinstream.cli.main", "models", "list")
    assert done.returncode == 2
    assert "builders.a" not in done.stderr and "builders.f" not in done.stderr
    assert "the builder 'gone' of others 2.5 cannot be imported from no_such_module:Gone" in done.stderr
    assert "the builder 'number' of others 2.5 cannot be made" in done.stderr
    assert "[builders.d] size: latest has no such setting" in done.stderr
    assert "no builder is called 'lattest'" in done.stderr and "did you mean latest?" in done.stderr
    assert "others 2.5 offers a builder 'closure' (latest_builder:Latest): ignored" in done.stderr
