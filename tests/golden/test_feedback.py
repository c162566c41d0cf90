"""Lists and feedback become the same events in every version, byte for byte; an old state is continued."""

from __future__ import annotations

import base64
import json

import pytest

from kinstream.streams.checkpoints.state_bytes import from_bytes
from tests.golden.write_feedback import CUT, FILE, outputs
from tests.sources.shop import machine
from tests.sources.test_feedback import SOURCE

GOLDEN = json.loads(FILE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("first", [0, CUT])
def test_the_events_are_those_of_the_version_that_wrote_them(first: int) -> None:
    agent = machine(SOURCE)
    if first:
        agent.restore(first, None, from_bytes(base64.b64decode(GOLDEN["state"])), ())
    for at, value, wanted in GOLDEN["records"][first:]:
        assert outputs(agent, at, base64.b64decode(value)) == wanted
    assert sum(len(wanted) for _, _, wanted in GOLDEN["records"]) == 2
