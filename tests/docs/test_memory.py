"""The page of the memory is walked as a new user would, with a clock; its retrievers work in their libraries."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT, blocks
from tests.docs.terminals import installed_as_told, walk
from tests.docs.test_tutorial import free_port
from tests.search.test_feedback_service import NAMES, Q, Recording, recording

PAGE = ROOT / "docs" / "memory.md"
#: From `pip install` to a ranking that has learned; and the lines of the program that learns.
MINUTES, LINES = 10.0, 15
#: How many times as many answers come first at the end, and rounds until then at most: a fast machine needs more,
#: since windows end by the clock.
MORE, MOST_ROUNDS = 1.5, 60
pytestmark = pytest.mark.long


def figures(text: str) -> list[tuple[int, int, int]]:
    found = re.findall(r"^(\d+) of (\d+) answers come first, (\d+) among ten$", text, re.M)
    return [(int(first), int(of), int(shown)) for first, of, shown in found]


@pytest.mark.timeout(1800)
def test_from_pip_install_to_a_ranking_that_has_learned(tmp_path: Path) -> None:
    began = time.monotonic()
    environment, folder = installed_as_told(PAGE, tmp_path), tmp_path / "memory"
    installed = time.monotonic() - began
    folder.mkdir()
    port = free_port()
    with walk(PAGE, folder, {"KINSTREAM_SERVE__HTTP_PORT": str(port)}, environment) as page:
        # Kernels are compiled first.
        page.seconds = 60 * MINUTES
        page.write_files()
        page.done(page.commands("make"))
        page.start_agents("up", ready=3)
        page.until(lambda: answers(f"http://127.0.0.1:{port}/readyz"), "the service is ready")
        page.done(page.commands("items"))
        # The port of the page may be taken on this machine.
        agent = page.commands("agent").replace(":8088", f":{port}")
        rounds: list[tuple[int, int, int]] = []
        learned = 0.0
        # Each round is the traffic that ends the windows of the one before it.
        while len(rounds) < MOST_ROUNDS and not (rounds and rounds[-1][0] > MORE * rounds[0][0]):
            rounds += figures(page.done(agent))
            if not learned and rounds[-1][0] > 1.1 * rounds[0][0]:
                learned = time.monotonic() - began
    lines = {name: written(name) for name in ("agent.py", "docs.py")}
    print(
        f"{installed:.0f} s to install, {learned / 60:.1f} minutes to a ranking that has learned; lines {lines}"
    )
    rows = ", ".join(f"{first} ({among})" for first, _, among in rounds)
    print(f"answers that come first, and among ten, of {rounds[0][1]}: {rows}")
    assert lines["agent.py"] <= LINES
    shown = figures("".join(block.text for block in blocks(PAGE, "text")))
    assert len(shown) == 2
    # Other versions of numpy have other documents.
    assert rounds[0][0] == pytest.approx(shown[0][0], rel=0.2)
    assert rounds[-1][0] > MORE * rounds[0][0]
    assert 0 < learned < 60 * MINUTES


def written(name: str) -> int:
    """The lines of a file of the page, without empty ones."""
    (block,) = [one for one in blocks(PAGE, "python") if one.before == f"<!-- file: {name} -->"]
    return sum(bool(line.strip()) for line in block.text.splitlines())


def answers(url: str) -> bool:
    try:
        return bool(urllib.request.urlopen(url, timeout=5).status == 200)
    except OSError:
        return False


@pytest.fixture
def service() -> Iterator[Recording]:
    with recording() as found:
        yield found


def recipe(name: str, service: Recording) -> str:
    """A recipe of the page, asking this service, of which texts come by id."""
    (found,) = [one.text for one in blocks(PAGE, "python") if one.before == f"<!-- recipe: {name} -->"]
    text = found.replace("http://localhost:8088", str(service.client.base_url))
    made = text.replace("k=4)", "k=4, content=texts)")
    assert made != text != found
    return made


@pytest.mark.parametrize("name", ["langchain", "llamaindex"])
def test_the_recipes_of_retrievers(service: Recording, name: str) -> None:
    from langchain_core.embeddings import DeterministicFakeEmbedding
    from llama_index.core.embeddings import MockEmbedding

    scope: dict[str, Any] = {
        "embeddings": DeterministicFakeEmbedding(size=Q.shape[1]),
        "embed_model": MockEmbedding(embed_dim=Q.shape[1]),
        "question": "How do I sort an array?",
        "texts": {one: f"the text of {one}" for one in NAMES},
    }
    exec(recipe(name, service), scope)
    found = scope["documents"] if name == "langchain" else scope["nodes"]
    assert len(found) == 4
    (written,) = service.brokers.feedback
    assert written.action == "cited"
    assert written.item == (found[0].id if name == "langchain" else found[0].node_id)
