"""`kinstream produce items`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kinstream.cli.produce.sending import (
    by_modality,
    csv_format,
    csv_options,
    load_options,
    names,
    send,
    space_option,
    times_option,
)

#: Largest file of item names, in bytes.
_MAX_LIST_BYTES = 256 * 2**20

if TYPE_CHECKING:
    from kinstream.producers.items.categories import Category
    from kinstream.producers.items.source import ItemColumns
    from kinstream.producers.loads.phased_load import PhasedLoad


@click.command()
@click.argument("source", required=False)
@space_option
@click.option(
    "--ids",
    metavar="COL,COL",
    help="Column of the item's name; several are joined by a slash. [default: id, ids, item or item_id]",
)
@click.option(
    "--features",
    multiple=True,
    metavar="[MODALITY=]COL,COL",
    help="Columns of numbers; * and ? match. By default all others.",
)
@click.option(
    "--one-hot", multiple=True, metavar="[MODALITY=]COL,COL", help="Categories: a feature for each value."
)
@click.option(
    "--hashed",
    multiple=True,
    metavar="[MODALITY=]COL:BUCKETS",
    help="Categories hashed into this many features, with signs.",
)
@click.option("--delete-column", metavar="COLUMN", help="A row deletes its item if this column is true.")
@click.option("--time", metavar="COLUMN", help="Column of the time. [default: the time of sending]")
@times_option
@csv_options
@click.option("--delete", multiple=True, metavar="ID", help="Delete this item, instead of a SOURCE.")
@click.option(
    "--delete-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Delete the items named in this file, one per line.",
)
@load_options
@click.pass_context
def items(ctx: click.Context, /, source: str | None, space: str, **options: Any) -> None:
    """Send the catalogue SOURCE, a .csv, .tsv (also .gz), .parquet or .npz file; or delete items.

    An entry replaces the item of that name. A killed load continues after its confirmed part when the same
    command is run again.

    \b
    Examples:
      kinstream produce items catalogue.csv --space shop --ids sku --one-hot colour --hashed brand:64
      kinstream produce items catalogue.parquet --space shop --features 'image=img_*' --one-hot text=kind
      kinstream produce items --space shop --delete sku-1 --delete sku-2
    """
    from kinstream.streams.errors import SettingsError

    deletes = [*options["delete"], *_listed(options["delete_file"])]
    if (source is None) == (not deletes):
        raise SettingsError("name a SOURCE, or items to --delete: one of the two")

    def load() -> PhasedLoad:
        from kinstream.producers.items.rows import tombstones
        from kinstream.producers.items.source import open_items
        from kinstream.producers.loads.phased_load import PhasedLoad

        if source is None:
            opened: Any = tombstones(deletes, time.time_ns() // 1_000_000)
        else:
            opened = open_items(source, _columns(options), csv_format(options))
        return PhasedLoad("items", [opened], space, options["block_rows"], options["load_id"])

    send(ctx, load, options)


def _columns(options: dict[str, Any]) -> ItemColumns:
    from kinstream.producers.items.source import ItemColumns

    return ItemColumns(
        tuple(names(options["ids"])) if options["ids"] else None,
        by_modality("--features", options["features"]) or None,
        _categories(options["one_hot"], options["hashed"]),
        options["delete_column"],
        options["time"],
        options["times"],
    )


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


def _listed(path: Path | None) -> list[str]:
    """The lines of a file."""
    from kinstream.streams.encodings import HEAD, advice, not_utf8
    from kinstream.streams.errors import SourceError

    if path is None:
        return []
    try:
        with path.open("rb") as stream:
            data = stream.read(_MAX_LIST_BYTES + 1)
        if len(data) > _MAX_LIST_BYTES:
            raise SourceError(f"{path}: larger than {_MAX_LIST_BYTES} bytes; split it")
        if (what := not_utf8(data[:HEAD])) is not None:
            raise SourceError(f"{path}: not text in UTF-8: {advice(what)}")
        return [line for line in data.decode("utf-8-sig").splitlines() if line]
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{path}: {error}") from error
