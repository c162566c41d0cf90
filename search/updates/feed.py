"""Reads `kinstream.updates`, without a group, for the spaces whose index follows every step of its learner."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from kinstream.streams.errors import BadRecord
from kinstream.streams.kafka.clients import confluent
from kinstream.streams.kafka.connection_errors import denied
from kinstream.streams.kafka.reader import arrived
from kinstream.streams.records.codec.codec import decode
from kinstream.streams.records.values import ModelUpdate
from kinstream.streams.secrets import hide
from kinstream.streams.settings import Settings
from kinstream.streams.topics import partition_of

log = logging.getLogger("kinstream.search")

#: Read only this recent part: older updates are useless, since models are announced with every checkpoint.
_BACK_SECONDS: Final = 600.0
_BATCH: Final = 500
#: Seconds of one wait for records, and so of `stop`.
_POLL_SECONDS: Final = 1.0
_AGAIN_SECONDS: Final = 2.0
_ANSWER_SECONDS: Final = 5.0


class UpdatesFeed:
    """A thread that passes on update records. If it fails, spaces still follow announced models.

    Parameters
    ----------
    spaces : with updates.
    give : takes each record, in the order of its partition; called in the thread.
    """

    def __init__(
        self, settings: Settings, spaces: Iterable[str], give: Callable[[ModelUpdate], None]
    ) -> None:
        self._settings = settings
        self._topic = settings.topic("updates")
        self._spaces = {space.encode(): space for space in spaces}
        self._give = give
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kinstream-updates", daemon=True)
        self.read = 0
        self.unreadable = 0
        self.trouble: str | None = None

    def start(self) -> None:
        if self._spaces:
            self._thread.start()

    def stop(self, seconds: float = 5.0) -> None:
        """End the thread; wait up to that long for it."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _run(self) -> None:
        from confluent_kafka import Consumer, KafkaException

        while not self._stopping.is_set():
            consumer = Consumer(
                {
                    **confluent(self._settings.kafka),
                    "group.id": "kinstream-search",
                    "enable.auto.commit": False,
                    "auto.offset.reset": "latest",
                    "isolation.level": "read_committed",
                }
            )
            try:
                self._assign(consumer)
                while not self._stopping.is_set():
                    for record in arrived(consumer, _BATCH, _POLL_SECONDS):
                        self._take(record)
            except (KafkaException, BadRecord, LookupError) as error:
                self._failed(str(error))
            except Exception as error:
                log.exception("update records cannot be read for now")
                self._failed(str(error))
            finally:
                consumer.close()
            self._stopping.wait(_AGAIN_SECONDS)

    def _failed(self, text: str) -> None:
        self.trouble = hide(f"{self._topic}: {text}")

    def _assign(self, consumer: Any) -> None:
        from confluent_kafka import OFFSET_END, KafkaException, TopicPartition

        view = consumer.list_topics(self._topic, timeout=_ANSWER_SECONDS).topics[self._topic]
        if view.error is not None or not view.partitions:
            raise LookupError(f"{view.error}; does the topic exist? kinstream topics create")
        since = int((time.time() - _BACK_SECONDS) * 1000)
        wanted = sorted({partition_of(space, len(view.partitions)) for space in self._spaces.values()})
        found = consumer.offsets_for_times(
            [TopicPartition(self._topic, p, since) for p in wanted], timeout=_ANSWER_SECONDS
        )
        for place in found:
            if place.error is not None:
                raise KafkaException(place.error)
            if place.offset < 0:
                place.offset = OFFSET_END
        consumer.assign(found)
        self.trouble = None

    def _take(self, record: Any) -> None:
        from confluent_kafka import KafkaError, KafkaException

        error = record.error()
        if error is not None:
            if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise LookupError(str(denied(self._settings.kafka, "READ", f"topic {self._topic}")))
            if error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                raise KafkaException(error)
            return
        if record.key() not in self._spaces:
            return
        place = f"{self._topic} partition {record.partition()} offset {record.offset()}"
        try:
            self._give(cast(ModelUpdate, decode(record.value(), ModelUpdate)))
        except BadRecord as bad:
            log.warning("%s: left out: %s", place, hide(str(bad)))
        # A record that failed here would be read again after every restart.
        except Exception:
            log.exception("%s: left out", place)
        else:
            self.read += 1
            return
        self.unreadable += 1
