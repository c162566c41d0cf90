"""A short run of `tests.crash.feedback`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.feedback import SECRET, Loop, storm
from tests.faults import conftest as faults
from tests.kafka.broker import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.long]
_proxied, mortal = faults._proxied, faults.mortal


@pytest.fixture
def loop(mortal: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loop]:
    monkeypatch.setenv("KINSTREAM_GATE_KEY", SECRET)
    found = Loop(tmp_path, mortal)
    yield found
    print("\n".join(found.tails()))
    found.close()


@pytest.mark.timeout(900)
def test_no_feedback_is_lost_or_counts_twice(loop: Loop) -> None:
    found = storm(loop, 1_500, 6)
    print(found)
    assert (found["feedback"], found["lost"], found["double"]) == (1_500, 0, 0)
    assert sum(found["killed"].values()) == 6
