"""`kinstream closure explain`: why two items count as similar or dissimilar."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kinstream.cli.shared.context import settings_of
from kinstream.cli.shared.output import JSON

if TYPE_CHECKING:
    from kinstream.processors.closure.closure import Closure
    from kinstream.processors.closure.paths import Explanation, Link
    from kinstream.streams.operations.checkpoints import Agent, Seen
    from kinstream.streams.settings import Settings


@click.group()
def closure() -> None:
    """Query the transitive closure. Example: kinstream closure explain shop cup mug"""


@closure.command()
@click.argument("space")
@click.argument("left", metavar="A")
@click.argument("right", metavar="B")
@click.option("--builder", metavar="NAME", help="The closure, if several build the space.")
@JSON
@click.pass_context
def explain(
    ctx: click.Context, space: str, left: str, right: str, builder: str | None, as_json: bool
) -> None:
    """Explain why two items count as similar or dissimilar, by the shortest chain of relations between them.

    The command reads the newest checkpoint of the closure's builder and needs no broker. Later events are not included.
    The exit status is 1 if the items are neither similar nor dissimilar.

    Example: kinstream closure explain shop cup mug --json
    """
    import json
    from dataclasses import asdict

    core, seen = newest_closure(settings_of(ctx), space, builder)
    found = core.explain(left, right)
    relation = "none" if found is None else "similar" if found.similar else "dissimilar"
    if as_json:
        links = [] if found is None else [asdict(link) for link in found.links]
        content = {"space": space, "left": left, "right": right, "relation": relation, "chain": links}
        click.echo(json.dumps(content | {"offset": seen.manifest.offset}, indent=2))
    elif found is None:
        click.echo(
            f"{left} and {right}: neither similar nor dissimilar (checkpoint at {seen.manifest.offset})"
        )
    else:
        _print_explanation(left, right, found)
    if found is None:
        ctx.exit(1)


def newest_closure(settings: Settings, space: str, name: str | None) -> tuple[Closure, Seen]:
    """The closure of a space in the newest checkpoint of its builder, and that checkpoint.

    Raises
    ------
    SettingsError : no closure builds the space, or several do and none was selected.
    CheckpointError : a checkpoint cannot be read.
    """
    from kinstream.streams.errors import SettingsError
    from kinstream.streams.operations.checkpoints import agents, checkpoints

    builders = [a for a in agents(settings) if a.role == "builder" and name in (None, a.name)]
    closures = [a for a in builders if _kind(settings, a) == "closure"]
    if not closures:
        message = (
            "the settings have no builder of kind closure"
            if name is None
            else f"no closure is called {name!r}"
        )
        raise SettingsError(f'{message}; add one: [builders.NAME] with kind = "closure"')
    found: list[tuple[Agent, Seen]] = []
    known: set[str] = set()
    for agent in closures:
        for seen in checkpoints(settings, agent):
            known |= set(seen.manifest.spaces)
            if space in seen.manifest.spaces:
                found.append((agent, seen))
    if not found:
        names = f"; there are {', '.join(sorted(known)[:20])}" if known else ""
        raise SettingsError(
            f"no checkpoint of {' or '.join(a.name for a in closures)} holds a space {space!r}{names}. "
            "A worker writes its first checkpoint a few seconds after its start"
        )
    if len(found) > 1:
        names = ", ".join(agent.name for agent, _ in found)
        raise SettingsError(f"space {space!r} is built by {names}: choose one with --builder")
    agent, seen = found[0]
    return _restored(settings, agent, seen, space), seen


def _kind(settings: Settings, agent: Agent) -> str:
    return settings.builders[agent.name].kind


def _restored(settings: Settings, agent: Agent, seen: Seen, space: str) -> Closure:
    from kinstream.processors.closure.closure import Closure
    from kinstream.streams.agents.space import core_state
    from kinstream.streams.errors import SettingsError
    from kinstream.streams.operations.checkpoints import birth_of

    birth = birth_of(settings, agent)
    section = settings.builders[agent.name]
    arguments = section.arguments() if birth is None else dict(birth.settings["arguments"])
    state = core_state(seen.state(seen.manifest.spaces[space]))
    if state is None:
        raise SettingsError(
            f"space {space!r} is empty: no item and no relation has arrived yet, or it was deleted"
        )
    core = Closure(**arguments)
    core.restore(state)
    parts = seen.manifest.segments.get(space, {})
    core.restore_segments(lambda segment: seen.state(parts[segment]))
    return core


def _print_explanation(left: str, right: str, found: Explanation) -> None:
    word = "similar" if found.similar else "dissimilar"
    if not found.links:
        click.echo(f"{left} is {right}")
        return
    many = "relation" if len(found.links) == 1 else "relations"
    click.echo(f"{left} and {right} are {word}, by {len(found.links)} {many}:")
    for link in found.links:
        click.echo(f"  {_line(link)}")


def _line(link: Link) -> str:
    from kinstream.cli.views.tables import moment

    names = [name if name is not None else "(erased)" for name in (link.left, link.right)]
    sign = "~" if link.similar else "#"
    source = "" if link.source is None else f", source {link.source}"
    where = f"{link.via}, offset {link.offset} row {link.row}{source}, {moment(link.time_ms)}"
    return f"{names[0]} {sign} {names[1]}   {where}"
