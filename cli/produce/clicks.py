"""`kinstream produce clicks`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kinstream.cli.produce.sending import (
    by_field,
    by_modality,
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
@click.option(
    "--query-features",
    multiple=True,
    metavar="[MODALITY=]COL,COL",
    help="Columns of the query's vector; * and ? match.",
)
@click.option(
    "--first-position", default=0, show_default=True, help="The number of the top rank in the file."
)
@click.option(
    "--separator", default="|", show_default=True, help="Separator of the items of a list in a cell."
)
@times_option
@click.option("--shown-at", type=click.Choice(["now"]), help="now: the lists get the time of sending.")
@csv_options
@load_options
@click.pass_context
def clicks(ctx: click.Context, /, source: str, space: str, **options: Any) -> None:
    """Send result lists and their clicks: a .jsonl, .ndjson, .csv, .tsv (each also .gz) or .parquet file.

    A file of JSON lines holds one list per line, with the fields of the JSON event. A table with a column of items
    holds one list per row, otherwise one impression per row; consecutive rows of one list, session and query are a
    list.

    \b
    Fields: shown_at, clicked_at, dwell_ms, list_id, session, user, query_item;
    of lists items, positions, clicks; of impressions item, position, clicked.
    Several columns of a name, COL,COL, are joined by a slash.

    \b
    Examples:
      kinstream produce clicks lists.jsonl --space shop
      kinstream produce clicks log.csv.gz --space shop --column item=sku --column shown_at=at --first-position 1
    """
    from kinstream.producers.clicks.reading import ClickReading

    reading = ClickReading(
        by_field(options["columns"]),
        by_modality("--query-features", options["query_features"]),
        options["times"],
        options["shown_at"] == "now",
        options["first_position"],
        options["separator"],
    )

    def load() -> PhasedLoad:
        from kinstream.producers.clicks.reading import open_clicks
        from kinstream.producers.loads.phased_load import PhasedLoad

        opened = open_clicks(source, space, reading, csv_format(options))
        return PhasedLoad("clicks", [opened], space, options["block_rows"], options["load_id"])

    send(ctx, load, options)
