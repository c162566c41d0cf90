"""`kinstream produce clicks` and `kinstream produce relations`: a file by the mapping of a source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kinstream.cli.produce.sending import (
    TRIED,
    by_field,
    field_option,
    load_options,
    send,
    space_option,
    try_option,
)

if TYPE_CHECKING:
    from kinstream.producers.loads.phased_load import PhasedLoad

_source = click.option(
    "--source",
    metavar="NAME",
    help="Take the fields of [sources.NAME] as they are. [default: by --field, and by the names of columns]",
)


@click.command()
@click.argument("file")
@space_option
@field_option
@_source
@click.option(
    "--first-position", default=0, show_default=True, help="The number of the top rank in the file."
)
@try_option
@load_options
@click.pass_context
def clicks(ctx: click.Context, /, **options: Any) -> None:
    """Send result lists and their clicks: a .jsonl, .ndjson, .csv, .tsv (each also .gz) or .parquet file.

    A row with the field items is one list. With the field item it is one impression: consecutive rows of one list,
    session and query are a list.

    \b
    Fields: time, clicked_at, dwell_ms, list_id, session, user, address, query_item, query_vector;
    of lists items, positions, clicks or clicked; of impressions item, position, clicked.

    \b
    Examples:
      kinstream produce clicks lists.jsonl --space shop --try
      kinstream produce clicks log.csv.gz --space shop --field item=sku --field time=at --first-position 1
    """
    _produce(ctx, "clicks", options)


@click.command()
@click.argument("file")
@space_option
@field_option
@_source
@try_option
@load_options
@click.pass_context
def relations(ctx: click.Context, /, **options: Any) -> None:
    """Send relations between items: a .csv, .tsv, .jsonl, .ndjson (each also .gz) or .parquet file.

    \b
    Fields: left, right, similar (true, 1, +1, or false, 0, -1), time, source.
    Without a time, relations get the time of sending.

    \b
    Examples:
      kinstream produce relations judged.csv --space shop
      kinstream produce relations judged.jsonl --space shop --field left=a --field right=b
    """
    _produce(ctx, "relations", options)


def _produce(ctx: click.Context, kind: str, options: dict[str, Any]) -> None:
    given = by_field(options["fields"])

    def reading() -> dict[str, Any]:
        from kinstream.cli.shared.context import settings_of
        from kinstream.producers.sources.agent import source_of
        from kinstream.streams.errors import SettingsError

        if options["source"] and given:
            raise SettingsError("--source takes the fields of the settings; leave --field out")
        source = source_of(settings_of(ctx), options["source"]) if options["source"] else None
        first = {"first_position": options["first_position"]} if options.get("first_position") else {}
        return {"given": given, "source": source, **first}

    def load() -> PhasedLoad:
        from kinstream.producers.loads.phased_load import PhasedLoad
        from kinstream.producers.sources.file_events import open_events

        opened = open_events(options["file"], kind, options["space"], **reading())
        return PhasedLoad(kind, [opened], options["space"], options["block_rows"], options["load_id"])

    if not options["tried"]:
        send(ctx, load, options)
        return
    from kinstream.cli.shared.trial import Trial
    from kinstream.producers.sources.file_events import file_mapping

    trial = Trial("rows", shown=TRIED, as_json=options["as_json"])
    events = file_mapping(options["file"], kind, options["space"], **reading())
    for found in events.each(0):
        if found.fault is not None:
            trial.refuse(f"row {found.row + 1}", found.fault)
        else:
            trial.take(f"row {found.row + 1}", found.events)
    trial.show("not complete yet", events.held_back())
    if not trial.end(options["file"]):
        ctx.exit(1)
