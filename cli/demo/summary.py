"""The summary of a demonstration: errors on rows that were never streamed, and commands to go further."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from kinstream.cli.demo.descriptions import Demo
from kinstream.cli.demo.view import plain_table
from kinstream.cli.local.metrics_pages import Numbers
from kinstream.cli.views.tables import for_a_person
from kinstream.evaluation.measures.held_out_rows import EUCLIDEAN, evaluate
from kinstream.processors.closure.closure import Closure
from kinstream.streams.columns import columns
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import Counts
from kinstream.streams.settings import Settings

#: Number of items searched for a pair that is similar by more than one relation.
_TRIED_ITEMS: Final = 30


def tell_summary(demo: Demo, settings: Settings, numbers: Numbers | None) -> None:
    """Print it.

    Parameters
    ----------
    numbers : the last numbers of the running agents.
    """
    result = evaluate(settings, demo.source, demo.space, hold_out=demo.hold_out, seed=demo.seed)
    click.echo()
    title = f"{result.train_rows} rows streamed, error on {result.test_rows} rows never streamed"
    counts = ("constraints", "utilised", "mistakes", "mistake rate")
    errors = [
        (row.name, "-" if row.error is None else f"{row.error:.4f}", *_cells(row.counts))
        for row in result.rows
    ]
    _print(title, ("metric", "5-NN error", *counts), errors, demo.caption)
    found = {row.name: row.error for row in result.rows if row.error is not None}
    without = {name: error for name, error in found.items() if name not in settings.learners}
    if demo.learner in found:
        best = min(without, key=lambda name: without[name])
        click.echo(
            f"\nErrors: {found[EUCLIDEAN]:.1%} with the features as they are, {without[best]:.1%} with the best of "
            f"what needs no learning ({best}), {found[demo.learner]:.1%} with {demo.learner}\n"
        )
    if demo.evidence:
        rules = [
            (row.name, rule, *_cells(counts))
            for row in result.rows
            for rule, counts in sorted(row.by_rule.items())
        ]
        _print(None, ("metric", "rule", *counts), rules, None)
    config = demo.folder / "kinstream.toml"
    name = f"{_own_name()} --config {config}"
    lines = []
    if demo.evidence and numbers is not None:
        lines.append(f"Dead letters: {numbers.dead_letters:.0f}")
    lines += [
        f"Checkpoints: {demo.folder / 'checkpoints'}",
        f"Settings:    {config}",
        f"Logs:        {demo.folder / 'logs'}",
        "To query the checkpoints:",
        f"  {name} models list --checkpoints",
        f"  {name} models export {demo.space} --learner {demo.learner} --checkpoints -o map.npz",
    ]
    pair = _similar_pair(demo, settings)
    if pair is not None:
        lines.append(f"  {name} closure explain {demo.space} {pair[0]} {pair[1]}")
    # Not wrapped, so that these lines can be copied.
    for line in lines:
        click.echo(line)


def _print(
    title: str | None, headings: Sequence[str], rows: Sequence[Sequence[str]], caption: str | None
) -> None:
    if not for_a_person():
        lines = [title or "", *columns(headings, rows), caption or ""]
        click.echo("\n".join(lines).rstrip("\n"))
        return
    table = plain_table(*headings)
    table.title, table.caption = title, caption
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def _cells(counts: Counts | None) -> tuple[str, str, str, str]:
    if counts is None:
        return "", "", "", ""
    rate = f"{counts.mistakes / counts.scored:.3f}" if counts.scored else ""
    return str(counts.seen), str(counts.utilised), str(counts.mistakes), rate


def _similar_pair(demo: Demo, settings: Settings) -> tuple[str, str] | None:
    """Two items that are similar in the closure, if there are any; preferably by a chain of relations."""
    if demo.closure is None:
        return None
    from kinstream.cli.commands.closure import newest_closure
    from kinstream.producers.labelled.sources import open_source
    from kinstream.producers.simulated.load import simulator_of
    from kinstream.producers.simulated.settings import Simulation

    core, _ = newest_closure(settings, demo.space, demo.closure)
    source = open_source(demo.source)
    items = simulator_of(source, Simulation(), demo.hold_out, demo.seed).items().ids
    return chained_pair(core, items)


def chained_pair(core: Closure, items: Sequence[str]) -> tuple[str, str] | None:
    """The first pair that is similar by more than one relation, else by one; None if there is none among the first
    items."""
    best: tuple[str, str] | None = None
    for pair in combinations(items[:_TRIED_ITEMS], 2):
        try:
            found = core.explain(*pair)
        except SettingsError:
            continue  # one of the two is in no relation
        if found is not None and len(found.links) > 1:
            return pair
        if found is not None and found.links and best is None:
            best = pair
    return best


def _own_name() -> str:
    """The command line to run this command again: `make run` puts nothing on the PATH."""
    called = Path(sys.argv[0])
    found = shutil.which(called.name)
    if found is not None and Path(found).resolve() == called.resolve():
        return called.name
    return os.path.relpath(called)
