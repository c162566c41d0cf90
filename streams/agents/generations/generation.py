"""A generation of an agent that was opened: its birth record, its checkpoints, and what operators decided about it."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from kinstream.streams.agents.generations.birth import Birth
from kinstream.streams.agents.generations.numbers import recorded
from kinstream.streams.agents.generations.parking import Parking
from kinstream.streams.agents.machine import Machine, Place
from kinstream.streams.agents.partition import PartitionRunner
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.checkpoints.names import file_name, open_files
from kinstream.streams.checkpoints.state_bytes import State
from kinstream.streams.checkpoints.store import CheckpointStore, Manifest
from kinstream.streams.errors import GenerationMismatch, PartitionParked
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.emitter import Sink
from kinstream.streams.kafka.reader import read_range
from kinstream.streams.settings import Settings
from kinstream.streams.traces.spans import Spans


class Generation:
    """An opened generation: its birth record and the files beside it."""

    def __init__(self, spec: AgentSpec, settings: Settings, birth: Birth) -> None:
        self.spec = spec
        self.settings = settings
        self.birth = birth
        self.number = birth.generation
        self.group = spec.group(self.number)
        self.parking = Parking(settings.checkpoints.url, spec.application, self.number)
        self._files = open_files(settings.checkpoints.url, file_name(spec.application), str(self.number))

    def birth_offset(self, partition: int) -> int:
        """The offset at which a partition without a checkpoint begins."""
        return self.birth.start_offsets[partition]

    def store(self, partition: int) -> CheckpointStore:
        """The checkpoints of one partition."""
        return self._store_of(self.number, partition)

    def inherited(self, partition: int) -> list[CheckpointStore]:
        """The last checkpoints of the generation before, from which a fresh machine at the birth offset continues.

        First those of this partition, then those of partitions that it got spaces from.
        """
        if self.birth.inherits is None:
            return []
        old = recorded(self.settings, self.spec, self.birth.inherits)
        moved = old.input_partitions != self.birth.input_partitions
        others = [p for p in range(old.input_partitions) if p != partition] if moved else []
        mine = [partition] if partition < old.input_partitions else []
        return [self._store_of(self.birth.inherits, p) for p in (*mine, *others)]

    def _store_of(self, number: int, partition: int) -> CheckpointStore:
        c = self.settings.checkpoints
        # This cannot be computed again from this log, so a replay begins with it.
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

    def runner(self, partition: int, sink: Sink, spans: Spans | None = None) -> PartitionRunner:
        """A runner for one partition, not yet restored.

        Parameters
        ----------
        spans : see `PartitionRunner`.

        Raises
        ------
        PartitionParked : a record has ended the worker three times.
        """
        parked = self.parking.parked_offset(self.birth.input_topic, partition)
        if parked is not None:
            raise PartitionParked(
                f"{self.birth.input_topic} partition {partition} is parked: the record at offset {parked} has ended "
                f"the worker three times. To continue without it: kinstream skip {self.spec.application} "
                f"--partition {partition} --offset {parked}"
            )
        place = self.place(partition)

        def make(load_space: Callable[[str], State]) -> Machine:
            return self.spec.make_machine(place, load_space)

        store = self.store(partition)
        whole = self.birth.repartition is not None
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
            spans=spans,
        )

    # ---- decisions of an operator -------------------------------------------------------------------------------

    def _stem(self, partition: int) -> str:
        return f"{file_name(self.birth.input_topic)}-{partition}"

    def accept_gap(self, partition: int, offset: int) -> None:
        """Let every later run continue at `offset` although records before it are lost."""
        self._files.create(f"{self._stem(partition)}.gap@{offset:020d}.json", b"{}\n")

    def accepted_gaps(self, partition: int) -> frozenset[int]:
        start = f"{self._stem(partition)}.gap@"
        names = (name for name in self._files.sizes("") if name.startswith(start))
        return frozenset(int(name.removeprefix(start).removesuffix(".json")) for name in names)

    # ---- the end of a generation --------------------------------------------------------------------------------

    def mark_started(self, partition: int) -> int:
        """Record that a run works on a partition, so that its last final mark no longer counts.

        Returns
        -------
        The number of this run, negative and drawn at random.
        """
        run = -1 - secrets.randbits(62)
        self._files.sweep("")
        self._files.write([(self._final(partition), str(run).encode())])
        return run

    def mark_final(self, partition: int, offset: int, run: int) -> None:
        """Record that nothing was emitted past the checkpoint at `offset`, unless another run has begun meanwhile."""
        if self._mark(partition) == run:
            self._files.write([(self._final(partition), str(offset).encode())])

    def final_offset(self, partition: int) -> int | None:
        """The final end of a partition, or None while it may have emitted more than its checkpoint covers."""
        covered = self.covered_offset(partition)
        # Without a mark no run has worked on it yet: its checkpoint is the one that it began with.
        mark = self._mark(partition)
        ended = self.birth_offset(partition) if mark is None else mark
        return ended if ended == covered else None

    def emitted_to(self, partition: int, log_end: int) -> int:
        """The input offset up to which the runs before this one may have emitted.

        Parameters
        ----------
        log_end : the present end of the input. A killed run cannot have applied records that were not in the log.
        """
        final = self.final_offset(partition)
        return log_end if final is None else final

    def covered_offset(self, partition: int) -> int:
        """The offset of the newest checkpoint of a partition, or of its beginning."""
        offsets = self.store(partition).offsets()
        return offsets[-1] if offsets else self.birth_offset(partition)

    def _final(self, partition: int) -> str:
        return f"{self._stem(partition)}.final"

    def _mark(self, partition: int) -> int | None:
        """The recorded end, or the number of the run that has not ended; None without a mark."""
        try:
            return int(self._files.read(self._final(partition)))
        except FileNotFoundError:
            return None

    # ---- is it the same log? ------------------------------------------------------------------------------------

    def verify_last_record(self, manifest: Manifest | None, cluster: Cluster, log_start: int) -> None:
        """Compare the last record read before the checkpoint with the record that the log holds there now.

        Compaction may have removed it. Then the id of the topic decides: one that is re-created has another.

        Raises
        ------
        GenerationMismatch : another record stands at that offset; or none does, and the topic is not known to be the
            same.
        BrokerUnavailable : the brokers do not answer.
        """
        if manifest is None or manifest.last_record is None or manifest.last_record.offset < log_start:
            return
        last, topic, p = manifest.last_record, manifest.topic, manifest.partition
        wanted = {p: (last.offset, last.offset + 1)}
        found = next(iter(read_range(self.settings.kafka, topic, wanted, patience=10.0)), None)
        if found is not None and found.checksum() == last.crc32:
            return
        where = f"{topic} partition {p}: the record at offset {last.offset}"
        again = f"or begin again: {self.spec.command} --new-generation"
        if found is not None:
            raise GenerationMismatch(
                f"{where} is not the one that was read before the checkpoint: this is another log. Restore the topic, "
                f"{again}"
            )
        began, now = self.birth.input_topic_id, cluster.topic_id(topic)
        if began is None or began != now:
            raise GenerationMismatch(
                f"{where} was read before the checkpoint and is gone: it was compacted away, or this is another log. "
                f"The id of the topic would tell, and was {began or 'not given'} and is {now or 'not given'}. Restore "
                f"the topic, {again}"
            )
