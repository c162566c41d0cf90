"""A generation of an agent: opened from its birth record and compared with what the cluster says now.

There is never a silent fresh start. No birth record means that the store is not shared or is lost; a difference
between the record and what is found means that the outputs would no longer be a function of this log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from streams.agent import AgentSpec
from streams.birth import (
    Birth,
    ClusterView,
    Promotion,
    Repartition,
    TopicIdentity,
    compare,
    read_birth,
    settings_digest,
    write_birth,
)
from streams.checkpoint import CheckpointStore, Manifest
from streams.checkpoint_files import file_name, open_files
from streams.cluster import Cluster, TopicView
from streams.emitter import Sink
from streams.errors import CheckpointError, GenerationMismatch, PartitionParked
from streams.files import Files, without_secret
from streams.machine import Machine, Place
from streams.parking import Parking
from streams.partition import PartitionRunner
from streams.reader import read_range
from streams.repartition_record import old_ends
from streams.settings import Settings
from streams.state import State

#: Ends a search among brokers that answer nonsense.
MAX_GENERATIONS: Final = 100_000
#: File beside the generations that holds the number of the newest.
_NEWEST: Final = "newest"


class Generation:
    """An opened generation: its birth record, and what lies beside it."""

    def __init__(self, spec: AgentSpec, settings: Settings, birth: Birth) -> None:
        self.spec = spec
        self.settings = settings
        self.birth = birth
        self.number = birth.generation
        self.group = spec.group(self.number)
        self.parking = Parking(settings.checkpoints.url, spec.application, self.number)
        self._files = open_files(settings.checkpoints.url, file_name(spec.application), str(self.number))

    def birth_offset(self, partition: int) -> int:
        """Where a partition without a checkpoint begins."""
        return self.birth.start_offsets[partition]

    def origin_offset(self, partition: int) -> int:
        """Where the records begin that the state is a function of: the birth offset, unless the state was promoted."""
        promotion = self.birth.promotion
        return self.birth_offset(partition) if promotion is None else promotion.learned_from[partition]

    def store(self, partition: int) -> CheckpointStore:
        """The checkpoints of one partition."""
        return self._store_of(self.number, partition)

    def inherited(self, partition: int) -> list[CheckpointStore]:
        """What a fresh machine at the origin offset goes on from: the last checkpoints of the generation before.

        Of this partition first, then of those it got spaces from.
        """
        promotion = self.birth.promotion
        if self.birth.inherits is None or (promotion is not None and partition not in promotion.inherited):
            return []
        old = _birth(self.settings, self.spec, self.birth.inherits)
        moved = old.input_partitions != self.birth.input_partitions
        others = [p for p in range(old.input_partitions) if p != partition] if moved else []
        mine = [partition] if partition < old.input_partitions else []
        return [self._store_of(self.birth.inherits, p) for p in (*mine, *others)]

    def _store_of(self, number: int, partition: int) -> CheckpointStore:
        c = self.settings.checkpoints
        # What nobody can compute again from this log: a replay begins with it.
        moved = number == self.number and self.birth.repartition is not None
        return CheckpointStore(
            c.url,
            self.spec.application,
            number,
            self.birth.input_topic,
            partition,
            keep=c.keep,
            pinned=self.birth_offset(partition) if moved else None,
        )

    def place(self, partition: int) -> Place:
        """Names, counts and the operator's decisions for one partition."""
        spec, birth = self.spec, self.birth
        output = None if spec.output_role is None else self.settings.topic(spec.output_role)
        return Place(
            name=spec.name,
            generation=self.number,
            topic=birth.input_topic,
            partition=partition,
            input_partitions=birth.input_partitions,
            output_topic=output,
            output_partitions=0 if output is None else birth.output_topics[output].partitions,
            dead_letters=self.settings.topic("dead-letters"),
            skipped=self.parking.skipped(birth.input_topic, partition),
            accepted_gaps=self.accepted_gaps(partition),
        )

    def runner(self, partition: int, sink: Sink) -> PartitionRunner:
        """A runner for one partition, not yet restored.

        Raises
        ------
        PartitionParked : a record has ended the worker three times.
        """
        parked = self.parking.parked_offset(self.birth.input_topic, partition)
        if parked is not None:
            raise PartitionParked(
                f"{self.birth.input_topic} partition {partition} is parked: the record at offset {parked} has ended "
                f"the worker three times. To go on without it: kinstream skip {self.spec.application} "
                f"--partition {partition} --offset {parked}"
            )
        place = self.place(partition)

        def make(load_space: Callable[[str], State]) -> Machine:
            return self.spec.make_machine(place, load_space)

        store = self.store(partition)
        whole = self.birth.begins_with_checkpoints
        # Once there is a checkpoint, the generation before may have been deleted.
        inherited = () if whole or store.offsets() else self.inherited(partition)
        return PartitionRunner(
            make,
            store,
            sink,
            announce=self.spec.announce(store),
            topic_id=self.birth.input_topic_id,
            inherited=inherited,
            begun=whole,
            deadline_seconds=self.settings.worker.delivery_deadline_seconds,
            max_resident_bytes=self.settings.worker.max_resident_bytes,
        )

    # ---- decisions of an operator -------------------------------------------------------------------------------

    def _stem(self, partition: int) -> str:
        return f"{file_name(self.birth.input_topic)}-{partition}"

    def accept_gap(self, partition: int, offset: int) -> None:
        """Have every later run go on at `offset` although records before it are lost."""
        self._files.create(f"{self._stem(partition)}.gap@{offset:020d}.json", b"{}\n")

    def accepted_gaps(self, partition: int) -> frozenset[int]:
        start = f"{self._stem(partition)}.gap@"
        names = (name for name in self._files.sizes("") if name.startswith(start))
        return frozenset(int(name.removeprefix(start).removesuffix(".json")) for name in names)

    # ---- the end of a generation --------------------------------------------------------------------------------

    def mark_final(self, partition: int, offset: int) -> None:
        """Say that nothing was emitted past the checkpoint at `offset`: a stop with everything confirmed."""
        self._files.write([(f"{self._stem(partition)}.final", str(offset).encode())])

    def mark_started(self, partition: int) -> None:
        """Say that a partition is being worked on, so that its last final mark no longer counts."""
        self._files.write([(f"{self._stem(partition)}.final", b"-1")])

    def final_offset(self, partition: int) -> int | None:
        """Where a partition ended for good, or None while it may have emitted more than its checkpoint covers."""
        try:
            said = int(self._files.read(f"{self._stem(partition)}.final"))
        except FileNotFoundError:
            # Nobody has worked on it yet.
            return self.birth_offset(partition)
        offsets = self.store(partition).offsets()
        return said if said == self.birth_offset(partition) or (offsets and offsets[-1] == said) else None

    # ---- is it the same log? ------------------------------------------------------------------------------------

    def verify_last_record(self, manifest: Manifest | None, log_start: int) -> None:
        """Compare the last record read before the checkpoint with what the log holds there now.

        Raises
        ------
        GenerationMismatch : another record stands at that offset.
        """
        if manifest is None or manifest.last_record is None or manifest.last_record.offset < log_start:
            return
        last, topic, p = manifest.last_record, manifest.topic, manifest.partition
        wanted = {p: (last.offset, last.offset + 1)}
        found = next(iter(read_range(self.settings.kafka, topic, wanted, patience=10.0)), None)
        if found is None or found.offset != last.offset or found.checksum() != last.crc32:
            raise GenerationMismatch(
                f"{topic} partition {p}: the record at offset {last.offset} is not the one that was read before "
                f"the checkpoint: this is another log. Restore the topic, or begin anew: {self.spec.command} "
                "--new-generation"
            )


