"""`kinstream sources try`: the mapping of a source on records of its topic or of a file, without a worker."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kinstream.cli.shared.context import settings_of
from kinstream.cli.shared.output import JSON, tell

if TYPE_CHECKING:
    from kinstream.producers.sources.values.formats import AvroRecord
    from kinstream.streams.records.message import Message


@click.group()
def sources() -> None:
    """Try the mapping of a source. Example: kinstream sources try shop --limit 20"""


@sources.command("try")
@click.argument("name")
@click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Read these records: JSON, one a line, or an Avro file.  [default: the newest of the topic]",
)
@click.option(
    "--limit", type=click.IntRange(1, 1_000_000), default=10, show_default=True, help="How many records."
)
@click.option("--quiet", is_flag=True, help="Print refusals and the sum, and no events.")
@JSON
@click.pass_context
def try_(ctx: click.Context, name: str, file: Path | None, limit: int, quiet: bool, as_json: bool) -> None:
    """Map records with [sources.NAME], and print the events and the refusals. Nothing is sent.

    The status is 1 if a record is refused.

    Example: kinstream sources try shop --file searches.jsonl
    """
    from kinstream.producers.sources.mapping import mapper
    from kinstream.producers.sources.values.formats import AvroRecord
    from kinstream.producers.sources.values.placeholder import Unchanged
    from kinstream.streams.errors import BadRecord, SettingsError
    from kinstream.streams.extras import require
    from kinstream.streams.records.description import plain
    from kinstream.streams.records.payload import escaped
    from kinstream.streams.records.values import Click
    from kinstream.streams.spelling import meant

    require("orjson", who="kinstream sources", extra="worker")
    settings = settings_of(ctx)
    section = settings.sources.get(name)
    if section is None:
        known = ", ".join(settings.sources) or "none"
        raise SettingsError(
            f"no [sources.{name}] in the settings; there are: {known}{meant([name], settings.sources)}"
        )
    # A file has no times of Kafka records: a join goes by those in its records.
    at = -1 if section.preset else int(time.time() * 1000)
    if file is not None and section.format == "avro":
        parsed = AvroRecord()
        mapping, messages = mapper(section, parsed), _avro_file(section.topic, file, limit, parsed, at)
    else:
        mapping = mapper(section)
        messages = _lines(section.topic, file, limit, at) if file else _newest(settings, section.topic, limit)
    # Kept for JSON alone: there may be a million.
    events: list[dict[str, Any]] = []
    refusals: list[dict[str, str]] = []
    refused: Counter[str] = Counter()
    read = mapped = left_out = without_query = 0

    def show(place: str, found: Iterable[Any]) -> None:
        nonlocal without_query
        for event in found:
            without_query += isinstance(event, Click) and event.query_item is None and not event.query_vector
            if quiet:
                continue
            if as_json:
                events.append({"place": place, "event": plain(event)})
            else:
                _print(place, event)

    for message in messages:
        read += 1
        place = f"partition {message.partition} offset {message.offset}" if file is None else f"record {read}"
        try:
            found = mapping.events(message)
        except Unchanged:
            found = None
        except BadRecord as error:
            refused[error.reason.value] += 1
            if as_json:
                refusals.append({"place": place, "reason": error.reason.value, "detail": str(error)})
            else:
                click.echo(escaped(f"{place}: refused, {error}"))
            continue
        if found is None:
            left_out += 1
            continue
        mapped += 1
        show(place, found)
    show("not complete yet", mapping.held_back())
    reasons = "".join(f"; {number} {reason}" for reason, number in sorted(refused.items()))
    lines = [] if read else [f"no records in {file or section.topic}"]
    lines.append(f"{read} records: {mapped} fit, {left_out} left out, {refused.total()} refused{reasons}")
    if without_query:
        lines.append(
            f"lists without query_vector and query_item, of which an adapter learns nothing: {without_query}"
        )
    fields: dict[str, Any] = {
        "records": read,
        "fit": mapped,
        "left_out": left_out,
        "without_query": without_query,
        "refused": refusals,
    }
    if not quiet:
        fields["events"] = events
    tell(fields, lines, as_json=as_json)
    if refused:
        ctx.exit(1)


def _print(place: str, event: Any) -> None:
    from kinstream.streams.records.description import record_lines
    from kinstream.streams.records.payload import escaped

    kind, *lines = record_lines(event)
    click.echo(escaped(f"{place}: {kind}"))
    for line in lines:
        name, _, value = line.strip().partition(": ")
        # A load position comes with sending; the rest that is not there is not shown.
        if name != "load" and value not in ("None", "[]"):
            click.echo(escaped(line))


def _lines(topic: str, file: Path, limit: int, at: int) -> Iterator[Message]:
    """The lines of a file as records of the topic."""
    from codecs import BOM_UTF8

    from kinstream.streams.encodings import HEAD, advice, not_utf8
    from kinstream.streams.errors import SourceError
    from kinstream.streams.records.message import Message

    with file.open("rb") as stream:
        head = stream.read(HEAD)
        if (what := not_utf8(head)) is not None:
            raise SourceError(f"{file}: not text in UTF-8: {advice(what)}")
        # Some editors begin a file with a byte order mark.
        stream.seek(len(BOM_UTF8) if head.startswith(BOM_UTF8) else 0)
        lines = (line.rstrip(b"\r\n") for line in stream)
        for number, line in zip(range(limit), (line for line in lines if line.strip()), strict=False):
            yield Message(topic, 0, number, at, None, line, (), number - 1)


def _avro_file(topic: str, file: Path, limit: int, parsed: AvroRecord, at: int) -> Iterator[Message]:
    """The records of an Avro file, which holds its schema itself."""
    import fastavro

    from kinstream.streams.errors import SourceError
    from kinstream.streams.records.message import Message

    with file.open("rb") as stream:
        try:
            for number, value in zip(range(limit), fastavro.reader(stream), strict=False):
                parsed.value = value
                yield Message(topic, 0, number, at, None, b"", (), number - 1)
        except (ValueError, EOFError) as error:
            raise SourceError(f"{file}: not an Avro file: {error}") from error


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
