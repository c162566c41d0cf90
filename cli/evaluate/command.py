"""`kinstream evaluate`: which learner to run, with which settings, and whether it beats un-learned metrics."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kinstream.cli.evaluate.run import finish, output_options
from kinstream.cli.produce.sending import by_field, field_option
from kinstream.cli.shared.context import settings_of
from kinstream.streams.errors import SettingsError

if TYPE_CHECKING:
    from kinstream.evaluation.experiment.contenders import ComparisonRequest
    from kinstream.evaluation.experiment.data import Data
    from kinstream.evaluation.experiment.plan import Contender, Plan
    from kinstream.streams.settings import Settings

_LOGS: Final = ("events", "constraints")
FILE_PREFIX: Final = "file:"


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(
        (
            click.option(
                "--from",
                "sources",
                multiple=True,
                metavar="events:SPACE|constraints:SPACE|file:PATH|sklearn:NAME",
                help="What to evaluate on; several data sets may be named.",
            ),
            click.option(
                "--learner",
                "learners",
                multiple=True,
                metavar="NAME",
                help="[learners.NAME], or a kind; lda and nca are fitted to all training rows at once. "
                "[default: all of the settings, or mixture]",
            ),
            click.option(
                "--grid",
                "grids",
                multiple=True,
                metavar="LEARNER.SETTING=V,V",
                help="Values to choose from.",
            ),
            click.option("--splits", default=10, show_default=True, help="Splits of each data set."),
            click.option("--in-order", is_flag=True, help="Learn from earlier rows, measure on later ones."),
            click.option("--start", metavar="OFFSET|TIME", help="Log: first offset, or ISO time."),
            click.option("--end", metavar="OFFSET|TIME", help="Log: end offset or ISO time, exclusive."),
            click.option(
                "--hold-out", default=0.2, show_default=True, help="Constraints: share of each test part."
            ),
        )
    ):
        command = option(command)
    return command


class _WithMore(click.Group):
    """A group that imports its commands when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return ["counterfactual", "propensities", "queries"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "propensities":
            from kinstream.cli.evaluate.propensities import propensities

            return propensities
        if cmd_name == "counterfactual":
            from kinstream.cli.evaluate.counterfactual import counterfactual

            return counterfactual
        if cmd_name == "queries":
            from kinstream.cli.evaluate.queries import queries

            return queries
        return None


@click.group(cls=_WithMore, invoke_without_command=True)
@_options
@field_option
@output_options
@click.pass_context
def evaluate(ctx: click.Context, /, **options: Any) -> None:
    """Compare learners and un-learned metrics on your own data or log.

    Builders make the constraints as in a live system; each constraint is predicted before it is learned. Then the
    learned metrics are measured on rows that were held out. To continue an interrupted evaluation, run the same
    command again.

    \b
    Examples:
      kinstream evaluate --from sklearn:wine --learner opml --grid opml.gamma=1e-3,1e-2 --splits 10
      kinstream evaluate --from events:shop --in-order --splits 3
      kinstream evaluate --from constraints:shop --hold-out 0.1
      kinstream evaluate counterfactual --space docs --model new.npz
      kinstream evaluate queries --from space:docs
    """
    if ctx.invoked_subcommand is not None:
        return
    if not options["sources"]:
        raise SettingsError(
            "--from is missing: name a log, a file or a data set; see kinstream evaluate --help"
        )
    settings = settings_of(ctx)
    of_log = options["sources"][0].partition(":")[0] in _LOGS
    data, contenders = (_of_log if of_log else _of_files)(settings, options)
    plan = _plan(contenders, data, settings, options)
    folder = options["output"] or Path("evaluations") / "-".join(one.name for one in data[:3])
    finish(plan, data, folder, options)


def _asked(options: dict[str, Any]) -> ComparisonRequest:
    from kinstream.evaluation.experiment.contenders import BATCH, ComparisonRequest, parse_grids

    named = tuple(dict.fromkeys(options["learners"]))
    return ComparisonRequest(
        learners=tuple(name for name in named if name not in BATCH),
        grids=parse_grids(options["grids"]),
        passes=1 if options["in_order"] else None,
        batch=tuple(name for name in named if name in BATCH),
    )


def _of_files(settings: Settings, options: dict[str, Any]) -> tuple[list[Data], tuple[Contender, ...]]:
    from kinstream.cli.produce.labelled import selection as chosen
    from kinstream.cli.shared.output import tell_left_out
    from kinstream.evaluation.experiment.contenders import of_rows
    from kinstream.evaluation.experiment.data import of_source
    from kinstream.producers.labelled.bundled import BUNDLED_PREFIX
    from kinstream.producers.labelled.sources import open_source

    if given := [f"--{name}" for name in ("start", "end") if options[name] is not None]:
        raise SettingsError(f"{', '.join(given)}: only for --from events:SPACE and constraints:SPACE")
    selection = chosen(by_field(options["fields"]))
    found: list[Data] = []
    for source in options["sources"]:
        if not source.startswith((FILE_PREFIX, BUNDLED_PREFIX)):
            raise SettingsError(
                f"--from {source!r}: write file:PATH or sklearn:NAME; events:SPACE or constraints:SPACE stands alone"
            )
        path = source.removeprefix(FILE_PREFIX)
        name = source.removeprefix(BUNDLED_PREFIX) if source.startswith(BUNDLED_PREFIX) else Path(path).stem
        opened = open_source(path, selection)
        tell_left_out(opened.layout.left_out)
        found.append(of_source(name, opened))
    modalities = {len(getattr(one, "tables", ())) for one in found}
    if len(modalities) > 1:
        raise SettingsError("data sets of one modality and of several cannot be compared in one evaluation")
    return found, of_rows(settings, _asked(options), modalities=modalities.pop())


def _of_log(settings: Settings, options: dict[str, Any]) -> tuple[list[Data], tuple[Contender, ...]]:
    """Rows if every builder makes its constraints from labelled rows alone; otherwise the constraints of the log."""
    from kinstream.evaluation.experiment import contenders as field
    from kinstream.evaluation.experiment import log_rows as log
    from kinstream.learners.sklearn import CONSTRAINTS
    from kinstream.replay.log.sources import parse_point, topic_range
    from kinstream.streams.kafka.cluster import Cluster
    from kinstream.streams.topics import partition_of

    origin, _, space = options["sources"][0].partition(":")
    if len(options["sources"]) > 1:
        raise SettingsError(
            f"--from {origin} stands alone: no other log or data set can be evaluated beside it"
        )
    if not space:
        raise SettingsError(f"--from {origin} needs a space: {origin}:SPACE")
    asked = _asked(options)
    if asked.batch:
        raise SettingsError(
            f"{', '.join(asked.batch)}: only for labelled rows, --from file:PATH or sklearn:NAME"
        )
    followed = field.streams(settings, asked)
    points = [None if options[name] is None else parse_point(options[name]) for name in ("start", "end")]
    cluster = Cluster(settings.kafka)
    try:
        cluster.wait(settings.worker.startup_seconds)
        topic = settings.topic(origin)
        view = cluster.view([topic]).topics.get(topic)
        if view is None:
            raise SettingsError(
                f"there is no topic {topic}: kinstream topics create, or another topics.prefix"
            )
        home = partition_of(space, view.partitions)
        messages = topic_range(cluster, topic, partitions=[home], start=points[0], end=points[1]).messages(
            settings.kafka
        )
        names = {name for stream in followed for name in stream}
        kinds = [settings.builders[n].kind if n in settings.builders else n for n in sorted(names)]
        data: Data
        if origin == "constraints":
            data = log.constraints(settings, messages, space, followed)
        elif set(kinds) <= set(CONSTRAINTS):
            data = log.rows(settings, messages, space)
        else:
            data = log.built(settings, messages, space, followed)
    finally:
        cluster.close()
    if hasattr(data, "tables"):
        return [data], field.of_rows(settings, asked, modalities=len(data.tables))
    first = next(b for blocks in data.streams.values() for b in blocks if b is not None)
    return [data], field.of_log(settings, asked, modalities=len(first.tables))


def _plan(
    contenders: tuple[Contender, ...], data: list[Data], settings: Settings, options: dict[str, Any]
) -> Plan:
    from kinstream.evaluation.experiment.plan import GridChoice, Plan
    from kinstream.evaluation.experiment.splits import InOrder, RandomHalves

    rows = all(hasattr(one, "tables") for one in data)
    splits = options["splits"]
    return Plan(
        name=", ".join(one.name for one in data),
        contenders=contenders,
        splits=splits if rows or options["hold_out"] else 1,
        splitter=InOrder(splits, 0.5 / max(splits, 1)) if options["in_order"] else RandomHalves(),
        hold_out=options["hold_out"],
        choice=GridChoice("error" if rows else "mistakes"),
    )
