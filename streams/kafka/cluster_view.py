"""A cluster and its topics, as they were found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic as the cluster has it. `topic_id` is None if the brokers give none (the embedded broker)."""

    name: str
    topic_id: str | None
    partitions: int


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A cluster and some of its topics. `cluster_id` is None if the brokers give none."""

    cluster_id: str | None
    brokers: int
    topics: dict[str, TopicView]
