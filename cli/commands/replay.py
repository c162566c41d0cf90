"""`kinstream replay`: builders and learners over a log, without touching the running system."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from kinstream.cli.shared.context import settings_of
from kinstream.cli.shared.output import bar
from kinstream.streams.errors import SettingsError

if TYPE_CHECKING:
    from kinstream.replay.log.run import Request, Result
    from kinstream.streams.settings import Settings


@click.command()
@click.option("--learner", "learners", multiple=True, metavar="NAME", help="[learners.NAME]; all by default.")
@click.option(
    "--from",
    "source",
    type=click.Choice(["constraints", "events"]),
    default="constraints",
    show_default=True,
    help="What to replay. With constraints: only the learners.",
)
@click.option(
    "--start", metavar="OFFSET|TIME", help="First offset, or ISO time; by default the agents' start."
)
@click.option(
    "--end", metavar="OFFSET|TIME", help="End offset or ISO time, exclusive; by default the end of the log."
)
@click.option("--space", metavar="NAME", help="Only this space.")
@click.option(
    "--partition", "partitions", type=int, multiple=True, help="Only this partition; may be repeated."
)
@click.option("--until-checkpoint", is_flag=True, help="Stop at the agents' newest checkpoints.")
@click.option(
    "--compare", is_flag=True, help="Compare with the agents' newest checkpoints; status 1 if they differ."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def replay(
    ctx: click.Context,
    /,
    learners: tuple[str, ...],
    source: str,
    start: str | None,
    end: str | None,
    space: str | None,
    partitions: tuple[int, ...],
    *,
    until_checkpoint: bool,
    compare: bool,
    as_json: bool,
) -> None:
    """Run builders and learners over a log, in this process and without a consumer group.

    Example: kinstream replay --learner opml --from constraints --until-checkpoint --compare

    Other settings: kinstream --set learners.opml.gamma=0.01 replay --learner opml
    """
    from kinstream.cli.views.replay import agrees, as_dict, show
    from kinstream.replay.log.guarantees import LogKind
    from kinstream.replay.log.run import Request
    from kinstream.replay.log.sources import parse_point

    settings = settings_of(ctx)
    names = learners or tuple(settings.learners)
    if not names:
        raise SettingsError("there is no learner to replay: write a [learners.NAME] section")
    request = Request(
        learners=tuple(dict.fromkeys(names)),
        origin=LogKind(source),
        start=None if start is None else parse_point(start),
        end=None if end is None else parse_point(end),
        space=space,
        partitions=partitions,
        until_checkpoint=until_checkpoint,
        compare=compare,
    )
    result = _run(request, settings)
    if as_json:
        click.echo(json.dumps(as_dict(result, source), indent=2))
    else:
        show(result, compare=compare)
    if compare and not agrees(result):
        ctx.exit(1)


def _run(request: Request, settings: Settings) -> Result:
    from kinstream.replay.log.run import Replay
    from kinstream.streams.kafka.cluster import Cluster

    cluster = Cluster(settings.kafka)
    try:
        cluster.wait(settings.worker.startup_seconds)
        opened = Replay(request, settings, cluster)
        with bar("replay", opened.size) as progress:
            return opened.run(progress)
    finally:
        cluster.close()
