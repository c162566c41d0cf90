"""`kinstream dead-letters list|show|redrive`: refused records, and sending them again."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kinstream.cli.shared.confirmation import confirm
from kinstream.cli.shared.context import settings_of
from kinstream.cli.shared.output import JSON, tell

if TYPE_CHECKING:
    from kinstream.streams.operations.letters import FoundLetters, LetterFilter, RedrivePlan, StandingRefusals
    from kinstream.streams.records.message import Message
    from kinstream.streams.settings import Settings

T = TypeVar("T")
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def _filters(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option(
            "--since", metavar="TIME", help="Only newer letters: 90m, 24h, 7d, or 2026-05-01T12:00 (UTC)."
        ),
        click.option("--space", metavar="NAME", help="Only letters of this space (the original key)."),
        click.option(
            "--consumer", metavar="NAME", help="Only letters of this builder, learner or metrics agent."
        ),
        click.option(
            "--reason",
            metavar="REASON",
            help="Only letters with this reason, such as not-finite or 'burst-*'.",
        ),
        click.option(
            "--of",
            "sought",
            multiple=True,
            metavar="KIND=NAME",
            help="Only letters with a result list of this user, session, address or clicked item, such as user=u-17.",
        ),
    ):
        command = option(command)
    return command


@click.group("dead-letters")
def dead_letters() -> None:
    """List, show or redrive dead letters: records that could not be used. Example: kinstream dead-letters list --since
    24h"""


@dead_letters.command("list")
@_filters
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="Number of newest letters to list.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
@click.pass_context
def list_letters(
    ctx: click.Context,
    /,
    limit: int,
    as_json: bool,
    reason: str | None,
    consumer: str | None,
    space: str | None,
    since: str | None,
    sought: tuple[str, ...],
) -> None:
    """List dead letters, oldest first. A letter that a restarted worker wrote again is shown once.

    Example: kinstream dead-letters list --reason 'burst-*' --of item=sku-1
    """
    import json

    from kinstream.cli.views.tables import echo_table, for_a_person, moment
    from kinstream.streams.agents.refusals import rows_text
    from kinstream.streams.operations.letters import LetterFilter

    choice = LetterFilter(reason, consumer, space, _since(since), sought=_given(sought))
    settings = settings_of(ctx)
    found = _read(settings, choice)
    # The keys of other systems' topics are no spaces.
    foreign = {source.topic for source in settings.sources.values()}
    found.letters.sort(key=lambda letter: (letter.time_ms, letter.partition, letter.offset))
    shown = found.letters[-limit:]
    # Shortened on a terminal only; a program gets everything.
    shortened = _short if for_a_person() else lambda text, longest: _printable(text)
    if as_json:
        click.echo(json.dumps([letter.as_json() for letter in shown], indent=2))
    else:
        echo_table(
            ("LETTER", "TIME", "CONSUMER", "REASON", "SPACE", "REFUSED", "ROWS", "DETAIL"),
            (
                (
                    x.place,
                    moment(x.time_ms),
                    x.consumer,
                    x.reason,
                    "-" if x.topic in foreign else _printable(x.space),
                    f"{x.topic}/{x.from_partition}/{x.from_offset}",
                    shortened(rows_text(x.rows), 24),
                    shortened(x.detail, 120),
                )
                for x in shown
            ),
        )
    older = len(found.letters) - len(shown)
    _notes(found, f"{older} older ones are not shown; --limit {len(found.letters)}" if older else "")


@dead_letters.command()
@click.argument("place", metavar="PARTITION/OFFSET")
@JSON
@click.pass_context
def show(ctx: click.Context, place: str, as_json: bool) -> None:
    """Show a dead letter: its headers, and its record or its bytes.

    Example: kinstream dead-letters show 2/17
    """
    from kinstream.streams.errors import SettingsError
    from kinstream.streams.kafka.cluster import Cluster
    from kinstream.streams.kafka.reader import ends, read_range

    settings = settings_of(ctx)
    partition, offset = _place(place)
    topic = settings.topic("dead-letters")
    start, stop = ends(Cluster(settings.kafka), topic).get(partition, (0, 0))
    message = None
    if start <= offset < stop:
        message = next(iter(read_range(settings.kafka, topic, {partition: (offset, offset + 1)})), None)
    if message is None:
        raise SettingsError(
            f"{topic} has no record {place}; partition {partition} holds {start} up to {stop}"
        )
    tell(plain(message), described(message), as_json=as_json)


def plain(message: Message) -> dict[str, Any]:
    """A dead letter for programs: the key and the value in base64, headers as text."""
    from base64 import b64encode

    def encoded(data: bytes | None) -> str | None:
        return None if data is None else b64encode(data).decode()

    return {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "time_ms": message.timestamp_ms,
        "key_base64": encoded(message.key),
        "headers": {
            name: (value or b"").decode("utf-8", "backslashreplace") for name, value in message.headers
        },
        "value_base64": encoded(message.value),
    }


def described(message: Message) -> Iterator[str]:
    """A dead letter as lines: its origin, its headers, and its JSON, its decoded record or its bytes."""
    from kinstream.cli.views.tables import moment
    from kinstream.streams.errors import BadRecord
    from kinstream.streams.records.codec.avro import MARKER
    from kinstream.streams.records.codec.codec import ALL, decode
    from kinstream.streams.records.description import describe, record_lines
    from kinstream.streams.records.payload import escaped, payload_lines

    yield f"{message.topic} {message.partition}/{message.offset}, {moment(message.timestamp_ms)}"
    key = "none" if message.key is None else describe(message.key.decode("utf-8", "backslashreplace"))
    yield f"key: {escaped(key)}"
    yield "headers:"
    for name, value in message.headers:
        yield f"  {name}: {escaped(describe((value or b'').decode('utf-8', 'backslashreplace')))}"
    if message.value is None:
        yield "value: none"
        return
    try:
        record = decode(message.value, *ALL)
    except BadRecord as error:
        yield from payload_lines(message.value)
        yield f"cannot be decoded: {escaped(str(error))}"
        return
    if message.value.startswith(MARKER):
        yield f"value: {len(message.value)} bytes of Avro"
        yield from (escaped(line) for line in record_lines(record))
    else:
        yield from payload_lines(message.value)
        yield f"read as: {type(record).__name__}"


@dead_letters.command()
@click.argument("places", nargs=-1, metavar="[PARTITION/OFFSET]...")
@click.option("--all", "everything", is_flag=True, help="All letters that a consumer still holds as refused.")
@_filters
@click.option("--dry-run", is_flag=True, help="Print what would be sent, and send nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@JSON
@click.pass_context
def redrive(
    ctx: click.Context,
    /,
    places: tuple[str, ...],
    everything: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    reason: str | None,
    consumer: str | None,
    space: str | None,
    since: str | None,
    sought: tuple[str, ...],
) -> None:
    """Send dead letters back to the consumers that refused them.

    Each consumer applies only letters that it still holds as refused, so this command can be repeated and interrupted
    safely. A record that is refused again becomes a new dead letter.

    Example: kinstream dead-letters redrive --reason space-paused --yes
    """
    from kinstream.streams.errors import SettingsError
    from kinstream.streams.kafka.cluster import Cluster
    from kinstream.streams.kafka.rights.access import check_role
    from kinstream.streams.operations.letters import LetterFilter, StandingRefusals, plan

    narrowed = bool(sought) or any(value is not None for value in (reason, consumer, space))
    if bool(places) + everything + narrowed != 1 or (since and places):
        raise SettingsError(
            "select letters: PARTITION/OFFSET ..., or --all, or --reason, --consumer, --space, --of"
        )
    settings = settings_of(ctx)
    chosen = frozenset(_place(place) for place in places) or None
    if not dry_run:
        check_role(Cluster(settings.kafka), settings, "redrive")
    found = _read(settings, LetterFilter(reason, consumer, space, _since(since), chosen, _given(sought)))
    standing = StandingRefusals(settings)
    planned = plan(found.letters, standing.topics, standing.holds, _compacted(settings, found))
    lines = [f"left out {number}: {why}" for why, number in planned.left_out.items()]
    missing = 0 if chosen is None else len(chosen) - len(found.letters) - found.repeated
    _notes(found, f"{missing} of those named do not exist" if missing else "")
    fields: dict[str, Any] = {
        "left_out": planned.left_out,
        "letters": [
            {"letter": one.place, "reason": one.reason, "consumer": one.consumer} for one in planned.send
        ],
        "sent": 0,
    }
    if dry_run or not planned.send:
        lines += [f"would send {one.place} ({one.reason}) to {one.consumer}" for one in planned.send]
        tell(fields, (*lines, f"{len(planned.send)} to send"), as_json=as_json)
        return
    if not as_json:
        for line in lines:
            click.echo(line)
    confirm(f"Send {len(planned.send)} records back to their consumers?", yes=yes)
    sent = _send(settings, planned, standing)
    text = f"sent {sent}; the consumers count applied ones as redriven, the others as redrives ignored"
    tell(fields | {"sent": sent}, (text,), as_json=as_json)
    if sent < len(planned.send):
        raise SettingsError(f"{len(planned.send) - sent} letters were deleted by retention meanwhile")


def _given(sought: tuple[str, ...]) -> dict[str, str]:
    from kinstream.streams.errors import SettingsError
    from kinstream.streams.operations.letter_lists import SOUGHT

    found = dict[str, str]()
    for text in sought:
        kind, _, name = text.partition("=")
        if kind not in SOUGHT or not name or kind in found:
            raise SettingsError(f"--of takes {', '.join(SOUGHT)}=NAME, each once, not {text!r}")
        found[kind] = name
    return found


def _compacted(settings: Settings, found: FoundLetters) -> set[str]:
    """The topics of sources, among those of the letters, that are compacted."""
    from kinstream.streams.kafka.cluster import Cluster

    topics = {letter.topic for letter in found.letters} & {one.topic for one in settings.sources.values()}
    cluster = Cluster(settings.kafka)
    try:
        return {name for name in topics if "compact" in (cluster.config_of(name).get("cleanup.policy") or "")}
    finally:
        cluster.close()


def _send(settings: Settings, planned: RedrivePlan, standing: StandingRefusals) -> int:
    from kinstream.streams.kafka.clients import confluent_producer
    from kinstream.streams.kafka.emitter import Emitter
    from kinstream.streams.kafka.reader import read_range
    from kinstream.streams.operations.letters import ranges, redrives

    topic = settings.topic("dead-letters")
    emitter = Emitter(confluent_producer(settings.kafka))
    sent = 0
    try:
        messages = read_range(settings.kafka, topic, ranges(planned.send))
        for output in _progress(
            redrives(messages, planned.send, standing.place), len(planned.send), "redriving"
        ):
            emitter.send(output.topic, output.key, output.value, output.headers, output.partition)
            sent += 1
        emitter.confirm(settings.worker.delivery_deadline_seconds)
    finally:
        emitter.close()
    return sent


def _read(settings: Settings, choice: LetterFilter) -> FoundLetters:
    """Read the dead letters that the arguments may select."""
    from kinstream.streams.errors import SettingsError
    from kinstream.streams.kafka.cluster import Cluster
    from kinstream.streams.kafka.reader import ends, read_range
    from kinstream.streams.operations.letters import choose

    topic = settings.topic("dead-letters")
    cluster = Cluster(settings.kafka)
    bounds = ends(cluster, topic)
    if not bounds:
        raise SettingsError(f"topic {topic} does not exist: kinstream topics create")
    if choice.places is not None:
        bounds = {p: narrowed for p, b in bounds.items() if (narrowed := _narrowed(b, choice.places, p))}
    elif choice.since_ms is not None:
        for partition, (start, stop) in bounds.items():
            first = cluster.offset_at(topic, partition, choice.since_ms)
            bounds[partition] = (stop if first is None else max(start, first), stop)
    messages = read_range(settings.kafka, topic, bounds)
    return choose(
        _progress(messages, sum(stop - start for start, stop in bounds.values()), "reading"), choice
    )


def _narrowed(
    bounds: tuple[int, int], places: frozenset[tuple[int, int]], partition: int
) -> tuple[int, int] | None:
    offsets = [offset for p, offset in places if p == partition and bounds[0] <= offset < bounds[1]]
    return (min(offsets), max(offsets) + 1) if offsets else None


def _progress(items: Iterable[T], total: int, doing: str) -> Iterable[T]:
    shown = sys.stderr.isatty()
    with click.progressbar(items, total, doing, file=sys.stderr, hidden=not shown) as bar:
        yield from bar


def _notes(found: FoundLetters, more: str) -> None:
    if found.repeated:
        click.echo(f"{found.repeated} letters occur more than once; each is counted once", err=True)
    if found.unreadable:
        click.echo(f"{found.unreadable} records of the topic are not dead letters", err=True)
    if more:
        click.echo(more, err=True)


def _since(text: str | None) -> int | None:
    """Milliseconds since the epoch of a time, or of a duration before now.

    Raises
    ------
    SettingsError : it is neither.
    """
    from datetime import UTC, datetime

    from kinstream.streams.errors import SettingsError

    if text is None:
        return None
    if ago := re.fullmatch(r"(\d{1,9})([smhd])", text):
        return int((time.time() - int(ago[1]) * _UNITS[ago[2]]) * 1000)
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise SettingsError(f"--since {text!r}: write 90m, 24h, 7d or 2026-05-01T12:00") from error
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def _place(text: str) -> tuple[int, int]:
    from kinstream.streams.errors import SettingsError

    found = re.fullmatch(r"(\d{1,9})/(\d{1,18})", text)
    if found is None:
        raise SettingsError(f"{text!r}: a dead letter is named PARTITION/OFFSET, such as 2/17")
    return int(found[1]), int(found[2])


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _short(text: str, longest: int) -> str:
    printable = _printable(text)
    return printable if len(printable) <= longest else printable[: longest - 3] + "..."
