"""Shared by all evaluations: the output folder, the progress bar, and the final output."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kinstream.cli.shared.output import bar

if TYPE_CHECKING:
    from kinstream.evaluation.experiment.data import Data
    from kinstream.evaluation.experiment.plan import Plan


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options for the output folder and the number of processes."""
    for option in reversed(
        (
            click.option(
                "--output",
                type=click.Path(file_okay=False, path_type=Path),
                help="Folder of results and report; cells finished there are not repeated.",
            ),
            click.option("--jobs", type=int, help="Processes. [default: one per core]"),
            click.option(
                "--json", "as_json", is_flag=True, help="Print the result as JSON, and write no report."
            ),
        )
    ):
        command = option(command)
    return command


def finish(plan: Plan, data: list[Data], folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Run a plan and print its result. Returns the result."""
    import json

    from kinstream.streams.extras import require

    # Checked before a run that may take hours.
    require("scipy", "numba", who="kinstream evaluate")
    require("rich", who="the summary")
    if not options["as_json"]:
        require("matplotlib", "jinja2", who="the report (--json leaves it out)")

    from kinstream.evaluation.runner.run import TIMES
    from kinstream.evaluation.runner.run import evaluate as run

    jobs = options["jobs"] or os.cpu_count() or 1
    done = [0, 0]
    try:
        with bar("evaluate") as advance:

            def progress(finished: int, all_: int) -> None:
                done[:] = finished, all_
                advance(finished, all_)

            result = run(plan, data, folder, jobs=jobs, progress=progress)
    except KeyboardInterrupt:
        click.echo(
            f"\ninterrupted: {done[0]} of {done[1]} cells are finished and kept in {folder}; "
            "the same command continues from there",
            err=True,
        )
        raise SystemExit(130) from None
    if options["as_json"]:
        click.echo(json.dumps(result, indent=1, sort_keys=True))
        return result
    from kinstream.evaluation.report import write_report
    from kinstream.evaluation.report.terminal import print_summary

    times = json.loads((folder / TIMES).read_text(encoding="utf-8"))
    write_report(result, folder, times=times)
    print_summary(result, times=times)
    click.echo(f"result: {folder / 'result.json'}")
    click.echo(f"report: {folder / 'report.html'}")
    return result
