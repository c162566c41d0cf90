"""The embedded broker: librdkafka's own in-process cluster. No Java, no Docker, nothing to install.

It speaks the Kafka protocol to every client here, keeps about the last 5 MB of each partition, and forgets
everything when this process ends. It has no CreateTopics: a topic appears with four partitions when it is first
requested. A group of two faust workers never becomes stable on it, so each agent runs once.
"""

from __future__ import annotations

from typing import Final

from kinstream.streams.errors import BrokerUnavailable
from kinstream.streams.settings import Settings
from kinstream.streams.topics import CATALOGUE

NOTICE: Final = (
    "embedded broker: for trials only. It keeps about 5 MB per partition and forgets everything at exit; "
    "set KAFKA_BOOTSTRAP_SERVERS to use a real one."
)
#: Blocks of a partition that may wait for a consumer; at 512 KiB a block, within what the broker keeps.
MAX_WAITING_BLOCKS: Final = 8
_ANSWER_SECONDS: Final = 10.0


class EmbeddedBroker:
    """One broker inside this process, until `close`.

    Raises
    ------
    BrokerUnavailable : it does not start.
    """

    def __init__(self, settings: Settings) -> None:
        from confluent_kafka import KafkaException, Producer

        self._cluster: Producer | None = Producer(
            {"bootstrap.servers": "embedded:1", "test.mock.num.brokers": 1, "log_level": 2}
        )
        try:
            broker = next(iter(self._cluster.list_topics(timeout=_ANSWER_SECONDS).brokers.values()))
            self.bootstrap_servers = f"{broker.host}:{broker.port}"
            own = (topic.name(settings.topics.prefix) for topic in CATALOGUE)
            # Nothing else would make those that sources read.
            for name in (*own, *(source.topic for source in settings.sources.values())):
                self._cluster.list_topics(name, timeout=_ANSWER_SECONDS)
        except (KafkaException, StopIteration) as error:
            raise BrokerUnavailable(f"the embedded broker did not start: {error}") from error

    def close(self) -> None:
        """Stop the broker; everything in it is lost."""
        self._cluster = None
