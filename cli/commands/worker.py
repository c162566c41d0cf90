"""`kinstream worker ROLE [NAME]`: one agent, or all of them, under a small supervisor."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any, Final

import click

from kinstream.cli.shared.agents import agent_spec
from kinstream.cli.shared.context import global_arguments, settings_of, supervised_settings

#: The role of a process that runs every agent.
ALL: Final = "all"
#: What each role runs, and whether it takes a name.
ROLES: Final = {
    "source": ("[sources.NAME]", True),
    "builder": ("[builders.NAME]", True),
    "learner": ("[learners.NAME]", True),
    "gate": ("the gate of the spaces of [gate.SPACE]", False),
    "vectors": ("the agent that embeds the catalogues of [vectors.SPACE]", False),
    "sink": ("[sinks.NAME]", True),
    "metrics": ("the metrics agent", False),
    ALL: ("every agent of the settings, in one process", False),
}


@click.command(
    help="""Run one agent, or all, under a supervisor that restarts them.

    \b
    """
    + "\n    ".join(f"{f'{role} NAME' if named else role:<14}{what}" for role, (what, named) in ROLES.items())
    + """

    Example: kinstream worker learner opml --create"""
)
@click.argument("role", type=click.Choice(list(ROLES)), metavar="ROLE")
@click.argument("name", required=False)
@click.option("--create", is_flag=True, help="Write the birth record if this is the agent's first start.")
@click.option("--new-generation", is_flag=True, help="Begin a new generation where the newest one ends.")
@click.option("--from-start", is_flag=True, help="With --new-generation: read the log again from its start.")
@click.option(
    "--unsupervised", is_flag=True, help="Run in this process, without a supervisor that restarts it."
)
@click.pass_context
def worker(
    ctx: click.Context,
    /,
    role: str,
    name: str | None,
    *,
    create: bool,
    new_generation: bool,
    from_start: bool,
    unsupervised: bool,
) -> None:
    what, named = ROLES[role]
    if named and name is None:
        raise click.UsageError(f"kinstream worker {role} needs a NAME: it runs {what}")
    if name is not None and not named:
        raise click.UsageError(f"kinstream worker {role} takes no name: it runs {what}")
    from kinstream.streams.extras import WORKER, require
    from kinstream.streams.processes.json_lines import describe_process
    from kinstream.streams.processes.supervisor import Supervisor

    describe_process(application="worker" if role == ALL else f"{role}-{name}" if name else role)
    require(*WORKER, who="kinstream worker", extra="worker")
    check_options(new_generation=new_generation, from_start=from_start)
    if unsupervised:
        settings = supervised_settings(ctx)
        sys.exit(_serve(role, name, settings, create=create, new=new_generation, from_start=from_start))
    if new_generation:
        begin_generation(role, name, settings_of(ctx), from_start=from_start)
    command = [sys.executable, "-m", "kinstream.cli.main", *global_arguments(ctx), "worker", role]
    command += [name] if name else []
    command += ["--unsupervised"] + (["--create"] if create else [])
    sys.exit(Supervisor(command).run())


def check_options(*, new_generation: bool, from_start: bool) -> None:
    """Raises SettingsError if the log is to be read again without a new generation."""
    from kinstream.streams.errors import SettingsError

    if from_start and not new_generation:
        raise SettingsError("--from-start goes with --new-generation")


def begin_generation(role: str, name: str | None, settings: Any, *, from_start: bool) -> None:
    """Begin the next generation of the agents of a process. Its supervisor does it, once: a restarted worker must not
    begin another one."""
    from kinstream.streams.agents.generations.open_generation import open_generation
    from kinstream.streams.kafka.cluster import Cluster

    cluster = Cluster(settings.kafka)
    cluster.wait(settings.worker.startup_seconds)
    for one, named in _agents(settings, role, name):
        spec = agent_spec(settings, one, named)
        _check_access(cluster, settings, spec, one, named)
        opened = open_generation(spec, settings, cluster, new=True, from_start=from_start)
        click.echo(f"{opened.spec.application}: generation {opened.number} begins", err=True)
    cluster.close()


def _agents(settings: Any, role: str, name: str | None) -> list[tuple[str, str | None]]:
    """Roles and names of the agents that a process runs."""
    from kinstream.streams.operations.checkpoints import agents

    if role != ALL:
        return [(role, name)]
    return [(one.role, one.name if ROLES[one.role][1] else None) for one in agents(settings)]


def _check_access(cluster: Any, settings: Any, spec: Any, role: str, name: str | None) -> None:
    """Refuse to start if the brokers deny the agent a permission for its newest or its next generation."""
    from kinstream.streams.agents.generations.numbers import newest_generation
    from kinstream.streams.kafka.rights.access import check_role

    newest = newest_generation(settings, spec.application) or 0
    numbers = {spec.pinned or newest or 1, newest + 1}
    groups = [spec.group(number) for number in sorted(numbers)]
    check_role(cluster, settings, role, name, groups, spec.also_writes)


def _serve(role: str, name: str | None, settings: Any, *, create: bool, new: bool, from_start: bool) -> int:
    import asyncio

    from kinstream.streams.agents.generations.open_generation import open_generation
    from kinstream.streams.errors import BrokerUnavailable, KinstreamError
    from kinstream.streams.kafka.cluster import Cluster
    from kinstream.streams.processes.json_lines import describe_process
    from kinstream.streams.processes.listening import bound, handed
    from kinstream.streams.processes.log_lines import report
    from kinstream.streams.processes.supervisor import REFUSED, RESTART, WRONG_SETTINGS
    from kinstream.streams.worker.process import WorkerProcess
    from kinstream.streams.worker.worker import FOR_PEOPLE

    try:
        # This comes first: if the port is taken, compiling kernels would be wasted.
        listener = handed() or bound(settings.worker.http_host, settings.worker.http_port, "worker")
        agents = [(*who, agent_spec(settings, *who)) for who in _agents(settings, role, name)]
        for _, _, spec in agents:
            spec.warm_up()
        cluster = Cluster(settings.kafka)
        cluster.wait(settings.worker.startup_seconds)
        opened = []
        for one, named, spec in agents:
            _check_access(cluster, settings, spec, one, named)
            generation = open_generation(
                spec, settings, cluster, create=create, new=new, from_start=from_start
            )
            opened.append((spec, generation))
        if role != ALL:
            describe_process(generation=generation.number)
        cluster.close()
    except BrokerUnavailable as error:
        report(str(error))
        return RESTART
    except KinstreamError as error:
        report(str(error))
        return WRONG_SETTINGS if error.exit_status == WRONG_SETTINGS else REFUSED

    async def run() -> int:
        return await WorkerProcess(opened, settings, listener).run()

    try:
        status = asyncio.run(run())
    except FOR_PEOPLE as error:
        report(str(error))
        status = REFUSED
    except Exception:
        logging.getLogger("kinstream.worker").exception("the worker ended")
        status = RESTART
    sys.stderr.flush()
    # librdkafka's and faust's threads have no work left, and must not delay the exit.
    os._exit(status)
