"""What every `kinstream produce` command shares: options, sending, and the summary."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from kinstream.producers.loads.pacing import Pacing
    from kinstream.producers.loads.sender import Load, Sent, Summary
    from kinstream.streams.kafka.cluster import Cluster
    from kinstream.streams.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])
#: Number of parts of a value that a table shows; JSON shows all.
_SHOWN = 8

space_option = click.option("--space", required=True, help="Space of the rows.")
_LOAD = (
    click.option(
        "--block-rows",
        type=int,
        help="Rows per block; fewer if 512 KiB are reached. [default: 256; of labelled rows a 64th, if that is more, "
        "up to 2048]",
    ),
    click.option("--rate", type=float, help="Rows per second. [default: as fast as the brokers accept them]"),
    click.option(
        "--max-backlog",
        type=int,
        help="Wait while an agent of the settings has more than this many blocks to read.",
    ),
    click.option(
        "--load-id", help="Identifier of the load. [default: a digest of the rows, the space and the options]"
    ),
    click.option(
        "--progress-folder",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path(".kinstream/loads"),
        show_default=True,
        help="Folder with the progress of each load. In another one, a confirmed load is sent again.",
    ),
    click.option(
        "--json",
        "as_json",
        is_flag=True,
        help="Print the summary as one line of JSON, and no progress bar.",
    ),
)
field_option = click.option(
    "--field",
    "fields",
    multiple=True,
    metavar="FIELD=COLUMN",
    help="Column of a field, or a path such as clicks[*].item; of names and vectors COL,COL, where * and ? match.",
)
try_option = click.option(
    "--try",
    "tried",
    is_flag=True,
    help="Send nothing: print the first events, refusals and counts of the rows.",
)
#: Rows whose events are printed when a file is tried.
TRIED: Final = 10


def load_options(command: F) -> F:
    """Add the options of every kind of load: pace, progress, identity, summary."""
    decorated: Any = command
    for option in reversed(_LOAD):
        decorated = option(decorated)
    result: F = decorated
    return result


def names(text: str) -> list[str]:
    """The columns of a list such as `a, b`."""
    return [column.strip() for column in text.split(",")]


def by_field(texts: Sequence[str]) -> dict[str, str]:
    """What each field is read from, of `--field` options such as `item=sku`.

    Raises
    ------
    SettingsError : one is not of that form, or names a field again.
    """
    from kinstream.streams.errors import SettingsError

    found: dict[str, str] = {}
    for text in texts:
        field, _, columns = text.partition("=")
        if not field or not columns or field in found:
            raise SettingsError(f"--field takes FIELD=COLUMN, each field once, not {text!r}")
        found[field] = columns
    return found


def send(ctx: click.Context, make: Callable[[], Load[Any]], options: dict[str, Any]) -> None:
    """Send a load and print its summary.

    Parameters
    ----------
    make : opens the load, after the other options have been checked.
    options : those of `load_options`.
    """
    from kinstream.cli.shared.context import settings_of
    from kinstream.cli.shared.output import tell_left_out
    from kinstream.producers.loads.pacing import Rate
    from kinstream.producers.loads.sender import produce
    from kinstream.streams.kafka.clients import confluent_producer
    from kinstream.streams.kafka.cluster import Cluster
    from kinstream.streams.kafka.emitter import Emitter
    from kinstream.streams.kafka.rights.access import check_role
    from kinstream.streams.traces.exporter import open_exporter
    from kinstream.streams.traces.loads import LoadTraces

    settings = settings_of(ctx)
    rate = Rate(options["rate"])
    cluster = Cluster(settings.kafka)
    emitter = None
    spans = open_exporter(settings, "kinstream-produce")
    try:
        load = make()
        tell_left_out(load.facts.get("left_out", ()))
        cluster.wait(settings.worker.startup_seconds)
        check_role(cluster, settings, "producer")
        producer = confluent_producer(settings.kafka)
        largest = largest_message(cluster, settings.topic("events"))
        if largest is not None and largest < producer["message.max.bytes"]:
            # Of a batch of records too: the brokers measure those.
            producer["message.max.bytes"] = largest
            fit(load, settings.topic("events"), largest)
        emitter = Emitter(producer, deadline_seconds=settings.worker.delivery_deadline_seconds)
        with progress_bar(load, hidden=options["as_json"]) as watch:
            summary = produce(
                load,
                emitter,
                settings.topic("events"),
                folder=progress_folder(cluster, settings, options["progress_folder"]),
                traces=LoadTraces(spans),
                rate=rate,
                pacing=backlog(cluster, settings, options["max_backlog"]),
                watch=watch,
                deadline_seconds=settings.worker.delivery_deadline_seconds,
            )
    finally:
        if emitter is not None:
            emitter.close()
        if spans is not None:
            spans.close()
        cluster.close()
    print_summary(summary, as_json=options["as_json"])


def largest_message(cluster: Cluster, topic: str) -> int | None:
    """The largest record that a topic takes, in bytes; None if that is not known to this client."""
    from kinstream.streams.errors import AccessDenied

    view = cluster.view([topic])
    if view.cluster_id is None or topic not in view.topics:
        return None
    try:
        return int(cluster.config_of(topic).get("max.message.bytes") or 0) or None
    except AccessDenied:
        return None


def fit(load: Load[Any], topic: str, largest: int) -> None:
    """Let a load make blocks that a topic takes.

    Raises
    ------
    SourceError : a row alone is too large.
    """
    from kinstream.producers.loads.blocks import BESIDE_BLOCK_BYTES
    from kinstream.streams.errors import SourceError

    try:
        load.fit(largest - BESIDE_BLOCK_BYTES)
    except SourceError as error:
        raise SourceError(f"{error}. Topic {topic} has max.message.bytes = {largest}: raise it") from error


def progress_folder(cluster: Cluster, settings: Settings, folder: Path) -> Any:
    """The folder of progress; None on the embedded broker, which keeps no records."""
    from kinstream.producers.loads.progress import ProgressFolder

    topic = settings.topic("events")
    view = cluster.view([topic])
    if view.cluster_id is None:
        return None
    found = view.topics.get(topic)
    log = {"cluster": view.cluster_id, "topic": topic, "topic_id": None if found is None else found.topic_id}
    return ProgressFolder(folder, log)


def backlog(cluster: Cluster, settings: Settings, limit: int | None) -> Pacing | None:
    """Waits for the agents of the settings, each in its newest generation."""
    if limit is None:
        return None
    from kinstream.producers.loads.pacing import Backpressure
    from kinstream.streams.kafka.backlog import Backlog
    from kinstream.streams.kafka.rights.access import check_role

    stall = settings.worker.stall_seconds
    groups = agent_groups(settings)
    check_role(cluster, settings, "pacing", groups=[group for group, _ in groups])
    return Backpressure(Backlog(cluster, groups).records, limit, deadline_seconds=stall)


def agent_groups(settings: Settings) -> list[tuple[str, str]]:
    """Consumer group and input topic of every agent of the settings, in its newest generation.

    Raises
    ------
    SettingsError : there are none, or one has not begun, so its backlog would be unknown.
    """
    from kinstream.cli.shared.agents import agent_spec
    from kinstream.streams.agents.generations.numbers import newest_generation
    from kinstream.streams.errors import SettingsError

    if not settings.builders:
        raise SettingsError("--max-backlog: the settings name no builder to wait for; see --config")

    roles = [("builder", name) for name in settings.builders] + [
        ("learner", name) for name in settings.learners
    ]
    found = []
    roles += [("sink", name) for name in settings.sinks]
    single = [("gate", None)] if settings.gate else []
    single += [("vectors", None)] if settings.vectors else []
    for role, name in [*roles, *single, ("metrics", None)]:
        spec = agent_spec(settings, role, name)
        generation = newest_generation(settings, spec.application)
        if generation is None:
            raise SettingsError(
                f"--max-backlog: {spec.application} has no generation under {settings.checkpoints.shown}; "
                f"start it first: {spec.command} --create"
            )
        found.append((spec.group(generation), settings.topic(spec.input_role)))
    return found


@contextmanager
def progress_bar(load: Load[Any], *, hidden: bool) -> Iterator[Callable[[Sent], None]]:
    """A bar on stderr while a load is sent, if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=hidden or not sys.stderr.isatty()) as bar:
        task = bar.add_task(f"rows to {load.space}", total=load.rows, speed="")

        def watch(sent: Sent) -> None:
            speed = bar.tasks[task].speed
            text = "" if speed is None else f"{speed:,.0f}/s"
            bar.update(task, completed=sent.rows, speed=text)

        yield watch


