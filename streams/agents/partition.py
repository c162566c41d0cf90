"""One owned input partition: its machine, its checkpoints, and the order of their effects outside.

The order of a checkpoint is the whole delivery guarantee, and `checkpoint` shows it: confirm the outputs, write the
files, write the manifest, then announce it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from kinstream.streams import failpoints
from kinstream.streams.agents.inheritance import inherit
from kinstream.streams.agents.machine import Machine, RecordsMissed
from kinstream.streams.agents.space_facts import SpaceFacts, last_announced
from kinstream.streams.agents.traces import PartitionTraces
from kinstream.streams.checkpoints.files import Missing
from kinstream.streams.checkpoints.state_bytes import State
from kinstream.streams.checkpoints.store import LONG_BYTES, CheckpointStore, DataFile, LastRecord, Manifest
from kinstream.streams.compute.memory import (
    LARGE,
    Pressure,
    memory_left,
    memory_limit,
    memory_scarce,
    written,
)
from kinstream.streams.errors import (
    CheckpointError,
    GenerationMismatch,
    LogGap,
    MemoryShort,
    OutsideUnavailable,
    PartitionTaken,
)
from kinstream.streams.kafka.emitter import Sink
from kinstream.streams.records.message import Message, Output
from kinstream.streams.traces.context import context_of
from kinstream.streams.traces.spans import Spans

log = logging.getLogger("kinstream.worker")


class Announce(Protocol):
    """Returns the records to publish about the spaces of a new checkpoint: the learner's model versions."""

    def __call__(self, manifest: Manifest, spaces: Iterable[str], machine: Machine) -> Sequence[Output]: ...

    def withholds(self, label: str) -> bool:
        """Whether the newest model of a space with that label is not announced."""


class _Nothing:
    def __call__(self, manifest: Manifest, spaces: Iterable[str], machine: Machine) -> Sequence[Output]:
        return ()

    def withholds(self, label: str) -> bool:
        return False


#: For agents that publish no models.
announce_nothing: Final[Announce] = _Nothing()


