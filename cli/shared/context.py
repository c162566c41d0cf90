"""The settings that a command runs with."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from kinstream.streams.errors import SettingsError
from kinstream.streams.processes.log_lines import use

if TYPE_CHECKING:
    from kinstream.streams.configuration.faults import Fault
    from kinstream.streams.settings import Settings


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


def settings_of(ctx: click.Context, *, apart: bool = False) -> Settings:
    """Read the settings file, the environment and the command line, and check them completely.

    Parameters
    ----------
    apart : see `checked`.

    Raises
    ------
    SettingsError : names every fault.
    """
    root = ctx.find_root().obj
    return checked(root["config"], parse_overrides(root["overrides"]), apart=apart)


def supervised_settings(ctx: click.Context) -> Settings:
    """Hold on to a supervisor, read and check the settings, and tell it of them.

    Raises
    ------
    SettingsError : names every fault.
    """
    from kinstream.streams.processes.supervisor import hold_on_to_supervisor, tell_supervisor

    # This comes first: without its supervisor, a process need not wait for brokers that are away.
    hold_on_to_supervisor()
    settings = settings_of(ctx)
    # A little more than the process takes to end itself.
    tell_supervisor(settings.worker.shutdown_seconds + 5, settings.logs.format)
    return settings


def checked(path: str | None, overrides: dict[str, Any] | None = None, *, apart: bool = False) -> Settings:
    """Settings, fully checked in advance. Raises SettingsError, which names every fault.

    Parameters
    ----------
    apart : this process needs no algorithm itself: a child imports them for the check, if one thread runs.
    """
    # A supervisor reads no settings.
    from kinstream.streams.configuration.faults import as_text
    from kinstream.streams.settings import read

    found = read(path, overrides)
    faults = list(found.faults)
    if any(found.data.get(section) for section in ("builders", "learners", "serve", "sources")):

        def faults_of_algorithms() -> list[Fault]:
            from kinstream.cli.shared.settings_check import algorithm_faults

            return algorithm_faults(found)

        deeper = _in_child(faults_of_algorithms) if apart and threading.active_count() == 1 else None
        if deeper is None:
            deeper = faults_of_algorithms()
        places = {fault.where for fault in deeper}
        faults = [fault for fault in faults if fault.where not in places] + deeper
    if faults or found.settings is None:
        raise SettingsError(as_text(faults))
    use(found.settings.logs.format)
    return found.settings


def _in_child(call: Callable[[], list[Fault]]) -> list[Fault] | None:
    """The faults that a call finds in a forked process; None if it fails there."""
    from kinstream.streams.configuration.faults import Fault

    ours, theirs = os.pipe()
    if not (child := os.fork()):
        with suppress(BaseException), os.fdopen(theirs, "w") as answer:
            json.dump([(fault.where, fault.text) for fault in call()], answer)
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as answer:
        found = answer.read()
    os.waitpid(child, 0)
    with suppress(ValueError):
        return [Fault(where, text) for where, text in json.loads(found)]
    return None


def global_arguments(ctx: click.Context) -> list[str]:
    """The options before the command, for a process that runs another command with the same settings."""
    found: dict[str, Any] = ctx.find_root().obj
    arguments = ["--log-level", found["log_level"]]
    arguments += ["--config", found["config"]] if found["config"] else []
    for override in found["overrides"]:
        arguments += ["--set", override]
    return arguments
