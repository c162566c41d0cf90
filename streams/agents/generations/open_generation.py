"""Opens a generation from its birth record, after comparing the record with the cluster, or begins one.

A start is never silently fresh. A missing birth record means that the store is not shared or is lost. A difference
between the record and the cluster means that the outputs would no longer be a function of this log.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from kinstream.streams.agents.generations.birth import (
    Birth,
    BirthFacts,
    Repartition,
    TopicIdentity,
    compare,
    read_birth,
    settings_digest,
    write_birth,
)
from kinstream.streams.agents.generations.ending import final_offsets
from kinstream.streams.agents.generations.generation import Generation
from kinstream.streams.agents.generations.numbers import make_newest, newest_generation, recorded
from kinstream.streams.agents.generations.repartition_record import old_ends
from kinstream.streams.agents.generations.topic_recreation import refuse_left_behind
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.checkpoints.names import file_name
from kinstream.streams.errors import CheckpointError, GenerationMismatch
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.cluster_view import TopicView
from kinstream.streams.secrets import without_secret
from kinstream.streams.settings import Settings

#: Ends a search where brokers give impossible answers.
MAX_GENERATIONS: Final = 100_000


def open_generation(
    spec: AgentSpec,
    settings: Settings,
    cluster: Cluster,
    *,
    create: bool = False,
    new: bool = False,
    from_start: bool = False,
) -> Generation:
    """Open the newest generation (or the pinned one), or begin one if requested.

    Parameters
    ----------
    create : write a birth record if there is none at all.
    new : begin the generation after the newest, at the end of that one.
    from_start : begin it at the log's start; consumers will count again.

    Raises
    ------
    GenerationMismatch : there is no birth record, it differs from what is found, or the old generation still runs.
    BrokerUnavailable : the brokers do not answer.
    """
    _look_for(spec, settings, cluster)
    newest = newest_generation(settings, spec.application)
    url, shown = settings.checkpoints.url, settings.checkpoints.shown
    if newest is None:
        lost = generations_that_ran(spec, settings, cluster)
        if lost and not (new and from_start):
            raise GenerationMismatch(
                f"{spec.application} has no birth record under {shown}, and its group {spec.group(lost)} has read "
                "this topic before: the checkpoint store is not shared between workers, or is lost. Bring it back, "
                f"or read the log again: {spec.command} --new-generation --from-start (consumers then count again)"
            )
        if not create and not new:
            raise GenerationMismatch(
                f"{spec.application} has no birth record under {shown}: the checkpoint store is not shared between "
                f"workers, or is lost. If this is its first start: {spec.command} --create"
            )
        newest = lost + 1
        _begin(spec, settings, cluster, newest, _log_starts(spec, settings, cluster))
    elif (next_one := read_birth(url, spec.application, newest + 1)) and next_one.repartition:
        # The log may have more partitions by now; an agent that continued here would be left behind.
        raise unfinished(next_one, url)
    elif new:
        starts = _next_starts(spec, settings, cluster, newest, from_start=from_start)
        _begin(spec, settings, cluster, newest + 1, starts, inherits=None if from_start else newest)
        newest += 1
    number = newest if new or spec.pinned is None else spec.pinned
    generation = Generation(spec, settings, recorded(settings, spec, number))
    if generation.birth.repartition and number > newest:
        raise unfinished(generation.birth, url)
    compare(generation.birth, view_of(spec, settings, cluster), spec.command)
    return generation


def check_next(spec: AgentSpec, settings: Settings, cluster: Cluster, *, from_start: bool) -> None:
    """Refuse if no generation can follow the newest one now. No generation is begun.

    Raises
    ------
    GenerationMismatch : as `open_generation` with `new`.
    """
    newest = newest_generation(settings, spec.application)
    if newest is None:
        return
    next_one = read_birth(settings.checkpoints.url, spec.application, newest + 1)
    if next_one is not None and next_one.repartition:
        raise unfinished(next_one, settings.checkpoints.url)
    _next_starts(spec, settings, cluster, newest, from_start=from_start)


def _next_starts(
    spec: AgentSpec, settings: Settings, cluster: Cluster, newest: int, *, from_start: bool
) -> dict[int, int]:
    refuse_members(spec, newest, cluster)
    old = _readable(spec, settings, newest)
    if from_start:
        starts = _log_starts(spec, settings, cluster)
    else:
        starts = _ends(Generation(spec, settings, old or recorded(settings, spec, newest)), cluster)
    if old is not None:
        now = view_of(spec, settings, cluster)
        refuse_left_behind(spec, settings, cluster, old, now, from_start=from_start)
    return starts


def _look_for(spec: AgentSpec, settings: Settings, cluster: Cluster) -> None:
    """Refuse if a topic that an agent reads or writes is missing."""
    wanted = spec.topics(settings)
    found = cluster.view(wanted).topics
    _refuse_missing(spec, [name for name in wanted if name not in found])


def look_for_source(spec: AgentSpec, cluster: Cluster) -> None:
    """Refuse if the topic of another system that a source reads is missing.

    Raises
    ------
    GenerationMismatch : names it.
    """
    if spec.reads is not None and spec.reads not in cluster.view([spec.reads]).topics:
        _refuse_missing(spec, [spec.reads])


def _refuse_missing(spec: AgentSpec, missing: list[str]) -> None:
    if spec.reads is not None and spec.reads in missing:
        raise GenerationMismatch(
            f"topic {spec.reads} does not exist: {spec.application} reads it, and the system that writes it has to "
            "create it. If its name is wrong, correct the setting `topic`"
        )
    if missing:
        raise GenerationMismatch(f"topic {', '.join(missing)} does not exist: kinstream topics create")


def _readable(spec: AgentSpec, settings: Settings, number: int) -> Birth | None:
    """The birth record of the generation that ends; None if it is damaged or gone; a new generation resolves that."""
    try:
        return read_birth(settings.checkpoints.url, spec.application, number)
    except CheckpointError:
        return None


def unfinished(birth: Birth, url: str) -> GenerationMismatch:
    """The refusal to use a generation whose repartition was interrupted."""
    folder = f"{file_name(birth.application)}/{birth.generation} under {without_secret(url)}"
    return GenerationMismatch(
        f"{birth.application}: a repartition to {birth.input_partitions} partitions was begun and did not end. "
        f"Complete it: kinstream topics repartition --partitions {birth.input_partitions}. Or, as long as the "
        f"topics have their old partitions, leave it: delete the folder {folder}, and those of the other agents"
    )


def view_of(spec: AgentSpec, settings: Settings, cluster: Cluster) -> BirthFacts:
    """The settings of an agent, and its topics as the cluster has them now.

    Raises
    ------
    GenerationMismatch : a topic does not exist.
    BrokerUnavailable : the brokers do not answer.
    """
    wanted = spec.input_topic(settings)
    outputs = [] if spec.output_role is None else [settings.topic(spec.output_role)]
    found = cluster.view([wanted, *outputs])
    _refuse_missing(spec, [name for name in (wanted, *outputs) if name not in found.topics])
    return BirthFacts(
        settings_digest(spec.shaping),
        spec.shaping,
        found.cluster_id or "",
        wanted,
        found.topics[wanted].topic_id,
        found.topics[wanted].partitions,
        {name: TopicIdentity(found.topics[name].topic_id, found.topics[name].partitions) for name in outputs},
    )


def _begin(
    spec: AgentSpec,
    settings: Settings,
    cluster: Cluster,
    number: int,
    starts: dict[int, int],
    inherits: int | None = None,
) -> None:
    view = view_of(spec, settings, cluster)
    url = settings.checkpoints.url
    if not write_birth(url, birth_at(spec, view, number, starts, inherits)):
        # Another start was first, or a start died before the next line. A repartition must be completed by itself.
        found = read_birth(url, spec.application, number)
        if found is not None and found.repartition:
            raise unfinished(found, url)
    make_newest(settings, spec.application, number)


def birth_at(
    spec: AgentSpec,
    view: BirthFacts,
    number: int,
    starts: Mapping[int, int],
    inherits: int | None = None,
    repartition: Repartition | None = None,
) -> Birth:
    """The birth record of a generation that begins now, at `starts`."""
    return Birth(
        spec.application,
        number,
        view.settings_digest,
        view.settings,
        starts,
        view.cluster_id,
        view.input_topic,
        view.input_topic_id,
        view.input_partitions,
        view.output_topics,
        int(time.time() * 1000),
        inherits,
        repartition,
    )


def generations_that_ran(spec: AgentSpec, settings: Settings, cluster: Cluster) -> int:
    """The highest generation whose group has committed offsets: evidence of it on the brokers if the store is lost."""
    view = view_of(spec, settings, cluster)
    for number in range(1, MAX_GENERATIONS):
        if not cluster.committed(spec.group(number), view.input_topic, view.input_partitions):
            return number - 1
    return 0


def _log_starts(spec: AgentSpec, settings: Settings, cluster: Cluster) -> dict[int, int]:
    """The first readable offsets: records older than a repartition are in another order than later ones."""
    view = view_of(spec, settings, cluster)
    topic = TopicView(view.input_topic, view.input_topic_id, view.input_partitions)
    old = old_ends(settings.checkpoints.url, view.cluster_id, topic)
    starts = {p: cluster.bounds(view.input_topic, p)[0] for p in range(view.input_partitions)}
    return {p: max(start, old.get(p, 0)) for p, start in starts.items()}


def _ends(old: Generation, cluster: Cluster) -> dict[int, int]:
    """The end of the old generation on each partition; a partition that it did not have begins at its start."""
    spec, topic = old.spec, old.birth.input_topic
    again = f"{spec.command} --new-generation --from-start"
    starts = _log_starts(spec, old.settings, cluster)
    partitions = range(min(old.birth.input_partitions, len(starts)))
    for partition in partitions:
        read, end = old.covered_offset(partition), cluster.bounds(topic, partition)[1]
        if read > end:
            raise GenerationMismatch(
                f"{spec.application} generation {old.number} has read {topic} partition {partition} up to offset "
                f"{read}, and the log now ends at {end}: this is another log. Restore the topic, or begin at the "
                f"log's start: {again}"
            )
    return starts | final_offsets(old, cluster, partitions, f"begin at the log's start: {again}")


def refuse_members(spec: AgentSpec, number: int, cluster: Cluster) -> None:
    """Refuse while workers of a generation run.

    Raises
    ------
    GenerationMismatch : its group has members.
    """
    members = cluster.group_members(spec.group(number))
    if members:
        raise GenerationMismatch(
            f"{spec.application} generation {number} still has {members} members; stop its workers first, with SIGTERM "
            "and once their /readyz answers 200. A killed one is a member until its session ends"
        )