class PartitionRunner:
    """Applies messages to a machine, sends the outputs, and writes checkpoints.

    Its methods run on one thread at a time.

    Parameters
    ----------
    machine : state of the partition.
    store : its checkpoints.
    sink : the receiver of outputs.
    deadline_seconds : for confirming outputs before a checkpoint.
    inherited : checkpoints of the generation that this one continues.
    begun : the generation began with a checkpoint, so a partition without one is an error.
    max_resident_bytes : above this size, or half of the memory of this process, spaces unchanged since the last
        checkpoint are dropped from memory and read from their files.
    spans : receives the spans of traced messages; None if this process exports none.
    """

    def __init__(
        self,
        make_machine: Callable[[Callable[[str], State]], Machine],
        store: CheckpointStore,
        sink: Sink,
        *,
        announce: Announce = announce_nothing,
        topic_id: str | None = None,
        inherited: Sequence[CheckpointStore] = (),
        begun: bool = False,
        deadline_seconds: float = 120.0,
        max_resident_bytes: int = 1_500_000_000,
        spans: Spans | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.machine = make_machine(self._load_space)
        self.store = store
        self._sink = sink
        self._announce = announce
        announces = announce is not announce_nothing
        self._traces = PartitionTraces(self.machine.place, spans, announces=announces)
        self._topic_id = topic_id
        self._inherited = inherited
        self._begun = begun
        self._deadline_seconds = deadline_seconds
        self._max_resident_bytes = min(max_resident_bytes, memory_limit() // 2)
        self._pressure = Pressure(clock)
        self._clock = clock
        self._files: dict[str, DataFile] = {}
        self._segments: dict[str, dict[str, DataFile]] = {}
        self.machine.read_segments_with(self._load_segment)
        self.manifest: Manifest | None = None
        #: Of the generation before, while this one has no checkpoint: its manifests, and the URLs of their files.
        self._before: list[tuple[Manifest, str]] = []
        self.checkpointed_offset = -1
        self.checkpointed_at = clock()
        self.checkpoint_bytes = 0
        self.busy_seconds = 0.0
        #: Offset of the message inside the machine right now, for the post-mortem of a crash.
        self.in_flight: int | None = None

    def _load_space(self, name: str) -> State:
        self._check_memory([name])
        if self._size(name) >= LONG_BYTES:
            log.info("%s: reading space %r, %s", self.store.url, name, written(self._size(name)))
        return self._load(self._files[name])

    def _check_memory(self, spaces: Iterable[str]) -> None:
        """Refuse spaces that this process could not load: beside the state, a file lies in memory twice meanwhile.

        Others are left in their files for it. Those that no file holds whole have to be written first; a restart reads
        again what they have learned since.
        """
        wanted = {
            name: self._size(name) + 2 * max(file.size for file in self._files_of(name)) for name in spaces
        }
        name = max(wanted, key=wanted.__getitem__, default="")
        if not name or wanted[name] < LARGE or wanted[name] <= memory_left():
            return
        for other in self.machine.resident():
            self.machine.evict(other)
        left = memory_left()
        if wanted[name] > left:
            place = self.machine.place
            text = (
                f"{place.topic} partition {place.partition}: space {name!r} takes {written(wanted[name])} while its "
                f"checkpoint of {written(self._size(name))} is read, and this process may take {written(left)} more"
            )
            if self.machine.resident():
                raise CheckpointError(
                    f"{text}: other spaces have taken it; a restart leaves them in their files"
                )
            raise MemoryShort(text)

    def _load_segment(self, name: str, segment: str) -> State:
        return self._load(self._segments[name][segment])

    def _load(self, file: DataFile) -> State:
        try:
            return self.store.load_space(file)
        except Missing:
            ours = -1 if self.manifest is None else self.manifest.offset
            newest = max(self.store.offsets(), default=-1)
            if newest <= ours:
                raise
            place = self.machine.place
            raise PartitionTaken(
                f"{place.topic} partition {place.partition}: another worker has written a checkpoint at offset "
                f"{newest}, past ours at {ours}, and has deleted the files that ours names"
            ) from None

    # ---- taking over --------------------------------------------------------------------------------------------

    def restore(self, birth_offset: int, log_start: int, log_end: int) -> list[str]:
        """Load the newest good checkpoint, or begin at the birth offset. Returns notes for the operator.

        Raises
        ------
        LogGap : the log no longer holds the offset that the checkpoint wants.
        GenerationMismatch : the log ends before that offset: it is another log; or a generation that began with
            checkpoints has lost them.
        CheckpointError : checkpoints exist and none can be read.
        MemoryShort : a space needs more memory than this process may take.
        """
        notes: list[str] = []
        self.store.sweep()
        wanted = birth_offset
        restored = self.store.restore()
        if restored is not None:
            notes.extend(restored.notes)
            self.manifest = restored.manifest
            self._take_files(restored.manifest)
            last = restored.manifest.last_record
            mark = None if last is None else (last.offset, last.crc32)
            wanted = restored.manifest.offset
            self.machine.restore(wanted, mark, restored.partition, self._files)
            self._check_memory(self._files)
        elif self._begun:
            raise GenerationMismatch(
                f"{self.store.url}: this generation began with checkpoints, and there is none here: the store is not "
                "shared between workers, or is lost. Bring it back, or begin again: kinstream worker ... "
                "--new-generation --from-start"
            )
        for store in self._inherited if restored is None else ():
            old = inherit(self.machine, store)
            if old is not None:
                notes.append(f"{store.url}: {old.spaces} spaces continue in their epochs")
                notes.extend(old.notes)
                self._before.append((old.manifest, store.url))
        self.machine.next_offset = wanted
        place = self.machine.place
        where = f"{place.topic} partition {place.partition}"
        if log_start > wanted:
            # Retention may have deleted more since the operator's decision; it is the same loss.
            if not any(wanted < gap <= log_start for gap in place.accepted_gaps):
                raise LogGap(
                    f"{where}: {place.name} wants offset {wanted}, and the log now starts at {log_start}: "
                    f"up to {log_start - wanted} records are gone. What they were, the log no longer shows: if "
                    "aborted transactions wrote them all, nothing is lost. To continue without them: kinstream "
                    f"accept-gap {place.name} --partition {place.partition} --offset {log_start}"
                )
            notes.append(
                f"{where}: continuing at {log_start}, {log_start - wanted} records were lost and accepted"
            )
            wanted = log_start
        if log_end < wanted:
            raise GenerationMismatch(
                f"{where}: {place.name} has read up to offset {wanted} and the log ends at {log_end}: this is another "
                f"log. Restore the topic, or begin again: kinstream worker ... --new-generation"
            )
        self.machine.pass_to(wanted)
        self.checkpointed_offset = wanted
        self.checkpointed_at = self._clock()
        for output in self._announcements(self._files):
            self._send(output)
        return notes

    # ---- working ------------------------------------------------------------------------------------------------

    def work(self, messages: Iterable[Message]) -> None:
        """Apply messages in order and send their outputs. If memory becomes scarce, a checkpoint is written meanwhile.

        Raises
        ------
        OutsideUnavailable : the first record that is not applied needs another system, which does not answer.
        RecordsMissed, LogGap, DeliveryError, CheckpointError, and any unexpected error.
        """
        begun = self._clock()
        try:
            for message in messages:
                self.in_flight = message.offset
                outputs = self._step(message)
                self.in_flight = None
                self._send_all(outputs)
                if self._pressure.felt():
                    self.checkpoint()
            self._send_all(self.machine.flush())
        except (RecordsMissed, OutsideUnavailable):
            self.in_flight = None
            self._send_all(self.machine.flush())
            raise
        finally:
            self.busy_seconds += self._clock() - begun

    def _step(self, message: Message) -> list[Output]:
        parent = context_of(message.headers) if message.headers else None
        return (
            self.machine.step(message) if parent is None else self._traces.step(self.machine, message, parent)
        )

    def _send_all(self, outputs: Iterable[Output]) -> None:
        for output in outputs:
            self._send(output)
            failpoints.hit("agent.after-send-before-ack")

    def _send(self, output: Output) -> None:
        self._sink.send(output.topic, output.key, output.value, output.headers, output.partition)

    # ---- checkpoints --------------------------------------------------------------------------------------------

    @property
    def dirty(self) -> bool:
        """Whether something was applied since the last checkpoint."""
        return self.machine.next_offset != self.checkpointed_offset

    def checkpoint(self, position: int = 0, deadline_seconds: float | None = None) -> int:
        """Write a checkpoint and return the offset that it wants next.

        Parameters
        ----------
        position : the client's, if it is past offsets that hold no record.

        Raises
        ------
        DeliveryError : an output was rejected or not confirmed in time; nothing was written.
        CheckpointError : the store refused; nothing is committed past the last good checkpoint.
        """
        machine = self.machine
        machine.pass_to(position)
        self._send_all(machine.flush())
        self._sink.confirm(self._deadline_seconds if deadline_seconds is None else deadline_seconds)
        failpoints.hit("agent.after-flush-before-manifest")
        changed = machine.space_states()
        labels = machine.labels(changed)
        fresh, kept = self._segment_states(changed)
        manifest = self.store.save(
            machine.next_offset,
            changed=changed,
            unchanged={name: file for name, file in self._files.items() if name not in changed},
            partition=machine.partition_state(),
            last_record=None if machine.last_record is None else LastRecord(*machine.last_record),
            topic_id=self._topic_id,
            labels=labels,
            segments=fresh,
            kept_segments=kept,
            announced=self._last_announced(labels),
        )
        self.manifest = manifest
        self._take_files(manifest)
        self.checkpoint_bytes = sum(file.size for file in manifest.files())
        machine.settled()
        self.checkpointed_offset = machine.next_offset
        self.checkpointed_at = self._clock()
        for output in self._announcements(changed):
            self._send(output)
        self.store.prune()
        self._evict()
        return manifest.offset

    def _last_announced(self, labels: Mapping[str, str]) -> dict[str, DataFile | None]:
        """Of each space that is withheld, the file that services use: it stays while it is.

        Parameters
        ----------
        labels : of the spaces that changed.
        """
        before = self._before if self.manifest is None else [(self.manifest, self.store.url)]
        withholds = self._announce.withholds
        found: dict[str, DataFile | None] = {}
        for space, label in ({name: file.label for name, file in self._files.items()} | dict(labels)).items():
            if withholds(label):
                epoch = SpaceFacts.parse(label).epoch
                files = (last_announced(manifest, space, epoch, withholds, url) for manifest, url in before)
                found[space] = next((file for file in files if file is not None), None)
        return found

    def _take_files(self, manifest: Manifest) -> None:
        self._files = dict(manifest.spaces)
        self._segments = {space: dict(parts) for space, parts in manifest.segments.items()}

    def _segment_states(
        self, changed: Iterable[str]
    ) -> tuple[dict[str, dict[str, State]], dict[str, dict[str, DataFile]]]:
        """The segments that no file holds yet, and the files of the others that are still needed."""
        fresh: dict[str, dict[str, State]] = {}
        kept = {space: parts for space, parts in self._segments.items() if space not in changed}
        for space, names in self.machine.segments(changed).items():
            held = self._segments.get(space, {})
            kept[space] = {name: held[name] for name in names if name in held}
            new = {name: self.machine.segment(space, name) for name in names if name not in held}
            if new:
                fresh[space] = new
            if not kept[space]:
                del kept[space]
        return fresh, kept

    def _files_of(self, space: str) -> list[DataFile]:
        return [self._files[space], *self._segments.get(space, {}).values()]

    def _size(self, space: str) -> int:
        return sum(file.size for file in self._files_of(space))

    def _announcements(self, spaces: Iterable[str]) -> Sequence[Output]:
        if self.manifest is None:
            return ()
        return self._traces.announced(self._announce(self.manifest, spaces, self.machine))

    def announce_all(self) -> None:
        """Publish every model again, for late readers."""
        for output in self._announcements(self._files):
            self._send(output)

    def _evict(self) -> None:
        resident = self.machine.resident()
        size = sum(self._size(name) for name in resident)
        scarce = memory_scarce()
        for name in resident:
            if size > self._max_resident_bytes or (scarce and self._size(name) >= LARGE):
                size -= self._size(name)
                self.machine.evict(name)
                scarce = scarce and memory_scarce()
        self._pressure.relieved()
