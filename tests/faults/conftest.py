"""A broker that these tests may kill, pause and start again, and systems that end with their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.processes import System
from tests.kafka.broker import KafkaBroker
from tests.kafka.proxy import FreezingProxy

MakeSystem = Callable[..., System]


@pytest.fixture(scope="package")
def _proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaBroker, FreezingProxy]]:
    folder = tmp_path_factory.mktemp("mortal-kafka")
    with FreezingProxy() as proxy, KafkaBroker(folder, advertised_port=proxy.port) as broker:
        proxy.target = broker.proxied_port
        yield broker, proxy


@pytest.fixture
def mortal(_proxied: tuple[KafkaBroker, FreezingProxy]) -> Iterator[KafkaBroker]:
    """A broker that the test may kill, pause and start again; the next test finds it running."""
    broker, _ = _proxied
    yield broker
    if broker.running:
        broker.resume()
    else:
        broker.start()


@pytest.fixture
def proxy(_proxied: tuple[KafkaBroker, FreezingProxy]) -> Iterator[FreezingProxy]:
    """A proxy in front of `mortal`; the next test finds it thawed."""
    _, proxy = _proxied
    yield proxy
    proxy.thaw()
    proxy.cut()


@pytest.fixture
def make_system(tmp_path: Path) -> Iterator[MakeSystem]:
    """Makes systems; their processes end with the test, and the ends of their logs are shown if it fails."""
    made: list[System] = []

    def make(kafka: KafkaBroker, *, topics: bool = True, **options: Any) -> System:
        system = System(tmp_path / f"system-{len(made)}", kafka.bootstrap, **options)
        made.append(system)
        return system.create_topics() if topics else system

    yield make
    for system in made:
        system.close()
