"""What a contributor meets: files parse, commands and links exist, and tests run on every Python that is promised."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from tests.docs.pages import ROOT, anchors, blocks, links, prose

PAGES = [ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md")]
YAML = [*sorted((ROOT / ".github").rglob("*.yml")), ROOT / ".pre-commit-config.yaml"]
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.md"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M))
#: The stations of a list of clicks, in the order of the drawing.
STATIONS = ["events", "constraints", "model", "service", "gate", "clicks"]


def read(file: Path) -> Any:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_and_every_make_command_exists(page: Path) -> None:
    for target in links(page):
        path, _, anchor = target.partition("#")
        file = ROOT / path
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target
    shell = "".join(block.text for block in blocks(page, "sh")) + "".join(re.findall(r"`[^`]+`", prose(page)))
    assert set(re.findall(r"\bmake ([a-z-]+)", shell)) <= TARGETS


@pytest.mark.parametrize("file", YAML, ids=lambda file: file.name)
def test_yaml_parses(file: Path) -> None:
    assert read(file)


def test_the_tests_run_on_every_python_that_is_promised_with_java_17() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    promised = [one.rpartition(" ")[2] for one in project["classifiers"] if "Python :: 3." in one]
    job = read(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]["test"]
    assert job["strategy"]["matrix"]["python"] == promised
    assert [one["with"]["java-version"] for one in job["steps"] if "java" in one.get("uses", "")] == ["17"]
    made = {word for one in job["steps"] for word in re.findall(r"\bmake ([a-z-]+)", one.get("run", ""))}
    assert made == {"test"}


def test_the_hooks_are_commands_of_the_environment_of_make() -> None:
    (local,) = read(ROOT / ".pre-commit-config.yaml")["repos"]
    lint = (ROOT / "Makefile").read_text(encoding="utf-8")
    for hook in local["hooks"]:
        program = Path(hook["entry"].split()[0])
        assert program.parent.as_posix() == ".venv/bin" and f"$(BIN)/{program.name}" in lint, hook
        assert hook["language"] == "system"
    assert [hook["id"] for hook in local["hooks"]] == ["ruff", "ruff-format", "mypy"]


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda file: file.name)
def test_a_template_of_issues_says_its_name_and_what_it_is_about(template: Path) -> None:
    front = template.read_text(encoding="utf-8").split("---\n")[1]
    assert {"name", "about"} <= yaml.safe_load(front).keys()


def test_the_circle_is_one_drawing_on_every_page_that_shows_it() -> None:
    drawing = ROOT / "docs" / "pictures" / "circle.svg"
    space = "{http://www.w3.org/2000/svg}"
    tree = ElementTree.parse(drawing).getroot()
    names = [one.text for one in tree.iter(f"{space}text") if one.get("class") == "name"]
    assert names == STATIONS
    # Readable on a light and on a dark page.
    (style,) = (one.text or "" for one in tree.iter(f"{space}style"))
    assert "prefers-color-scheme: dark" in style
    for page in ("README.md", "docs/architecture.md", "docs/stream.md"):
        assert "pictures/circle.svg)" in (ROOT / page).read_text(encoding="utf-8"), page