def newest_generation(settings: Settings, application: str) -> int | None:
    """The highest generation that was begun, or None."""
    try:
        return int(_beside(settings, application).read(_NEWEST))
    except FileNotFoundError:
        # A worker that died right after writing the first birth record. A promotion writes its checkpoints after it.
        first = read_birth(settings.checkpoints.url, application, 1)
        return 1 if first is not None and first.promotion is None else None
    except ValueError as error:
        raise CheckpointError(
            f"{settings.checkpoints.url}: {application}/{_NEWEST} holds no number"
        ) from error


def make_newest(settings: Settings, application: str, number: int) -> None:
    """Have every start from now on open that generation.

    Raises
    ------
    CheckpointError : the store refuses.
    """
    _beside(settings, application).write([(_NEWEST, str(number).encode())])


def _beside(settings: Settings, application: str) -> Files:
    return open_files(settings.checkpoints.url, file_name(application))


def open_generation(
    spec: AgentSpec,
    settings: Settings,
    cluster: Cluster,
    *,
    create: bool = False,
    new: bool = False,
    from_start: bool = False,
) -> Generation:
    """Open the newest generation (or the pinned one), or begin one where that was asked for.

    Parameters
    ----------
    create : write a birth record if there is none at all.
    new : begin the generation after the newest, where that one ends.
    from_start : begin it at the log's start; consumers will count again.

    Raises
    ------
    GenerationMismatch : there is no birth record, it differs from what is found, or the old generation still runs.
    BrokerUnavailable : the brokers do not answer.
    """
    _look_for(spec.also_writes, settings, cluster)
    newest = newest_generation(settings, spec.application)
    url = settings.checkpoints.url
    if newest is None:
        lost = generations_that_ran(spec, settings, cluster)
        if lost and not (new and from_start):
            raise GenerationMismatch(
                f"{spec.application} has no birth record under {url}, and its group {spec.group(lost)} has read "
                "this topic before: the checkpoint store is not shared between workers, or is lost. Bring it back, "
                f"or read the log again: {spec.command} --new-generation --from-start (consumers then count again)"
            )
        if not create and not new:
            raise GenerationMismatch(
                f"{spec.application} has no birth record under {url}: the checkpoint store is not shared between "
                f"workers, or is lost. If this is its first start: {spec.command} --create"
            )
        newest = lost + 1
        _begin(spec, settings, cluster, newest, _log_starts(spec, settings, cluster))
    elif (next_one := read_birth(url, spec.application, newest + 1)) and next_one.repartition:
        # The log may have more partitions by now; whoever went on here would be left behind.
        raise unfinished(next_one, url)
    elif new:
        refuse_members(spec, newest, cluster)
        if from_start:
            starts = _log_starts(spec, settings, cluster)
        else:
            starts = _ends(Generation(spec, settings, _birth(settings, spec, newest)), cluster)
        _begin(spec, settings, cluster, newest + 1, starts, inherits=None if from_start else newest)
        newest += 1
    number = newest if new or spec.pinned is None else spec.pinned
    generation = Generation(spec, settings, _birth(settings, spec, number))
    if generation.birth.begins_with_checkpoints and number > newest:
        raise unfinished(generation.birth, url)
    compare(generation.birth, view_of(spec, settings, cluster), spec.command)
    return generation


