"""Taking partitions over may last: nothing is taken for a stall, and a stop in the middle of it is an orderly one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kinstream.streams.worker.recovery import TableManager
from tests.faults.conftest import MakeSystem
from tests.faults.processes import patched
from tests.faults.reference import blocks
from tests.kafka.broker import KafkaBroker

STALL = 3.0


def slow(folder: Path) -> dict[str, str]:
    """An environment in which it takes longer than a stall may last to take over one partition."""
    return patched(
        folder,
        f"""
        import logging, time
        from kinstream.streams.worker.partitions import Partitions

        take_over = Partitions._take_over

        def _take_over(self, partition):
            logging.getLogger("kinstream.worker").info("partition %d begins", partition)
            owned = take_over(self, partition)
            time.sleep({STALL + 2})
            return owned

        Partitions._take_over = _take_over
        """,
    )


@pytest.mark.kafka
@pytest.mark.long
def test_partitions_that_wait_for_others_to_be_taken_over_do_not_stall(
    make_system: MakeSystem, kafka: KafkaBroker, tmp_path: Path
) -> None:
    system = make_system(kafka, worker__stall_seconds=STALL)
    for space in ("a", "d"):
        system.send(blocks(space, 10))
    builder = system.worker("builder-one-pass", "--create", environment=slow(tmp_path / "patch"))
    builder.expect(r"partition 1: continuing at")
    system.settle(upto="builder-one-pass")
    system.check_exact(upto="builder-one-pass")
    assert builder.stop() == 0
    assert not builder.said("Stalled") and not builder.said("the worker ended")


def test_faust_does_not_limit_a_take_over() -> None:
    async def take_over() -> str:
        import faust

        app: Any = faust.App("limits", store="memory://", TableManager=TableManager)
        done = []

        async def slowly() -> None:
            await asyncio.sleep(0.2)
            done.append("taken over")

        await app.tables.recovery._wait(slowly(), timeout=0.01)
        return done[0]

    assert asyncio.run(take_over()) == "taken over"


@pytest.mark.kafka
def test_a_stop_in_the_middle_of_a_take_over_leaves_an_ended_generation(
    make_system: MakeSystem, kafka: KafkaBroker, tmp_path: Path
) -> None:
    system = make_system(kafka)
    system.send(blocks("a", 10))
    first = system.worker("builder-one-pass", "--create")
    system.settle(upto="builder-one-pass")
    assert first.stop() == 0
    second = system.worker("builder-one-pass", environment=slow(tmp_path / "patch"), tag="-slow")
    second.expect(r"partition 0: continuing at")
    assert second.stop() == 0
    assert not second.said(r"partition 1 begins")
    system.begin_generation("builder-one-pass")
