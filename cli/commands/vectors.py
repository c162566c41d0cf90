"""`kinstream vectors`: orders to embed a catalogue again, when its map has moved or a person asks for it."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Final

import click

from kinstream.cli.shared.context import settings_of
from kinstream.cli.shared.events import send_event
from kinstream.cli.shared.models import newest_models

if TYPE_CHECKING:
    from kinstream.streams.settings import Settings
    from kinstream.vectors.orders import Compared

#: Between two comparisons of `watch`.
EVERY_SECONDS: Final = 10.0


@click.group()
def vectors() -> None:
    """Write a version of a catalogue when its item map has moved. Example: kinstream vectors status"""


@vectors.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
@click.pass_context
def status(ctx: click.Context, as_json: bool) -> None:
    """Show the version of each space, and how far the newest map has moved. Example: kinstream vectors status"""
    import json

    from kinstream.cli.views.tables import echo_table

    settings = settings_of(ctx)
    found = [(space, _compared(settings, space)) for space in _spaces(settings)]
    rows = [
        {
            "space": space,
            "items": one.items,
            "version": one.version,
            "model": str(one.present) if one.present else None,
            "newest": str(one.newest.head.model),
            "moved": round(one.share, 4),
            "threshold": settings.vectors[space].moved,
        }
        for space, one in found
        if one is not None
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    echo_table(
        ("SPACE", "ITEMS", "VERSION", "MODEL", "NEWEST", "MOVED", "THRESHOLD"),
        [["-" if value is None else value for value in row.values()] for row in rows],
    )


@vectors.command()
@click.option(
    "--once", is_flag=True, help="Compare once, and end. With a threshold of 0 every space gets a version."
)
@click.pass_context
def watch(ctx: click.Context, once: bool) -> None:
    """Order a version whenever the newest map has moved past the threshold.

    Example: kinstream --set vectors.docs.moved=0 vectors watch --once

    It keeps nothing, so it can be stopped at any time. One process for a deployment is enough; a second one may order
    a version twice, which costs time and is otherwise harmless.
    """
    from kinstream.streams.errors import KinstreamError
    from kinstream.streams.secrets import hide

    settings = settings_of(ctx)
    _spaces(settings)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    ordered: dict[str, str] = {}
    while True:
        for space in _spaces(settings):
            try:
                found = _compared(settings, space, unless=ordered.get(space))
            except KinstreamError as error:
                if once:
                    raise
                # Brokers and stores come back; a checkpoint may be replaced while it is read.
                click.echo(hide(f"{space}: {error}"), err=True)
                continue
            if found is not None and found.share >= settings.vectors[space].moved:
                _order(settings, space, found)
                # The agent's next checkpoint shows the version; until then it is not ordered again.
                ordered[space] = found.newest.head.sha256
        if once or ended.wait(EVERY_SECONDS):
            return


def _spaces(settings: Settings) -> list[str]:
    from kinstream.streams.errors import SettingsError

    if not settings.vectors:
        raise SettingsError("the settings have no [vectors.SPACE], so there is nothing to embed")
    return sorted(settings.vectors)


def _compared(settings: Settings, space: str, unless: str | None = None) -> Compared | None:
    """The newest map beside the version; None if no model is announced, or the newest has the digest `unless`."""
    from kinstream.vectors.orders import compare

    version = newest_models(settings).get((space, settings.vectors[space].learner))
    if version is None or version.sha256 == unless:
        return None
    return compare(settings, version)


def _order(settings: Settings, space: str, found: Compared) -> None:
    topic, partition, offset = send_event(settings, *found.newest.parts(), role="vector-orders")
    model = found.newest.head.model
    click.echo(
        f"{space}: {100 * found.share:.1f} % of neighbours move with model {model}: version {offset} of {found.items} "
        f"items is ordered ({topic} partition {partition})"
    )
