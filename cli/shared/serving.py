"""The commands that run a service over HTTP, under a supervisor."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import click

from kinstream.cli.shared.context import global_arguments, supervised_settings


def serve(ctx: click.Context, name: str, unsupervised: bool, module: str) -> None:
    """Run a service until it is stopped; does not return.

    Parameters
    ----------
    name : the command.
    module : where its `Server` is, a `kinstream.search.service.process.Server` from the settings. Only the service
        itself imports it.
    """
    from kinstream.streams.processes.json_lines import describe_process
    from kinstream.streams.processes.supervisor import Supervisor

    describe_process(application=name)
    if unsupervised:
        sys.exit(_serve(supervised_settings(ctx), name, import_module(module).Server))
    command = [sys.executable, "-m", "kinstream.cli.main", *global_arguments(ctx), name, "--unsupervised"]
    sys.exit(Supervisor(command).run())


def _serve(settings: Any, name: str, server_of: Callable[[Any], Any]) -> int:
    from kinstream.streams.errors import BrokerUnavailable, KinstreamError
    from kinstream.streams.processes.log_lines import report
    from kinstream.streams.processes.supervisor import REFUSED, RESTART, WRONG_SETTINGS

    try:
        server = server_of(settings)
        server.begin()
    except BrokerUnavailable as error:
        report(str(error))
        return RESTART
    except KinstreamError as error:
        report(str(error))
        return WRONG_SETTINGS if error.exit_status == WRONG_SETTINGS else REFUSED
    try:
        status: int = server.run()
    except Exception:
        logging.getLogger(f"kinstream.{name}").exception("the service ended")
        status = RESTART
    sys.stderr.flush()
    # Threads of clients and of abandoned searches must not delay the exit.
    os._exit(status)
