"""`kinstream evaluate counterfactual`: the clicks that a model would have got on lists that others have shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kinstream.cli.shared.context import settings_of
from kinstream.streams.errors import BadRecord, SettingsError

if TYPE_CHECKING:
    from kinstream.replay.evaluation.counterfactual.estimates import Estimate, Estimates
    from kinstream.replay.evaluation.counterfactual.recorded import Event, Recorded
    from kinstream.search.queries.model import QueryModel
    from kinstream.streams.records.gate import Version
    from kinstream.streams.settings import Settings

#: Below so many effective lists, and above such a share without support, a warning is printed.
FEW: Final = 100
UNSUPPORTED: Final = 0.05


@click.command()
@click.option("--space", required=True, metavar="NAME", help="A space with a gate, whose lists were drafted.")
@click.option(
    "--model",
    "files",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.npz",
    help="A model to evaluate, or one that has drafted lists; of kinstream models export. The un-adapted features are "
    "always there.",
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
    start: str | None,
    end: str | None,
    exponent: float,
    product: str,
    *,
    as_json: bool,
) -> None:
    """Estimate the clicks a list that a model would have got, from drafted lists of the log.

    Lists that a gate's services have drafted were drawn with known probabilities, so clicks on them tell of models that
    were not there. Items and queries are those of the log.

    \b
    Examples:
      kinstream evaluate counterfactual --space docs --model new.npz --model serving.npz
      kinstream evaluate counterfactual --space docs --model new.npz --start 2026-05-01 --end 2026-05-08 --json
    """
    from kinstream.streams.extras import require

    require("scipy", who="kinstream evaluate counterfactual")
    from kinstream.replay.evaluation.counterfactual.estimates import estimated
    from kinstream.replay.evaluation.counterfactual.recorded import recorded
    from kinstream.search.interleaving.impression import Keys
    from kinstream.search.queries.model import QueryModel
    from kinstream.streams.configuration.gate import check_key
    from kinstream.streams.records.gate import UNADAPTED

    settings = settings_of(ctx)
    secret = settings.gate_key.get_secret_value()
    try:
        check_key(secret, needed=True)
    except ValueError as error:
        raise SettingsError(str(error)) from None
    models = {UNADAPTED: QueryModel("un-adapted"), **_opened(files)}
    lists = recorded(
        space_events(settings, space, start, end),
        space,
        Keys(secret),
        models,
        exponent=exponent,
        product=product,
    )
    if len(set(lists.people)) < 2:
        uses = ", ".join(f"{count} {use}" for use, count in lists.uses.items() if count) or "none"
        raise SettingsError(
            "no estimate: lists of two people are needed that were drafted by the given models. Lists of space "
            f"{space!r}: {uses}; see docs/evaluating.md"
        )
    found = dict(zip(models, estimated(lists.shown, list(lists.models.values()), lists.people), strict=True))
    if as_json:
        click.echo(json.dumps(_json(space, lists, found, exponent), indent=2))
    else:
        _show(lists, found)


def _opened(files: tuple[Path, ...]) -> dict[Version, QueryModel]:
    from kinstream.search.queries.model import QueryModel
    from kinstream.streams.records.gate import Version

    opened: dict[Version, QueryModel] = {}
    for path in files:
        model = QueryModel.from_file(path)
        if Version(*model.name) in opened:
            raise SettingsError(f"--model {path}: model {model.name} was named before")
        opened[Version(*model.name)] = model
    return opened


def space_events(settings: Settings, space: str, start: str | None, end: str | None) -> Iterator[Event]:
    """The events of a space from the beginning of the log, up to the end. Lists count from `start` on."""
    from kinstream.replay.evaluation.counterfactual.recorded import Event
    from kinstream.replay.log.sources import parse_point, topic_range
    from kinstream.streams.kafka.cluster import Cluster
    from kinstream.streams.records.codec.every_kind import decode_event
    from kinstream.streams.topics import partition_of

    first, last = (None if text is None else parse_point(text) for text in (start, end))
    cluster = Cluster(settings.kafka)
    try:
        cluster.wait(settings.worker.startup_seconds)
        topic = settings.topic("events")
        view = cluster.view([topic]).topics.get(topic)
        if view is None:
            raise SettingsError(
                f"there is no topic {topic}: kinstream topics create, or another topics.prefix"
            )
        home = partition_of(space, view.partitions)
        since = topic_range(cluster, topic, partitions=[home], start=first, end=last).starts[home]
        for message in topic_range(cluster, topic, partitions=[home], end=last).messages(settings.kafka):
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


def _warnings(version: Version, one: Estimates) -> Iterator[str]:
    if one.effective_lists < FEW:
        yield (
            f"{version}: the lists say as much as {one.effective_lists:.0f} of its own: fewer than {FEW}, so the "
            "interval may be too narrow"
        )
    if one.unsupported > UNSUPPORTED:
        yield (
            f"{version}: {one.unsupported:.0%} of what it would show could not be shown. IPS counts that as never "
            "clicked, SNIPS as clicked like the rest, DR by a guess: the intervals do not contain this error"
        )


def _json(space: str, lists: Recorded, found: dict[Version, Estimates], exponent: float) -> dict[str, Any]:
    return {
        "space": space,
        "exponent": exponent,
        "lists": lists.uses,
        "people": len(set(lists.people)),
        "clicks_per_list": _recorded_clicks(lists),
        "models": [
            {
                "model": str(version),
                "naive": one.naive,
                **{name: _interval(getattr(one, name)) for name in ("ips", "snips", "dr", "change")},
                "effective_lists": one.effective_lists,
                "unsupported": one.unsupported,
                "largest_weight": one.largest_weight,
                "warnings": list(_warnings(version, one)),
            }
            for version, one in found.items()
        ],
    }


def _interval(one: Estimate) -> dict[str, float]:
    return one._asdict()


def _recorded_clicks(lists: Recorded) -> float:
    """At the places at which models are evaluated."""
    from kinstream.replay.evaluation.counterfactual.recorded import depth_of

    clicks = [one.clicked[: depth_of(len(one.clicked))].sum() for one in lists.shown]
    return float(sum(clicks) / len(clicks))


def _show(lists: Recorded, found: dict[Version, Estimates]) -> None:
    from kinstream.cli.views.tables import echo_table

    def text(one: Estimate) -> str:
        return f"{one.value:.3f} ({one.low:.3f} to {one.high:.3f})"

    rows = [
        (
            version,
            text(one.dr),
            text(one.snips),
            text(one.ips),
            text(one.change),
            f"{one.effective_lists:.0f}",
        )
        for version, one in found.items()
    ]
    echo_table(("MODEL", "DR", "SNIPS", "IPS", "DR LESS UN-ADAPTED", "EFFECTIVE LISTS"), rows)
    click.echo(
        f"\nclicks a list at the first half of its places, with 95 % intervals; the drafted lists have "
        f"{_recorded_clicks(lists):.3f}. "
        f"{lists.uses['used']} drafted lists of {len(set(lists.people))} people"
    )
    left = {use: count for use, count in lists.uses.items() if count and use != "used"}
    if left:
        click.echo("left out: " + ", ".join(f"{count} {use}" for use, count in left.items()))
    for version, one in found.items():
        for warning in _warnings(version, one):
            click.echo(f"warning: {warning}", err=True)
