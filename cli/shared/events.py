"""One record for `events`, written by a person's command."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinstream.streams.records.values import Event
    from kinstream.streams.settings import Settings


def send_event(settings: Settings, *records: Event, role: str = "producer") -> tuple[str, int, int]:
    """Write records of one space to its partition, in order, and wait until they are confirmed.

    Parameters
    ----------
    role : whose permissions are checked before.

    Returns
    -------
    Topic, partition and offset of the last one.

    Raises
    ------
    SettingsError : the topic does not exist.
    """
    from kinstream.streams.errors import SettingsError
    from kinstream.streams.kafka.clients import confluent_producer
    from kinstream.streams.kafka.cluster import Cluster
    from kinstream.streams.kafka.emitter import Emitter
    from kinstream.streams.kafka.rights.access import check_role
    from kinstream.streams.records.codec.codec import encode
    from kinstream.streams.topics import partition_of

    topic = settings.topic("events")
    cluster = Cluster(settings.kafka)
    found = cluster.view([topic]).topics.get(topic)
    if found is None:
        raise SettingsError(f"topic {topic} does not exist: kinstream topics create")
    check_role(cluster, settings, role)
    places: list[int] = []
    emitter = Emitter(
        confluent_producer(settings.kafka), on_delivery=lambda t, p, offset: places.append(offset)
    )
    partition = partition_of(records[0].space, found.partitions)
    try:
        for record in records:
            emitter.send(topic, record.space.encode(), encode(record), (), partition)
        emitter.confirm(settings.worker.delivery_deadline_seconds)
    finally:
        emitter.close()
    return topic, partition, places[-1]
