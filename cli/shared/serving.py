"""The commands that run a service over HTTP, under a supervisor."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import Any

import click

from kinstream.cli.shared.context import global_arguments, settings_of


def serve(ctx: click.Context, name: str, unsupervised: bool, server_of: Callable[[Any], Any]) -> None:
    """Run a service until it is stopped; does not return.

    Parameters
    ----------
    name : the command.
    server_of : its `kinstream.search.serving.process.Server` from the settings.
    """
    from kinstream.streams.processes.json_lines import describe_process
    from kinstream.streams.processes.supervisor import Supervisor

    settings = settings_of(ctx, algorithms=unsupervised)
    describe_process(application=name)
    if unsupervised:
        sys.exit(_serve(settings, name, server_of))
    command = [sys.executable, "-m", "kinstream.cli.main", *global_arguments(ctx), name, "--unsupervised"]
    sys.exit(Supervisor(command, stop_seconds=settings.worker.shutdown_seconds + 5).run())


def _serve(settings: Any, name: str, server_of: Callable[[Any], Any]) -> int:
    from kinstream.streams.errors import BrokerUnavailable, KinstreamError
    from kinstream.streams.processes.log_lines import report
    from kinstream.streams.processes.supervisor import REFUSED, RESTART

    try:
        server = server_of(settings)
        server.begin()
    except BrokerUnavailable as error:
        report(str(error))
        return RESTART
    except KinstreamError as error:
        report(str(error))
        return REFUSED
    try:
        status: int = server.run()
    except Exception:
        logging.getLogger(f"kinstream.{name}").exception("the service ended")
        status = RESTART
    sys.stderr.flush()
    # Threads of clients and of abandoned searches must not delay the exit.
    os._exit(status)
