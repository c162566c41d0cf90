"""`kinstream produce items`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from kinstream.cli.produce.sending import (
    TRIED,
    by_field,
    field_option,
    load_options,
    names,
    send,
    space_option,
    try_option,
)

if TYPE_CHECKING:
    from kinstream.producers.items.categories import Category
    from kinstream.producers.loads.phased_load import PhasedLoad


@click.command()
@click.argument("file", required=False)
@space_option
@field_option
@click.option(
    "--one-hot", multiple=True, metavar="[MODALITY=]COL,COL", help="Categories: a feature for each value."
)
@click.option(
    "--hashed",
    multiple=True,
    metavar="[MODALITY=]COL:BUCKETS",
    help="Categories hashed into this many features, with signs.",
)
@click.option("--delete", multiple=True, metavar="ID", help="Delete this item, instead of a FILE.")
@try_option
@load_options
@click.pass_context
def items(ctx: click.Context, /, file: str | None, space: str, **options: Any) -> None:
    """Send the catalogue FILE, a .csv, .tsv (also .gz), .parquet or .npz file; or delete items.

    An entry replaces the item of that name. A killed load continues after its confirmed part when the same
    command is run again.

    \b
    Fields: id, deleted, time, vector, vector.MODALITY. By default id is the column id, ids, item or item_id, vector
    all other columns, and time that of sending.

    \b
    Examples:
      kinstream produce items catalogue.csv --space shop --field id=sku --one-hot colour --hashed brand:64
      kinstream produce items catalogue.parquet --space shop --field 'vector.image=img_*' --one-hot text=kind
      kinstream produce items --space shop --delete sku-1 --delete sku-2
    """
    from kinstream.streams.errors import SettingsError

    deletes = options["delete"]
    if (file is None) == (not deletes):
        raise SettingsError("name a FILE, or items to --delete: one of the two")
    given = by_field(options["fields"])
    categories = _categories(options["one_hot"], options["hashed"])

    def load() -> PhasedLoad:
        from kinstream.producers.items.source import open_items
        from kinstream.producers.loads.item_rows import tombstones
        from kinstream.producers.loads.phased_load import PhasedLoad

        if file is None:
            opened: Any = tombstones(deletes, time.time_ns() // 1_000_000)
        else:
            opened = open_items(file, given, categories)
        return PhasedLoad("items", [opened], space, options["block_rows"], options["load_id"])

    if not options["tried"]:
        send(ctx, load, options)
    elif file is None:
        raise SettingsError("--try reads a FILE")
    elif not _tried(file, space, given, categories, options):
        ctx.exit(1)


def _tried(
    file: str,
    space: str,
    given: dict[str, str],
    categories: dict[str, list[Category]],
    options: dict[str, Any],
) -> bool:
    """Print the first items and the rows that are refused; whether there are none of these."""
    from kinstream.cli.shared.output import tell_left_out
    from kinstream.cli.shared.trial import Trial
    from kinstream.producers.items.source import open_items

    trial = Trial("rows", shown=TRIED, as_json=options["as_json"])
    faults: list[Any] = []
    opened = open_items(file, given, categories, faults)
    tell_left_out(opened.facts.get("left_out", ()))
    for fault in faults:
        trial.refuse(f"row {fault.row + 1}", fault.as_record())
    wrong = {fault.row for fault in faults}
    good = (row for row in range(opened.layout.rows) if row not in wrong)
    while (rows := opened.next_batch()) is not None:
        for at in range(len(rows)):
            trial.take(f"row {next(good) + 1}", [rows[at : at + 1].record(space, None, -1)])
    return trial.end(file)


def _categories(one_hot: Sequence[str], hashed: Sequence[str]) -> dict[str, list[Category]]:
    """Categories of each modality, one-hot ones first."""
    from kinstream.producers.items.categories import Hashed, OneHot
    from kinstream.streams.errors import SettingsError
    from kinstream.streams.records.values import DEFAULT_MODALITY

    found: dict[str, list[Category]] = {}
    for text in one_hot:
        modality, _, columns = text.rpartition("=")
        found.setdefault(modality or DEFAULT_MODALITY, []).extend(map(OneHot, names(columns)))
    for text in hashed:
        modality, _, columns = text.rpartition("=")
        column, _, buckets = columns.rpartition(":")
        if not column or not buckets.isdecimal():
            raise SettingsError(f"--hashed takes COLUMN:BUCKETS, not {text!r}")
        found.setdefault(modality or DEFAULT_MODALITY, []).append(Hashed(column, int(buckets)))
    return found
