"""`kinstream evaluate counterfactual`: the clicks that a model would have got on lists that others have shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kinstream.cli.shared.context import settings_of
from kinstream.cli.shared.counterfactual import events_of, keys_of, opened
from kinstream.cli.shared.output import bar
from kinstream.streams.errors import BadRecord, SettingsError

if TYPE_CHECKING:
    from kinstream.evaluation.counterfactual.drafted_log import Event
    from kinstream.evaluation.counterfactual.prequential import Judged, Request
    from kinstream.replay.log.guarantees import LogKind
    from kinstream.streams.settings import Settings


@click.command()
@click.option("--space", required=True, metavar="NAME", help="A space with a gate, whose lists were drafted.")
@click.option(
    "--model",
    "files",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.npz",
    help="A model to evaluate, or one that has drafted lists; of kinstream models export. The un-adapted "
    "features are always there.",
)
@click.option(
    "--learner",
    "learners",
    multiple=True,
    metavar="NAME",
    help="Replay this learner, and judge each list by what it knew before it learned the list.",
)
@click.option(
    "--from",
    "source",
    type=click.Choice(["constraints", "events"]),
    default="constraints",
    show_default=True,
    help="What learners are replayed from.",
)
@click.option("--start", metavar="OFFSET|TIME", help="The first lists: offset, or ISO time. [default: all]")
@click.option("--end", metavar="OFFSET|TIME", help="The end of the lists, exclusive.")
@click.option(
    "--exponent",
    type=click.FloatRange(min=0.0),
    default=1.0,
    show_default=True,
    help="Users look at place k, from 1, with probability k^-EXPONENT.",
)
@click.option(
    "--product",
    type=click.Choice(["cosine", "dot"]),
    default="cosine",
    show_default=True,
    help="How the store compares queries and items.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def counterfactual(
    ctx: click.Context,
    space: str,
    files: tuple[Path, ...],
    learners: tuple[str, ...],
    source: str,
    start: str | None,
    end: str | None,
    exponent: float,
    product: str,
    *,
    as_json: bool,
) -> None:
    """Estimate the clicks a list that a model or a learner would have got, from drafted lists of the log.

    Lists that a gate's services have drafted were drawn with known probabilities, so clicks on them tell of models that
    were not there. Items and queries are those of the log.

    \b
    Examples:
      kinstream evaluate counterfactual --space docs --model new.npz --model serving.npz
      kinstream evaluate counterfactual --space docs --model new.npz --start 2026-05-01 --end 2026-05-08 --json
      kinstream evaluate counterfactual --space docs --learner taste --model drafted.npz
    """
    from kinstream.streams.extras import require

    require("scipy", who="kinstream evaluate counterfactual")
    from kinstream.cli.views.counterfactual import as_dict, judged_as_dict, lacking, show, show_judged
    from kinstream.evaluation.counterfactual.drafted_log import Maps, Model, recorded
    from kinstream.evaluation.counterfactual.estimates import estimated
    from kinstream.search.queries.model import QueryModel
    from kinstream.streams.records.gate import UNADAPTED

    settings = settings_of(ctx)
    keys = keys_of(settings)
    if learners:
        from kinstream.evaluation.counterfactual import prequential
        from kinstream.replay.log.guarantees import LogKind

        wanted = prequential.Request(space, keys, opened(files), exponent=exponent, product=product)
        judged = _judged(settings, learners, LogKind(source), wanted, start, end)
        if not judged.estimates:
            raise SettingsError(lacking(space, judged.lists))
        if as_json:
            click.echo(json.dumps(judged_as_dict(judged), indent=2))
        else:
            show_judged(judged)
        return
    models: dict[Model, Maps] = {UNADAPTED: QueryModel("un-adapted")}
    models.update(opened(files).items())
    events = space_events(settings, space, start, end)
    lists = recorded(events, space, keys, models, exponent=exponent, product=product)
    if len(set(lists.people)) < 2:
        raise SettingsError(lacking(space, lists))
    found = dict(zip(models, estimated(lists.shown, list(lists.models.values()), lists.people), strict=True))
    if as_json:
        click.echo(json.dumps(as_dict(space, lists, found, exponent), indent=2))
    else:
        show(lists, found)


def _judged(
    settings: Settings,
    learners: tuple[str, ...],
    origin: LogKind,
    lists: Request,
    start: str | None,
    end: str | None,
) -> Judged:
    """The learners, replayed from the beginning of their log, and judged on the lists from `start` on."""
    from kinstream.evaluation.counterfactual.prequential import Prequential
    from kinstream.replay.log import run
    from kinstream.replay.log.sources import parse_point
    from kinstream.streams.kafka.cluster import Cluster

    # An end is a place in events.
    last = None if end is None or origin != "events" else parse_point(end)
    request = run.Request(tuple(dict.fromkeys(learners)), origin, end=last, space=lists.space)
    cluster = Cluster(settings.kafka)
    try:
        cluster.wait(settings.worker.startup_seconds)
        replay = run.Replay(request, settings, cluster)
        since, events = events_of(cluster, settings, lists.space, start, end)
        lists = replace(lists, since=None if start is None else since)
        follows = {name: settings.learners[name].follows for name in request.learners}
        judge = Prequential(lists, follows, events, settings.topic("events"))
        with bar("replay", replay.size) as progress:
            replay.run(progress, beside=judge)
        return judge.result()
    finally:
        cluster.close()


def space_events(settings: Settings, space: str, start: str | None, end: str | None) -> Iterator[Event]:
    """The events of a space from the beginning of the log, up to the end. Lists count from `start` on."""
    from kinstream.evaluation.counterfactual.drafted_log import Event
    from kinstream.streams.kafka.cluster import Cluster
    from kinstream.streams.records.codec.codec import decode_event

    cluster = Cluster(settings.kafka)
    try:
        cluster.wait(settings.worker.startup_seconds)
        since, messages = events_of(cluster, settings, space, start, end)
        for message in messages:
            if message.key != space.encode():
                continue
            try:
                record = decode_event(message.value)
            except BadRecord:
                # A builder or the gate has written the dead letter.
                continue
            yield Event(record, message.offset >= since)
    finally:
        cluster.close()
