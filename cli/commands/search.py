"""`kinstream search`: the query agent."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import click

from kinstream.cli.shared.context import global_arguments, settings_of


@click.command()
@click.option(
    "--unsupervised", is_flag=True, help="Run in this process, without a supervisor that restarts it."
)
@click.pass_context
def search(ctx: click.Context, unsupervised: bool) -> None:
    """Answer nearest-neighbour queries over HTTP. Example: kinstream --config kinstream.toml search

    It serves the spaces of [search.spaces.NAME], each with the items of kinstream.events and the newest model of its
    learner. It only reads: you can run any number of query agents and stop them at any time.
    """
    from kinstream.search.web.server import require_packages
    from kinstream.streams.processes.supervisor import Supervisor

    settings = settings_of(ctx, algorithms=unsupervised)
    require_packages()
    if unsupervised:
        sys.exit(_serve(settings))
    command = [sys.executable, "-m", "kinstream.cli.main", *global_arguments(ctx), "search", "--unsupervised"]
    sys.exit(Supervisor(command, stop_seconds=settings.worker.shutdown_seconds + 5).run())


def _serve(settings: Any) -> int:
    from kinstream.search.web.server import Server
    from kinstream.streams.errors import BrokerUnavailable, KinstreamError
    from kinstream.streams.processes.supervisor import REFUSED, RESTART
    from kinstream.streams.secrets import hide

    try:
        server = Server(settings)
        server.begin()
    except BrokerUnavailable as error:
        click.echo(hide(f"kinstream: {error}"), err=True)
        return RESTART
    except KinstreamError as error:
        click.echo(hide(f"kinstream: {error}"), err=True)
        return REFUSED
    try:
        status = server.run()
    except Exception:
        logging.getLogger("kinstream.search").exception("the query agent ended")
        status = RESTART
    sys.stderr.flush()
    # Threads of clients and of abandoned searches must not delay the exit.
    os._exit(status)
