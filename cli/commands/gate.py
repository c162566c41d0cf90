"""`kinstream gate`: who serves and why, and the orders of people."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from kinstream.cli.shared.confirmation import confirm
from kinstream.cli.shared.context import settings_of
from kinstream.cli.shared.events import send_event
from kinstream.cli.shared.output import JSON, tell

if TYPE_CHECKING:
    from kinstream.gate.status import GateStatus
    from kinstream.streams.records.gate import Order
    from kinstream.streams.settings import Settings

_YES = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
_NOTE = click.option("--note", default="", help="Who orders it, and why; it is kept in the decision.")
_SHOWN = 5


@click.group()
def gate() -> None:
    """Show who serves and why; promote, pin or roll back a model.

    Example: kinstream gate status
    """


@gate.command()
@click.argument("space", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
@click.pass_context
def status(ctx: click.Context, space: str | None, as_json: bool) -> None:
    """Show who serves each space, the running evidence, the last decisions, and what users are shown.

    The command reads the newest checkpoints of the gate and needs no broker.

    Example: kinstream gate status docs --json
    """
    import json

    from kinstream.cli.views.tables import echo_table
    from kinstream.gate.status import read_gates

    settings = settings_of(ctx)
    if space is not None:
        _check(settings, space)
    found = [one for name, one in read_gates(settings).items() if space in (None, name)]
    if as_json:
        click.echo(json.dumps([one.as_json() for one in found], indent=2))
        return
    rows = [
        (
            one.space,
            one.serving + (" (pinned)" if one.pinned else ""),
            one.challenger or "-",
            one.lists,
            f"{one.votes:.0f}",
            f"{one.wins}:{one.losses}",
            f"{one.share:.3f} ({one.low:.3f} to {one.high:.3f})",
            f"{one.log_e_for:.2f}, {one.log_e_against:.2f} of {one.needed:.2f}",
            f"{one.tail['tail_wins']:.0f}:{one.tail['tail_losses']:.0f}",
            f"{one.tail['tail_log_e']:.2f} of {one.tail['tail_log_e_needed']:.2f}",
        )
        for one in found
    ]
    columns = (
        "SPACE",
        "SERVING",
        "CHALLENGER",
        "LISTS",
        "VOTES",
        "WON:LOST",
        "SHARE WON",
        "LOG E FOR, AGAINST",
    )
    echo_table((*columns, "TAIL WON:LOST", "TAIL LOG E"), rows)
    for one in found:
        _show_decisions(one)
    if found:
        click.echo()
        echo_table(
            ("SPACE", "COVERAGE", "GINI", "NEW ITEMS", "FOLLOWED", "LISTS BY KIND"), map(_exposure, found)
        )


def _exposure(one: GateStatus) -> tuple[str, ...]:
    shown = one.exposure
    shares = ("-" if x is None else f"{x:.3f}" for x in (shown.coverage, shown.gini, shown.new_share))
    kinds = ", ".join(f"{number} {kind}" for kind, number in shown.lists.items() if number)
    return one.space, *shares, f"{shown.followed:g}", kinds or "-"


def _show_decisions(one: GateStatus) -> None:
    for made in one.decisions[-_SHOWN:]:
        click.echo(
            f"{one.space}: {made['verdict']}: {made['serving']} serves"
            f"{', ' + made['challenger'] + ' challenges' if made['challenger'] else ''}; {made['reason']} "
            f"({made['wins']}:{made['losses']} in {made['impressions']} lists)"
        )


@gate.command()
@click.argument("space")
@click.option("--version", "model", metavar="G.E.S", help="Another model than the challenger.")
@_NOTE
@_YES
@JSON
@click.pass_context
def promote(ctx: click.Context, space: str, model: str | None, note: str, yes: bool, as_json: bool) -> None:
    """Let the challenger serve now, or the named model. Example: kinstream gate promote docs --yes"""
    from kinstream.streams.records.gate import Order

    _send(
        ctx,
        space,
        Order.PROMOTE,
        model,
        note,
        f"Let {model or 'the challenger'} serve {space!r}?",
        yes,
        as_json,
    )


@gate.command()
@click.argument("space")
@click.argument("model", metavar="G.E.S|un-adapted")
@_NOTE
@_YES
@JSON
@click.pass_context
def pin(ctx: click.Context, space: str, model: str, note: str, yes: bool, as_json: bool) -> None:
    """Let one model serve, and end comparisons until `resume`. Example: kinstream gate pin docs un-adapted --yes"""
    from kinstream.streams.records.gate import Order

    question = f"Let {model} serve {space!r} until `kinstream gate resume`?"
    _send(ctx, space, Order.PIN, model, note, question, yes, as_json)


@gate.command()
@click.argument("space")
@_NOTE
@_YES
@JSON
@click.pass_context
def rollback(ctx: click.Context, space: str, note: str, yes: bool, as_json: bool) -> None:
    """Let the model serve that served before. Example: kinstream gate rollback docs --yes"""
    from kinstream.streams.records.gate import Order

    _send(
        ctx,
        space,
        Order.ROLLBACK,
        None,
        note,
        f"Let the model serve {space!r} that served before?",
        yes,
        as_json,
    )


@gate.command()
@click.argument("space")
@_NOTE
@JSON
@click.pass_context
def resume(ctx: click.Context, space: str, note: str, as_json: bool) -> None:
    """Compare models again after `pin`. Example: kinstream gate resume docs"""
    from kinstream.streams.records.gate import Order

    _send(ctx, space, Order.RESUME, None, note, "", True, as_json)


def _send(
    ctx: click.Context,
    space: str,
    order: Order,
    model: str | None,
    note: str,
    question: str,
    yes: bool,
    as_json: bool,
) -> None:
    """Write an order to `events`, and print its place."""
    from kinstream.streams.errors import SettingsError
    from kinstream.streams.records.codec.gate import MAX_NOTE
    from kinstream.streams.records.gate import GateOrder, Version

    settings = settings_of(ctx)
    _check(settings, space)
    if len(note) > MAX_NOTE:
        raise SettingsError(f"--note: at most {MAX_NOTE} characters")
    try:
        version = None if model is None else Version.parse(model)
    except ValueError as error:
        raise SettingsError(str(error)) from error
    if question:
        confirm(question, yes=yes)
    record = GateOrder(space, order, int(time.time() * 1000), version, note)
    topic, partition, offset = send_event(settings, record)
    fields = {"order": order.value, "space": space, "model": None if version is None else str(version)}
    tell(
        fields | {"topic": topic, "partition": partition, "offset": offset},
        (
            f"{order.value} {space}: written to {topic} partition {partition}, offset {offset}",
            "The gate obeys when it reads it; `kinstream gate status` then shows the decision.",
        ),
        as_json=as_json,
    )


def _check(settings: Settings, space: str) -> None:
    from kinstream.streams.errors import SettingsError

    if space not in settings.gate:
        known = ", ".join(sorted(settings.gate)) or "none"
        raise SettingsError(f"the settings have no [gate.{space}]; spaces with a gate: {known}")
