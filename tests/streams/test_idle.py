"""What a worker does while nothing happens: it seldom wakes."""

from __future__ import annotations

from typing import Any, cast

import pytest
from mode import Service

from kinstream.streams.worker.faust_app import Sensor
from kinstream.streams.worker.recovery import Recovery
from tests.support.virtual_time import VirtualTime


@pytest.mark.parametrize("service, task", [(Sensor, "_sampler"), (Recovery, "_publish_stats")])
def test_tasks_of_faust_that_nobody_needs_end_at_once(service: type[Service], task: str) -> None:
    loop = VirtualTime()
    one = cast(Any, service.__new__(service))
    assert loop.run_until_complete(getattr(service, task)(one)) is None
    assert loop.wakes == 0
