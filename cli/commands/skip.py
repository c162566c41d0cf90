"""`kinstream skip` and `kinstream accept-gap`: let a worker continue without some records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kinstream.cli.shared.context import settings_of
from kinstream.cli.shared.output import JSON, tell

if TYPE_CHECKING:
    from kinstream.streams.agents.generations.birth import Birth
    from kinstream.streams.operations.checkpoints import Agent
    from kinstream.streams.settings import Settings

_PARTITION = click.option(
    "--partition", required=True, type=click.IntRange(0), help="Partition of the agent's input topic."
)
_OFFSET = click.option(
    "--offset", required=True, type=click.IntRange(0), help="Offset from the worker's message."
)


@click.command()
@click.argument("application")
@_PARTITION
@_OFFSET
@JSON
@click.pass_context
def skip(ctx: click.Context, application: str, partition: int, offset: int, as_json: bool) -> None:
    """Make a consumer skip one record that ends its worker every time.

    APPLICATION is builder-NAME, learner-NAME or metrics.

    Example: kinstream skip learner-opml --partition 2 --offset 4711
    """
    from kinstream.streams.agents.generations.parking import Parking

    settings = settings_of(ctx)
    agent, birth = _decided(settings, application, partition)
    parking = Parking(settings.checkpoints.url, agent.application, birth.generation)
    before = parking.parked_offset(birth.input_topic, partition)
    parking.skip(birth.input_topic, partition, offset)
    where = f"{birth.input_topic} partition {partition} offset {offset}"
    lines = [
        f"{agent.application} generation {birth.generation} will skip {where}.",
        f"At its next start ({agent.command}), and in every replay, that record goes to dead letters with the "
        "reason 'skipped' instead of being applied. Later records are applied as usual. It can be redriven later.",
    ]
    parked = before if before != offset else None
    if parked is not None:
        lines.append(f"The partition stays parked at offset {parked}: that is another record.")
    tell(_decision(agent, birth, partition, offset) | {"parked_at": parked}, lines, as_json=as_json)


@click.command("accept-gap")
@click.argument("name")
@_PARTITION
@_OFFSET
@JSON
@click.pass_context
def accept_gap(ctx: click.Context, name: str, partition: int, offset: int, as_json: bool) -> None:
    """Let a consumer continue at an offset although the log has lost records before it.

    NAME is the agent's name, or its application if two share a name (builder-x, learner-x).

    Example: kinstream accept-gap opml --partition 2 --offset 4711
    """
    from kinstream.cli.shared.agents import agent_spec
    from kinstream.streams.agents.generations.generation import Generation

    settings = settings_of(ctx)
    agent, birth = _decided(settings, name, partition)
    _check_in_log(settings, birth, partition, offset)
    Generation(agent_spec(settings, agent.role, agent.name), settings, birth).accept_gap(partition, offset)
    where = f"{birth.input_topic} partition {partition} offset {offset}"
    tell(
        _decision(agent, birth, partition, offset),
        (
            f"{agent.application} generation {birth.generation} may continue at {where}.",
            f"At its next start ({agent.command}), the records that the log has lost before that offset are skipped "
            "permanently: neither its state nor its outputs will ever contain them.",
        ),
        as_json=as_json,
    )


def _decision(agent: Agent, birth: Birth, partition: int, offset: int) -> dict[str, Any]:
    return {
        "application": agent.application,
        "generation": birth.generation,
        "topic": birth.input_topic,
        "partition": partition,
        "offset": offset,
    }


def _check_in_log(settings: Settings, birth: Birth, partition: int, offset: int) -> None:
    """Refuse an offset that the log has not reached: any loss up to there would be accepted in advance.

    Raises
    ------
    SettingsError : it is beyond the end of the log.
    BrokerUnavailable : the brokers do not answer.
    """
    from kinstream.streams.errors import SettingsError
    from kinstream.streams.kafka.cluster import Cluster

    cluster = Cluster(settings.kafka)
    try:
        end = cluster.bounds(birth.input_topic, partition)[1]
    finally:
        cluster.close()
    if offset > end:
        raise SettingsError(
            f"--offset {offset}: {birth.input_topic} partition {partition} ends at {end}. Give the offset that the "
            "worker's message names"
        )


def _decided(settings: Settings, name: str, partition: int) -> tuple[Agent, Birth]:
    """The agent, and the generation that the decision belongs to.

    Raises
    ------
    SettingsError : no such agent, it never ran, or its input has no such partition.
    """
    from kinstream.streams.errors import SettingsError
    from kinstream.streams.operations.checkpoints import agent_named, birth_of

    agent = agent_named(settings, name)
    birth = birth_of(settings, agent)
    if birth is None:
        raise SettingsError(
            f"{agent.application} has no birth record under {settings.checkpoints.shown}: it has never run, or this "
            "is not the store of its workers"
        )
    if partition >= birth.input_partitions:
        raise SettingsError(
            f"{birth.input_topic} has no partition {partition}: its partitions are 0 to {birth.input_partitions - 1}"
        )
    return agent, birth
