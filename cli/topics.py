"""`kinstream topics create|list|check`: the catalogue of `streams.topics` against a cluster."""

from __future__ import annotations

import click

from cli.context import settings_of


@click.group()
def topics() -> None:
    """Create, list or check the topics. Example: kinstream topics create"""


@topics.command()
@click.pass_context
def create(ctx: click.Context) -> None:
    """Create the topics that do not exist yet."""
    from streams.cluster import Cluster
    from streams.topics import CATALOGUE

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
    """List the catalogue: what each topic holds, and whether the cluster has it."""
    from rich.console import Console
    from rich.table import Table

    from streams.cluster import Cluster
    from streams.topics import CATALOGUE

    settings = settings_of(ctx)
    names = [t.name(settings.topics.prefix) for t in CATALOGUE]
    found = Cluster(settings.kafka).view(names).topics
    table = Table("topic", "partitions", "key", "kept", "holds")
    for topic, name in zip(CATALOGUE, names, strict=True):
        partitions = str(found[name].partitions) if name in found else "missing"
        kept = "newest per key" if topic.retention_ms is None else f"{topic.retention_ms // 86_400_000} days"
        table.add_row(name, partitions, topic.key, kept, topic.holds)
    Console().print(table)


@topics.command()
@click.pass_context
def check(ctx: click.Context) -> None:
    """Compare the cluster's topics with the catalogue; status 1 where they differ."""
    from streams.cluster import Cluster
    from streams.topic_check import differences

    settings = settings_of(ctx)
    found = differences(Cluster(settings.kafka), settings)
    for line in found:
        click.echo(line)
    if found:
        ctx.exit(1)
    click.echo("the topics are as the catalogue says")