def print_summary(summary: Summary, *, as_json: bool) -> None:
    """Print the summary of a load, as a table or as JSON."""
    if as_json:
        import json
        from dataclasses import asdict

        body = asdict(summary)
        click.echo(json.dumps(body | body.pop("facts")))
        return
    from kinstream.cli.views.tables import echo_table

    if summary.was_complete:
        click.echo(
            f"Load {summary.load_id} was sent and confirmed before; nothing was sent. After a reset of the space, "
            "send it again with another --progress-folder; to count the same rows twice, use another --load-id."
        )
    speed = summary.rows / summary.seconds if summary.seconds else 0.0
    rows = [
        ("load", summary.load_id),
        ("space", summary.space),
        ("rows", summary.rows),
        ("blocks", summary.blocks),
        ("bytes", summary.bytes),
        ("seconds", f"{summary.seconds:.1f}"),
        ("rows a second", f"{speed:.0f}"),
        *((name.replace("_", " "), _shown(value)) for name, value in summary.facts.items()),
        ("rows of the load so far", summary.total_rows),
    ]
    if summary.resumed_from:
        rows.append(("resumed at block", summary.resumed_from))
    echo_table(("SENT", ""), rows)


def _shown(value: Any) -> str:
    """A fact in one cell of a table."""
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_shown(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        more = f", ... ({len(value)})" if len(value) > _SHOWN else ""
        return ", ".join(map(str, value[:_SHOWN])) + more
    return str(value)
