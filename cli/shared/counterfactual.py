"""Keys, models and events of commands that read the lists of a log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kinstream.streams.errors import SettingsError

if TYPE_CHECKING:
    from kinstream.gate.lists.list_id import Keys
    from kinstream.search.queries.model import QueryModel
    from kinstream.streams.kafka.cluster import Cluster
    from kinstream.streams.records.gate import Version
    from kinstream.streams.records.message import Message
    from kinstream.streams.settings import Settings


def keys_of(settings: Settings) -> Keys:
    """The keys of the gate: the one that ids are made with, and the one that retires.

    Raises
    ------
    SettingsError : there is no key.
    """
    from kinstream.gate.lists import list_id
    from kinstream.streams.configuration.gate import check_key

    try:
        check_key(settings.gate_key.get_secret_value(), needed=True)
    except ValueError as error:
        raise SettingsError(str(error)) from None
    return list_id.keys_of(settings)


def opened(files: Sequence[Path]) -> dict[Version, QueryModel]:
    """The models of exported files.

    Raises
    ------
    SettingsError : a file holds no query map, or two hold the same model.
    """
    from kinstream.search.queries.model import QueryModel
    from kinstream.streams.records.gate import Version

    found: dict[Version, QueryModel] = {}
    for path in files:
        model = QueryModel.from_file(path)
        if Version(*model.name) in found:
            raise SettingsError(f"--model {path}: model {model.name} was named before")
        found[Version(*model.name)] = model
    return found


def events_of(
    cluster: Cluster, settings: Settings, space: str, start: str | None, end: str | None
) -> tuple[int, Iterator[Message]]:
    """The offset of the first list that counts, and all messages of the space's partition up to the end.

    Raises
    ------
    SettingsError : there is no topic of events, or a point cannot be read.
    """
    from kinstream.replay.log.sources import parse_point, topic_range
    from kinstream.streams.topics import partition_of

    first, last = (None if text is None else parse_point(text) for text in (start, end))
    topic = settings.topic("events")
    view = cluster.view([topic]).topics.get(topic)
    if view is None:
        raise SettingsError(f"there is no topic {topic}: kinstream topics create, or another topics.prefix")
    home = partition_of(space, view.partitions)
    since = topic_range(cluster, topic, partitions=[home], start=first, end=last).starts[home]
    return since, topic_range(cluster, topic, partitions=[home], end=last).messages(settings.kafka)
