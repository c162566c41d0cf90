"""`kinstream topics create|repartition|acls`: the catalogue of `kinstream.streams.topics` and a cluster."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

import click

from kinstream.cli.shared.context import settings_of
from kinstream.cli.shared.output import JSON, tell
from kinstream.streams.kafka.rights.acls import ROLES


@click.group()
def topics() -> None:
    """Create or repartition the topics, or print the ACLs for a role. Example: kinstream topics create"""


@topics.command()
@JSON
@click.pass_context
def create(ctx: click.Context, as_json: bool) -> None:
    """Create the topics that do not exist yet.

    While no broker answers, it waits for worker.startup_seconds. Example: kinstream --set worker.startup_seconds=10
    topics create
    """
    from kinstream.streams.kafka.cluster import Cluster
    from kinstream.streams.topics import CATALOGUE, replication_warning

    settings = settings_of(ctx)
    cluster = Cluster(settings.kafka)
    hints = iter(["worker.startup_seconds is how long this waits for the brokers; Ctrl-C ends it"])

    def pause(seconds: float) -> None:
        for hint in hints:
            logging.getLogger("kinstream.topics").warning(hint)
        time.sleep(seconds)

    cluster.wait(settings.worker.startup_seconds, pause)
    warning = replication_warning(cluster.view([]).brokers, settings.topics.replication)
    if warning:
        click.echo(f"warning: {warning}", err=True)
    created = cluster.create(CATALOGUE, settings)
    done = {
        name: "created" if name in created else "exists"
        for name in (topic.name(settings.topics.prefix) for topic in CATALOGUE)
    }
    tell(done, (f"{name}  {what}" for name, what in done.items()), as_json=as_json)


@topics.command()
@click.option(
    "--partitions",
    type=click.IntRange(2, 100_000),
    required=True,
    help="New number for events, constraints and outcomes; it must be larger.",
)
@click.option(
    "--leave",
    multiple=True,
    metavar="APPLICATION",
    help="An agent no longer in the settings, such as learner-old; its states are not moved.",
)
@click.option("--dry-run", is_flag=True, help="Check everything and print what would be done.")
@JSON
@click.pass_context
def repartition(
    ctx: click.Context, partitions: int, leave: tuple[str, ...], dry_run: bool, as_json: bool
) -> None:
    """Add partitions to the topics, and move every agent's states and chains to the new partitions of their spaces.

    Offline: stop the producers, let every agent read to the end, stop the workers with SIGTERM. Nothing is written
    unless all checks pass. If a repartition was killed, run the same command again to complete it. Afterwards set
    topics.partitions.

    Example: kinstream topics repartition --partitions 12 --dry-run
    """
    import json

    from kinstream.cli.shared.agents import agent_spec
    from kinstream.cli.views.repartition import as_plain, show
    from kinstream.streams.kafka.cluster import Cluster
    from kinstream.streams.operations.repartition.checks import plan

    settings = settings_of(ctx)
    specs = [agent_spec(settings, "builder", name) for name in settings.builders]
    specs += [agent_spec(settings, "learner", name) for name in settings.learners]
    specs += [agent_spec(settings, "gate", None)] if settings.gate else []
    specs += [agent_spec(settings, "vectors", None)] if settings.vectors else []
    specs += [agent_spec(settings, "sink", name) for name in settings.sinks]
    specs.append(agent_spec(settings, "metrics", None))
    cluster = Cluster(settings.kafka)
    notes: list[str] = []
    try:
        cluster.wait(settings.worker.startup_seconds)
        made = plan(specs, settings, cluster, partitions, leave=leave)
        if not dry_run:
            notes = made.carry_out(cluster)
    finally:
        cluster.close()
    if as_json:
        click.echo(json.dumps(as_plain(made, dry_run, notes), indent=2))
    else:
        show(made, dry_run, notes)


def _one_of(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}"


@topics.command(
    help=f"""Print the commands that allow a principal exactly what its role needs.

    ROLE is {_one_of(ROLES)}; NAME is one {_one_of(name for name, role in ROLES.items() if role.agent)}. Nothing is
    sent: run the printed commands on a machine with kafka-acls.sh.

    Example: kinstream topics acls learner opml --principal User:learner
    """
)
@click.argument("role")
@click.argument("name", required=False)
@click.option(
    "--principal", required=True, metavar="TYPE:NAME", help="Principal to allow, such as User:learner."
)
@click.option(
    "--command-config",
    default="admin.properties",
    show_default=True,
    metavar="FILE",
    help="Login settings for kafka-acls.sh.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print as spec.authorization.acls of Strimzi's KafkaUser."
)
@click.pass_context
def acls(
    ctx: click.Context, role: str, name: str | None, principal: str, command_config: str, as_json: bool
) -> None:
    from kinstream.streams.kafka.rights.access import source_topics
    from kinstream.streams.kafka.rights.acls import check_principal, commands, json_text
    from kinstream.streams.kafka.rights.acls import role as role_named
    from kinstream.streams.secrets import hide

    settings = settings_of(ctx)
    allowed = role_named(role).grants(settings.topics.prefix, name, source_topics(settings, name))
    who = check_principal(principal)
    if as_json:
        click.echo(hide(json_text(allowed)))
        return
    brokers = settings.kafka.bootstrap_servers or "localhost:9092"
    for line in commands(allowed, who, brokers, command_config):
        click.echo(line)
