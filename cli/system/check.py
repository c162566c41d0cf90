"""`kinstream check`: settings, packages, brokers, topics, rights, stores, clocks, generations and services."""

from __future__ import annotations

import json

import click

from kinstream.cli.shared.context import settings_of


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
@click.pass_context
def check(ctx: click.Context, as_json: bool) -> None:
    """Check everything that the settings need, before or while it runs.

    Each line is ok, or names what mends it. The command changes nothing: it writes one file to the checkpoint store
    and deletes it. It ends with status 1 if a check fails.

    Example: kinstream --config kinstream.toml check
    """
    from kinstream.cli.system.checks import findings
    from kinstream.cli.system.finding import Finding
    from kinstream.streams.errors import SettingsError
    from kinstream.streams.secrets import hide

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
        parts = (*settings.sources, *settings.builders, *settings.learners)
        show(Finding("settings", True, f"agents: {', '.join(parts) or 'none but metrics'}"))
        for one in findings(settings):
            show(one)
    if as_json:
        click.echo(hide(json.dumps([one.as_json() for one in found], indent=2)))
    if not all(one.good for one in found):
        ctx.exit(1)
