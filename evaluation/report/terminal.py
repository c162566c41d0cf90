"""The summary of an evaluation on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kinstream.evaluation.measures.names import Measure
from kinstream.evaluation.report.advice import shares_of, shown_shares
from kinstream.evaluation.report.answer import ReportAnswer, answer
from kinstream.evaluation.report.clipping import clipped_text
from kinstream.evaluation.report.results import Entry, Mark, Results
from kinstream.evaluation.report.words import capital, number, spread
from kinstream.streams.columns import columns

#: Widths of a value with its deviation and sign, and of the column that counts data sets, with the space beside them.
_VALUE: Final = 18
_BALANCE: Final = 19
#: Width that a name takes at most before it is folded.
_NAME: Final = 40


def print_summary(
    result: Mapping[str, Any],
    console: Console | None = None,
    *,
    times: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Print the table, what to use, and the features that the metric goes by.

    Parameters
    ----------
    result : the content of `result.json` of `kinstream evaluate`.
    console : standard output by default.
    times : see `kinstream.evaluation.report.results.Results`.
    """
    console = console or Console()
    results = Results(result, times)
    advice = answer(results)
    what = results.headline
    if what is not None:
        if console.is_terminal:
            for part, names in enumerate(_parts(results, console.width)):
                console.print(_table(results, what, names, overall=part == 0))
        else:
            _print_plain(console, results, what)
        legend = _legend(results, what)
        if legend:
            console.print(Text(legend), highlight=False, soft_wrap=not console.is_terminal)
    console.print()
    _print_answer(console, advice)
    if len(results.data_names) == 1:
        _print_importance(console, results, results.data_names[0])
    for name in results.learners:
        counts = [cell["counts"] for cell in results.cells if cell["metric"] == name and cell["counts"]]
        sums = (sum(one[part] for one in counts) for part in ("clipped", "utilised"))
        if text := clipped_text(name, *sums):
            console.print(Text(text), highlight=False, soft_wrap=True)


def _print_importance(console: Console, results: Results, data: str) -> None:
    found = shares_of(results, data)
    if found is None:
        return
    lines = ["", *columns((f"feature of {found.metric}", "share"), shown_shares(found)), ""]
    for line in lines:
        console.print(Text(line), highlight=False, soft_wrap=True)


def _parts(results: Results, width: int) -> list[list[str]]:
    """Data sets that fit beside each other, in tables that follow each other."""
    first = min(_NAME, max(map(len, results.names), default=0)) + 2
    room = width - first - (_BALANCE if len(results.data_names) > 1 else 0)
    parts: list[list[str]] = []
    for name in results.data_names:
        taken = max(_VALUE, len(name) + 2)
        if not parts or taken > room:
            parts.append([])
            # The column that counts data sets is in the first table alone.
            room = max(room, 0) if len(parts) == 1 else width - first
        parts[-1].append(name)
        room -= taken
    return parts


def _print_plain(console: Console, results: Results, what: Measure) -> None:
    """One table in columns, of any width: the output is not a terminal."""
    rows = [[str(cell) for cell in row] for row in _rows(results, what, results.data_names, beside=True)]
    lines = [f"{capital(what.title)} ({what.better})"]
    lines += columns(("metric", "better/same/worse", *results.data_names), rows)
    for line in (*lines, ""):
        console.print(Text(line), highlight=False, soft_wrap=True)


def _table(results: Results, what: Measure, data: Sequence[str], *, overall: bool) -> Table:
    """Metrics by data sets; the first of several tables also has the summary over all of them."""
    beside = overall and len(results.data_names) > 1
    table = Table(box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0), title_justify="left", title_style="bold")
    table.title = Text(f"{capital(what.title)} ({what.better})")
    table.add_column("metric", overflow="fold", max_width=_NAME)
    if beside:
        table.add_column("better/same/worse", justify="right")
    for name in data:
        table.add_column(Text(name), justify="left", overflow="fold")
    for row in _rows(results, what, data, beside=beside):
        table.add_row(*row)
    return table


def _rows(results: Results, what: Measure, data: Sequence[str], *, beside: bool) -> Iterator[list[Text]]:
    for name in results.names:
        entries = [results.entries(one, what).get(name) for one in data]
        if all(name not in results.entries(one, what) for one in results.data_names):
            continue
        plain = name in results.unlearned
        row = [Text(name, style="italic" if plain else "")]
        if beside:
            row.append(Text(_balance(results, what, name)))
        yield [*row, *(_cell(entry) for entry in entries)]


def _balance(results: Results, what: Measure, name: str) -> str:
    standing = results.standing(name, what)
    if not standing.tested:
        return ""
    return f"{len(standing.better)}/{len(standing.same)}/{len(standing.worse)}"


def _cell(entry: Entry | None) -> Text:
    if entry is None:
        return Text(number(None))
    text = Text(spread(entry.mean, entry.std), style="bold" if entry.best else "")
    if entry.mark is not None:
        better = entry.mark in (Mark.BETTER, Mark.PERHAPS_BETTER)
        text.append(f" {entry.mark.sign}", style="not bold green" if better else "not bold red")
    elif entry.reference:
        text.append(" °")
    return text


def _legend(results: Results, what: Measure) -> str:
    """Of the signs that occur."""
    entries = [entry for data in results.data_names for entry in results.entries(data, what).values()]
    marks = {entry.mark for entry in entries}
    lines = [f"{mark.sign} {mark.meaning}" for mark in Mark if mark in marks]
    if any(entry.reference for entry in entries):
        lines.append(
            "° the best un-learned metric, with which learners are compared by the paired t-test at 0.05"
        )
    return "\n".join(lines)


def _print_answer(console: Console, advice: ReportAnswer) -> None:
    lines = [Text(advice.title, style="bold"), *map(Text, advice.sentences)]
    for one in advice.by_data:
        if one.run is not None:
            plain = one.reference is not None and one.run == one.reference.metric
            lines.append(Text(f"  {one.data}: {one.run}{' (un-learned)' if plain else ''}"))
    lines += [Text(caution, style="dim") for caution in advice.cautions]
    for line in lines:
        # A terminal is wrapped between words; piped output is not wrapped.
        console.print(line, highlight=False, soft_wrap=not console.is_terminal)
