"""`kinstream init`: a commented kinstream.toml from a few answers."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Final

import click

from kinstream.cli.system.first_settings import DATA, first_settings

_FILE: Final = Path("kinstream.toml")


def _brokers(text: str) -> str:
    from kinstream.streams.configuration.kafka import addresses

    try:
        found = addresses(text, port=None)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return _given(found)


def _given(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise click.BadParameter("must be text that can be printed, and not empty")
    return text


@click.command()
@click.option("--data", type=click.Choice(list(DATA)), help="What your events say; see below.")
@click.option(
    "--brokers",
    type=_brokers,
    metavar="HOST:PORT,...",
    help="Addresses of your brokers. [default: localhost:9092]",
)
@click.option(
    "--checkpoints",
    type=_given,
    metavar="TEXT",
    help="Folder or fsspec URL that every worker reaches. [default: ./checkpoints]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=_FILE,
    show_default=True,
    help="File to write; - prints it.",
)
@click.pass_context
def init(
    ctx: click.Context,
    data: str | None,
    brokers: str | None,
    checkpoints: str | None,
    output: Path,
) -> None:
    """Write a commented settings file to begin with.

    \b
    labels      rows of features with a class
    clicks      result lists with their clicks, and items with features
    relations   pairs of items that are the same, or are not
    embeddings  embeddings in a vector store, and clicks on result lists

    On a terminal the command asks for what is not given.

    Example: kinstream init --data labels --brokers localhost:9092
    """
    from kinstream.cli.views.tables import for_a_person

    printed = str(output) == "-"
    if not printed and not output.parent.is_dir():
        raise click.UsageError(f"{output.parent} is not a folder: create it, or name another file with -o")
    if not printed and output.is_file():
        raise click.UsageError(f"{output} exists: remove it, or name another file with -o")
    if for_a_person() and sys.stdin.isatty() and not printed:
        data = data or click.prompt(
            "What do your events hold", type=click.Choice(list(DATA)), default="labels"
        )
        brokers = brokers or click.prompt(
            "Addresses of your brokers", default="localhost:9092", value_proc=_brokers
        )
        checkpoints = checkpoints or click.prompt(
            "Folder or URL of the checkpoints", default="./checkpoints", value_proc=_given
        )
    if data is None:
        raise click.UsageError(f"--data is missing: {', '.join(DATA)}")
    text = first_settings(data, brokers or "localhost:9092", checkpoints or "./checkpoints")
    if printed:
        click.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"{output}: {error.strerror}: name another file with -o") from None
    kinstream = "kinstream"
    if output.resolve() != _FILE.resolve():
        kinstream += f" --config {shlex.quote(str(output))}"
    steps = "; ".join(f"{kinstream} {command}" for command in ("check", "topics create", "up"))
    click.echo(f"{output} is written. Next: {steps}", err=True)
