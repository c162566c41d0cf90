"""Questions before what cannot be taken back."""

from __future__ import annotations

import sys

import click

from kinstream.streams.errors import SettingsError


def confirm(question: str, *, yes: bool) -> None:
    """Ask at the terminal, unless `--yes` was given; the command ends where the answer is no.

    Raises
    ------
    SettingsError : there is no terminal to ask at, and no `--yes`.
    """
    if yes:
        return
    if not at_terminal():
        raise SettingsError(f"{question} There is no terminal to ask at: add --yes")
    click.confirm(question, abort=True)


def at_terminal() -> bool:
    """Whether a person can answer."""
    return sys.stdin is not None and sys.stdin.isatty()
