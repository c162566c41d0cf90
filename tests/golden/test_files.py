"""The same file becomes the same events in every version, byte for byte."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from kinstream.producers.items.source import open_items
from kinstream.producers.loads.phased_load import PhasedLoad
from kinstream.producers.sources.file_events import open_events
from kinstream.streams.records.codec.codec import encode

CASES: Any = json.loads(Path(__file__).with_name("files-v1.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["file"])
def test_the_events_are_those_of_the_version_that_wrote_them(case: Any, tmp_path: Path) -> None:
    file = tmp_path / case["file"]
    file.write_text(case["text"], encoding="utf-8", newline="")
    opened: Any
    if case["kind"] == "items":
        opened = open_items(str(file), case["fields"])
    else:
        first = case["first_position"]
        opened = open_events(str(file), case["kind"], "shop", case["fields"], first_position=first)
    load = PhasedLoad(case["kind"], [opened], "shop", 7, "load")
    assert sha256(b"".join(map(encode, load.blocks(12345)))).hexdigest() == case["sha256"]
