"""`kinstream produce simulated-clicks`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kinstream.cli.produce.labelled import reading
from kinstream.cli.produce.sending import csv_options, load_options, send, space_option

if TYPE_CHECKING:
    from kinstream.producers.loads.phased_load import PhasedLoad


@click.command("simulated-clicks")
@click.argument("source")
@space_option
@click.option("--features", multiple=True, metavar="[MODALITY=]COL,COL", help="Columns; * and ? match.")
@click.option("--label", metavar="COLUMN", help="Column of the label.")
@click.option("--ids", metavar="COLUMN", help="Column of item names. [default: the number of the row]")
@csv_options
@click.option("--lists", default=1000, show_default=True, help="Number of result lists.")
@click.option("--list-length", default=10, show_default=True, help="Items in each list.")
@click.option("--relevant", default=0.5, show_default=True, help="Share of each list with the query's class.")
@click.option(
    "--ranking",
    type=click.Choice(["random", "by-similarity"]),
    default="random",
    show_default=True,
    help="by-similarity: by Euclidean distance to the query.",
)
@click.option("--fair-pairs", is_flag=True, help="Swap adjacent results with probability 1/2.")
@click.option(
    "--model",
    type=click.Choice(["position", "cascade"]),
    default="position",
    show_default=True,
    help="position: each rank is examined or not; cascade: the user walks down and may stop after a click.",
)
@click.option(
    "--bias",
    default=1.0,
    show_default=True,
    help="Position model: rank r, from 0, is examined with probability 1/(r+1)^bias.",
)
@click.option(
    "--stop", default=1.0, show_default=True, help="Cascade: probability of stopping after a click."
)
@click.option(
    "--noise",
    default=0.1,
    show_default=True,
    help="Probability of a click on an examined item of another class, and of none on one of the query's.",
)
@click.option(
    "--query",
    type=click.Choice(["item", "vector"]),
    default="item",
    show_default=True,
    help="vector: the list carries the query's vector and not its name.",
)
@click.option("--users", default=100, show_default=True, help="Number of users.")
@click.option("--session-lists", default=5, show_default=True, help="Lists per session.")
@click.option(
    "--start",
    default="2025-01-01T00:00:00Z",
    show_default=True,
    metavar="TIME",
    help="When the first list is shown, ISO 8601.",
)
@click.option("--spacing-ms", default=1000, show_default=True, help="Time between two lists.")
@click.option("--dwell-ms", default=30_000, show_default=True, help="Median dwell time on a relevant item.")
@click.option("--short-dwell-ms", default=5_000, show_default=True, help="Median dwell time on another item.")
@click.option("--seed", default=0, show_default=True, help="Equal seeds give equal records.")
@click.option("--hold-out", default=0.0, show_default=True, help="Share of the rows that are left out.")
@click.option("--hold-out-seed", default=0, show_default=True, help="Seed for choosing those rows.")
@load_options
@click.pass_context
def simulated_clicks(ctx: click.Context, /, source: str, space: str, **options: Any) -> None:
    """Send the rows of a labelled SOURCE as items, then simulated result lists over them and their clicks.

    Items of the query's class are relevant. SOURCE is as for `kinstream produce labelled`.

    \b
    Examples:
      kinstream produce simulated-clicks sklearn:digits --space clicks --lists 20000 --seed 1
      kinstream produce simulated-clicks sklearn:digits --space clicks --ranking by-similarity --bias 2 --fair-pairs
    """
    from kinstream.producers.simulated.settings import Simulation

    same = (
        *("lists", "list_length", "relevant", "ranking", "fair_pairs", "model", "bias", "stop", "noise"),
        *("query", "users", "session_lists", "spacing_ms", "dwell_ms", "short_dwell_ms", "seed"),
    )
    given = {name: options[name] for name in same}
    settings = Simulation(**given, start_ms=_milliseconds(options["start"]))
    selection, form = reading({**options, "label_type": "auto"})

    def load() -> PhasedLoad:
        from kinstream.cli.shared.output import tell_left_out
        from kinstream.producers.labelled.sources import open_source
        from kinstream.producers.simulated.load import simulated_load, simulator_of

        opened = open_source(source, selection, form)
        tell_left_out(opened.layout.left_out)
        simulator = simulator_of(opened, settings, options["hold_out"], options["hold_out_seed"])
        return simulated_load(simulator, space, options["block_rows"], options["load_id"])

    send(ctx, load, options)


def _milliseconds(text: str) -> int:
    from datetime import UTC, datetime

    from kinstream.streams.errors import SettingsError

    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise SettingsError(
            f"--start: {text!r} is not an ISO 8601 time such as 2025-01-01T00:00:00Z"
        ) from None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
