"""Who has set the time of a record, the log or its producer, as the client of the workers tells it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import ConsumerRecord, TopicPartition

from kinstream.streams.worker.transport import ConsumerThread


@pytest.mark.parametrize(("kind", "appended"), [(0, False), (1, True)])
def test_records_say_who_has_set_their_times(kind: int, appended: bool) -> None:
    record: Any = ConsumerRecord("t", 0, 7, 1_000, kind, None, b"v", None, 0, 1, ())
    thread: Any = SimpleNamespace(_returned={})
    ((message,),) = ConsumerThread._runs(thread, TopicPartition("t", 0), [record])
    assert (message.appended, message.timestamp_ms) == (appended, 1_000)
