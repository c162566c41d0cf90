"""`kinstream produce`: data in, with every delivery confirmed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.context import settings_of

if TYPE_CHECKING:
    from producers.labelled import Sent, Summary
    from producers.load import Load
    from producers.pacing import Pacing
    from producers.sources import CsvFormat, Selection
    from streams.cluster import Cluster
    from streams.settings import Settings


@click.group()
def produce() -> None:
    """Send data to kinstream.events.

    Example: kinstream produce labelled sklearn:digits --space digits --shuffle-seed 1
    """


@produce.command()
@click.argument("source")
@click.option("--space", required=True, help="Which model the rows belong to.")
@click.option(
    "--features",
    multiple=True,
    metavar="[MODALITY=]COL,COL",
    help="Columns; * and ? match. All others if left out.",
)
@click.option("--label", metavar="COLUMN", help="Column of the label. [default: label, class, target or y]")
@click.option("--ids", metavar="COLUMN", help="Column of item names.")
@click.option(
    "--label-type", type=click.Choice(["auto", "integer", "string"]), default="auto", show_default=True
)
@click.option("--delimiter", help="Of a CSV file. [default: a comma; a tab for .tsv]")
@click.option(
    "--no-header",
    is_flag=True,
    help="The CSV file has no header: columns are f0, f1, ...; the last is the label.",
)
@click.option(
    "--block-rows", default=256, show_default=True, help="Rows of a block; fewer where 512 KiB are reached."
)
@click.option(
    "--shuffle-seed", type=int, help="Send the rows in a random order. They are then held in memory."
)
@click.option("--repeat", default=1, show_default=True, help="Passes over the rows.")
@click.option("--hold-out", default=0.0, show_default=True, help="Share of the rows that is never sent.")
@click.option("--hold-out-seed", default=0, show_default=True, help="Which rows these are.")
@click.option("--rate", type=float, help="Rows a second. [default: as fast as the brokers take them]")
@click.option(
    "--max-backlog", type=int, help="Wait while an agent of the settings has more blocks than this to read."
)
@click.option(
    "--load-id", help="Name of the load. [default: a digest of the rows, the space and the options]"
)
@click.option("--from-start", is_flag=True, help="Send a confirmed load again, as after `spaces reset`.")
@click.option(
    "--progress-folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".kinstream/loads"),
    show_default=True,
    help="Where it is kept how far each load is confirmed.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the summary as one line of JSON, and no progress bar."
)
@click.pass_context
def labelled(ctx: click.Context, /, source: str, space: str, as_json: bool, **options: Any) -> None:
    """Send labelled rows of SOURCE: a .csv, .tsv, .parquet or .npz file, or a set that scikit-learn ships.

    A load that was killed goes on where it was confirmed when the same command is run again, and nothing
    counts twice.

    \b
    Examples:
      kinstream produce labelled sklearn:digits --space digits --shuffle-seed 1
      kinstream produce labelled items.parquet --space shop --label category --features 'image=img_*'
    """
    from producers.labelled import produce as send
    from producers.load import BlockSettings, Load
    from producers.pacing import Rate
    from producers.sources import open_source
    from streams.clients import confluent_producer
    from streams.cluster import Cluster
    from streams.emitter import Emitter

    settings = settings_of(ctx)
    names = ("block_rows", "shuffle_seed", "repeat", "hold_out", "hold_out_seed")
    blocks = BlockSettings(**{name: options[name] for name in names})
    rate = Rate(options["rate"])
    selection, form = reading(options)
    cluster = Cluster(settings.kafka)
    emitter = None
    try:
        load = Load(open_source(source, selection, form), space, blocks, options["load_id"])
        cluster.wait(settings.worker.startup_seconds)
        emitter = Emitter(
            confluent_producer(settings.kafka), deadline_seconds=settings.worker.delivery_deadline_seconds
        )
        with progress_bar(load, hidden=as_json) as watch:
            summary = send(
                load,
                emitter,
                settings.topic("events"),
                folder=progress_folder(cluster, settings, options["progress_folder"]),
                from_start=options["from_start"],
                rate=rate,
                pacing=backlog(cluster, settings, options["max_backlog"]),
                watch=watch,
                deadline_seconds=settings.worker.delivery_deadline_seconds,
            )
    finally:
        if emitter is not None:
            emitter.close()
        cluster.close()
    tell(summary, as_json=as_json)


def reading(options: dict[str, Any]) -> tuple[Selection, CsvFormat]:
    """How the source is read.

    Raises
    ------
    SettingsError : a modality is named twice, or an option is out of range.
    """
    from producers.sources import CsvFormat, Selection
    from streams.errors import SettingsError
    from streams.records import DEFAULT_MODALITY

    features: dict[str, list[str]] = {}
    for text in options["features"]:
        modality, _, columns = text.rpartition("=")
        name = modality or DEFAULT_MODALITY
        if name in features:
            raise SettingsError(f"--features: modality {name!r} is given twice; write its columns as COL,COL")
        features[name] = [column.strip() for column in columns.split(",")]
    selection = Selection(features or None, options["label"], options["ids"], options["label_type"])
    return selection, CsvFormat(options["delimiter"], header=not options["no_header"])


def progress_folder(cluster: Cluster, settings: Settings, folder: Path) -> Any:
    """Where progress is kept; None on the embedded broker, which forgets what was confirmed."""
    from producers.progress import ProgressFolder

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
    from producers.pacing import Backpressure
    from streams.backlog import Backlog

    stall = settings.worker.stall_seconds
    return Backpressure(Backlog(cluster, agent_groups(settings)).records, limit, deadline_seconds=stall)


def agent_groups(settings: Settings) -> list[tuple[str, str]]:
    """Consumer group and input topic of every agent of the settings, in its newest generation.

    Raises
    ------
    SettingsError : there are none, or one has not begun; nobody would know what it still has to read.
    """
    from cli.worker import agent_spec
    from streams.errors import SettingsError
    from streams.generation import newest_generation

    if not settings.builders:
        raise SettingsError("--max-backlog: the settings name no builder to wait for; see --config")

    roles = [("builder", name) for name in settings.builders] + [
        ("learner", name) for name in settings.learners
    ]
    found = []
    for role, name in [*roles, ("metrics", None)]:
        spec = agent_spec(settings, role, name)
        generation = newest_generation(settings, spec.application)
        if generation is None:
            raise SettingsError(
                f"--max-backlog: {spec.application} has no generation under {settings.checkpoints.url}; "
                f"start it first: {spec.command} --create"
            )
        found.append((spec.group(generation), settings.topic(spec.input_role)))
    return found


@contextmanager
def progress_bar(load: Load, *, hidden: bool) -> Iterator[Callable[[Sent], None]]:
    """A bar on stderr while a load is sent, where that is a terminal."""
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
            told = "" if speed is None else f"{speed:,.0f}/s"
            bar.update(task, completed=sent.rows, speed=told)

        yield watch


def tell(summary: Summary, *, as_json: bool) -> None:
    """The end of a load, for a person or as JSON."""
    if as_json:
        import json
        from dataclasses import asdict

        click.echo(json.dumps(asdict(summary)))
        return
    from cli.tables import echo_table

    if summary.was_complete:
        click.echo(
            f"Load {summary.load_id} was sent and confirmed before; nothing was sent. After a reset of the space, "
            "send it again with --from-start; to count the same rows twice, give them another --load-id."
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
        ("classes", summary.classes),
        ("held out", summary.held_out),
        ("rows of the load so far", summary.total_rows),
    ]
    if summary.resumed_from:
        rows.append(("resumed at block", summary.resumed_from))
    echo_table(("SENT", ""), rows)
