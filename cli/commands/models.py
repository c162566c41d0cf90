"""`kinstream models list|show|export`: the newest model of each space and learner."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kinstream.cli.shared.context import settings_of
from kinstream.cli.shared.models import newest_models
from kinstream.cli.shared.output import JSON, tell

if TYPE_CHECKING:
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
    """List, show or export learned metrics. Example: kinstream models export digits -o digits.npz"""


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
        if version.algorithm.startswith(("adapter/", "ranking/")):
            known = rebuilt(version, settings)
            if known.prior_digest is not None:
                fields["prior"] = known.prior_digest
            if version.algorithm.startswith("ranking/"):
                said = ", ".join(f"{name} {weight:+.3f}" for name, weight in known.weights.items())
                fields["weights"] = known.weights if as_json else said
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
    """Why the learner's newest model is not announced, as a sentence; None if it is."""
    from kinstream.learners.announcements import withholds
    from kinstream.streams.operations.models import withheld_after

    found = withheld_after(version, settings) if withholds(settings, version.learner) else None
    return None if found is None else f"{found}, so it is not announced"


@models.command()
@click.argument("space")
@_LEARNER
@_CHECKPOINTS
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write: .npz, .safetensors or .onnx.",
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
    output: Path,
    rank: int | None,
    as_json: bool,
) -> None:
    """Write a learned metric to a file: a matrix, or an ONNX model.

    The learned metric is the map x @ map.T + offset of raw features x. The scaler is included, except unit length,
    which the file's metadata then names. A learner of several modalities has a map and an offset for each. An ONNX
    model takes raw features and includes everything; it is also available for OAHU, which has no single matrix.

    Example: kinstream models export digits --learner opml -o digits.safetensors
    """
    from kinstream.streams.operations.models import computed_with, find

    settings = settings_of(ctx)
    version = find(newest_models(settings, checkpoints), space, learner)
    form = output.suffix.removeprefix(".")
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
