"""`kinstream produce relations`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kinstream.cli.produce.sending import (
    by_field,
    column_option,
    csv_format,
    csv_options,
    load_options,
    send,
    space_option,
    times_option,
)

if TYPE_CHECKING:
    from kinstream.producers.loads.phased_load import PhasedLoad


@click.command()
@click.argument("source")
@space_option
@column_option
@times_option
@csv_options
@load_options
@click.pass_context
def relations(ctx: click.Context, /, source: str, space: str, **options: Any) -> None:
    """Send relations between items: a .csv, .tsv, .jsonl, .ndjson (each also .gz) or .parquet file.

    \b
    Fields: left, right, similar (true, 1, +1, or false, 0, -1), time, source.
    Without a time column, relations get the time of sending.

    \b
    Examples:
      kinstream produce relations judged.csv --space shop
      kinstream produce relations judged.jsonl --space shop --column left=a --column right=b
    """
    columns = by_field(options["columns"])

    def load() -> PhasedLoad:
        from kinstream.producers.loads.phased_load import PhasedLoad
        from kinstream.producers.relations.reading import open_relations

        opened = open_relations(source, columns, times=options["times"], csv=csv_format(options))
        return PhasedLoad("relations", [opened], space, options["block_rows"], options["load_id"])

    send(ctx, load, options)
