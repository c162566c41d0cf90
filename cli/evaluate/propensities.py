"""`kinstream evaluate propensities`: how often users look at each place, from randomised lists of the log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from kinstream.cli.shared.context import settings_of
from kinstream.cli.shared.counterfactual import keys_of
from kinstream.streams.errors import SettingsError

if TYPE_CHECKING:
    from kinstream.evaluation.propensities.places import Places


@click.command()
@click.option("--space", required=True, metavar="NAME", help="A space of [randomise.SPACE].")
@click.option("--start", metavar="OFFSET|TIME", help="The first lists: offset, or ISO time. [default: all]")
@click.option("--end", metavar="OFFSET|TIME", help="The end of the lists, exclusive.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def propensities(
    ctx: click.Context, space: str, start: str | None, end: str | None, *, as_json: bool
) -> None:
    """Estimate how often users look at each place of a list, from lists with swapped places.

    It prints the setting of the click builder that fits best, bias_exponent.

    \b
    Example:
      kinstream evaluate propensities --space docs --start 2026-05-01
    """
    from kinstream.streams.extras import require

    require("scipy", who="kinstream evaluate propensities")
    from kinstream.cli.evaluate.counterfactual import space_events
    from kinstream.evaluation.propensities.lists import compared
    from kinstream.evaluation.propensities.places import estimated

    settings = settings_of(ctx)
    keys = keys_of(settings)
    events = space_events(settings, space, start, end)
    found = compared((event.record for event in events if event.counts), space, keys)
    try:
        places = estimated(found.pairs)
    except ValueError as error:
        uses = ", ".join(f"{count} {use}" for use, count in found.uses.items() if count) or "none"
        raise SettingsError(
            f"no estimate: {error}. Lists of space {space!r}: {uses}; see docs/gate.md"
        ) from None
    if as_json:
        rows = [None if one is None else one._asdict() for one in places.propensities]
        whole = {"space": space, "lists": found.uses, "places": rows, "clicks": places.clicks}
        click.echo(json.dumps(whole | {"exponent": places.exponent._asdict()}, indent=2))
    else:
        _show(places, found.uses)


def _show(places: Places, uses: dict[str, int]) -> None:
    from kinstream.cli.views.tables import echo_table

    rows = [
        (
            place,
            "too few clicks" if one is None else f"{one.value:.3f} ({one.low:.3f} to {one.high:.3f})",
            f"{place**-places.exponent.value:.3f}",
            count,
        )
        for place, (one, count) in enumerate(zip(places.propensities, places.clicks, strict=True), 1)
    ]
    echo_table(("PLACE", "LOOKED AT", "BY THE EXPONENT", "CLICKS"), rows)
    one = places.exponent
    click.echo(f"\nwith 95 % intervals, next to the first place; {uses['used']} randomised lists")
    left = {use: count for use, count in uses.items() if count and use != "used"}
    if left:
        click.echo("left out: " + ", ".join(f"{count} {use}" for use, count in left.items()))
    click.echo(f"\nbias_exponent = {one.value:.2f}  # {one.low:.2f} to {one.high:.2f}")
