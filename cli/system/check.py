"""`kinstream check`: settings, packages, brokers, topics, rights, stores, clocks, generations and services."""

from __future__ import annotations

import json
from pathlib import Path

import click

from kinstream.cli.shared.context import settings_of


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
@click.pass_context
def check(ctx: click.Context, as_json: bool) -> None:
    """Check everything that the settings need, before or while it runs.

    Each line is ok, or says how to fix it. The command changes nothing: it writes one file to the checkpoint store
    and deletes it. It ends with status 1 if a check fails.

    Example: kinstream --config kinstream.toml check
    """
    from kinstream.cli.system.check_result import Finding
    from kinstream.cli.system.checks import findings
    from kinstream.streams.errors import SettingsError
    from kinstream.streams.operations.checkpoints import agents
    from kinstream.streams.secrets import hide
    from kinstream.streams.settings import DEFAULT_FILE

    found = []

    def show(one: Finding) -> None:
        found.append(one)
        if not as_json:
            click.echo(hide(one.line()))

    try:
        settings = settings_of(ctx)
    except SettingsError as error:
        show(Finding("settings", False, str(error)))
    else:
        file = ctx.find_root().obj["config"] or (DEFAULT_FILE if Path(DEFAULT_FILE).exists() else None)
        names = ", ".join(agent.application for agent in agents(settings))
        show(Finding("settings", True, f"{file or f'no {DEFAULT_FILE} here'}; agents: {names}"))
        for one in findings(settings):
            show(one)
    if as_json:
        click.echo(hide(json.dumps([one.as_json() for one in found], indent=2)))
    if not all(one.good for one in found):
        ctx.exit(1)