def _look_for(roles: Iterable[str], settings: Settings, cluster: Cluster) -> None:
    """Refuse where a topic is missing that an agent writes besides its output topic."""
    wanted = [settings.topic(role) for role in roles]
    missing = [name for name in wanted if name not in cluster.view(wanted).topics]
    if missing:
        raise GenerationMismatch(f"topic {', '.join(missing)} does not exist: kinstream topics create")


def unfinished(birth: Birth, url: str) -> GenerationMismatch:
    """The refusal to touch a generation whose promotion or repartition was broken off."""
    folder = f"{file_name(birth.application)}/{birth.generation} under {without_secret(url)}"
    if birth.repartition is not None:
        return GenerationMismatch(
            f"{birth.application}: a repartition to {birth.input_partitions} partitions was begun and did not end. "
            f"Complete it: kinstream topics repartition --partitions {birth.input_partitions}. Or, as long as the "
            f"topics have their old partitions, leave it: delete the folder {folder}, and those of the other agents"
        )
    return GenerationMismatch(
        f"{birth.application}: a promotion to generation {birth.generation} was begun and did not end. Complete it: "
        f"kinstream models promote FOLDER --learner {birth.application.removeprefix('learner-')}, with the same "
        f"folder. Or leave it: delete the folder {folder}"
    )


