"""Fixtures for tests on a real Kafka, and the promise that no process is left behind."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.kafka import certificates
from tests.kafka.broker import KafkaBroker
from tests.kafka.jars import missing
from tests.kafka.proxy import FreezingProxy
from tests.kafka.secured_broker import SecuredBroker
from tests.leftovers import Session
from tests.progress import Progress
from tests.selection import Selection

# The shared checks are assertions of a package, which pytest would otherwise report without their values.
pytest.register_assert_rewrite("kinstream.testing")

#: In CI nothing is left out: what a test needs must be there.
CI = os.environ.get("CI") == "true"
BROKER_FIXTURES = {"kafka", "own_kafka", "proxied_kafka", "secured_kafka"}

# The first example of a test may compile a kernel, and two cores may be busy.
settings.register_profile("kinstream", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kinstream")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Selection())
    # The processes of pytest-xdist report to the first one, which prints.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(config))


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    if BROKER_FIXTURES.intersection(getattr(item, "fixturenames", ())):
        item.add_marker("kafka")


def pytest_collection_finish() -> None:
    # Thousands of tests and all modules stay until the end: a collection of garbage need not look at them.
    gc.collect()
    gc.freeze()


def _why_not(wanted: list[pytest.Item]) -> str | None:
    """Why the tests on a real Kafka cannot run here, or None."""
    if not wanted:
        return None
    secured = any("secured_kafka" in getattr(item, "fixturenames", ()) for item in wanted)
    return missing() or (certificates.missing() if secured else None)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Last, so that what `-m` has left out is not counted.
    wanted = [item for item in items if item.get_closest_marker("kafka")]
    reason = _why_not(wanted)
    if reason is None:
        return
    if CI:
        raise pytest.UsageError(f"CI=true, and the tests on a real Kafka cannot run: {reason}")
    for item in wanted:
        item.add_marker(pytest.mark.skip(reason=f"real Kafka: {reason}"))


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """One broker for the session of a process; use topic prefixes of your own, and do not kill it."""
    with KafkaBroker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture(scope="session")
def secured_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """One broker with logins, TLS and ACLs for the whole session; use topic prefixes and users of your own."""
    with SecuredBroker(tmp_path_factory.mktemp("secured-kafka")) as broker:
        yield broker


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[KafkaBroker]:
    """A broker for one test, which may kill it."""
    with KafkaBroker(tmp_path / "kafka") as broker:
        yield broker


@pytest.fixture
def proxied_kafka(tmp_path: Path) -> Iterator[tuple[KafkaBroker, FreezingProxy]]:
    """A broker for one test and a proxy in front of it; who bootstraps at the proxy stays on it."""
    with FreezingProxy() as proxy, KafkaBroker(tmp_path / "kafka", advertised_port=proxy.port) as broker:
        proxy.target = broker.proxied_port
        yield broker, proxy


@pytest.fixture
def data_folder() -> Path:
    """The folder of the real data sets (KINSTREAM_DATA, default ../shared/data)."""
    folder = Path(os.environ.get("KINSTREAM_DATA", "../shared/data"))
    if not folder.is_dir():
        message = f"the real data sets are not at {folder}; set KINSTREAM_DATA"
        if CI:
            pytest.fail(message)
        pytest.skip(message)
    return folder


@pytest.fixture(scope="session", autouse=True)
def no_process_left_behind() -> Iterator[None]:
    """Every process that a test starts is its own and is gone afterwards."""
    session = Session()
    yield
    left = session.left()
    session.end()
    assert not left, f"processes left behind: {left}"
