"""`kinstream init`: a commented kinstream.toml from a few answers."""

from __future__ import annotations

from pathlib import Path

import click

from kinstream.cli.system.first_settings import DATA, first_settings


@click.command()
@click.option("--data", type=click.Choice(list(DATA)), help="What your events say; see below.")
@click.option("--brokers", help="Addresses of your brokers. [default: localhost:9092]")
@click.option(
    "--checkpoints", help="Folder or fsspec URL that every worker reaches. [default: ./checkpoints]"
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("kinstream.toml"),
    show_default=True,
    help="File to write; - prints it.",
)
@click.option("--force", is_flag=True, help="Replace the file if there is one.")
@click.pass_context
def init(
    ctx: click.Context,
    data: str | None,
    brokers: str | None,
    checkpoints: str | None,
    output: Path,
    force: bool,
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
    if not printed and output.exists() and not force:
        raise click.UsageError(f"{output} exists: name another file with -o, or replace it with --force")
    if for_a_person() and not printed:
        data = data or click.prompt(
            "What do your events hold", type=click.Choice(list(DATA)), default="labels"
        )
        brokers = brokers or click.prompt("Addresses of your brokers", default="localhost:9092")
        checkpoints = checkpoints or click.prompt("Folder or URL of the checkpoints", default="./checkpoints")
    if data is None:
        raise click.UsageError(f"--data is missing: {', '.join(DATA)}")
    text = first_settings(data, brokers or "localhost:9092", checkpoints or "./checkpoints")
    if printed:
        click.echo(text, nl=False)
        return
    output.write_text(text)
    click.echo(f"{output} is written. Next: kinstream check; kinstream topics create; kinstream up", err=True)
