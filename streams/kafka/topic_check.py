"""Compares a cluster's topics with the catalogue."""

from __future__ import annotations

from typing import Final, NamedTuple

from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.settings import Settings
from kinstream.streams.topics import CATALOGUE

#: A longer retention than recommended is the operator's choice; a shorter one loses records sooner than they think.
_AT_LEAST: Final = "retention.ms"


class Difference(NamedTuple):
    """What is wrong, and the command that mends it."""

    text: str
    mend: str


def differences(cluster: Cluster, settings: Settings) -> list[Difference]:
    """All differences, in the catalogue's order. The embedded broker makes its topics itself, with four partitions."""
    names = [topic.name(settings.topics.prefix) for topic in CATALOGUE]
    view = cluster.view(names)
    found = []
    for topic, name in zip(CATALOGUE, names, strict=True):
        if name not in view.topics:
            found.append(Difference(f"{name}: missing", "kinstream topics create"))
            continue
        if view.cluster_id is None:
            continue
        actual = cluster.config_of(name)
        for key, wanted in topic.config(min(settings.topics.replication, view.brokers)).items():
            value = actual.get(key)
            longer = key == _AT_LEAST and value is not None and (value == "-1" or int(value) >= int(wanted))
            if value != wanted and not longer:
                alter = f"kafka-configs.sh --alter --topic {name} --add-config {key}={wanted}"
                found.append(Difference(f"{name}: {key} is {value}, recommended {wanted}", alter))
    by_role = {topic.role: view.topics.get(name) for topic, name in zip(CATALOGUE, names, strict=True)}
    counts = {role: topic.partitions for role, topic in by_role.items() if topic is not None}
    for role in ("events", "constraints", "outcomes") if view.cluster_id else ():
        if counts.get(role, settings.topics.partitions) != settings.topics.partitions:
            wrong = f"{role}: {counts[role]} partitions, the settings have {settings.topics.partitions}"
            found.append(Difference(wrong, "set topics.partitions, or kinstream topics repartition"))
    return found