def _birth(settings: Settings, spec: AgentSpec, number: int) -> Birth:
    birth = read_birth(settings.checkpoints.url, spec.application, number)
    if birth is None:
        raise GenerationMismatch(
            f"{spec.application} has no birth record of generation {number} under {settings.checkpoints.url}. Bring "
            f"the file back from a copy, or read the log again: {spec.command} --new-generation --from-start "
            "(consumers then count again)"
        )
    return birth


def view_of(spec: AgentSpec, settings: Settings, cluster: Cluster) -> ClusterView:
    """What an agent finds now: its settings, and its topics as the cluster has them.

    Raises
    ------
    GenerationMismatch : a topic does not exist.
    BrokerUnavailable : the brokers do not answer.
    """
    wanted = settings.topic(spec.input_role)
    outputs = [] if spec.output_role is None else [settings.topic(spec.output_role)]
    found = cluster.view([wanted, *outputs])
    missing = [name for name in (wanted, *outputs) if name not in found.topics]
    if missing:
        raise GenerationMismatch(f"topic {', '.join(missing)} does not exist: kinstream topics create")
    return ClusterView(
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
        # Another start was first, or one that died before the next line. A promotion must be completed by itself.
        found = read_birth(url, spec.application, number)
        if found is not None and found.begins_with_checkpoints:
            raise unfinished(found, url)
    make_newest(settings, spec.application, number)


def birth_at(
    spec: AgentSpec,
    view: ClusterView,
    number: int,
    starts: Mapping[int, int],
    inherits: int | None = None,
    promotion: Promotion | None = None,
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
        promotion,
        repartition,
    )


def generations_that_ran(spec: AgentSpec, settings: Settings, cluster: Cluster) -> int:
    """The highest generation whose group has committed offsets: what the brokers know of a store that is lost."""
    view = view_of(spec, settings, cluster)
    for number in range(1, MAX_GENERATIONS):
        if not cluster.committed(spec.group(number), view.input_topic, view.input_partitions):
            return number - 1
    return 0


def _log_starts(spec: AgentSpec, settings: Settings, cluster: Cluster) -> dict[int, int]:
    """Where the log can be read from: what is older than its partitions lies in another order than what follows."""
    view = view_of(spec, settings, cluster)
    topic = TopicView(view.input_topic, view.input_topic_id, view.input_partitions)
    old = old_ends(settings.checkpoints.url, view.cluster_id, topic)
    starts = {p: cluster.bounds(view.input_topic, p)[0] for p in range(view.input_partitions)}
    return {p: max(start, old.get(p, 0)) for p, start in starts.items()}


def _ends(old: Generation, cluster: Cluster) -> dict[int, int]:
    """Where the old generation ends on each partition; a partition that it did not have begins at its start."""
    spec, topic = old.spec, old.birth.input_topic
    again = f"{spec.command} --new-generation --from-start"
    ends = _log_starts(spec, old.settings, cluster)
    for partition in range(min(old.birth.input_partitions, len(ends))):
        final = old.final_offset(partition)
        if final is None:
            raise GenerationMismatch(
                f"{spec.application} generation {old.number} did not end cleanly on partition {partition}: "
                "it may have emitted more than its last checkpoint covers. Start it once more and stop it with "
                f"SIGTERM, or begin at the log's start: {again}"
            )
        end = cluster.bounds(topic, partition)[1]
        if final > end:
            raise GenerationMismatch(
                f"{spec.application} generation {old.number} has read {topic} partition {partition} up to offset "
                f"{final}, and the log now ends at {end}: this is another log. Restore the topic, or begin at the "
                f"log's start: {again}"
            )
        ends[partition] = final
    return ends


def refuse_members(spec: AgentSpec, number: int, cluster: Cluster) -> None:
    """Refuse while workers of a generation run.

    Raises
    ------
    GenerationMismatch : its group has members.
    """
    members = cluster.group_members(spec.group(number))
    if members:
        raise GenerationMismatch(
            f"{spec.application} generation {number} still has {members} members; stop its workers first. "
            "A killed one is a member until its session ends"
        )
