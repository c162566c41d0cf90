"""The conditions before partitions are added; each failure is one line that names the obstacle."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from kinstream.streams import groups
from kinstream.streams.agents.generations.birth import (
    Birth,
    BirthFacts,
    Repartition,
    TopicIdentity,
    cluster_differences,
    read_birth,
    settings_differences,
)
from kinstream.streams.agents.generations.ending import marked_too_early, not_ended, what_to_do
from kinstream.streams.agents.generations.generation import Generation
from kinstream.streams.agents.generations.numbers import newest_generation
from kinstream.streams.agents.generations.open_generation import (
    birth_at,
    generations_that_ran,
    refuse_members,
    view_of,
)
from kinstream.streams.agents.generations.repartition_record import Growth
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.checkpoints.files import without_secret
from kinstream.streams.checkpoints.manifest import Manifest
from kinstream.streams.checkpoints.names import is_local
from kinstream.streams.errors import CheckpointError, GenerationMismatch, SettingsError
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.connection_errors import denied
from kinstream.streams.kafka.reader import ends, read_range
from kinstream.streams.operations.letters import keys_of
from kinstream.streams.operations.repartition.repartition import Move, RepartitionPlan, taken, without_time
from kinstream.streams.operations.repartition.states import Last, beginnings, last_of, refused
from kinstream.streams.records.message import Message
from kinstream.streams.settings import Settings
from kinstream.streams.topics import murmur2, partition_of

#: The topics whose key is the space. Models are read whole, and dead letters are not read in order.
ROLES: Final = ("events", "constraints", "outcomes")
#: Readers before the agents that they read from.
_COMMIT_ORDER: Final = {role: number for number, role in enumerate(reversed(ROLES))}


def plan(
    specs: Sequence[AgentSpec],
    settings: Settings,
    cluster: Cluster,
    partitions: int,
    *,
    leave: Iterable[str] = (),
) -> RepartitionPlan:
    """Check everything that a repartition needs. Nothing is written.

    Parameters
    ----------
    specs : every agent of the settings.
    partitions : wanted number of partitions of each topic.
    leave : applications that are not in the settings and whose states are not moved.

    Raises
    ------
    SettingsError : not a larger number, or an agent that is not in the settings.
    GenerationMismatch : an agent runs, has not read everything, has never run, or has other topics or settings.
    CheckpointError : a checkpoint cannot be read, or there is no space for another copy of each.
    AccessDenied : this principal may not add partitions.
    BrokerUnavailable : the brokers do not answer.
    """
    topics = _topics(settings, cluster)
    _refuse_strangers(specs, settings, cluster, set(leave))
    done: list[str] = []
    absent: list[str] = []
    old: list[Generation] = []
    for spec in specs:
        newest = _newest(spec, settings, cluster)
        if newest is None:
            absent.append(spec.application)
        elif _counts(newest.birth) == {partitions}:
            done.append(spec.application)
        else:
            old.append(newest)
    _check_number(partitions, topics, old, done, settings)
    _check_allowed(settings, cluster, [name for name, count in topics.items() if count < partitions])
    for generation in old:
        _check_pin(generation)
        _check_same(generation, settings, cluster)
        _check_counts(generation, topics, partitions)
        for number in (generation.number, generation.number + 1):
            refuse_members(generation.spec, number, cluster)
    notes: list[str] = []
    stands = {g.spec.application: _ends(g, cluster, topics[g.birth.input_topic], notes) for g in old}
    last = {
        generation.spec.application: {
            p: last_of(generation, p, end) for p, end in stands[generation.spec.application].items()
        }
        for generation in old
    }
    _check_room(settings, last)
    held = {g.spec.application: refused(last[g.spec.application]) for g in old}
    letters = _letters(settings, cluster, old, held)
    moves = [
        _move(g, settings, cluster, partitions, stands[g.spec.application], last[g.spec.application], letters)
        for g in sorted(old, key=lambda g: _COMMIT_ORDER[g.spec.input_role])
    ]
    resumed = [_check_begun(settings, move) for move in moves]
    return RepartitionPlan(
        partitions,
        topics,
        tuple(moves),
        tuple(done),
        tuple(absent),
        any(resumed) or bool(moves and done),
        tuple(_growths(cluster, topics, partitions, moves)) if moves else (),
        tuple(dict.fromkeys(notes)),
        len(letters),
        sum(len(some) for some in held.values()),
        settings,
    )


# ---- the topics and the agents --------------------------------------------------------------------------------------


def _topics(settings: Settings, cluster: Cluster) -> dict[str, int]:
    names = [settings.topic(role) for role in ROLES]
    found = cluster.view(names).topics
    if missing := [name for name in names if name not in found]:
        raise GenerationMismatch(f"topic {', '.join(missing)} does not exist: kinstream topics create")
    return {name: found[name].partitions for name in names}


def _refuse_strangers(
    specs: Sequence[AgentSpec], settings: Settings, cluster: Cluster, leave: set[str]
) -> None:
    """Refuse if another agent has read these topics, because its states would not be moved."""
    known = {spec.application for spec in specs} | leave
    names = [settings.topic(role) for role in ROLES]
    counts = {name: view.partitions for name, view in cluster.view(names).topics.items()}
    prefix = settings.topics.prefix
    for group in cluster.groups(groups.start_of(prefix)):
        found = groups.read(prefix, group)
        if found is None or found.application in known:
            continue
        read = [name for name in names if cluster.committed(group, name, counts[name])]
        if read:
            raise SettingsError(
                f"{found.application} has read {read[0]} (group {group}) and is not in these settings: bring its "
                f"section back, or leave its states behind with --leave {found.application}"
            )


def _newest(spec: AgentSpec, settings: Settings, cluster: Cluster) -> Generation | None:
    """The newest generation of an agent; None for a metrics agent that has never run.

    Raises
    ------
    GenerationMismatch : its record is lost, or it has never run and is not the metrics agent.
    """
    url = without_secret(settings.checkpoints.url)
    number = newest_generation(settings, spec.application)
    if number is None:
        if lost := generations_that_ran(spec, settings, cluster):
            raise GenerationMismatch(
                f"{spec.application} has no birth record under {url}, and its group {spec.group(lost)} has read this "
                "topic before: this is not the store of its workers, or it is lost. Bring it back"
            )
        if spec.output_role is None:
            return None
        raise GenerationMismatch(
            f"{spec.application} of the settings has never run, and could not read this part of the log later: let "
            f"it read that first ({spec.command} --create), or take its section out of the settings until then"
        )
    birth = read_birth(settings.checkpoints.url, spec.application, number)
    if birth is None:
        raise GenerationMismatch(
            f"{spec.application} has no birth record of generation {number} under {url}: bring it back from a copy"
        )
    return Generation(spec, settings, birth)


def _counts(birth: Birth) -> set[int]:
    """The numbers of partitions of its topics that matter here."""
    return {birth.input_partitions, *(topic.partitions for topic in birth.output_topics.values())}


def _check_number(
    partitions: int,
    topics: Mapping[str, int],
    old: Sequence[Generation],
    done: Sequence[str],
    settings: Settings,
) -> None:
    most = max([*topics.values(), *(count for g in old for count in _counts(g.birth))])
    if partitions < most:
        raise SettingsError(
            f"--partitions {partitions}: the topics have {most}, and partitions are never removed"
        )
    if not old and not any(_begun_so(settings, application) for application in done):
        raise SettingsError(
            f"--partitions {partitions}: the topics and the agents have that many; it must be larger"
            if done
            else f"--partitions {partitions}: no agent has ever run; nothing has to be moved (kinstream topics create)"
        )


def _check_allowed(settings: Settings, cluster: Cluster, names: Sequence[str]) -> None:
    """Refuse in advance what the brokers would refuse later. Unknown permissions are tried."""
    for resource, allowed in cluster.operations(names, ()).items():
        if allowed is not None and not allowed & {"ALTER", "ALL"}:
            raise denied(settings.kafka, "ALTER", resource)


def _begun_so(settings: Settings, application: str) -> bool:
    number = newest_generation(settings, application)
    birth = None if number is None else read_birth(settings.checkpoints.url, application, number)
    return birth is not None and birth.repartition is not None


def _check_pin(generation: Generation) -> None:
    spec, number = generation.spec, generation.number + 1
    if spec.pinned not in (None, number):
        raise GenerationMismatch(
            f"the settings pin {spec.application} to generation {spec.pinned}, so no worker would open generation "
            f"{number}: leave `generation` out, or set it to {number}"
        )


def _check_same(generation: Generation, settings: Settings, cluster: Cluster) -> None:
    """Refuse another cluster, re-created topics and other settings: only the number of partitions may differ."""
    birth = generation.birth
    view = view_of(generation.spec, settings, cluster)
    outputs = {
        name: TopicIdentity(topic.topic_id, birth.output_topics[name].partitions)
        if name in birth.output_topics
        else topic
        for name, topic in view.output_topics.items()
    }
    same = replace(view, input_partitions=birth.input_partitions, output_topics=outputs)
    for difference in (*cluster_differences(birth, same), *settings_differences(birth, same)):
        raise GenerationMismatch(
            f"{birth.application} generation {birth.generation} does not match its birth record: {difference}. Restore "
            "it: the states continue with the settings and topics that they were made with"
        )


def _check_counts(generation: Generation, topics: Mapping[str, int], partitions: int) -> None:
    birth = generation.birth
    began = {birth.input_topic: birth.input_partitions} | {
        name: topic.partitions for name, topic in birth.output_topics.items()
    }
    for name, count in began.items():
        if topics[name] not in (count, partitions):
            raise GenerationMismatch(
                f"{name} has {topics[name]} partitions, and {birth.application} began with {count}: "
                f"partitions have been added already. Use all of them: --partitions {topics[name]}"
            )


# ---- their positions ------------------------------------------------------------------------------------------------


def _ends(generation: Generation, cluster: Cluster, partitions: int, notes: list[str]) -> dict[int, int]:
    """The end of every partition of a generation, which must be the end of the log.

    Parameters
    ----------
    partitions : that its input has now.
    notes : filled with findings about records that came after partitions were added by hand.

    Raises
    ------
    GenerationMismatch : it has not ended there.
    """
    spec, birth = generation.spec, generation.birth
    topic = birth.input_topic
    # These cannot be read under the old number any more. Producers that know the new number wrote theirs correctly.
    added = spec.input_role == ROLES[0] and partitions > birth.input_partitions
    found = {}
    for p in range(birth.input_partitions):
        found[p] = _end(generation, cluster, p)
        unread = _unread(generation, p, found[p], cluster.bounds(topic, p)[1])
        first = next(unread, None)
        if first is None:
            continue
        if not added:
            raise GenerationMismatch(
                f"{spec.application}: {topic} partition {p} was read up to offset {found[p]}, and there is a record at "
                f"{first.offset}: stop the producers, let every agent read to the end, then stop the workers"
            )
        for text in marked_too_early(generation, cluster, {p: found[p]}).values():
            raise GenerationMismatch(f"{text}. {what_to_do(generation)}")
        keys = [message.key or b"" for message in (first, *unread)]
        wrong = sum(_home(key, partitions) != p for key in keys)
        notes.append(
            f"{topic} partition {p}: {len(keys)} records came after the partitions were added; {wrong} of them are on "
            "a partition where their key no longer belongs and will be dead letters (wrong-key)"
        )
    return found


def _end(generation: Generation, cluster: Cluster, partition: int) -> int:
    spec, topic = generation.spec, generation.birth.input_topic
    where = f"{spec.application}: {topic} partition {partition}"
    parked = generation.parking.parked_offset(topic, partition)
    if parked is not None:
        raise GenerationMismatch(
            f"{where} is parked at offset {parked}. Continue without that record (kinstream skip {spec.application} "
            f"--partition {partition} --offset {parked}), let the worker read to the end, and stop it"
        )
    final = generation.final_offset(partition)
    if final is None:
        raise GenerationMismatch(f"{not_ended(generation, cluster, partition)}. {what_to_do(generation)}")
    start, end = cluster.bounds(topic, partition)
    if final > end:
        raise GenerationMismatch(
            f"{where} was read up to offset {final}, and the log ends at {end}: this is another log. Restore the topic"
        )
    if start > final:
        raise GenerationMismatch(
            f"{where} was read up to offset {final}, and the log now starts at {start}: {start - final} records are "
            "gone. Start the worker, accept the gap with the command that it logs, and stop it"
        )
    generation.verify_last_record(_newest_manifest(generation, partition), cluster, start)
    return final


def _newest_manifest(generation: Generation, partition: int) -> Manifest | None:
    restored = generation.store(partition).restore()
    return None if restored is None else restored.manifest


def _unread(generation: Generation, partition: int, start: int, stop: int) -> Iterator[Message]:
    """Records of a range; none if it holds only transaction markers."""
    topic = generation.birth.input_topic
    return iter(read_range(generation.settings.kafka, topic, {partition: (start, stop)}))


def _home(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def _check_room(settings: Settings, last: Mapping[str, Mapping[int, Last]]) -> None:
    """Refuse if the volume has no space for another copy of every space."""
    url = settings.checkpoints.url
    if not is_local(url):
        return
    wanted = sum(s.size for parts in last.values() for one in parts.values() for s in one.spaces.values())
    free = shutil.disk_usage(Path(url).absolute()).free
    if free < wanted:
        raise CheckpointError(
            f"{url}: the states are written once more, {wanted:,} bytes, and {free:,} are free: free some space"
        )


def _letters(
    settings: Settings,
    cluster: Cluster,
    old: Sequence[Generation],
    held: Mapping[str, set[tuple[int, int]]],
) -> dict[tuple[str, str, int, int], str]:
    """The keys of refused records, as far as dead letters still hold them."""
    wanted = {
        (g.spec.name, g.birth.input_topic, p, offset) for g in old for p, offset in held[g.spec.application]
    }
    topic = settings.topic("dead-letters")
    if not wanted:
        return {}
    return keys_of(read_range(settings.kafka, topic, ends(cluster, topic)), wanted)


# ---- what each agent begins with ------------------------------------------------------------------------------------


def _move(
    old: Generation,
    settings: Settings,
    cluster: Cluster,
    partitions: int,
    stands: Mapping[int, int],
    last: Mapping[int, Last],
    letters: Mapping[tuple[str, str, int, int], str],
) -> Move:
    spec = old.spec
    view = _grown(view_of(spec, settings, cluster), partitions)
    starts = {p: stands.get(p, 0) for p in range(partitions)}
    moved = Repartition(old.number, old.birth.input_partitions)
    birth = birth_at(spec, view, old.number + 1, starts, inherits=old.number, repartition=moved)
    generation = Generation(spec, settings, birth)
    homes = {
        (p, offset): partition_of(key, partitions)
        for (consumer, topic, p, offset), key in letters.items()
        if (consumer, topic) == (spec.name, birth.input_topic)
    }
    begun = beginnings(
        last, homes, lambda p: spec.make_machine(generation.place(p), lambda name: {}), partitions
    )
    size = sum(space.size for one in last.values() for space in one.spaces.values())
    return Move(spec, old, birth, dict(stands), tuple(begun), size)


def _growths(
    cluster: Cluster, topics: Mapping[str, int], partitions: int, moves: Sequence[Move]
) -> Iterator[Growth]:
    """The offset of each topic when its partitions are added: that of its readers, or its end without readers."""
    readers = {move.birth.input_topic: move for move in moves}
    view = cluster.view(topics)
    for name, count in topics.items():
        topic_id, cluster_id = view.topics[name].topic_id, view.cluster_id or ""
        if name in readers and readers[name].old.birth.input_partitions < partitions:
            before = readers[name].old.birth.input_partitions
            yield Growth(name, topic_id, cluster_id, before, readers[name].ends)
        elif name not in readers and count < partitions:
            found = {p: cluster.bounds(name, p)[1] for p in range(count)}
            yield Growth(name, topic_id, cluster_id, count, found)


def _grown(view: BirthFacts, partitions: int) -> BirthFacts:
    outputs = {name: TopicIdentity(topic.topic_id, partitions) for name, topic in view.output_topics.items()}
    return replace(view, input_partitions=partitions, output_topics=outputs)


def _check_begun(settings: Settings, move: Move) -> bool:
    """Whether an earlier repartition has taken the number.

    Raises
    ------
    GenerationMismatch : something else has, or it began at another offset.
    """
    url = settings.checkpoints.url
    found = read_birth(url, move.birth.application, move.birth.generation)
    if found is None:
        return False
    if without_time(found) != without_time(move.birth):
        raise taken(found, url)
    return True
