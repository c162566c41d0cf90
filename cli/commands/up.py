"""`kinstream up`: every agent of the settings on this machine, until Ctrl-C."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import click

from kinstream.cli.shared.context import global_arguments, settings_of

LOGS: Final = Path(".kinstream/logs")
#: Seconds between two looks at the processes, until all are ready and afterwards.
_STARTING_SECONDS: Final = 0.5
_RUNNING_SECONDS: Final = 1.0


@click.command()
@click.option(
    "--new-generation", is_flag=True, help="Begin a new generation of every agent, where its newest one ends."
)
@click.option(
    "--from-start", is_flag=True, help="With --new-generation: read the logs again from their start."
)
@click.pass_context
def up(
    ctx: click.Context,
    new_generation: bool,
    from_start: bool,
) -> None:
    """Run every agent and service of the settings together. Example: kinstream --config kinstream.toml up

    The service runs if the settings name a space of it. Without KAFKA_BOOTSTRAP_SERVERS all of them use
    the embedded broker, with a checkpoint folder that is removed at the end.
    """
    from kinstream.cli.commands.worker import ALL, begin_generation, check_options
    from kinstream.cli.local.folder_lock import FolderLock, temporary_folder
    from kinstream.cli.local.system import LocalSystem, stop_on_signals
    from kinstream.streams.errors import SettingsError
    from kinstream.streams.extras import WORKER, require
    from kinstream.streams.kafka.embedded_broker import NOTICE, EmbeddedBroker

    require(*WORKER, who="kinstream up", extra="worker")
    check_options(new_generation=new_generation, from_start=from_start)
    settings = settings_of(ctx, apart=True)
    if not settings.builders:
        raise SettingsError(
            "nothing to run: the settings name no builders; see the README for a kinstream.toml"
        )
    arguments = global_arguments(ctx)
    broker = None
    with FolderLock(LOGS), ExitStack() as stack:
        stopping = stop_on_signals()
        system = LocalSystem(settings, arguments, {}, LOGS)
        try:
            system.reserve()
            if not settings.kafka.bootstrap_servers:
                broker = EmbeddedBroker(settings)
                # The broker forgets everything when it ends, and these mean nothing without it.
                checkpoints = stack.enter_context(temporary_folder("kinstream-checkpoints-"))
                system.give(
                    {"KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers},
                    ["--set", f"checkpoints.url={checkpoints}"],
                )
                click.echo(
                    f"{NOTICE}\nFor other commands while this runs:\n"
                    f"  export KAFKA_BOOTSTRAP_SERVERS={broker.bootstrap_servers} "
                    f"KINSTREAM_CHECKPOINTS__URL={checkpoints}",
                    err=True,
                )
            elif new_generation:
                _check_generations(settings, from_start=from_start)
                begin_generation(ALL, None, settings, from_start=from_start)
            system.start_agents()
            status = _watch(system, stopping)
        finally:
            system.stop(settings.worker.shutdown_seconds + 5)
            if broker is not None:
                broker.close()
    sys.exit(status)


def _check_generations(settings: Any, *, from_start: bool) -> None:
    """Refuse before any agent begins a generation if another agent cannot: their settings would differ."""
    from kinstream.cli.shared.agents import agent_spec
    from kinstream.streams.agents.generations.open_generation import check_next
    from kinstream.streams.errors import GenerationMismatch
    from kinstream.streams.kafka.cluster import Cluster
    from kinstream.streams.operations.checkpoints import agents

    cluster = Cluster(settings.kafka)
    errors = []
    try:
        cluster.wait(settings.worker.startup_seconds)
        for agent in agents(settings):
            try:
                check_next(
                    agent_spec(settings, agent.role, agent.name), settings, cluster, from_start=from_start
                )
            except GenerationMismatch as error:
                errors.append(str(error))
    finally:
        cluster.close()
    if errors:
        raise GenerationMismatch("\n".join(["no agent has begun a new generation:", *errors]))


def _watch(system: Any, stopping: threading.Event) -> int:
    from kinstream.cli.local.system import answers, status_of, tail

    reported: set[str] = set()
    services = system.services()
    began = time.monotonic()
    wanted = {*services, *(name for process in system.agents() for name in process.agents)}
    while not stopping.wait(_STARTING_SECONDS if wanted - reported else _RUNNING_SECONDS):
        failed = system.failed()
        if failed is not None:
            click.echo(
                f"{failed.name} ended with status {failed.popen.returncode}:\n{tail(failed.log)}", err=True
            )
            return status_of(failed.popen.returncode)
        for name, url in services.items():
            if url and name not in reported and answers(url):
                reported.add(name)
                click.echo(f"{name}: answers at {url}", err=True)
        pages = {name: process.url for process in system.agents() for name in process.agents}
        for name in system.ready() if pages.keys() - reported else ():
            if name not in reported:
                reported.add(name)
                click.echo(
                    f"{name}: ready after {time.monotonic() - began:.0f} s, {pages[name]}/metrics", err=True
                )
    return 0
