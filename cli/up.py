"""`kinstream up`: every agent of the settings on this machine, until Ctrl-C."""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from kinstream.cli.context import settings_of
from kinstream.cli.demos import DEMOS
from kinstream.cli.main import global_arguments

_COMMAND_LINE: Final = ParameterSource.COMMANDLINE


@click.command()
@click.option(
    "--new-generation", is_flag=True, help="Begin a new generation of every agent where the newest ends."
)
@click.option(
    "--from-start", is_flag=True, help="With --new-generation: read the logs again from their start."
)
@click.option("--logs", type=click.Path(file_okay=False, path_type=Path), default=Path(".kinstream/logs"))
@click.option(
    "--demo",
    type=click.Choice(list(DEMOS)),
    help="A demonstration with settings and data of its own: digits (labelled rows) or clicks.",
)
@click.option(
    "--keep-running", is_flag=True, help="With --demo: leave the agents up at the end, until Ctrl-C."
)
@click.pass_context
def up(
    ctx: click.Context,
    new_generation: bool,
    from_start: bool,
    logs: Path,
    demo: str | None,
    keep_running: bool,
) -> None:
    """Run builders, learners and metrics together. Example: kinstream --config kinstream.toml up

    Without KAFKA_BOOTSTRAP_SERVERS they run on the embedded broker, with a fresh checkpoint folder.

    --demo sends scikit-learn's digits through the embedded broker, ends by itself and tells what was learned. With
    clicks, builders see items, result lists and what was clicked in them, and no labels; digits is `kinstream demo`.
    """
    if demo is not None:
        from kinstream.cli.demo_run import run

        _refuse_beside_demo(ctx)
        run(DEMOS[demo](), keep_running=keep_running)
    if keep_running:
        raise click.UsageError("--keep-running belongs to --demo; without it, up runs until Ctrl-C anyway")
    from kinstream.cli.folder_lock import FolderLock
    from kinstream.cli.local_system import LocalSystem
    from kinstream.streams.embedded import NOTICE, EmbeddedBroker
    from kinstream.streams.errors import SettingsError

    settings = settings_of(ctx)
    if not settings.builders:
        raise SettingsError(
            "nothing to run: the settings name no builders; see the README for a kinstream.toml"
        )
    arguments = global_arguments(ctx)
    broker = None
    with FolderLock(logs):
        stopping = stop_on_signals()
        system = LocalSystem(settings, arguments, {}, logs)
        try:
            system.reserve()
            if not settings.kafka.bootstrap_servers:
                broker = EmbeddedBroker(settings)
                checkpoints = tempfile.mkdtemp(prefix="kinstream-checkpoints-")
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
            generation = ["--new-generation"] if new_generation else []
            system.start_agents(["--create", *generation, *(["--from-start"] if from_start else [])])
            status = _watch(system, stopping)
        finally:
            system.stop(settings.worker.shutdown_seconds + 5)
            if broker is not None:
                broker.close()
    sys.exit(status)


def _check_generations(settings: Any, *, from_start: bool) -> None:
    """Refuse before the first agent begins a generation where another one cannot: they would be of two settings."""
    from kinstream.cli.worker import agent_spec
    from kinstream.streams.checkpoint_view import agents
    from kinstream.streams.cluster import Cluster
    from kinstream.streams.errors import GenerationMismatch
    from kinstream.streams.opening import check_next

    cluster = Cluster(settings.kafka)
    told = []
    try:
        cluster.wait(settings.worker.startup_seconds)
        for agent in agents(settings):
            try:
                check_next(
                    agent_spec(settings, agent.role, agent.name), settings, cluster, from_start=from_start
                )
            except GenerationMismatch as error:
                told.append(str(error))
    finally:
        cluster.close()
    if told:
        raise GenerationMismatch("\n".join(["no agent has begun a new generation:", *told]))


def _refuse_beside_demo(ctx: click.Context) -> None:
    """A demonstration brings its own settings and folder."""
    names = ("new_generation", "from_start", "logs")
    given = [f"--{n.replace('_', '-')}" for n in names if ctx.get_parameter_source(n) is _COMMAND_LINE]
    given += [word for word in global_arguments(ctx) if word in ("--config", "--set")]
    if given:
        raise click.UsageError(
            f"--demo brings its own settings and cannot take {', '.join(dict.fromkeys(given))}"
        )


def stop_on_signals() -> threading.Event:
    """An event that SIGINT and SIGTERM set."""
    event = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: event.set())
    return event


def status_of(ended: int | None) -> int:
    """The exit status where an agent has ended: 3 where it refused, for starting it again would not help."""
    from kinstream.streams.supervisor import REFUSED, WRONG_SETTINGS

    return REFUSED if ended in (REFUSED, WRONG_SETTINGS) else 1


def _watch(system: Any, stopping: threading.Event) -> int:
    from kinstream.cli.local_system import tail

    told: set[str] = set()
    began = time.monotonic()
    while not stopping.wait(0.5):
        failed = system.failed()
        if failed is not None:
            click.echo(
                f"{failed.name} ended with status {failed.popen.returncode}:\n{tail(failed.log)}", err=True
            )
            return status_of(failed.popen.returncode)
        ready = system.ready() if len(told) < len(system.agents()) else []
        for process in system.agents():
            if process.name in ready and process.name not in told:
                told.add(process.name)
                click.echo(
                    f"{process.name}: ready after {time.monotonic() - began:.0f} s, {process.url}/metrics",
                    err=True,
                )
    return 0
