"""`kinstream produce`: data in, with every delivery confirmed."""

from __future__ import annotations

import click

from cli.produce_clicks import clicks
from cli.produce_items import items
from cli.produce_labelled import labelled
from cli.produce_relations import relations
from cli.produce_simulated import simulated_clicks


@click.group()
def produce() -> None:
    """Send data to kinstream.events.

    Example: kinstream produce labelled sklearn:digits --space digits --shuffle-seed 1
    """


for _command in (labelled, items, clicks, relations, simulated_clicks):
    produce.add_command(_command)
