"""What a command has done: sentences for people, or JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Protocol

import click

#: The option of commands whose result is one object.
JSON: Final = click.option("--json", "as_json", is_flag=True, help="One JSON object.")


def tell_left_out(columns: Iterable[str], option: str | None = "--field vector=COL,COL") -> None:
    """Say on standard error which columns of a table are no features, and the option that keeps them, if one does."""
    kept = f" {option} keeps it, with the other features." if option else ""
    for column in columns:
        click.echo(f"Column {column!r} only numbers or names rows, and is no feature.{kept}", err=True)


def tell(fields: Mapping[str, Any], lines: Iterable[str], *, as_json: bool) -> None:
    """Print the fields as one JSON object, or the lines."""
    if as_json:
        click.echo(json.dumps(fields, indent=2))
        return
    for line in lines:
        click.echo(line)


class Advance(Protocol):
    """Moves a progress bar."""

    def __call__(self, done: int, all_: int | None = None) -> None:
        """So much is done, of `all_` if it is given."""


@contextmanager
def bar(title: str, total: int | None = None) -> Iterator[Advance]:
    """A progress bar on standard error, so that the result can be piped."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

    columns = (title, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(title, total=total)

        def advance(done: int, all_: int | None = None) -> None:
            shown.update(task, completed=done, total=all_)

        yield advance
