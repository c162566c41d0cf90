"""A generation that begins after a topic was re-created: the rest of the old one must not be read beside it.

A running agent writes outputs of its old generation into the new topic until it notices the change. A reader that
begins at the start of that topic would take those, and then the same rows again from the new generation. Epochs are
offsets of the events topic, so epochs of another log cannot be compared with those in the outputs of the old one.
"""

from __future__ import annotations

import logging

from kinstream.streams.agents.generations.birth import RECIPE, Birth, BirthFacts, TopicIdentity
from kinstream.streams.agents.generations.generation import Generation
from kinstream.streams.agents.space_facts import SpaceFacts
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.errors import AccessDenied, CheckpointError, GenerationMismatch
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.reader import ends, read_range
from kinstream.streams.records.identity import EMITTER
from kinstream.streams.records.message import Message
from kinstream.streams.settings import Settings

log = logging.getLogger("kinstream.opening")


def refuse_left_behind(
    spec: AgentSpec, settings: Settings, cluster: Cluster, old: Birth, now: BirthFacts, *, from_start: bool
) -> None:
    """Refuse to begin a generation if readers would count rows twice, or ignore all of them.

    Parameters
    ----------
    old : birth record of the generation before.
    now : the present cluster.
    from_start : the new generation reads its input from the start.

    Raises
    ------
    GenerationMismatch : names the topic and what to do.
    BrokerUnavailable : the brokers do not answer.
    """
    other_input = _another(TopicIdentity(old.input_topic_id, 0), TopicIdentity(now.input_topic_id, 0))
    if other_input and not from_start:
        raise GenerationMismatch(
            f"topic {old.input_topic} was re-created since {spec.application} generation {old.generation} began: its "
            f"offsets are not valid in it. Begin at its start ({RECIPE}): {spec.command} --new-generation "
            "--from-start"
        )
    if from_start:
        refuse_old_outputs(spec, settings, cluster, old, now)
    kept = [
        name for name, found in now.output_topics.items() if not _another(old.output_topics.get(name), found)
    ]
    if other_input and kept and (space := _with_epoch(Generation(spec, settings, old))):
        raise GenerationMismatch(
            f"topic {old.input_topic} was re-created, and {kept[0]}, which {spec.application} writes, was not. In it "
            f"space {space!r} has an epoch of the old log, so readers would take new outputs for older ones and "
            f"leave them out. Stop all workers, delete {kept[0]} and everything derived from it, and begin "
            f"everything at the start: the steps are in {RECIPE}"
        )


def refuse_old_outputs(
    spec: AgentSpec, settings: Settings, cluster: Cluster, old: Birth, now: BirthFacts
) -> None:
    """Refuse if an output topic was re-created since the generation before, and already holds outputs of the agent.

    Raises
    ------
    GenerationMismatch : names one, and what to do.
    BrokerUnavailable : the brokers do not answer.
    """
    for name, found in now.output_topics.items():
        if _another(old.output_topics.get(name), found):
            _refuse_outputs_in(name, spec, settings, cluster)


def _refuse_outputs_in(name: str, spec: AgentSpec, settings: Settings, cluster: Cluster) -> None:
    try:
        found = next(
            (m for m in read_range(settings.kafka, name, ends(cluster, name)) if _is_of(spec, m)), None
        )
    except AccessDenied as error:
        log.warning(
            "%s: so %s is not checked for outputs of the old generation of %s. If it was re-created while workers ran, "
            "delete it once more before any begins",
            error,
            name,
            spec.application,
        )
        return
    if found is not None:
        raise GenerationMismatch(
            f"topic {name} was re-created while {spec.application} ran, and holds outputs of its old generation "
            f"(partition {found.partition} offset {found.offset}): readers would count their rows twice. Stop all "
            f"workers, delete {name}, and create it again: kinstream topics create. All steps: {RECIPE}"
        )


def _another(began: TopicIdentity | None, now: TopicIdentity) -> bool:
    return bool(began and began.topic_id and now.topic_id and began.topic_id != now.topic_id)


def _is_of(spec: AgentSpec, message: Message) -> bool:
    return dict(message.headers).get(EMITTER) == spec.name.encode()


def _with_epoch(old: Generation) -> str | None:
    """A space that was created, reset or deleted by a record of the old log; None if there is none."""
    for partition in range(old.birth.input_partitions):
        try:
            restored = old.store(partition).restore()
        except CheckpointError as error:
            log.warning("%s: so the epochs of its spaces are not known", error)
            continue
        for name, file in () if restored is None else restored.manifest.spaces.items():
            if SpaceFacts.parse(file.label).epoch > 0:
                return name
    return None
