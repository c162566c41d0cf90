"""The newest models, for commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kinstream.streams.operations.models import Models
    from kinstream.streams.settings import Settings


def newest_models(settings: Settings, checkpoints: bool = False) -> Models:
    """The newest model of each space and learner, of the topic or of the checkpoint store.

    Raises
    ------
    SettingsError : the topic does not exist.
    CheckpointError : a checkpoint cannot be read.
    """
    from kinstream.streams.operations.models import NewestModels, from_checkpoints

    if checkpoints:
        return from_checkpoints(settings).models()
    from kinstream.streams.errors import SettingsError
    from kinstream.streams.kafka.cluster import Cluster
    from kinstream.streams.kafka.reader import ends, read_range

    topic = settings.topic("models")
    cluster = Cluster(settings.kafka)
    try:
        ranges = ends(cluster, topic)
    finally:
        cluster.close()
    if not ranges:
        raise SettingsError(f"topic {topic} does not exist: kinstream topics create, or --checkpoints")
    newest = NewestModels()
    newest.read(read_range(settings.kafka, topic, ranges))
    for line in newest.unreadable:
        click.echo(f"warning: left out {line}", err=True)
    return newest.models()
