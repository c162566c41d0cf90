"""The page of vectors is walked: from clicks to a catalogue in PostgreSQL that answers better."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.docs.pages import ROOT, blocks
from tests.docs.terminals import walk

PAGE = ROOT / "docs" / "vectors.md"
_GRADE = re.compile(r"^(\d+) of 500 are of the topic as they are, (\d+) with version \d+_\d+$", re.M)


@pytest.mark.long
@pytest.mark.timeout(500)
def test_from_clicks_to_new_vectors() -> None:
    ((raw, new),) = [found for block in blocks(PAGE, "text") for found in _GRADE.findall(block.text)]
    # Root's database runs as another user, who may not enter pytest's folder.
    with TemporaryDirectory(prefix="kinstream-walk-", ignore_cleanup_errors=True) as folder:
        tmp_path = Path(folder)
        with walk(PAGE, tmp_path, {}) as page:
            page.write_files()
            page.start("database")
            page.until((tmp_path / "database.url").exists, "the database is there")
            page.done(page.commands("make"))
            page.start_agents("up", ready=5)
            page.done(page.commands("clicks"))
            page.until(
                lambda: re.search(r"docs +800 +\d", page.done(page.commands("status"))) is not None,
                "a version is there",
            )

            page.until(lambda: page.run(page.commands("grade")).returncode == 0, "the sink shows the version")

            def graded() -> tuple[int, int]:
                ((before, after),) = _GRADE.findall(page.done(page.commands("grade")))
                return int(before), int(after)

            page.until(lambda: graded()[1] > 470, "the rankings are better")
            before, after = graded()
    assert abs(before - int(raw)) <= 15 and after > 470 and int(new) > 470
