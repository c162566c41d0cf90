"""`kinstream models list|show|export|promote`: the newest model of each space and learner."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kinstream.cli.shared.context import settings_of
from kinstream.cli.shared.models import newest_models
from kinstream.cli.shared.told import JSON, tell

if TYPE_CHECKING:
    from kinstream.replay.what_if.promotion import Beginning, PlannedPromotion
    from kinstream.streams.records.values import ModelVersion
    from kinstream.streams.settings import Settings

_LEARNER = click.option("--learner", metavar="NAME", help="The learner, if several learn the space.")
_CHECKPOINTS = click.option(
    "--checkpoints",
    is_flag=True,
    help="Read the checkpoint store of the settings instead of the topic; needs no brokers.",
)


@click.group()
def models() -> None:
    """List, show, export or promote learned metrics. Example: kinstream models export digits -o digits.npz"""


@models.command("list")
@_CHECKPOINTS
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
@click.pass_context
def list_models(ctx: click.Context, checkpoints: bool, as_json: bool) -> None:
    """List the newest models. Example: kinstream models list"""
    import json

    from kinstream.cli.views.tables import echo_table, moment

    found = newest_models(settings_of(ctx), checkpoints).values()
    if as_json:
        click.echo(json.dumps([_fields(v) for v in found], indent=2))
        return
    rows = [
        (v.space, v.learner, v.algorithm, v.generation, v.epoch, v.step, moment(v.time_ms), v.location)
        for v in found
    ]
    echo_table(("SPACE", "LEARNER", "ALGORITHM", "GENERATION", "EPOCH", "STEP", "WRITTEN", "LOCATION"), rows)


@models.command()
@click.argument("space")
@_LEARNER
@_CHECKPOINTS
@JSON
@click.pass_context
def show(ctx: click.Context, space: str, learner: str | None, checkpoints: bool, as_json: bool) -> None:
    """Show a model, and verify its file.

    Ends with status 1 if the file is gone or damaged.

    Example: kinstream models show digits --learner opml
    """
    import json

    from kinstream.streams.errors import CheckpointError
    from kinstream.streams.operations.models import data_of, find

    settings = settings_of(ctx)
    version = find(newest_models(settings, checkpoints), space, learner)
    fields = _fields(version)
    held_back = withheld(version, settings)
    if held_back is not None:
        fields["withheld"] = held_back
    try:
        fields["file"] = f"whole, {len(data_of(version, settings))} bytes"
    except CheckpointError as error:
        fields["file"] = str(error)
    if as_json:
        click.echo(json.dumps(fields, indent=2))
    else:
        for name, value in fields.items():
            click.echo(f"{name + ':':<12} {value}")
    if not fields["file"].startswith("whole"):
        ctx.exit(1)


def withheld(version: ModelVersion, settings: Settings) -> str | None:
    """Since which step the learner's newest model is not announced, as a sentence; None if it is."""
    from kinstream.learners.announcing import withholds
    from kinstream.streams.operations.models import worse_at

    step = worse_at(version, settings) if withholds(settings, version.learner) else None
    if step is None:
        return None
    return f"at step {step}: worse than the best un-learned metric on held-out events, so it is not announced"


@models.command()
@click.argument("space")
@_LEARNER
@_CHECKPOINTS
@click.option(
    "--format",
    "form",
    type=click.Choice(["npz", "safetensors", "onnx"]),
    help="By default, from the file's name.",
)
@click.option("--onnx", "form", flag_value="onnx", help="Same as --format onnx.")
@click.option(
    "-o", "--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help="File to write."
)
@click.option(
    "--rank", type=click.IntRange(1), help="At most so many columns: the directions that vary most."
)
@JSON
@click.pass_context
def export(
    ctx: click.Context,
    space: str,
    learner: str | None,
    checkpoints: bool,
    form: str | None,
    output: Path,
    rank: int | None,
    as_json: bool,
) -> None:
    """Write a learned metric to a file: a matrix, or an ONNX model.

    The learned metric is the map x @ map.T + offset of raw features x. The scaler is included, except unit length,
    which the file's metadata then names. A learner of several modalities has a map and an offset for each. An ONNX
    model takes raw features and includes everything; it is also available for OAHU, which has no single matrix.

    Example: kinstream models export digits --learner opml --format safetensors -o digits.safetensors
    """
    from kinstream.streams.operations.models import computed_with, find

    settings = settings_of(ctx)
    version = find(newest_models(settings, checkpoints), space, learner)
    form = form or output.suffix.removeprefix(".")
    model, versions = rebuilt(version, settings), computed_with(version, settings)
    if form == "onnx":
        data, summary = _as_onnx(model, version, versions, rank)
    else:
        data, summary = _as_arrays(model, version, versions, form, rank)
    unfinished = output.with_name(f".{output.name}.part")
    try:
        unfinished.write_bytes(data)
        unfinished.replace(output)
    except OSError as error:
        raise click.FileError(str(output), hint=str(error)) from error
    fields = {**_fields(version), "file": str(output), "format": form, "bytes": len(data)}
    tell(fields, (f"{output}: {summary}, step {version.step}",), as_json=as_json)


