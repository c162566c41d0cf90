"""What a worker does and holds while nothing happens: it seldom wakes, and imports little that it does not use."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any, cast

import pytest
from faust.transport.drivers import aiokafka as driver
from mode import Service

from kinstream.streams.worker.faust_app import Sensor
from kinstream.streams.worker.recovery import Recovery
from kinstream.streams.worker.transport import RECORDS_SECONDS, ConsumerThread
from tests.support.virtual_time import VirtualTime

#: Makes the app of a worker, and then imports aiohttp as another library would.
_APP = """
import asyncio, sys
from kinstream.streams.settings import Settings
from kinstream.streams.worker.web_types import import_web_types

async def made():
    import_web_types()
    from kinstream.streams.worker.faust_app import FaustMembership
    settings = Settings.model_validate({"kafka": {"bootstrap_servers": "nowhere:9092"}})
    FaustMembership("group", "topic", settings, None, embedded=False)._app.finalize()
    return [name for name in sys.modules if name.startswith("aiohttp.") or name == "aiohttp"]

print(asyncio.run(made()))
from aiohttp.client import ClientSession
print(ClientSession.__module__)
"""


@pytest.mark.parametrize("service, task", [(Sensor, "_sampler"), (Recovery, "_publish_stats")])
def test_tasks_of_faust_that_nobody_needs_end_at_once(service: type[Service], task: str) -> None:
    loop = VirtualTime()
    one = cast(Any, service.__new__(service))
    assert loop.run_until_complete(getattr(service, task)(one)) is None
    assert loop.wakes == 0


def test_the_thread_waits_for_records_longer_than_faust_does(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float | None] = []

    async def fetched(
        self: Any,
        consumer: Any,
        active_partitions: Any,
        timeout: float | None = None,
        max_records: Any = None,
    ) -> dict[Any, Any]:
        waits.append(timeout)
        return {}

    monkeypatch.setattr(driver.AIOKafkaConsumerThread, "_fetch_records", fetched)
    one = cast(Any, ConsumerThread.__new__(ConsumerThread))
    one._sought = {}
    assert asyncio.run(one._fetch_records(None, set(), timeout=1.0, max_records=None)) == {}
    assert waits == [RECORDS_SECONDS] and RECORDS_SECONDS > 1.0


def test_a_worker_does_without_the_web_library_of_faust_and_leaves_it_to_others() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _APP], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.split() == ["[]", "aiohttp.client"]
