"""What the tests of the image say where it cannot be built, and when it is built anew."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.deploy.image import build


def test_what_is_missing_is_named_by_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    there = shutil.which
    lacking = {"buildah", "ip"}
    monkeypatch.setattr(
        shutil, "which", lambda name: None if name in lacking else there(name) or f"/bin/{name}"
    )
    assert build.missing() == "Debian packages are missing: buildah, iproute2"


def test_a_user_without_rights_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert build.missing() == "building and running the image need root with the right to make namespaces"


def test_every_package_of_the_programs_is_installed_by_the_ci() -> None:
    script = (build.ROOT / ".ci" / "run").read_text()
    for package in set(build.PROGRAMS.values()) - {"util-linux"}:
        assert f"wanted+=({package})" in script


def test_the_image_is_built_anew_if_a_file_of_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in {
        "deploy/Containerfile": "FROM x",
        "deploy/Containerfile.dockerignore": "*\n!cli\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "cli" / "__pycache__").mkdir(parents=True)
    (tmp_path / "cli" / "main.py").write_text("a")
    (tmp_path / "build.py").touch()
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(build, "DEPLOY", tmp_path / "deploy")
    monkeypatch.setattr(build, "__file__", str(tmp_path / "build.py"))
    before = build.key()
    (tmp_path / "cli" / "__pycache__" / "main.pyc").write_text("compiled")
    (tmp_path / "notes.md").write_text("not seen by the build")
    assert build.key() == before
    (tmp_path / "cli" / "main.py").write_text("b")
    assert build.key() != before
