"""The tutorial is walked: its files, its commands, in its order, in an environment with the extras that it names and
nothing else; search is better after the clicks than before."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks
from tests.docs.terminals import Walk, installed_as_told, walk

PAGE = ROOT / "docs" / "tutorial.md"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def right(page: Walk, grade: str) -> int:
    (found,) = re.findall(r"^(\d+) of 500 neighbours", page.done(grade), flags=re.M)
    return int(found)


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_the_tutorial_ends_where_it_says(tmp_path: Path) -> None:
    environment, folder = installed_as_told(PAGE, tmp_path), tmp_path / "shop"
    folder.mkdir()
    shown = [int(n) for b in blocks(PAGE, "text") for n in re.findall(r"^(\d+) of 500", b.text)]
    port = free_port()

    def here(name: str) -> str:
        # The port of the page may be taken on this machine.
        return page.commands(name).replace(":8088", f":{port}")

    with walk(PAGE, folder, {"KINSTREAM_SERVE__HTTP_PORT": str(port)}, environment) as page:
        page.write_files()
        page.done(here("make"))
        page.start_agents("up", ready=3)
        page.done(here("items"))
        similar = here("similar")
        page.until(lambda: '"id":"sku-' in page.run(similar).stdout, "search has the catalogue")
        before = right(page, here("grade"))
        page.done(here("clicks"))
        listed = here("clicks").splitlines()[1]
        page.until(lambda: "taste" in page.run(listed).stdout, "the model is announced")
        page.until(lambda: right(page, here("grade")) > 450, "search follows the model")
    assert len(shown) == 2
    assert abs(before - shown[0]) <= 15
    assert shown[1] > 450
