"""The pages as a site: the navigation names each page once, in four parts; README is short; links are relative."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, links, prose

DOCS = ROOT / "docs"
NAVIGATION = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
#: Made of CHANGELOG.md when the site is built.
MADE = "changelog.md"


def test_the_navigation_names_every_page_once() -> None:
    named = re.findall(r": ([\w/-]+\.md)$", NAVIGATION, flags=re.M)
    assert len(named) == len(set(named))
    assert {*named} - {MADE} == {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}


def test_the_navigation_has_four_parts() -> None:
    parts = re.findall(r"^  - ([\w ]+):$", NAVIGATION, flags=re.M)
    assert parts == ["Tutorial", "How to", "Reference", "Explanations"]
    headings = re.findall(r"^## (.+)$", (DOCS / "index.md").read_text(encoding="utf-8"), flags=re.M)
    assert headings == parts


def test_the_first_page_leads_to_every_other() -> None:
    linked = {target.partition("#")[0] for target in links(DOCS / "index.md")}
    assert {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} - {"index.md"} <= linked


def test_the_readme_is_short() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150
    assert not [line for line in lines if len(line) > 120 and not line.startswith(("|", "![", "<"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_out_of_the_site_lead_to_the_change_log_alone(page: Path) -> None:
    if page.parent == ROOT:
        return
    for target in links(page):
        inside = (page.parent / target.partition("#")[0]).resolve().is_relative_to(DOCS)
        assert inside or target.startswith("../CHANGELOG.md"), target


@pytest.mark.parametrize("page", [p for p in PAGES if p.parent.name == "api"], ids=lambda page: page.name)
def test_the_modules_of_the_reference_exist(page: Path) -> None:
    named = re.findall(r"^::: (kinstream[\w.]+)$", prose(page), flags=re.M)
    assert named
    for name in named:
        module = name if name.rpartition(".")[2].islower() else name.rpartition(".")[0]
        path = ROOT / module.removeprefix("kinstream.").replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__init__.py").is_file(), name
