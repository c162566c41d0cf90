"""Confirmation of irreversible changes."""

from __future__ import annotations

import sys

import click

from kinstream.streams.errors import SettingsError


def confirm(question: str, *, yes: bool) -> None:
    """Ask at the terminal, unless `--yes` was given; the command ends if the answer is no.

    Raises
    ------
    SettingsError : there is no terminal, and no `--yes`.
    """
    if yes:
        return
    if not at_terminal():
        raise SettingsError(f"{question} Standard input is not a terminal: add --yes")
    click.confirm(question, abort=True)


def at_terminal() -> bool:
    """Whether standard input is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()
