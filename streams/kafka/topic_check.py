"""Compares a cluster's topics with the catalogue."""

from __future__ import annotations

from typing import Final

from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.settings import Settings
from kinstream.streams.topics import CATALOGUE

#: A longer retention than recommended is the operator's choice; a shorter one loses records sooner than they think.
_AT_LEAST: Final = "retention.ms"


def differences(cluster: Cluster, settings: Settings) -> list[str]:
    """One sentence for each difference, in the catalogue's order."""
    names = [topic.name(settings.topics.prefix) for topic in CATALOGUE]
    view = cluster.view(names)
    lines = []
    for topic, name in zip(CATALOGUE, names, strict=True):
        if name not in view.topics:
            lines.append(f"{name}: missing; kinstream topics create")
            continue
        actual = cluster.config_of(name)
        for key, wanted in topic.config(min(settings.topics.replication, view.brokers)).items():
            value = actual.get(key)
            longer = key == _AT_LEAST and value is not None and (value == "-1" or int(value) >= int(wanted))
            if value != wanted and not longer:
                lines.append(f"{name}: {key} is {value}, recommended {wanted}")
    by_role = {topic.role: view.topics.get(name) for topic, name in zip(CATALOGUE, names, strict=True)}
    counts = {role: found.partitions for role, found in by_role.items() if found is not None}
    for role in ("events", "constraints", "outcomes"):
        if counts.get(role, settings.topics.partitions) != settings.topics.partitions:
            lines.append(f"{role}: {counts[role]} partitions, the settings have {settings.topics.partitions}")
    return lines
