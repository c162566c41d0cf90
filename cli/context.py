"""The settings that a command runs with."""

from __future__ import annotations

import json
import re
from typing import Any

import click

from streams.errors import SettingsError
from streams.settings import Settings, load


def parse_overrides(pairs: tuple[str, ...]) -> dict[str, Any]:
    """`name=value` pairs; a value that reads as JSON is taken as such, anything else as text.

    Raises
    ------
    SettingsError : a pair without `=`.
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            # Without the rest: it may be a secret with another sign before it.
            raise SettingsError(f"--set {re.split(r'[^A-Za-z0-9_.-]', name)[0]}: write NAME=VALUE")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def settings_of(ctx: click.Context) -> Settings:
    """Read the settings file, the environment and the command line."""
    root = ctx.find_root().obj
    return load(root["config"], parse_overrides(root["overrides"]))
