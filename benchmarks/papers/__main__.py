"""`python -m benchmarks.papers`: the experiments of the papers, with our figures beside the published ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from benchmarks.papers import registry
from benchmarks.papers.shared.data_folder import VARIABLE
from kinstream.cli.evaluate.run import finish, output_options


@click.command()
@click.argument("name", type=click.Choice(registry.names()), metavar="NAME")
@click.option(
    "--data",
    envvar=VARIABLE,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the data sets. [default: KINSTREAM_DATA; without it, the sets of scikit-learn]",
)
@click.option("--quick", is_flag=True, help="A smaller form; it prints what it leaves out.")
@click.option("--only", multiple=True, metavar="SET", help="Only this data set; may be repeated.")
@click.option(
    "--splits", type=click.IntRange(min=1), help="Splits of each data set, instead of the protocol's number."
)
@click.option(
    "--describe", is_flag=True, help="Print the protocol and its differences from the paper; run nothing."
)
@click.option("--markdown", is_flag=True, help="Print the comparison as Markdown.")
@output_options
def paper(
    name: str,
    data: Path | None,
    only: tuple[str, ...],
    splits: int | None,
    *,
    quick: bool,
    describe: bool,
    markdown: bool,
    **options: Any,
) -> None:
    """Run an experiment of a paper and show our figures beside the published ones.

    NAME is opml-table-2, opml-table-4, oahu-table-3, lego-uci, lego-mnist-pairs or omdml-small. Missing data sets are
    named, and the others run.

    \b
    Examples:
      python -m benchmarks.papers opml-table-2 --quick
      python -m benchmarks.papers opml-table-2 --data FOLDER --only iris --only wine
    """
    from benchmarks.papers.shared.data_folder import DataFolder
    from benchmarks.papers.shared.protocol import compare, prepare
    from benchmarks.papers.view import as_markdown, show, tell_missing

    protocol = registry.protocol(name)
    if describe:
        click.echo(f"{protocol.title}\n\n{protocol.text}\n\nThe quick form has {protocol.cut}.")
        return
    ready = prepare(protocol, DataFolder(data), quick=quick, splits=splits, only=only)
    tell_missing(protocol, ready, quick)
    folder = options["output"] or Path("evaluation") / (f"{name}-quick" if quick else name)
    result = finish(ready.plan, list(ready.rows), folder, options)
    found = compare(protocol, result, folder)
    if options["as_json"]:
        return
    if markdown:
        click.echo(as_markdown(found))
    else:
        show(found)


if __name__ == "__main__":
    paper(prog_name="python -m benchmarks.papers")
