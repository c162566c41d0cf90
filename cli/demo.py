"""`kinstream demo` (`make run`): the main job on the embedded broker, with real data that scikit-learn ships."""

from __future__ import annotations

import click


@click.command()
@click.option("--keep-running", is_flag=True, help="Leave the agents up at the end, until Ctrl-C.")
@click.option("--rate", default=400.0, show_default=True, help="Rows a second.")
@click.option("--repeat", default=3, show_default=True, help="Passes over the data.")
def demo(keep_running: bool, rate: float, repeat: int) -> None:
    """Learn handwritten digits on the embedded broker and show what came of it.

    Example: kinstream demo --keep-running
    """
    from kinstream.cli.demo_run import run
    from kinstream.cli.demos import digits

    run(digits(rate, repeat), keep_running=keep_running)
