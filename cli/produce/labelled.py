"""`kinstream produce labelled`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from kinstream.cli.produce.sending import (
    by_field,
    field_option,
    load_options,
    names,
    send,
    space_option,
)

if TYPE_CHECKING:
    from kinstream.producers.files.selection import Selection
    from kinstream.producers.labelled.load import LabelledLoad


@click.command()
@click.argument("source")
@space_option
@field_option
@click.option("--shuffle-seed", type=int, help="Send the rows in a random order; holds them in memory.")
@click.option("--repeat", default=1, show_default=True, help="Passes over the rows.")
@click.option(
    "--hold-out",
    default=0.0,
    show_default=True,
    help="Share of the rows never sent, by --shuffle-seed.",
)
@load_options
@click.pass_context
def labelled(ctx: click.Context, /, source: str, space: str, **options: Any) -> None:
    """Send labelled rows of SOURCE: a .csv, .tsv, .parquet or .npz file, or a set that scikit-learn ships.

    A killed load continues after its confirmed part when the same command is run again, and no row counts twice.

    \b
    Fields: label, by default the column label, class, target or y; id; vector, vector.MODALITY, by default all other
    columns of numbers.

    \b
    Examples:
      kinstream produce labelled sklearn:digits --space digits --shuffle-seed 1
      kinstream produce labelled items.parquet --space shop --field label=category --field 'vector.image=img_*'
    """
    from kinstream.producers.labelled.load import BlockSettings, LabelledLoad
    from kinstream.producers.labelled.sources import open_source

    shaping = ("block_rows", "shuffle_seed", "repeat", "hold_out")
    chosen = {name: options[name] for name in shaping}
    blocks = BlockSettings(**chosen, hold_out_seed=options["shuffle_seed"] or 0)
    given = by_field(options["fields"])

    def load() -> LabelledLoad:
        return LabelledLoad(open_source(source, selection(given)), space, blocks, options["load_id"])

    send(ctx, load, options)


def selection(given: Mapping[str, str]) -> Selection:
    """The columns of a labelled source.

    Parameters
    ----------
    given : the fields of samples -> their columns.

    Raises
    ------
    SettingsError : a field is not known.
    """
    from kinstream.producers.files.selection import Selection
    from kinstream.producers.sources.file_fields import check_fields
    from kinstream.streams.records.values import DEFAULT_MODALITY

    check_fields("samples", given, ("vector", "label", "id"))
    features = {
        name.partition(".")[2] or DEFAULT_MODALITY: names(columns)
        for name, columns in given.items()
        if name.partition(".")[0] == "vector"
    }
    return Selection(features or None, given.get("label"), given.get("id"))
