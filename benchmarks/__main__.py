"""Runs the benchmarks, prints one table and writes JSON. Figures come from here, never from a timed test."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from benchmarks import (
    clicks,
    closure,
    closure_hubs,
    drain,
    evaluation,
    first_answer,
    idle,
    kernels,
    latency,
    learners,
    lists,
    memory,
    mixture,
    oahu,
    oahu_applications,
    online_search,
    own_index,
    own_store,
    recovery,
    single_rows,
    sources,
    start,
    table_two,
    traces,
    whole_lists,
)
from benchmarks.figures import Figure, machine, table

RESULTS: Final = Path(__file__).parent / "results"
BENCHMARKS: Final[dict[str, Callable[[bool], list[Figure]]]] = {
    "kernels": kernels.figures,
    "learners": learners.figures,
    "lists": lists.figures,
    "whole-lists": whole_lists.figures,
    "mixture": mixture.figures,
    "oahu": oahu.figures,
    "oahu-applications": oahu_applications.figures,
    "evaluation": evaluation.figures,
    "table-two": table_two.figures,
    "online-search": online_search.figures,
    "own-index": own_index.figures,
    "own-store": own_store.figures,
    "closure": closure.run,
    "closure-hubs": closure_hubs.figures,
    "clicks": clicks.figures,
    "sources": sources.figures,
    "single-rows": single_rows.figures,
    "drain": drain.run,
    "traces": traces.figures,
    "latency": latency.run,
    "first-answer": first_answer.run,
    "recovery": recovery.run,
    "start": start.run,
    "memory": memory.run,
    "idle": idle.run,
}


@click.command()
@click.option("--quick", is_flag=True, help="Smaller sizes and fewer tries: for a look, not for a report.")
@click.option(
    "--only", multiple=True, type=click.Choice(list(BENCHMARKS)), help="Run this one; may be given again."
)
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="JSON file. [default: by date]"
)
def main(quick: bool, only: tuple[str, ...], output: Path | None) -> None:
    """Measure, print a table and write JSON. Every ratio is of numbers from one run.

    Example: python -m benchmarks --quick --only drain
    """
    # Ended from outside, a benchmark ends the broker and the workers that it has started.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    console = Console(width=None if sys.stdout.isatty() else 140)
    begun = time.strftime("%Y-%m-%dT%H-%M-%SZ", time.gmtime())
    found: list[Figure] = []
    for name, run in BENCHMARKS.items():
        if only and name not in only:
            continue
        click.echo(f"{name} ...", err=True)
        found += run(quick)
    report = {
        "measured": begun,
        "quick": quick,
        "machine": machine(),
        "figures": [figure.as_dict() for figure in found],
    }
    path = output or RESULTS / f"{begun}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    console.print(table(found))
    missed = sum(figure.met is False for figure in found)
    click.echo(f"{missed} of {sum(f.met is not None for f in found)} requirements missed; {path}")


if __name__ == "__main__":
    main()
