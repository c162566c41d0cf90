"""A worker that has work and does not move ends itself with status 75, and its supervisor starts it again."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.faults.conftest import MakeSystem
from tests.faults.processes import patched
from tests.faults.reference import blocks
from tests.kafka.broker import KafkaBroker
from tests.kafka.proxy import FETCH, GROUP, FreezingProxy
from tests.support.processes import until

STALL = 4.0
#: The watchdog asks the brokers with a time limit of 5 s, and a pause of the supervisor comes on top.
MARGIN = 12.0


def through(proxy: FreezingProxy) -> dict[str, str]:
    """An environment in which a worker reaches the broker through the proxy alone."""
    return {"KAFKA_BOOTSTRAP_SERVERS": proxy.bootstrap}


@pytest.mark.kafka
def test_a_worker_whose_group_coordinator_is_frozen_is_ended_by_its_watchdog_and_goes_on_after_the_thaw(
    make_system: MakeSystem, mortal: KafkaBroker, proxy: FreezingProxy
) -> None:
    # After the thaw too a rebalance must end within it.
    limit = 10.0
    system = make_system(mortal, worker__rebalance_limit_seconds=limit)
    system.send(blocks("a", 10))
    proxy.freeze(GROUP)
    builder = system.worker("builder-one-pass", "--create", environment=through(proxy))
    builder.expect(r"generation 1 serves")
    builder.expect(r"Stalled: a rebalance has lasted \d+ s; ending the process", limit + MARGIN)
    builder.expect(r"the worker ended with status 75; starting it again")
    proxy.thaw()
    system.settle(upto="builder-one-pass")
    system.check_exact(upto="builder-one-pass")
    assert builder.stop() == 0


@pytest.mark.kafka
@pytest.mark.long
def test_a_worker_whose_fetches_are_frozen_is_ended_by_its_watchdog_and_goes_on_after_the_thaw(
    make_system: MakeSystem, mortal: KafkaBroker, proxy: FreezingProxy
) -> None:
    system = make_system(mortal, worker__stall_seconds=STALL)
    builder = system.worker("builder-one-pass", "--create", environment=through(proxy))
    system.send(blocks("a", 10))
    system.settle(upto="builder-one-pass")
    proxy.freeze(FETCH)
    began = time.monotonic()
    system.send(blocks("a", 10, start=10))
    builder.expect(r"Stalled: \S+ partition \d has not moved for \d+ s: 10 records wait", STALL + MARGIN)
    builder.expect(r"the worker ended with status 75; starting it again")
    assert time.monotonic() - began < STALL + MARGIN
    proxy.thaw()
    system.settle(upto="builder-one-pass")
    system.check_exact(upto="builder-one-pass")
    assert builder.stop() == 0


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.parametrize("kinds", [frozenset(), GROUP], ids=["everything", "coordinator"])
def test_a_worker_that_is_cut_off_while_another_takes_its_place_changes_nothing(
    make_system: MakeSystem, mortal: KafkaBroker, proxy: FreezingProxy, kinds: frozenset[int]
) -> None:
    system = make_system(mortal, worker__stall_seconds=STALL)
    cut_off = system.worker("builder-one-pass", "--create", environment=through(proxy))
    system.send(blocks("a", 10))
    system.settle(upto="builder-one-pass")
    proxy.freeze(kinds)
    system.send(blocks("a", 10, start=10))
    # The other takes the partitions over while the first believes that it still owns them.
    other = system.worker("builder-one-pass", tag="-other")
    other.expect(r"partition 0: continuing at \d+")
    system.send(blocks("a", 10, start=20))
    system.settle(upto="builder-one-pass")
    proxy.thaw()
    assert other.stop() == 0
    system.send(blocks("a", 10, start=30))
    system.settle(upto="builder-one-pass")
    system.check_exact(upto="builder-one-pass")
    assert cut_off.stop() == 0


@pytest.mark.kafka
@pytest.mark.long
def test_a_worker_whose_fetching_has_stopped_is_ended_by_its_watchdog_and_goes_on(
    make_system: MakeSystem, kafka: KafkaBroker, tmp_path: Path
) -> None:
    system = make_system(kafka, worker__stall_seconds=STALL)
    switch = tmp_path / "stop-fetching"
    environment = patched(
        tmp_path / "patch",
        f"""
        import asyncio, os
        from kinstream.streams.worker.transport import ConsumerThread

        fetch = ConsumerThread._fetch_records

        async def _fetch_records(self, *args, **kwargs):
            if os.path.exists({str(switch)!r}):
                os.unlink({str(switch)!r})
                await asyncio.Event().wait()
            return await fetch(self, *args, **kwargs)

        ConsumerThread._fetch_records = _fetch_records
        """,
    )
    builder = system.worker("builder-one-pass", "--create", environment=environment)
    system.send(blocks("a", 10))
    system.settle(upto="builder-one-pass")
    switch.touch()
    until(lambda: not switch.exists(), "the fetch thread has stopped")
    system.send(blocks("a", 10, start=10))
    builder.expect(r"Stalled: .* has not moved for \d+ s: 10 records wait", STALL + MARGIN)
    builder.expect(r"the worker ended with status 75; starting it again")
    system.settle(upto="builder-one-pass")
    system.check_exact(upto="builder-one-pass")
    assert builder.stop() == 0
