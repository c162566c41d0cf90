"""`kinstream sources try`: the mapping of a source on the newest records of its topic, without a worker."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import click

from kinstream.cli.shared.context import settings_of
from kinstream.cli.shared.output import JSON
from kinstream.cli.shared.trial import Trial

if TYPE_CHECKING:
    from kinstream.streams.records.message import Message


@click.group()
def sources() -> None:
    """Try the mapping of a source. Example: kinstream sources try shop --limit 20"""


@sources.command("try")
@click.argument("name")
@click.option(
    "--limit", type=click.IntRange(1, 1_000_000), default=10, show_default=True, help="How many records."
)
@JSON
@click.pass_context
def try_(ctx: click.Context, name: str, limit: int, as_json: bool) -> None:
    """Map the newest records of the topic of [sources.NAME], and print the events and the refusals.

    Nothing is sent. The status is 1 if a record is refused. `kinstream produce ... --try` does so with a file.

    Example: kinstream sources try shop --limit 20
    """
    from kinstream.producers.sources.agent import source_of
    from kinstream.producers.sources.mapping import mapper
    from kinstream.producers.sources.values.placeholder import Unchanged
    from kinstream.streams.errors import BadRecord
    from kinstream.streams.extras import require

    require("orjson", who="kinstream sources", extra="worker")
    settings = settings_of(ctx)
    section = source_of(settings, name)
    mapping = mapper(section)
    trial = Trial("records", shown=limit, as_json=as_json)
    for message in _newest(settings, section.topic, limit):
        place = f"partition {message.partition} offset {message.offset}"
        try:
            trial.take(place, mapping.events(message))
        except Unchanged:
            trial.take(place, None)
        except BadRecord as error:
            trial.refuse(place, error)
    trial.show("not complete yet", mapping.held_back())
    if not trial.end(section.topic):
        ctx.exit(1)


def _newest(settings: Any, topic: str, limit: int) -> Iterator[Message]:
    """The newest records of the topic, over all its partitions."""
    from kinstream.streams.errors import SettingsError
    from kinstream.streams.kafka.cluster import Cluster
    from kinstream.streams.kafka.reader import ends, read_range

    cluster = Cluster(settings.kafka)
    try:
        cluster.wait(settings.worker.startup_seconds)
        bounds = ends(cluster, topic)
    finally:
        cluster.close()
    if not bounds:
        raise SettingsError(f"topic {topic} does not exist")
    share = span = -(-limit // len(bounds))
    while True:
        found: dict[int, deque[Message]] = {p: deque(maxlen=share) for p in bounds}
        ranges = {p: (max(start, stop - span), stop) for p, (start, stop) in bounds.items()}
        for message in read_range(settings.kafka, topic, ranges):
            found[message.partition].append(message)
        # Not every offset holds a record: markers of transactions, and what was compacted away.
        if all(len(found[p]) == share or begin == bounds[p][0] for p, (begin, _) in ranges.items()):
            break
        span *= 8
    yield from islice(chain.from_iterable(found.values()), limit)
