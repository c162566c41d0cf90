"""The pages as data: fenced blocks with what stands before them, tables, links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))

#: An example below this line is run by the tests.
MARK = "<!-- test: run -->"


class Block(NamedTuple):
    """A fenced block: where it begins, its language, its text, and the last line of text before it."""

    place: str
    language: str
    text: str
    before: str


def blocks(page: Path, *languages: str) -> Iterator[Block]:
    """The fenced blocks in these languages."""
    lines = page.read_text(encoding="utf-8").splitlines()
    start, language = 0, None
    for number, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if language is None:
            start, language = number, line.removeprefix("```")
            continue
        if language in languages:
            before = next((text for text in reversed(lines[:start]) if text.strip()), "")
            place = f"{page.relative_to(ROOT)}:{start + 1}"
            yield Block(place, language, "\n".join(lines[start + 1 : number]) + "\n", before)
        language = None


def rows(page: Path, heading: str | None = None) -> Iterator[list[str]]:
    """The cells of every table row, below one heading or in the whole page, without headers and rules."""
    inside = heading is None
    fresh = True
    for line in page.read_text(encoding="utf-8").splitlines():
        if heading is not None and line.startswith("#"):
            inside = line.lstrip("# ").strip() == heading
        if not line.startswith("|"):
            fresh = True
        elif fresh:
            fresh = False  # the header
        elif inside and not re.fullmatch(r"[|\s:-]+", line):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)


def links(page: Path) -> Iterator[str]:
    """Targets of relative links."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if not target.startswith(("http://", "https://")):
            yield target


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
