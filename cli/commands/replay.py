"""`kinstream replay`: builders and learners over a log or a data set, without touching the running system."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kinstream.cli.shared.context import settings_of
from kinstream.cli.shared.counterfactual import list_options
from kinstream.streams.errors import SettingsError

if TYPE_CHECKING:
    from kinstream.evaluation.counterfactual.prequential import Judged, Prequential
    from kinstream.evaluation.measures.held_out import HeldOut
    from kinstream.replay.log.run import Request, Result
    from kinstream.streams.kafka.cluster import Cluster
    from kinstream.streams.settings import Settings


class _Lists(NamedTuple):
    """The options of --counterfactual."""

    space: str
    files: Sequence[Path]
    start: str | None
    end: str | None
    exponent: float
    product: str


def _data_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options for cutting a data set into blocks, as in `kinstream produce labelled`."""
    for option in reversed(
        (
            click.option(
                "--block-rows",
                type=int,
                help="Data set: rows per block. [default: as `kinstream produce labelled`]",
            ),
            click.option("--shuffle-seed", type=int, help="Data set: shuffle all rows with this seed."),
            click.option("--repeat", default=1, show_default=True, help="Data set: passes over the rows."),
            click.option(
                "--hold-out", default=0.0, show_default=True, help="Data set: share of rows left out."
            ),
            click.option(
                "--hold-out-seed",
                default=0,
                show_default=True,
                help="Data set: seed for choosing those rows.",
            ),
            click.option(
                "--load-id", metavar="ID", help="Data set: by default a digest of rows and settings."
            ),
            click.option(
                "--features",
                multiple=True,
                metavar="[MODALITY=]COL,COL",
                help="File: columns; * and ? match.",
            ),
            click.option("--label", metavar="COLUMN", help="File: column of the labels."),
            click.option("--ids", metavar="COLUMN", help="File: column of item names."),
            click.option(
                "--label-type", default="auto", show_default=True, help="File: auto, integer or string."
            ),
            click.option("--delimiter", help="CSV file: a comma by default; a tab for .tsv."),
            click.option(
                "--no-header", is_flag=True, help="CSV file: columns are f0, f1, ...; the label last."
            ),
        )
    ):
        command = option(command)
    return command


