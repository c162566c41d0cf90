"""`kinstream up`: every agent of the settings on this machine, until Ctrl-C."""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import click

from cli.context import settings_of
from cli.main import global_arguments


@click.command()
@click.option(
    "--new-generation", is_flag=True, help="Begin a new generation of every agent where the newest ends."
)
@click.option(
    "--from-start", is_flag=True, help="With --new-generation: read the logs again from their start."
)
@click.option("--logs", type=click.Path(file_okay=False, path_type=Path), default=Path(".kinstream/logs"))
@click.pass_context
def up(ctx: click.Context, new_generation: bool, from_start: bool, logs: Path) -> None:
    """Run builders, learners and metrics together. Example: kinstream --config kinstream.toml up

    Without KAFKA_BOOTSTRAP_SERVERS they run on the embedded broker, with a fresh checkpoint folder.
    """
    from cli.local_system import LocalSystem
    from streams.embedded import NOTICE, EmbeddedBroker
    from streams.errors import SettingsError

    settings = settings_of(ctx)
    if not settings.builders:
        raise SettingsError(
            "nothing to run: the settings name no builders; see the README for a kinstream.toml"
        )
    arguments = global_arguments(ctx)
    broker = None
    environment: dict[str, str] = {}
    if not settings.kafka.bootstrap_servers:
        broker = EmbeddedBroker(settings)
        environment["KAFKA_BOOTSTRAP_SERVERS"] = broker.bootstrap_servers
        checkpoints = tempfile.mkdtemp(prefix="kinstream-checkpoints-")
        arguments += ["--set", f"checkpoints.url={checkpoints}"]
        click.echo(
            f"{NOTICE}\nFor other commands while this runs:\n"
            f"  export KAFKA_BOOTSTRAP_SERVERS={broker.bootstrap_servers} KINSTREAM_CHECKPOINTS__URL={checkpoints}",
            err=True,
        )
    stopping = stop_on_signals()
    system = LocalSystem(settings, arguments, environment, logs)
    try:
        generation = ["--new-generation"] if new_generation else []
        system.start_agents(["--create", *generation, *(["--from-start"] if from_start else [])])
        status = _watch(system, stopping)
    finally:
        system.stop(settings.worker.shutdown_seconds + 5)
        if broker is not None:
            broker.close()
    sys.exit(status)


def stop_on_signals() -> threading.Event:
    """An event that SIGINT and SIGTERM set."""
    event = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: event.set())
    return event


def _watch(system: Any, stopping: threading.Event) -> int:
    from cli.local_system import tail

    told: set[str] = set()
    began = time.monotonic()
    while not stopping.wait(0.5):
        failed = system.failed()
        if failed is not None:
            click.echo(
                f"{failed.name} ended with status {failed.popen.returncode}:\n{tail(failed.log)}", err=True
            )
            return 1
        for process in system.agents():
            if process.name not in told and process.name in system.ready():
                told.add(process.name)
                click.echo(
                    f"{process.name}: ready after {time.monotonic() - began:.0f} s, {process.url}/metrics",
                    err=True,
                )
    return 0
