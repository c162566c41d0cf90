"""Shared by all evaluations: the output folder, the progress bar, and the final output."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kinstream.streams.errors import SettingsError

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
            click.option("--no-report", is_flag=True, help="Write the result without a report."),
            click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
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
    if not options["no_report"]:
        require("matplotlib", "jinja2", who="the report (--no-report leaves it out)")

    from kinstream.evaluation.runner.run import TIMES
    from kinstream.evaluation.runner.run import evaluate as run

    shown = options.get("importance")
    names = [contender.name for contender in plan.contenders]
    if shown is not None and shown not in names:
        raise SettingsError(f"--importance {shown!r}: there is no such metric; there are: {'; '.join(names)}")

    jobs = options["jobs"] or os.cpu_count() or 1
    done = [0, 0]
    try:
        with _bar() as advance:

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
    times = json.loads((folder / TIMES).read_text(encoding="utf-8"))
    if not options["no_report"]:
        from kinstream.evaluation.report import write_report

        write_report(result, folder, times=times, shown=shown)
    if options["as_json"]:
        click.echo(json.dumps(result, indent=1, sort_keys=True))
        return result
    from kinstream.evaluation.report.terminal import print_summary

    print_summary(result, times=times, shown=shown)
    click.echo(f"result: {folder / 'result.json'}")
    if not options["no_report"]:
        click.echo(f"report: {folder / 'report.html'}")
    return result


@contextmanager
def _bar() -> Iterator[Callable[[int, int], None]]:
    """A progress bar on standard error, so that the result can be piped."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

    columns = ("evaluate", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("evaluate", total=None)
        yield lambda done, all_: bar.update(task, completed=done, total=all_)
