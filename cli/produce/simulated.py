"""`kinstream produce simulated-clicks`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kinstream.cli.produce.sending import load_options, send, space_option

if TYPE_CHECKING:
    from kinstream.producers.loads.phased_load import PhasedLoad


@click.command("simulated-clicks")
@click.argument("source")
@space_option
@click.option("--lists", default=1000, show_default=True, help="Number of result lists.")
@click.option(
    "--bias",
    default=1.0,
    show_default=True,
    help="Rank r, from 0, is examined with probability 1/(r+1)^bias.",
)
@click.option("--seed", default=0, show_default=True, help="Equal seeds give equal records.")
@click.option(
    "--hold-out",
    default=0.0,
    show_default=True,
    help="Share of the rows left out, by --seed.",
)
@load_options
@click.pass_context
def simulated_clicks(ctx: click.Context, /, source: str, space: str, **options: Any) -> None:
    """Send the rows of a labelled SOURCE as items, then simulated result lists over them and their clicks.

    Items of the query's class are relevant; one click in ten is a mistake. SOURCE is as for `kinstream produce
    labelled`. Other ways to click: `kinstream.producers.simulated.settings.Simulation`, in Python.

    Example: kinstream produce simulated-clicks sklearn:digits --space clicks --lists 20000 --seed 1
    """
    from kinstream.producers.simulated.settings import Simulation

    settings = Simulation(**{name: options[name] for name in ("lists", "bias", "seed")})

    def load() -> PhasedLoad:
        from kinstream.cli.shared.output import tell_left_out
        from kinstream.producers.labelled.sources import open_source
        from kinstream.producers.simulated.load import simulated_load, simulator_of

        opened = open_source(source)
        tell_left_out(opened.layout.left_out, None)
        simulator = simulator_of(opened, settings, options["hold_out"], options["seed"])
        return simulated_load(simulator, space, options["block_rows"], options["load_id"])

    send(ctx, load, options)
