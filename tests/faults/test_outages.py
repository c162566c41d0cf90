"""A broker that goes away, for a while or at the start: the workers come back by themselves, and nothing changes."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tests.faults.conftest import MakeSystem
from tests.faults.processes import System
from tests.faults.reference import blocks
from tests.kafka.broker import KafkaBroker
from tests.support.alive import alive
from tests.support.processes import until

SPACES = ("a", "d", "red")
AGENTS = ("builder-one-pass", "learner-opml", "metrics")


def feed(system: System, count: int, start: int = 0) -> None:
    for space in SPACES:
        system.send(blocks(space, count, start=start))


def survive(system: System, broker: KafkaBroker, seconds: float) -> None:
    """Kill the broker in the middle of a stream, start it again, and compare with an undisturbed run."""
    workers = [system.worker(agent, "--create") for agent in AGENTS]
    feed(system, 40)
    until(lambda: any(system.checkpoints("builder-one-pass").values()), "the stream is under way")
    broker.kill()
    time.sleep(seconds)
    broker.start()
    feed(system, 40, start=40)
    system.settle()
    wanted = system.check_exact()
    assert all(worker.running for worker in workers)
    counted = wanted.constraint_count()
    until(
        lambda: workers[2].metric("kinstream_constraints_seen_total") == counted,
        f"the metrics agent shows {counted} constraints",
    )
    assert [worker.stop() for worker in workers] == [0, 0, 0]


@pytest.mark.long
@pytest.mark.kafka
def test_workers_survive_a_broker_that_is_killed_for_five_seconds(
    make_system: MakeSystem, mortal: KafkaBroker
) -> None:
    survive(make_system(mortal), mortal, 5.0)


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.parametrize("seconds", [30.0, 90.0])
def test_workers_survive_a_broker_that_is_killed_for_long(
    make_system: MakeSystem, mortal: KafkaBroker, seconds: float
) -> None:
    survive(make_system(mortal), mortal, seconds)


@pytest.mark.kafka
@pytest.mark.long
def test_a_worker_whose_broker_is_away_at_its_start_says_so_retries_and_starts_when_it_comes(
    make_system: MakeSystem, mortal: KafkaBroker
) -> None:
    system = make_system(mortal, worker__startup_seconds=6.0)
    feed(system, 5)
    mortal.kill()
    once = system.worker("learner-opml", "--create", "--unsupervised")
    builder = system.worker("builder-one-pass", "--create")
    assert once.status() == 75
    assert once.said(rf"No broker answers at {system.bootstrap}; trying for 6 s")
    assert once.said(
        rf"No broker answers at {system.bootstrap} within 6 s: check KAFKA_BOOTSTRAP_SERVERS, the network"
    )
    assert not once.said("Traceback")
    builder.expect(r"the worker ended with status 75; starting it again in")
    mortal.start()
    system.settle(upto="builder-one-pass")
    system.check_exact(upto="builder-one-pass")
    assert builder.stop() == 0


@pytest.mark.kafka
def test_a_stop_signal_while_the_broker_is_away_ends_within_its_limit(
    make_system: MakeSystem, mortal: KafkaBroker
) -> None:
    limit = 4.0
    system = make_system(mortal, worker__shutdown_seconds=limit)
    workers = [system.worker("builder-one-pass", "--create"), system.worker("learner-opml", "--create")]
    feed(system, 10)
    system.settle()
    mortal.kill()
    children = [worker.family() for worker in workers]
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.status()
    # The limit is the worker's own: the supervisor, which waits a little longer, need not kill it.
    assert not any(worker.said("did not stop within") for worker in workers)
    assert not any(alive(one) for family in children for one in family)
    mortal.start()
    again = [system.worker("builder-one-pass"), system.worker("learner-opml")]
    feed(system, 10, start=10)
    system.settle()
    system.check_exact()
    assert [worker.stop() for worker in again] == [0, 0]


@pytest.mark.kafka
def test_an_outage_is_reported_in_one_line_of_ours_and_a_stop_in_it_leaves_no_traceback(
    make_system: MakeSystem, mortal: KafkaBroker
) -> None:
    system = make_system(mortal, worker__shutdown_seconds=4.0)
    workers = [system.worker("builder-one-pass", "--create"), system.worker("learner-opml", "--create")]
    feed(system, 5)
    system.settle()
    mortal.kill()
    for worker in workers:
        worker.expect(rf"WARNING kinstream.watchdog: No broker answers at {system.bootstrap}")
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.status()
        assert len(re.findall("No broker answers at", worker.log())) == 1
        for noise in ("Traceback", "aiokafka", "CancelledError", "coordinator", r"\[\^-"):
            assert not worker.said(noise), noise


@pytest.mark.kafka
def test_the_end_of_an_outage_is_reported_too(make_system: MakeSystem, mortal: KafkaBroker) -> None:
    system = make_system(mortal)
    worker = system.worker("builder-one-pass", "--create")
    feed(system, 5)
    system.settle(upto="builder-one-pass")
    mortal.kill()
    worker.expect("No broker answers at")
    mortal.start()
    worker.expect(r"INFO kinstream.watchdog: the brokers answer again, after \d+ s")
    worker.terminate()
    worker.status()


@pytest.mark.long
def test_no_brokers_in_the_settings_is_an_error_of_one_line(tmp_path: Path) -> None:
    system = System(tmp_path / "system", "")
    status, output = system.run("worker", "learner", "opml", "--create", "--unsupervised")
    assert status == 2
    assert output.splitlines() == [
        "kinstream: no brokers: set KAFKA_BOOTSTRAP_SERVERS, or [kafka] bootstrap_servers in kinstream.toml"
    ]
