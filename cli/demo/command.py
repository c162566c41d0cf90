"""`kinstream demo` (`make run`): a demonstration on the embedded broker, with real data from scikit-learn."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from kinstream.cli.demo.descriptions import DEMOS
from kinstream.cli.shared.context import global_arguments


@click.command()
@click.argument("name", type=click.Choice(list(DEMOS)), default="breast-cancer")
@click.option("--keep-running", is_flag=True, help="Keep the agents running at the end, until Ctrl-C.")
@click.option("--rate", default=400.0, show_default=True, help="Rows per second; not of clicks.")
@click.option(
    "--repeat", default=6, show_default=True, help="Passes over the data; not of clicks. [digits: 3]"
)
@click.pass_context
def demo(ctx: click.Context, /, name: str, keep_running: bool, **options: Any) -> None:
    """Learn from data of scikit-learn on the embedded broker and show the result.

    breast-cancer and digits send labelled rows. clicks sends items, result lists and their clicks, but no labels.

    \b
    Examples:
      kinstream demo --keep-running
      kinstream demo clicks
    """
    from kinstream.cli.demo.run import run

    _refuse_settings(ctx)
    given = {n: v for n, v in options.items() if ctx.get_parameter_source(n) is ParameterSource.COMMANDLINE}
    if name == "clicks" and given:
        raise click.UsageError(f"{', '.join(f'--{n}' for n in given)}: not for the demonstration clicks")
    run(DEMOS[name](**given), keep_running=keep_running)


def _refuse_settings(ctx: click.Context) -> None:
    """Refuse options that a demonstration sets itself."""
    given = [word for word in global_arguments(ctx) if word in ("--config", "--set")]
    if given:
        raise click.UsageError(
            f"demo has its own settings and does not accept {', '.join(dict.fromkeys(given))}"
        )
