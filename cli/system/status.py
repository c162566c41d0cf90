"""`kinstream status`: what runs, how far behind it is, and how good the models are."""

from __future__ import annotations

import json

import click

from kinstream.cli.shared.context import settings_of
from kinstream.cli.shared.output import JSON


@click.command()
@JSON
@click.pass_context
def status(ctx: click.Context, as_json: bool) -> None:
    """Show every agent with its backlog, every model with its age and rates, who serves, and how many records were
    refused.

    Rates are those of the metrics agent's newest checkpoint. The command ends with status 1 if an agent does not run.

    Example: kinstream status --json
    """
    from kinstream.cli.system.overview import overview
    from kinstream.cli.views.tables import echo_table

    found = overview(settings_of(ctx))
    if as_json:
        click.echo(json.dumps(found.as_json(), indent=2))
    else:
        echo_table(
            ("AGENT", "GENERATION", "MEMBERS", "RECORDS BEHIND", "CHECKPOINT"),
            [
                (
                    one.agent,
                    _of(one.generation),
                    _of(one.members),
                    _of(one.behind),
                    _age(one.checkpoint_seconds),
                )
                for one in found.agents
            ],
        )
        if found.models:
            click.echo()
            echo_table(
                (
                    "SPACE",
                    "LEARNER",
                    "STEP",
                    "WRITTEN",
                    "MISTAKE RATE",
                    "HELD OUT",
                    "BEST UN-LEARNED",
                    "VERDICT",
                ),
                [
                    (
                        one.space,
                        one.learner,
                        one.step,
                        _age(one.age_seconds),
                        _rate(one.mistake_rate),
                        _rate(one.held_out),
                        _rate(one.unlearned),
                        one.verdict or "-",
                    )
                    for one in found.models
                ],
            )
            for one in found.models:
                if one.withheld is not None:
                    click.echo(f"{one.space}: {one.learner} withholds {one.withheld}")
        if found.gates:
            click.echo()
            echo_table(
                ("SPACE", "SERVING", "CHALLENGER", "LISTS"),
                [(one.space, one.serving, one.challenger or "-", one.lists) for one in found.gates],
            )
        if found.refused:
            click.echo(
                f"\n{found.refused} dead letters in the last hour: kinstream dead-letters list --since 1h"
            )
    if not found.complete:
        ctx.exit(1)


def _of(number: int | None) -> str:
    return "-" if number is None else str(number)


def _age(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.0f} s ago"


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
