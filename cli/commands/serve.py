"""`kinstream serve`: the service over HTTP."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import click

from kinstream.cli.shared.context import global_arguments, supervised_settings


@click.command()
@click.option(
    "--unsupervised", is_flag=True, help="Run in this process, without a supervisor that restarts it."
)
@click.pass_context
def serve(ctx: click.Context, unsupervised: bool) -> None:
    """Answer nearest-neighbour queries over HTTP. Example: kinstream --config kinstream.toml serve

    It serves the spaces of [serve.spaces.NAME] under the newest model of their learner: from an index of the items of
    kinstream.events, or by mapping queries for your own vector store. It only reads: you can run any number of services
    and stop them at any time.
    """
    from kinstream.streams.extras import SERVE, require
    from kinstream.streams.processes.json_lines import describe_process
    from kinstream.streams.processes.supervisor import Supervisor

    require(*SERVE, who="serve", extra="serve")
    describe_process(application="serve")
    if unsupervised:
        sys.exit(_serve(supervised_settings(ctx)))
    command = [sys.executable, "-m", "kinstream.cli.main", *global_arguments(ctx), "serve", "--unsupervised"]
    sys.exit(Supervisor(command).run())


def _serve(settings: Any) -> int:
    from kinstream.search.service.process import Server
    from kinstream.streams.errors import BrokerUnavailable, KinstreamError
    from kinstream.streams.processes.log_lines import report
    from kinstream.streams.processes.supervisor import REFUSED, RESTART, WRONG_SETTINGS

    try:
        server = Server(settings)
        server.begin()
    except BrokerUnavailable as error:
        report(str(error))
        return RESTART
    except KinstreamError as error:
        report(str(error))
        return WRONG_SETTINGS if error.exit_status == WRONG_SETTINGS else REFUSED
    try:
        status = server.run()
    except Exception:
        logging.getLogger("kinstream.serve").exception("the service ended")
        status = RESTART
    sys.stderr.flush()
    # Threads of clients and of abandoned searches must not delay the exit.
    os._exit(status)
