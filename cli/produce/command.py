"""`kinstream produce`: send data, with every delivery confirmed."""

from __future__ import annotations

import click

from kinstream.cli.produce.items import items
from kinstream.cli.produce.labelled import labelled
from kinstream.cli.produce.mapped import clicks, relations
from kinstream.cli.produce.simulated import simulated_clicks


@click.group()
def produce() -> None:
    """Send data to kinstream.events.

    Example: kinstream produce labelled sklearn:digits --space digits --shuffle-seed 1
    """


for _command in (labelled, items, clicks, relations, simulated_clicks):
    produce.add_command(_command)
