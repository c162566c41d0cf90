"""The page of hybrid search is walked: from an empty table to rankings by vector and text, with its figures."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.docs.pages import ROOT, blocks
from tests.docs.terminals import walk
from tests.docs.test_tutorial import free_port

PAGE = ROOT / "docs" / "hybrid-search.md"
#: Other versions of numpy and scipy have other documents.
NEAR = 0.03


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_page_ends_where_it_says() -> None:
    # Root's database runs as another user, who may not enter pytest's folder.
    with TemporaryDirectory(prefix="kinstream-walk-", ignore_cleanup_errors=True) as name:
        port, folder = free_port(), Path(name)
        with walk(PAGE, folder, {"KINSTREAM_SERVE__HTTP_PORT": str(port)}) as page:
            page.write_files()
            page.start("database")
            page.until((folder / "database.url").exists, "the database is there")
            page.done(page.commands("make"))
            page.start_agents("up", ready=3)

            def ready() -> bool:
                try:
                    return bool(urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz").status == 200)
                except OSError:
                    return False

            page.until(ready, "the service is ready")
            found = figures(page.done(page.commands("grade").replace(":8088", f":{port}")))
    (shown,) = (figures(block.text) for block in blocks(PAGE, "text"))
    assert shown.keys() == found.keys() and len(shown) == 4
    assert found == pytest.approx(shown, abs=NEAR)
    assert found["half and half"] > 1.5 * found["vector"]
    assert found["three and seven tenths"] > max(found["text"], found["half and half"])


def figures(text: str) -> dict[str, float]:
    return {name: float(value) for name, value in re.findall(r"^([a-z ]+) (\d\.\d+)$", text, re.M)}
