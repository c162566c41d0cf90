"""`kinstream topics create|list|check|repartition|acls`: the catalogue of `kinstream.streams.topics` and a cluster."""

from __future__ import annotations

import click

from kinstream.cli.shared.context import settings_of


@click.group()
def topics() -> None:
    """Create, list, check or repartition the topics, or print the ACLs for a role. Example: kinstream topics create"""


@topics.command()
@click.pass_context
def create(ctx: click.Context) -> None:
    """Create the topics that do not exist yet."""
    from kinstream.streams.kafka.cluster import Cluster
    from kinstream.streams.topics import CATALOGUE

    settings = settings_of(ctx)
    cluster = Cluster(settings.kafka)
    cluster.wait(settings.worker.startup_seconds)
    warning = cluster.replication_warning(settings)
    if warning:
        click.echo(f"warning: {warning}", err=True)
    created = cluster.create(CATALOGUE, settings)
    for topic in CATALOGUE:
        name = topic.name(settings.topics.prefix)
        click.echo(f"{name}  {'created' if name in created else 'exists'}")


@topics.command("list")
@click.pass_context
def list_topics(ctx: click.Context) -> None:
    """List the catalogue: the content of each topic, and whether the cluster has it."""
    from kinstream.cli.views.tables import echo_table
    from kinstream.streams.kafka.cluster import Cluster
    from kinstream.streams.topics import CATALOGUE

    settings = settings_of(ctx)
    names = [t.name(settings.topics.prefix) for t in CATALOGUE]
    found = Cluster(settings.kafka).view(names).topics
    rows = []
    for topic, name in zip(CATALOGUE, names, strict=True):
        partitions = str(found[name].partitions) if name in found else "missing"
        kept = "newest per key" if topic.retention_ms is None else _days(topic.retention_ms)
        rows.append((name, partitions, topic.key, kept, topic.holds))
    echo_table(("TOPIC", "PARTITIONS", "KEY", "KEPT", "HOLDS"), rows)


def _days(milliseconds: int) -> str:
    days = milliseconds // 86_400_000
    return f"{days} day" if days == 1 else f"{days} days"


@topics.command()
@click.pass_context
def check(ctx: click.Context) -> None:
    """Compare the cluster's topics with the catalogue; status 1 if they differ."""
    from kinstream.streams.kafka.cluster import Cluster
    from kinstream.streams.kafka.topic_check import differences

    settings = settings_of(ctx)
    found = differences(Cluster(settings.kafka), settings)
    for one in found:
        click.echo(f"{one.text}; {one.mend}")
    if found:
        ctx.exit(1)
    click.echo("the topics match the catalogue")


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
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
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


@topics.command()
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
    """Print the commands that allow a principal exactly what its role needs.

    ROLE is topics, producer, pacing, source, builder, learner, gate, metrics, replay, promotion, models, dead-letters
    or redrive; NAME is one source, builder or learner. Nothing is sent: run the printed commands on a machine with
    kafka-acls.sh.

    Example: kinstream topics acls learner opml --principal User:learner
    """
    from kinstream.streams.kafka.access import source_topics
    from kinstream.streams.kafka.acls import check_principal, commands, json_text
    from kinstream.streams.kafka.acls import role as role_named
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
