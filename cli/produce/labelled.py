"""`kinstream produce labelled`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kinstream.cli.produce.sending import (
    by_modality,
    csv_format,
    csv_options,
    load_options,
    send,
    space_option,
)

if TYPE_CHECKING:
    from kinstream.producers.files.selection import CsvFormat, Selection
    from kinstream.producers.labelled.load import LabelledLoad


@click.command()
@click.argument("source")
@space_option
@click.option(
    "--features",
    multiple=True,
    metavar="[MODALITY=]COL,COL",
    help="Columns; * and ? match. By default all others.",
)
@click.option(
    "--label",
    metavar="COLUMN",
    help="Column of the label. [default: label, class, target or y; without a header the last]",
)
@click.option("--ids", metavar="COLUMN", help="Column of item names.")
@click.option(
    "--label-type", type=click.Choice(["auto", "integer", "string"]), default="auto", show_default=True
)
@csv_options
@click.option("--shuffle-seed", type=int, help="Send the rows in a random order; holds them in memory.")
@click.option("--repeat", default=1, show_default=True, help="Passes over the rows.")
@click.option("--hold-out", default=0.0, show_default=True, help="Share of the rows that are never sent.")
@click.option("--hold-out-seed", default=0, show_default=True, help="Seed for choosing those rows.")
@load_options
@click.pass_context
def labelled(ctx: click.Context, /, source: str, space: str, **options: Any) -> None:
    """Send labelled rows of SOURCE: a .csv, .tsv, .parquet or .npz file, or a set that scikit-learn ships.

    A killed load continues after its confirmed part when the same command is run again, and no row counts twice.

    \b
    Examples:
      kinstream produce labelled sklearn:digits --space digits --shuffle-seed 1
      kinstream produce labelled items.parquet --space shop --label category --features 'image=img_*'
    """
    from kinstream.producers.labelled.load import BlockSettings, LabelledLoad
    from kinstream.producers.labelled.sources import open_source

    names = ("block_rows", "shuffle_seed", "repeat", "hold_out", "hold_out_seed")
    blocks = BlockSettings(**{name: options[name] for name in names})
    selection, form = reading(options)

    def load() -> LabelledLoad:
        return LabelledLoad(open_source(source, selection, form), space, blocks, options["load_id"])

    send(ctx, load, options)


def reading(options: dict[str, Any]) -> tuple[Selection, CsvFormat]:
    """How a labelled source is read.

    Raises
    ------
    SettingsError : a modality is named twice, or an option is out of range.
    """
    from kinstream.producers.files.selection import Selection

    features = by_modality("--features", options["features"])
    selection = Selection(features or None, options["label"], options["ids"], options["label_type"])
    return selection, csv_format(options)