def _list_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options that judge the learners on drafted lists."""
    command = click.option(
        "--lists-from",
        metavar="OFFSET|TIME",
        help="Counterfactual: the first lists that count, by their place in events; by default all.",
    )(list_options(command))
    return click.option(
        "--counterfactual",
        is_flag=True,
        help="Estimate the clicks that each learner would have got on drafted lists, each before it was learned.",
    )(command)


@click.command()
@click.option("--learner", "learners", multiple=True, metavar="NAME", help="[learners.NAME]; all by default.")
@click.option(
    "--from",
    "source",
    default="constraints",
    show_default=True,
    metavar="events|constraints|file:PATH|sklearn:NAME",
    help="What to replay. With constraints: only the learners.",
)
@click.option(
    "--start", metavar="OFFSET|TIME", help="First offset, or ISO time; by default the agents' start."
)
@click.option(
    "--end", metavar="OFFSET|TIME", help="End offset or ISO time, exclusive; by default the end of the log."
)
@click.option("--space", metavar="NAME", help="Only this space; for a data set, its space.")
@click.option(
    "--partition", "partitions", type=int, multiple=True, help="Only this partition; may be repeated."
)
@click.option("--until-checkpoint", is_flag=True, help="Stop at the agents' newest checkpoints.")
@click.option(
    "--compare", is_flag=True, help="Compare with the agents' newest checkpoints; status 1 if they differ."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="NAME=VALUE",
    help="Change a setting of the learner; null leaves it out, another kind starts from defaults.",
)
@_list_options
@_data_options
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
    changes: tuple[str, ...],
    counterfactual: bool,
    lists_from: str | None,
    files: tuple[Path, ...],
    exponent: float,
    product: str,
    **data: Any,
) -> None:
    """Run builders and learners over a log or a file, in this process and without a consumer group.

    With --set, one learner is replayed with other settings.

    Example: kinstream replay --learner opml --from constraints --until-checkpoint --compare

    Example: kinstream replay --learner opml --set gamma=0.01 --set scaler=unit

    Example: kinstream replay --learner adapter --space docs --counterfactual --model drafted.npz
    """
    from kinstream.cli.views.replay import agrees, as_dict, show
    from kinstream.replay.log.guarantees import Origin
    from kinstream.replay.log.run import Request
    from kinstream.replay.log.sources import parse_point

    settings = settings_of(ctx)
    lists = None
    if counterfactual:
        if space is None or source not in (Origin.EVENTS, Origin.CONSTRAINTS):
            raise SettingsError(
                "--counterfactual needs --space NAME, and a log: --from events or constraints"
            )
        lists = _Lists(space, files, lists_from, end if source == Origin.EVENTS else None, exponent, product)
    elif files or lists_from:
        raise SettingsError("--model and --lists-from belong to --counterfactual")
    if changes:
        settings = _changed(settings, learners, changes)
        if compare:
            raise SettingsError(
                "--compare checks states against checkpoints of the same settings: leave out --set"
            )
    names = learners or tuple(settings.learners)
    if not names:
        raise SettingsError("there is no learner to replay: write a [learners.NAME] section, or use --set")
    request = Request(
        learners=tuple(dict.fromkeys(names)),
        origin=Origin(source) if source in (Origin.EVENTS, Origin.CONSTRAINTS) else Origin.DATA,
        start=None if start is None else parse_point(start),
        end=None if end is None else parse_point(end),
        space=space,
        partitions=partitions,
        until_checkpoint=until_checkpoint,
        compare=compare,
    )
    graded, judged = None, None
    if request.origin is Origin.DATA:
        result, graded = _of_data(request, source, settings, data)
    else:
        result, judged = _of_topic(request, settings, lists)
    if as_json:
        click.echo(json.dumps(as_dict(result, source, graded) | _judged_json(judged), indent=2))
    else:
        show(result, graded, compare=compare)
        _show_judged(judged)
    if compare and not agrees(result):
        ctx.exit(1)


def _changed(settings: Settings, learners: tuple[str, ...], changes: tuple[str, ...]) -> Settings:
    from kinstream.cli.shared.context import parse_overrides
    from kinstream.replay.log.changes import with_changes

    if len(learners) != 1:
        raise SettingsError("--set changes one learner: --learner NAME, once")
    prefix = f"learners.{learners[0]}."
    named = {name.removeprefix(prefix): value for name, value in parse_overrides(changes).items()}
    if beyond := [name for name in named if "." in name]:
        raise SettingsError(
            f"--set {beyond[0]}: after `replay` it changes the learner's own section, such as gamma=0.01; for other "
            "settings put it before: kinstream --set NAME=VALUE replay ..."
        )
    return with_changes(settings, learners[0], named)


def _judge(lists: _Lists, learners: Sequence[str], settings: Settings, cluster: Cluster) -> Prequential:
    from kinstream.cli.shared.counterfactual import events_of, keys_of, opened
    from kinstream.evaluation.counterfactual.prequential import Prequential, Request
    from kinstream.streams.extras import require

    require("scipy", who="kinstream replay --counterfactual")
    since, events = events_of(cluster, settings, lists.space, lists.start, lists.end)
    request = Request(
        lists.space,
        keys_of(settings),
        opened(lists.files),
        None if lists.start is None else since,
        lists.exponent,
        lists.product,
    )
    follows = {name: settings.learners[name].follows for name in learners}
    return Prequential(request, follows, events, settings.topic("events"))


def _judged_json(judged: Judged | None) -> dict[str, Any]:
    from kinstream.cli.views.counterfactual import judged_as_dict

    return {"counterfactual": None if judged is None else judged_as_dict(judged)}


def _show_judged(judged: Judged | None) -> None:
    from kinstream.cli.views.counterfactual import show_judged

    if judged is not None:
        show_judged(judged)


def _of_topic(request: Request, settings: Settings, lists: _Lists | None) -> tuple[Result, Judged | None]:
    from kinstream.replay.log.run import Replay
    from kinstream.streams.kafka.cluster import Cluster

    cluster = Cluster(settings.kafka)
    try:
        cluster.wait(settings.worker.startup_seconds)
        opened = Replay(request, settings, cluster)
        judge = None if lists is None else _judge(lists, request.learners, settings, cluster)
        with _bar(opened.size) as progress:
            found = opened.run(progress) if judge is None else opened.run(progress, beside=judge)
        return found, None if judge is None else judge.result()
    finally:
        cluster.close()


def _of_data(
    request: Request, source: str, settings: Settings, data: dict[str, Any]
) -> tuple[Result, HeldOut | None]:
    """The replay, and the errors of the learned metrics on held-out rows, if there are any."""
    from kinstream.cli.produce.labelled import reading
    from kinstream.cli.shared.output import tell_left_out
    from kinstream.evaluation.measures.held_out import grade
    from kinstream.producers.labelled.hold_out import held_out_rows, streamed_rows
    from kinstream.producers.labelled.load import BlockSettings
    from kinstream.producers.labelled.sources import open_source
    from kinstream.replay.log.run import replay_blocks
    from kinstream.replay.log.sources import FILE_PREFIX, open_load

    unusable = {
        "--start": request.start,
        "--end": request.end,
        "--partition": request.partitions,
        "--until-checkpoint": request.until_checkpoint,
        "--compare": request.compare,
    }
    if given := [name for name, value in unusable.items() if value]:
        raise SettingsError(f"{', '.join(given)}: only for --from events and --from constraints")
    if request.space is None:
        raise SettingsError("a data set needs --space NAME: the builder's random choices depend on the space")
    selection, form = reading(data)
    names = ("block_rows", "shuffle_seed", "repeat", "hold_out", "hold_out_seed")
    blocks = BlockSettings(**{name: data[name] for name in names})
    load = open_load(source, request.space, blocks, data["load_id"], selection, form)
    tell_left_out(load.layout.left_out)
    with _bar(load.rows) as progress:
        result = replay_blocks(request.learners, settings, load.blocks(), progress)
    if not blocks.hold_out:
        return result, None
    rows = source.removeprefix(FILE_PREFIX)
    train, test = (
        part(open_source(rows, selection, form), blocks.hold_out, blocks.hold_out_seed)
        for part in (streamed_rows, held_out_rows)
    )
    learned = {name: result.learned.get((name, request.space)) for name in request.learners}
    return result, grade(learned, train, test)


@contextmanager
def _bar(total: int | None) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error, so that the result can be piped."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = ("replay", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("replay", total=total)
        yield lambda done: bar.update(task, completed=done)
