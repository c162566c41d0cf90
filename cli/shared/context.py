"""The settings that a command runs with."""

from __future__ import annotations

import json
import re
from typing import Any

import click

from kinstream.streams.configuration.faults import as_text
from kinstream.streams.errors import SettingsError
from kinstream.streams.processes.log_lines import use
from kinstream.streams.settings import Settings, read


def parse_overrides(pairs: tuple[str, ...]) -> dict[str, Any]:
    """`name=value` pairs; a value that parses as JSON is JSON, anything else is text.

    Raises
    ------
    SettingsError : a pair without `=`.
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            # The rest is not shown: it may be a secret.
            raise SettingsError(f"--set {re.split(r'[^A-Za-z0-9_.-]', name)[0]}: write NAME=VALUE")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def settings_of(ctx: click.Context, *, algorithms: bool = True) -> Settings:
    """Read the settings file, the environment and the command line, and check them completely.

    Parameters
    ----------
    algorithms : check the settings of builders, learners and indexes too. A supervisor leaves that to its child, so
        that it does not hold their libraries in memory as long as it runs.

    Raises
    ------
    SettingsError : names every fault.
    """
    root = ctx.find_root().obj
    return checked(root["config"], parse_overrides(root["overrides"]), algorithms=algorithms)


def checked(
    path: str | None, overrides: dict[str, Any] | None = None, *, algorithms: bool = True
) -> Settings:
    """Settings, fully checked in advance. Raises SettingsError, which names every fault."""
    found = read(path, overrides)
    faults = list(found.faults)
    if algorithms and any(
        found.data.get(section) for section in ("builders", "learners", "search", "gateway", "sources")
    ):
        from kinstream.cli.shared.settings_check import algorithm_faults

        deeper = algorithm_faults(found)
        places = {fault.where for fault in deeper}
        faults = [fault for fault in faults if fault.where not in places] + deeper
    if faults or found.settings is None:
        raise SettingsError(as_text(faults))
    use(found.settings.logs.format)
    return found.settings


def global_arguments(ctx: click.Context) -> list[str]:
    """The options before the command, for a process that runs another command with the same settings."""
    found: dict[str, Any] = ctx.find_root().obj
    arguments = ["--log-level", found["log_level"]]
    arguments += ["--config", found["config"]] if found["config"] else []
    for override in found["overrides"]:
        arguments += ["--set", override]
    return arguments
