"""`kinstream demo` (`make run`): a demonstration on the embedded broker, with real data from scikit-learn."""

from __future__ import annotations

from typing import Any, Final

import click
from click.core import ParameterSource

from kinstream.cli.demo.descriptions import DEMOS
from kinstream.cli.shared.context import global_arguments

#: The demonstrations with a page of their own.
SEARCH, MEMORY = "search", "memory"
PAGES: Final = (SEARCH, MEMORY)


@click.command()
@click.argument("name", type=click.Choice([*DEMOS, *PAGES]), default="columns")
@click.option("--keep-running", is_flag=True, help="Keep the agents running at the end, until Ctrl-C.")
@click.option(
    "--rate",
    default=800.0,
    show_default=True,
    help="Rows per second; of columns, breast-cancer and digits. [others: 400]",
)
@click.option(
    "--repeat",
    default=3,
    show_default=True,
    help="Passes over the data; of the same. [breast-cancer: 6]",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Of the page of search or memory; by default any.",
)
@click.pass_context
def demo(ctx: click.Context, /, name: str, keep_running: bool, **options: Any) -> None:
    """Learn on the embedded broker from data that ships with Python packages, and show the result.

    columns, breast-cancer and digits send labelled rows. In columns, six of 40 say something of the class, and learning
    beats every scaling; in breast-cancer a z-score has most of the gain; in digits there is little to win. clicks sends
    items, result lists and their clicks, but no labels.
    search embeds the documentation of numpy, scipy and scikit-learn, and learns from clicks on search results and from
    labels; its page in the browser shows both rankings and takes clicks. memory searches the same: an agent asks a
    service over HTTP and says what it cited, and one sees answers move up.

    \b
    Examples:
      kinstream demo --keep-running
      kinstream demo clicks
      kinstream demo search
      kinstream demo memory --keep-running
    """
    from kinstream.cli.demo.run import run

    _refuse_settings(ctx)
    given = {n: v for n, v in options.items() if ctx.get_parameter_source(n) is ParameterSource.COMMANDLINE}
    unknown = set(given) - ({"port"} if name in PAGES else set() if name == "clicks" else {"rate", "repeat"})
    if unknown:
        listed = ", ".join(f"--{n}" for n in given if n in unknown)
        raise click.UsageError(f"{listed}: not for the demonstration {name}")
    if name == SEARCH:
        from kinstream.cli.demo.search.run import run as search

        search(keep_running=keep_running, port=options["port"])
    if name == MEMORY:
        from kinstream.cli.demo.memory.run import run as memory
        from kinstream.streams.extras import SERVE, require

        require(*SERVE, who="kinstream demo memory", extra="demo")
        memory(keep_running=keep_running, port=options["port"])
    run(DEMOS[name](**given), keep_running=keep_running)


def _refuse_settings(ctx: click.Context) -> None:
    """Refuse options that a demonstration sets itself."""
    given = [word for word in global_arguments(ctx) if word in ("--config", "--set")]
    if given:
        raise click.UsageError(
            f"demo has its own settings and does not accept {', '.join(dict.fromkeys(given))}"
        )
