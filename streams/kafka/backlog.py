"""The backlog of the slowest agent, by the offsets that agents commit with their checkpoints."""

from __future__ import annotations

from collections.abc import Iterable

from kinstream.streams.kafka.cluster import Cluster


class Backlog:
    """Counts records that an agent still has to read.

    Parameters
    ----------
    groups : consumer group and the topic that it reads, for every agent that must keep up.
    """

    def __init__(self, cluster: Cluster, groups: Iterable[tuple[str, str]]) -> None:
        self._cluster = cluster
        self._groups = tuple(groups)

    def records(self) -> int:
        """The largest number of records of one partition that one group has not checkpointed yet.

        Raises
        ------
        BrokerUnavailable : the brokers do not answer.
        """
        worst = 0
        topics = self._cluster.view({topic for _, topic in self._groups}).topics
        for group, topic in self._groups:
            if topic not in topics:
                continue
            done = self._cluster.committed(group, topic, topics[topic].partitions)
            for partition in range(topics[topic].partitions):
                start, end = self._cluster.bounds(topic, partition)
                worst = max(worst, end - max(start, done.get(partition, start)))
        return worst
