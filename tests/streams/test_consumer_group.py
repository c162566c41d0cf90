"""Records between the polling thread and a partition's task, in the prototype for the consumer protocol."""

from __future__ import annotations

import asyncio

from kinstream.streams.records.message import Message
from kinstream.streams.worker.consumer_group import WAITING, WAITING_BYTES, Feed
from kinstream.streams.worker.port import RUN, RUN_BYTES, Run


def records(first: int, count: int, size: int) -> Run:
    return [Message("t", 0, n, 0, None, bytes(size), (), n - 1) for n in range(first, first + count)]


class Task:
    """Takes runs while its gate is open."""

    def __init__(self) -> None:
        self.runs: list[list[int]] = []
        self.gate = asyncio.Event()

    async def deliver(self, run: Run) -> None:
        await self.gate.wait()
        self.runs.append([message.offset for message in run])


async def _idle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_waiting_records_are_delivered_in_order_in_runs_of_bounded_length_and_size() -> None:
    async def run() -> None:
        task = Task()
        feed = Feed(task.deliver)
        feed.put(records(0, 1, 10))
        await _idle()
        feed.put(records(1, WAITING, 10))
        big = 1 + WAITING
        feed.put(records(big, 3, RUN_BYTES - 1))
        assert feed.full
        task.gate.set()
        await _idle()
        assert [offset for run in task.runs for offset in run] == list(range(big + 3))
        assert [len(run) for run in task.runs] == [1, RUN, RUN, RUN, RUN, 2, 1]
        assert not feed.full

    asyncio.run(run())


def test_a_feed_is_full_by_records_or_by_bytes_and_empty_once_cleared() -> None:
    async def run() -> None:
        for some in (records(0, WAITING + 1, 0), records(0, 3, WAITING_BYTES // 2)):
            task = Task()
            feed = Feed(task.deliver)
            feed.put(some[:1])
            await _idle()
            assert not feed.full
            feed.put(some[1:])
            assert feed.full
            feed.clear()
            task.gate.set()
            await _idle()
            assert not feed.full and not task.runs
            feed.put(some[-1:])
            await _idle()
            assert task.runs == [[some[-1].offset]]

    asyncio.run(run())


def test_a_full_feed_stays_full_until_less_than_half_waits() -> None:
    async def run() -> None:
        size = WAITING_BYTES // 16
        free = asyncio.Semaphore(0)
        begun = 0

        async def deliver(run: Run) -> None:
            nonlocal begun
            begun += len(run)
            await free.acquire()

        feed = Feed(deliver)
        feed.put(records(0, 1, size))
        await _idle()
        # The first is on its way to the task, and does not wait any more.
        feed.put(records(1, 15, size))
        assert not feed.full
        feed.put(records(16, 1, size))
        full = {16: feed.full}
        while begun < 17:
            free.release()
            await _idle()
            full[17 - begun] = feed.full
        assert full == {waiting: waiting >= 8 for waiting in (16, 14, 12, 10, 8, 6, 4, 2, 0)}

    asyncio.run(run())
