"""The figures of an experiment beside the published ones, as text and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from benchmarks.papers.shared.comparison import Line, PaperComparison
from benchmarks.papers.shared.protocol import Prepared, Protocol
from kinstream.cli.views.tables import echo_table

#: Marks a figure that is worse than the published mean by more than two deviations.
ABOVE: Final = "(!)"
#: Marks a published figure of other data, or of the same rows, that sets no limit.
OTHER: Final = "other data"
UNBOUNDED: Final = "no limit"


def tell_missing(protocol: Protocol, ready: Prepared, quick: bool) -> None:
    """Print to standard error what is left out."""
    for one in ready.missing:
        click.echo(f"left out: {one.reason}", err=True)
    if quick:
        click.echo(f"quick form: {protocol.cut}", err=True)


def show(found: PaperComparison) -> None:
    """Print a line for each figure, and the figures with a limit."""
    for measure in dict.fromkeys(line.measure for line in found.lines):
        lines = [line for line in found.lines if line.measure == measure]
        click.echo()
        echo_table(
            ("data", "metric", measure, "published", "difference", ""), [_cells(line) for line in lines]
        )
    if found.statements:
        click.echo()
        echo_table(
            ("statement", "ours", "published"),
            [(one.what, one.ours, one.published) for one in found.statements],
        )
    click.echo()
    click.echo(verdict(found))


def verdict(found: PaperComparison) -> str:
    """A sentence on whether every figure with a limit is within it."""
    if not found.held:
        return "No error has a limit here: the paper prints none for these data."
    if not found.exceptions:
        return f"All {len(found.held)} errors with a limit are at most the published mean and two deviations."
    named = ", ".join(f"{line.metric} on {line.data}" for line in found.exceptions)
    above = f"{len(found.exceptions)} of {len(found.held)} errors are above"
    return f"{above} the published mean and two deviations: {named}"


def as_markdown(found: PaperComparison) -> str:
    """A table for each measure, a row for each data set: ours / published (difference)."""
    parts = []
    for measure in dict.fromkeys(line.measure for line in found.lines):
        lines = [line for line in found.lines if line.measure == measure]
        metrics = list(dict.fromkeys(line.metric for line in lines))
        rows = ["| " + " | ".join([measure, *metrics]) + " |", "|---" * (len(metrics) + 1) + "|"]
        for data in dict.fromkeys(line.data for line in lines):
            own = {line.metric: line for line in lines if line.data == data}
            notes = sorted({note for line in own.values() if (note := _note(line))})
            name = f"{data} ({', '.join(notes)})" if notes else data
            cells = [_short(own[metric]) if metric in own else "" for metric in metrics]
            rows.append("| " + " | ".join([name, *cells]) + " |")
        parts.append("\n".join(rows))
    if found.statements:
        rows = ["| statement | ours | published |", "|---|---|---|"]
        rows += [f"| {one.what} | {one.ours} | {one.published} |" for one in found.statements]
        parts.append("\n".join(rows))
    return "\n\n".join([*parts, verdict(found)])


def _cells(line: Line) -> Sequence[str]:
    ours = f"{line.mean:.3f}" + ("" if line.std is None else f" ± {line.std:.3f}")
    difference = "" if line.difference is None else f"{line.difference:+.3f}"
    note = ABOVE if line.above else _note(line)
    return line.data, line.metric, ours, str(line.published or ""), difference, note


def _note(line: Line) -> str:
    """Why a published figure sets no limit; empty if it does, or if there is none."""
    if line.published is None or line.same_data:
        return ""
    return UNBOUNDED if line.published_data == line.data else f"{OTHER}: {line.published_data}"


def _short(line: Line) -> str:
    ours = _bare(f"{line.mean:.3f}")
    if line.published is None:
        return ours
    mark = f" {ABOVE}" if line.above else ""
    return f"{ours} / {_bare(f'{line.published.mean:.3f}')} ({_bare(f'{line.difference:+.3f}')}){mark}"


def _bare(text: str) -> str:
    """Without the zero before the point."""
    return text.replace("0.", ".", 1) if text.lstrip("+-").startswith("0.") else text
