"""The summary on the terminal."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from kinstream.evaluation.report.terminal import print_summary
from tests.monitoring.report.made_results import IRIS, WINE, Errors, made


def printed(errors: Errors, width: int = 100) -> str:
    file = io.StringIO()
    print_summary(made(errors), Console(file=file, width=width, force_terminal=True, color_system=None))
    return file.getvalue()


def test_what_is_piped_has_columns_without_lines_and_cuts_and_wraps_nothing() -> None:
    file = io.StringIO()
    long = "a-data-set-with-a-name-that-no-terminal-has-room-for"
    print_summary(made({long: WINE, "iris": IRIS}), Console(file=file, width=40))
    lines = file.getvalue().splitlines()
    header = next(line for line in lines if line.startswith("metric"))
    assert header.split() == ["metric", "better/same/worse", long, "iris"]
    row = next(line for line in lines if line.startswith("opml"))
    assert re.split(r" {2,}", row) == ["opml", "1/1/0", "0.110 ± 0.010 ▲", "0.040 ± 0.014"]
    assert "Run opml: it is better than doing nothing on 1 of 2 data sets." in lines
    assert not set("─│━┃┏┡") & set(file.getvalue())


def test_it_has_the_table_and_the_answer() -> None:
    text = printed({"wine": WINE, "iris": IRIS})
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "opml 1/1/0 0.110 ± 0.010 ▲ 0.040 ± 0.014" in lines
    assert "euclidean 0.212 ± 0.013 ° 0.050 ± 0.007" in lines
    assert "Run opml: it is better than doing nothing on 1 of 2 data sets." in lines
    assert "iris: cosine (un-learned)" in lines
    assert "▲ significantly better, also after Holm's correction" in lines
    # Of signs that do not occur nothing is said.
    assert "△" not in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_tables_fit_the_terminal(width: int) -> None:
    errors = {f"data set {i}": WINE for i in range(6)}
    text = printed(errors, width)
    assert max(map(len, text.splitlines())) <= width
    assert text.count("0.110 ± 0.010 ▲") == 6
    assert all(f"data set {i}" in text for i in range(6))
    assert text.count("better/same/worse") == 1


def test_names_are_not_markup() -> None:
    text = printed({"[bold]wine[/bold]": {"euclidean°": [0.2, 0.3], "[red]opml[/nonsense]": [0.1, 0.3]}})
    assert "[bold]wine[/bold]" in text
    assert "[red]opml[/nonsense]" in text


def test_one_split_and_nothing() -> None:
    assert "One split is not evidence" in printed({"wine": {"euclidean°": [0.2], "opml": [0.1]}})
    assert "Nothing was measured" in printed({})
    # A name that is wider than the terminal is folded, and all of it is there.
    text = printed({"wine": {"euclidean°": [0.2, 0.3], "o" * 70: [0.1, 0.2]}}, 60)
    assert max(map(len, text.splitlines())) <= 60
