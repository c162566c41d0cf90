"""`kinstream spaces`: the spaces, and the control records that change them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from kinstream.cli.shared.confirmation import confirm
from kinstream.cli.shared.context import settings_of
from kinstream.cli.shared.events import send_event
from kinstream.cli.shared.output import JSON, tell

if TYPE_CHECKING:
    from kinstream.streams.operations.spaces import SpaceView
    from kinstream.streams.records.values import Action, Declaration
    from kinstream.streams.settings import Settings

_YES = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


@click.group()
def spaces() -> None:
    """List, create, reset, delete, pause or resume spaces.

    Example: kinstream spaces create digits --dimension 64 --labels integer --scaler zscore
    """


@spaces.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
@click.pass_context
def list_spaces(ctx: click.Context, as_json: bool) -> None:
    """List the spaces in the checkpoints.

    The command reads the newest checkpoints of builders and learners and needs no broker.

    Example: kinstream spaces list --json
    """
    import json

    from kinstream.cli.views.tables import echo_table
    from kinstream.streams.operations.spaces import read_spaces

    found = read_spaces(settings_of(ctx)).values()
    if as_json:
        click.echo(json.dumps([space.as_json() for space in found], indent=2))
        return
    rows = [(s.name, s.partition, s.epoch, s.status.value, _steps(s)) for s in found]
    echo_table(("SPACE", "PARTITION", "EPOCH", "STATUS", "STEPS"), rows)


def _steps(space: SpaceView) -> str:
    steps = []
    for learner, (epoch, step) in sorted(space.learners.items()):
        steps.append(f"{learner}={step}" if epoch == space.epoch else f"{learner}={step} (epoch {epoch})")
    return ", ".join(steps) or "-"


@spaces.command()
@click.argument("name")
@click.option("--dimension", type=click.IntRange(1), help="Features, for a space with one modality.")
@click.option(
    "--modality",
    "modalities",
    multiple=True,
    metavar="NAME:DIMENSION",
    help="One of several modalities; repeat it for each.",
)
@click.option("--labels", type=click.Choice(["integer", "string", "any"]), default="any", show_default=True)
@click.option(
    "--scaler", metavar="NAME", help="none, zscore, unit or minmax; by default the learner's own setting."
)
@JSON
@click.pass_context
def create(
    ctx: click.Context,
    name: str,
    dimension: int | None,
    modalities: tuple[str, ...],
    labels: str,
    scaler: str | None,
    as_json: bool,
) -> None:
    """Declare a space before its first event.

    Example: kinstream spaces create shop --modality image:512 --modality text:384
    """
    from kinstream.streams.records.values import Action

    declared = declaration(dimension, modalities, labels, scaler)
    written = _control(settings_of(ctx), Action.CREATE, name, declared)
    _tell(written, f"Its epoch is {written['epoch']}.", as_json=as_json)


@spaces.command()
@click.argument("name")
@_YES
@JSON
@click.pass_context
def reset(ctx: click.Context, name: str, yes: bool, as_json: bool) -> None:
    """Reset a space; its declaration stays.

    Example: kinstream spaces reset digits --yes
    """
    from kinstream.streams.operations.spaces import check_possible, read_spaces
    from kinstream.streams.records.values import Action

    settings = settings_of(ctx)
    check_possible(Action.RESET, name, read_spaces(settings))
    confirm(f"Reset space {name!r}, and forget everything learned in it?", yes=yes)
    written = _control(settings, Action.RESET, name, None)
    text = f"Builders and learners reset it at that record; its epoch is then {written['epoch']}."
    _tell(written, text, as_json=as_json)


@spaces.command()
@click.argument("name")
@_YES
@JSON
@click.pass_context
def delete(ctx: click.Context, name: str, yes: bool, as_json: bool) -> None:
    """Delete a space and its models; later events for it are refused.

    Example: kinstream spaces delete digits --yes
    """
    from kinstream.streams.operations.spaces import check_possible, read_spaces
    from kinstream.streams.records.values import Action

    settings = settings_of(ctx)
    check_possible(Action.DELETE, name, read_spaces(settings))
    confirm(f"Delete space {name!r} and everything learned in it?", yes=yes)
    written = _control(settings, Action.DELETE, name, None)
    _tell(written, *what_remains(settings), as_json=as_json)


@spaces.command()
@click.argument("name")
@JSON
@click.pass_context
def pause(ctx: click.Context, name: str, as_json: bool) -> None:
    """Refuse events for a space until it is resumed. Example: kinstream spaces pause digits"""
    from kinstream.streams.records.values import Action

    _tell(
        _control(settings_of(ctx), Action.PAUSE, name, None),
        "Later events for it become dead letters; after it is resumed, send them again with",
        "  kinstream dead-letters redrive --reason space-paused",
        as_json=as_json,
    )


@spaces.command()
@click.argument("name")
@JSON
@click.pass_context
def resume(ctx: click.Context, name: str, as_json: bool) -> None:
    """Accept events for a paused space again. Example: kinstream spaces resume digits"""
    from kinstream.streams.records.values import Action

    _tell(_control(settings_of(ctx), Action.RESUME, name, None), as_json=as_json)


def declaration(
    dimension: int | None, modalities: tuple[str, ...], labels: str, scaler: str | None
) -> Declaration:
    """What the options of `create` declare.

    Raises
    ------
    SettingsError : none or both of the ways to give the dimension, a modality that cannot be read, or an unknown
        scaler.
    """
    from kinstream.learners.base.scaler import NAMES
    from kinstream.producers.files.text import fault_of
    from kinstream.streams.errors import SettingsError
    from kinstream.streams.records.checks import MAX_DIMENSION
    from kinstream.streams.records.values import DEFAULT_MODALITY, Declaration

    if (dimension is None) == (not modalities):
        raise SettingsError("give either --dimension or --modality NAME:DIMENSION, once for each modality")
    sizes = {} if dimension is None else {DEFAULT_MODALITY: dimension}
    for text in modalities:
        modality, _, size = text.rpartition(":")
        if not modality or modality in sizes or not (size.isascii() and size.isdigit()) or fault_of(modality):
            raise SettingsError(f"--modality {text!r}: write NAME:DIMENSION, each name once")
        sizes[modality] = int(size)
    if not all(1 <= size <= MAX_DIMENSION for size in sizes.values()):
        raise SettingsError(f"a dimension is 1 to {MAX_DIMENSION}")
    if scaler is not None and scaler not in NAMES:
        raise SettingsError(f"--scaler must be one of {', '.join(NAMES)}, not {scaler!r}")
    return Declaration(tuple(sizes.items()), labels, scaler)


def _control(
    settings: Settings, action: Action, name: str, declared: Declaration | None = None
) -> dict[str, Any]:
    """Write a control record; what it is and where it lies. A space's epoch is the offset of its newest beginning."""
    from kinstream.streams.errors import BadRecord, SettingsError
    from kinstream.streams.operations.spaces import check_possible, read_spaces
    from kinstream.streams.records.checks import check_space
    from kinstream.streams.records.values import Action, Control

    try:
        check_space(name)
    except BadRecord as error:
        raise SettingsError(error.detail) from error
    check_possible(action, name, read_spaces(settings))
    topic, partition, offset = send_event(settings, Control(name, action, int(time.time() * 1000), declared))
    return {
        "action": action.value,
        "space": name,
        "topic": topic,
        "partition": partition,
        "offset": offset,
    } | ({"epoch": offset} if action in (Action.CREATE, Action.RESET, Action.DELETE) else {})


def _tell(written: dict[str, Any], *lines: str, as_json: bool) -> None:
    first = "{action} {space}: written to {topic} partition {partition}, offset {offset}".format(**written)
    tell(written, (first, *lines), as_json=as_json)


def what_remains(settings: Settings) -> list[str]:
    """Where data of a deleted space remains, and for how long."""
    from kinstream.streams.secrets import without_secret
    from kinstream.streams.topics import CATALOGUE, DAY_MS

    kept = [
        f"{settings.topic(topic.role)} ({topic.retention_ms // DAY_MS} days)"
        for topic in CATALOGUE
        if topic.retention_ms is not None
    ]
    return [
        "The workers' next checkpoints drop its data. Copies remain for a while:",
        f"  - in the topics until the end of their recommended retention: {', '.join(kept)}",
        f"  - in the last {settings.checkpoints.keep} checkpoints of each worker under "
        f"{without_secret(settings.checkpoints.url)}, until newer ones replace them, and permanently in those of older "
        "generations",
        "  - in exported model files",
    ]
