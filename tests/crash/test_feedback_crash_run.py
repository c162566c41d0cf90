"""A short run of `tests.crash.feedback`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.crash.feedback import SECRET, TAKEN_BACK, Loop, storm
from tests.faults import conftest as faults
from tests.kafka.broker import KafkaBroker
from tests.support.processes import until

pytestmark = [pytest.mark.kafka, pytest.mark.long]
_proxied, mortal = faults._proxied, faults.mortal


@pytest.fixture
def loop(mortal: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loop]:
    monkeypatch.setenv("KINSTREAM_GATE_KEY", SECRET)
    found = Loop(tmp_path, mortal)
    yield found
    print("\n".join(found.tails()))
    found.close()


@pytest.mark.timeout(300)
def test_answers_go_on_while_the_broker_stands_still(loop: Loop) -> None:
    until(loop.ready, "the service is ready")
    body = {"vectors": [[0.5] * 8], "k": 5}
    with httpx.Client(base_url=loop.url, timeout=20) as client:

        def counted(series: str) -> float:
            lines = client.get("/metrics").text.splitlines()
            return sum(
                float(one.split()[-1]) for one in lines if one.startswith(f"kinstream_serve_{series}_total")
            )

        def written() -> bool:
            client.post("/search", json=body).raise_for_status()
            return counted("recorded_lists") > 0

        until(written, "lists are written")
        loop.broker.pause()
        try:
            seconds = []
            for _ in range(50):
                began = time.monotonic()
                result = client.post("/search", json=body).json()["results"][0]
                seconds.append(time.monotonic() - began)
            # No answer waits for its list.
            assert max(seconds) < 2.5
            assert counted("dropped_lists") == 0
            given = {"list_id": result["list_id"], "item": result["neighbours"][0]["id"], "key": "again"}
            refused = client.post("/feedback", json={"feedback": [given]})
            assert refused.status_code in (503, 504)
            many = {"vectors": [[0.5] * 8] * 250, "k": 1}
            for _ in range(21):
                client.post("/search", json=many).raise_for_status()
            assert counted("dropped_lists") >= 50
        finally:
            loop.broker.resume()
        until(
            lambda: client.post("/feedback", json={"feedback": [given]}).status_code == 200,
            "feedback is taken",
        )
        before = counted("recorded_lists")
        until(lambda: written() and counted("recorded_lists") > before, "lists are written again")


@pytest.mark.timeout(900)
def test_no_feedback_is_lost_or_counts_twice(loop: Loop) -> None:
    found = storm(loop, 1_500, 6)
    print(found)
    assert (found["feedback"], found["lost"], found["double"]) == (1_500, 0, 0)
    assert found["taken back late"] == TAKEN_BACK
    assert sum(found["killed"].values()) == 6
