"""What a worker does while nothing happens: it seldom wakes, and whatever happens wakes it."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import TopicPartition
from mode import Service

from kinstream.streams.worker.faust_app import Sensor
from kinstream.streams.worker.recovery import Recovery
from kinstream.streams.worker.transport import IDLE_SECONDS, Consumer, ConsumerThread
from tests.support.virtual_time import VirtualTime

PLACE = TopicPartition("events", 0)
RECORD = SimpleNamespace(offset=7, timestamp=1, timestamp_type=1, key=b"", value=b"", headers=())


class Fetcher:
    """That of a client without records."""

    _closed = False

    def __init__(self) -> None:
        self.records: dict[TopicPartition, list[Any]] = {}
        self.waiters: list[asyncio.Future[None]] = []
        self._subscriptions = SimpleNamespace(fetch_context=nullcontext)

    async def fetched_records(self, partitions: Any, timeout: float, max_records: int | None) -> Any:
        assert not timeout, "the thread waits itself"
        found, self.records = self.records, {}
        return found

    def _create_fetch_waiter(self) -> asyncio.Future[None]:
        self.waiters.append(asyncio.get_running_loop().create_future())
        return self.waiters[-1]


class Thread:
    """The thread of a consumer, on a loop whose time passes at once."""

    def __init__(self) -> None:
        self.loop = VirtualTime()
        self.fetcher = Fetcher()
        self.flow = SimpleNamespace(flow_active=True)
        self.thread = cast(Any, ConsumerThread.__new__(ConsumerThread))
        self.thread.consumer, self.thread.thread_loop = self.flow, self.loop
        self.thread._returned, self.thread._sought, self.thread._waiter = {}, {}, None

    async def fetch(self) -> Any:
        client = SimpleNamespace(_closed=False, _fetcher=self.fetcher)
        return await self.thread._fetch_records(client, {PLACE}, timeout=1.0, max_records=None)

    async def waiting(self) -> asyncio.Task[Any]:
        """A fetch that waits for records."""
        began = asyncio.create_task(self.fetch())
        while not self.fetcher.waiters:
            await asyncio.sleep(0)
        return began


def test_without_records_the_thread_wakes_every_few_seconds() -> None:
    one = Thread()

    async def minute() -> None:
        while one.loop.time() < 60.0:
            assert await one.fetch() == {}

    one.loop.run_until_complete(minute())
    assert one.loop.wakes <= 60.0 / IDLE_SECONDS


def test_records_end_the_wait_for_them() -> None:
    one = Thread()

    async def run() -> Any:
        began = await one.waiting()
        one.fetcher.records = {PLACE: [RECORD]}
        one.fetcher.waiters[-1].set_result(None)
        return await began

    ((message,),) = one.loop.run_until_complete(run())[PLACE]
    assert (message.offset, one.loop.now) == (7, 0.0)


def test_what_the_fetcher_meets_ends_the_wait_with_its_error() -> None:
    one = Thread()

    async def run() -> Any:
        began = await one.waiting()
        one.fetcher.waiters[-1].set_exception(OSError("met"))
        return await began

    with pytest.raises(OSError, match="met"):
        one.loop.run_until_complete(run())


def test_a_flow_that_stops_ends_the_wait() -> None:
    one = Thread()
    consumer = cast(Any, Consumer.__new__(Consumer))
    consumer._thread, consumer.can_resume_flow, consumer.suspend_flow = (
        one.thread,
        asyncio.Event(),
        asyncio.Event(),
    )

    async def run() -> Any:
        began = await one.waiting()
        consumer.stop_flow()
        one.flow.flow_active = consumer.flow_active
        return await began

    assert one.loop.run_until_complete(run()) == {}
    assert one.loop.now == 0.0
    one.loop.close()
    consumer.stop_flow()  # Nothing waits any more.


@pytest.mark.parametrize("service, task", [(Sensor, "_sampler"), (Recovery, "_publish_stats")])
def test_tasks_of_faust_that_nobody_needs_end_at_once(service: type[Service], task: str) -> None:
    loop = VirtualTime()
    one = cast(Any, service.__new__(service))
    assert loop.run_until_complete(getattr(service, task)(one)) is None
    assert loop.wakes == 0
