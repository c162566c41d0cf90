"""All agents in one process or each in its own: the same generations and checkpoints; a fault of one ends them all."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from kinstream.streams.processes.supervisor import REFUSED, RESTART
from tests.crash.checker import Wanted, check_run, shown
from tests.crash.data import Rows, make
from tests.crash.processes import System, running
from tests.crash.test_crash_run import (
    AGENTS,
    ALL,
    BUILDERS,
    LEARNERS,
    PARTITIONS,
    SETTINGS,
    pages_of,
)
from tests.kafka.broker import KafkaBroker
from tests.support.processes import Process, until

NAMES = {agent.application for agent in AGENTS}

pytestmark = [pytest.mark.kafka, pytest.mark.long]


@pytest.fixture
def system(kafka: KafkaBroker, tmp_path: Path) -> Iterator[System]:
    prefix = tmp_path.name.replace("_", "-").lower()
    with running(System(tmp_path / "system", kafka.bootstrap, prefix, PARTITIONS, SETTINGS)) as found:
        found.run("topics", "create")
        yield found


def send(system: System, rows: Rows) -> None:
    load = ("--space", rows.space, "--load-id", f"load-{rows.space}")
    system.run("produce", "labelled", str(rows.save(system.folder)), *load)


def settle(system: System) -> None:
    for agent in AGENTS:
        until(partial(system.settled, agent), f"{agent.application} comes to the end")


def stop(*processes: Process) -> None:
    """One that had to end hard at `worker.shutdown_seconds` has another status."""
    for process in processes:
        process.terminate()
    assert [process.status() for process in processes] == [0] * len(processes)
    assert not [pid for process in processes for pid in process.left()]


def test_together_then_apart_then_together_is_one_generation(kafka: KafkaBroker, system: System) -> None:
    rows = make(900, 5)
    assert len(rows) >= 3
    together = system.start_worker(ALL)
    together.until_ready()
    _, body = together.readiness()
    assert {(one["agent"], one["generation"]) for one in body["agents"]} == {(name, 1) for name in NAMES}
    send(system, rows[0])
    settle(system)
    for name in NAMES:
        applied = together.metric("kinstream_records_applied_total", agent=name)
        assert applied is not None and applied > 0, name
    assert len([one for one in together.metrics() if one.startswith("process_cpu_seconds_total")]) == 1
    stop(together)
    before = {agent: system.offsets(agent) for agent in AGENTS}

    apart = [system.start_worker(agent) for agent in AGENTS]
    send(system, rows[1])
    settle(system)
    # They began where the one process had ended.
    for process, agent in zip(apart, AGENTS, strict=True):
        for partition, offset in before[agent].items():
            if offset > 0:
                assert process.said(rf"partition {partition}: continuing at {offset}\b"), agent
    stop(*apart)

    again = system.start_worker(ALL)
    for one in rows[2:]:
        send(system, one)
    settle(system)
    wanted = Wanted({one.space: (one.vectors, one.labels.tolist()) for one in rows}, BUILDERS, LEARNERS)
    pages = pages_of(system, [again], len(LEARNERS) * len(rows))
    stop(again)
    found = check_run(kafka.bootstrap, system.prefix, wanted)
    assert shown(pages) == found.totals
    assert not any(sum(numbers.values()) for numbers in found.again.values()), found.again
    for name in NAMES:
        assert [one.name for one in (system.root / name).iterdir() if one.name.isdigit()] == ["1"], name
    assert not (faults := system.faults()), "\n".join(faults)


def test_a_fault_of_one_agent_ends_the_process_and_the_next_one_continues(
    kafka: KafkaBroker, system: System
) -> None:
    rows = make(900, 6)
    failing = system.start(
        "failing", *ALL.command, "--unsupervised", failpoints="agent.after-flush-before-manifest=raise@3"
    )
    for one in rows:
        send(system, one)
    assert failing.status() == RESTART
    assert failing.said(rf"CRITICAL kinstream.worker ({'|'.join(NAMES)}): ")
    assert not failing.left()

    supervised = system.start_worker(ALL)
    supervised.until_ready()
    first = supervised.worker_pid()
    child = supervised.child()
    assert child is not None
    child.kill()
    until(lambda: supervised.worker_pid() not in (first, supervised.pid) and supervised.ready(), "it is back")
    for name in NAMES:
        assert supervised.metric("kinstream_worker_restarts_total", agent=name) == 1, name
    settle(system)
    stop(supervised)
    wanted = Wanted({one.space: (one.vectors, one.labels.tolist()) for one in rows}, BUILDERS, LEARNERS)
    check_run(kafka.bootstrap, system.prefix, wanted)


def test_an_agent_that_refuses_names_itself_and_no_restart_is_tried(system: System) -> None:
    process = system.start("refused", "--set", "learners.opml.generation=7", *ALL.command)
    assert process.status() == REFUSED
    assert process.said("learner-opml.*generation 7")
