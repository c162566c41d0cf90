"""The places in logs at which partitions were added: records before them belong to the old partitions.

A record that was written under the old number is on the partition that its key had then. An agent that begins after a
repartition cannot read it in order with later records on another partition, so it begins at that place. The file is
written once, before the topics change, and applies from the time when they have changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kinstream.streams.checkpoints.files import Damaged
from kinstream.streams.checkpoints.names import file_name, open_files, seal, unseal
from kinstream.streams.errors import CheckpointError
from kinstream.streams.kafka.cluster_view import TopicView

FORMAT: Final = 1
#: Folder beside the agents' own. No agent has this name.
_FOLDER: Final = "repartitions"


@dataclass(frozen=True, slots=True)
class Growth:
    """A topic before its number of partitions was raised.

    Parameters
    ----------
    ends : per old partition, the offset before which everything was written under the old number.
    """

    topic: str
    topic_id: str | None
    cluster_id: str
    partitions: int
    ends: Mapping[int, int]


def write_growth(root: str, growth: Growth) -> None:
    """Write the record of a topic, replacing one left by a repartition that did not add partitions.

    Raises
    ------
    CheckpointError : the store refuses.
    """
    content = {
        "format": FORMAT,
        "topic": growth.topic,
        "topic_id": growth.topic_id,
        "cluster_id": growth.cluster_id,
        "partitions": growth.partitions,
        "ends": {str(p): end for p, end in growth.ends.items()},
    }
    open_files(root, _FOLDER).write([(_name(growth.topic, growth.partitions), seal(content, indent=2))])


def old_ends(root: str, cluster_id: str, topic: TopicView) -> dict[int, int]:
    """By partition, the offset at which the newest repartition of this topic began; empty without one.

    Raises
    ------
    CheckpointError : a record is damaged, or of a later format than this version knows.
    """
    files = open_files(root, _FOLDER)
    ends: dict[int, int] = {}
    stem = f"{file_name(topic.name)}."
    for name in sorted(files.sizes("")):
        number = name.removeprefix(stem).removesuffix(".json")
        if not name.startswith(stem) or not number.isdigit() or int(number) >= topic.partitions:
            continue
        growth = _read(unseal(files.read(name), f"{files.url}/{name}"), f"{files.url}/{name}")
        other = growth.topic_id and topic.topic_id and growth.topic_id != topic.topic_id
        if growth.cluster_id == cluster_id and not other:
            ends |= growth.ends
    return ends


def _name(topic: str, partitions: int) -> str:
    """Sorted by name, records of one topic are in the order in which it has grown."""
    return f"{file_name(topic)}.{partitions:06d}.json"


def _read(content: Mapping[str, Any], place: str) -> Growth:
    try:
        if int(content["format"]) > FORMAT:
            raise CheckpointError(
                f"{place}: format {content['format']} is newer than {FORMAT}; use a newer Kinstream"
            )
        return Growth(
            str(content["topic"]),
            content["topic_id"],
            str(content["cluster_id"]),
            int(content["partitions"]),
            {int(p): int(end) for p, end in content["ends"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Damaged(f"{place}: not the record of a repartition: {error!r}") from error