def _as_arrays(
    learner: Any, version: ModelVersion, versions: dict[str, str], form: str, rank: int | None
) -> tuple[bytes, str]:
    """The bytes of a file of arrays, and a summary of it."""
    from kinstream.learners.models.export import encode, export

    exported = export(learner, version, versions, rank)
    maps = {name: array for name, array in exported.arrays.items() if array.ndim == 2}
    summary = ", ".join(f"{name} {' x '.join(map(str, array.shape))}" for name, array in maps.items())
    scaler = "" if exported.metadata["scaler"] == "none" else f", scaler={exported.metadata['scaler']}"
    dtype = next(iter(maps.values())).dtype
    return encode(exported, form), f"{summary} {dtype}{scaler}"


def _as_onnx(
    learner: Any, version: ModelVersion, versions: dict[str, str], rank: int | None
) -> tuple[bytes, str]:
    """The bytes of an ONNX file, and a summary of it."""
    from kinstream.learners.models.export import origin
    from kinstream.learners.models.onnx import encode_onnx

    data = encode_onnx(learner, origin(version, versions), rank)
    return data, f"onnx, {len(data):,} bytes"


@models.command()
@click.argument("folder")
@click.option(
    "--learner",
    metavar="NAME",
    help="The learner that gets the generation; by default the one that was replayed.",
)
@click.option(
    "--allow-missing-spaces",
    is_flag=True,
    help="Start spaces that the state lacks with their declaration and nothing learned.",
)
@click.option("--dry-run", is_flag=True, help="Check everything and print what would be written.")
@JSON
@click.pass_context
def promote(
    ctx: click.Context,
    folder: str,
    learner: str | None,
    allow_missing_spaces: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Begin a learner's next generation with the state of a what-if.

    FOLDER is the output of `kinstream replay --save`, a path or a URL. The settings must match the replayed ones, and
    the learner's workers must be stopped; the next worker to start continues at the state's offsets. Nothing is written
    unless all checks pass. If a promotion was killed, run the same command again to complete it.

    Example: kinstream models promote what-if --learner opml
    """
    import json

    from kinstream.replay.what_if.promotion import plan
    from kinstream.replay.what_if.saved_state import StateFolder
    from kinstream.streams.kafka.cluster import Cluster

    settings = settings_of(ctx)
    cluster = Cluster(settings.kafka)
    try:
        cluster.wait(settings.worker.startup_seconds)
        made = plan(
            StateFolder(folder), learner, settings, cluster, allow_missing_spaces=allow_missing_spaces
        )
        if not dry_run:
            made.carry_out()
    finally:
        cluster.close()
    if as_json:
        click.echo(json.dumps(_planned(made, dry_run), indent=2))
    else:
        _show_plan(made, dry_run)


def _planned(made: PlannedPromotion, dry_run: bool) -> dict[str, Any]:
    return {
        "learner": made.learner,
        "generation": made.number,
        "before": made.before,
        "written": not dry_run and not made.done,
        "done_before": made.done,
        "resumed": made.resumed,
        "taken_over": list(made.taken_over),
        "versions_differ": list(made.foreign),
        "partitions": [
            {
                "partition": begun.partition,
                "offset": begun.offset,
                "spaces": begun.spaces,
                "before_ended": begun.ended,
                "before_ended_cleanly": begun.clean,
                "counted_again": begun.again,
                "never_counted": begun.never,
            }
            for begun in made.beginnings
        ],
    }


def _show_plan(made: PlannedPromotion, dry_run: bool) -> None:
    from kinstream.cli.views.tables import echo_table

    if made.done:
        click.echo(
            f"learner-{made.learner}: generation {made.number} has already begun with this state; nothing to do"
        )
        return
    rows = [(b.partition, b.offset, b.spaces, "-" if b.ended is None else b.ended) for b in made.beginnings]
    echo_table(("PARTITION", "CONTINUES AT", "SPACES", f"GENERATION {made.before or '-'} ENDED AT"), rows)
    for line in _counted_otherwise(made.before, made.beginnings):
        click.echo(line)
    if made.taken_over:
        click.echo(f"nothing learned yet in {', '.join(made.taken_over)}")
    for text in made.foreign:
        click.echo(
            f"warning: the state was computed with {text}; later results agree with it only to rounding"
        )
    verb = "would begin" if dry_run else "begins"
    click.echo(f"learner-{made.learner}: generation {made.number} {verb}")
    if not dry_run:
        click.echo(f"Start its workers: kinstream worker learner {made.learner}")


def _counted_otherwise(before: int | None, beginnings: tuple[Beginning, ...]) -> list[str]:
    """The records that consumers of outcomes will not count exactly once."""
    lines = []
    again = sum(b.again for b in beginnings)
    if again:
        lines.append(
            f"warning: {again:,} records were learned by generation {before} and will be learned by the new one: "
            "consumers of outcomes, including the metrics agent, count them twice. To avoid it, stop the workers, "
            "replay with --until-checkpoint --save, and promote that"
        )
    never = sum(b.never for b in beginnings)
    if never:
        lines.append(
            f"warning: {never:,} records are in the state and were not reached by generation {before}: no outcomes for "
            "them are ever written"
        )
    return lines


def rebuilt(version: ModelVersion, settings: Settings) -> Any:
    """The learner behind a model, with the hyper-parameters of its generation.

    Raises
    ------
    SettingsError : neither a birth record nor the settings have the learner.
    CheckpointError : the model's file is missing or damaged.
    """
    from kinstream.search.models import loader as loading

    return loading.rebuilt(version, settings)


def _fields(version: ModelVersion) -> dict[str, Any]:
    fields = {name: getattr(version, name) for name in version.__dataclass_fields__}
    del fields["deleted"]
    return fields
