"""Parked partitions, in which a record ends the worker repeatedly, and the records that an operator skips.

Small files beside the birth record, so that every start and every replay sees them. The worker writes the
fault file; `kinstream skip` writes one file for each skipped record, so the two never write the same one. A worker that
follows others which ended without a word names each record in a third file while it applies it.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final

from kinstream.streams.checkpoints.names import file_name, open_files, seal, unseal
from kinstream.streams.checkpoints.store import CheckpointStore
from kinstream.streams.errors import CheckpointError

log = logging.getLogger("kinstream.worker")

#: Number of faults at one offset, without progress between them, that parks the partition.
FAULTS: Final = 3
#: What a note says: in which record the run is, or from which it began.
_IN: Final = "in"
_BEGAN: Final = "from"


@dataclass(frozen=True, slots=True)
class WorkerFault:
    """The last fault that ended a worker of a partition, and its count in a row."""

    offset: int
    count: int
    reason: str
    time_ms: int


class Parking:
    """The fault and skip files of a generation.

    Every method raises CheckpointError when the store refuses, or a file is damaged.
    """

    def __init__(
        self, root: str, application: str, generation: int, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._root = root
        self._application = application
        self._generation = generation
        self._clock = clock
        self._files = open_files(root, file_name(application), str(generation))

    def record_fault(self, topic: str, partition: int, offset: int, reason: str) -> int:
        """Note that the record at `offset` ended the worker. Returns the count of faults there without progress."""
        before = self.fault(topic, partition)
        count = before.count + 1 if before is not None and before.offset == offset else 1
        fault = WorkerFault(offset, count, reason, int(self._clock() * 1000))
        self._files.write([(_fault_name(topic, partition), seal(asdict(fault)))])
        return count

    def clear_faults(self, topic: str, partition: int) -> None:
        """Note that the partition made progress."""
        self._files.delete([_fault_name(topic, partition)])

    def passed(self, topic: str, partition: int, offset: int) -> bool:
        """Note that a checkpoint wants `offset` next. Returns whether no fault is known at it or past it."""
        self.leave(topic, partition)
        fault = self.fault(topic, partition)
        if fault is not None and fault.offset < offset:
            self.clear_faults(topic, partition)
        return fault is None or fault.offset < offset

    # ---- records in which a process ends without a word --------------------------------------------------------------

    def enter(self, topic: str, partition: int, offset: int) -> None:
        """Note that the record at `offset` is being applied."""
        self._note(topic, partition, _IN, offset)

    def leave(self, topic: str, partition: int) -> None:
        """Note that no record is being applied."""
        self._files.delete([_inside_name(topic, partition)])

    def take_over(self, topic: str, partition: int, covered: int, *, crashed: bool) -> bool:
        """Look for the record in which the run before this one ended, which has not ended by itself.

        A record in which the process is killed three times is skipped from then on: the kernel kills, where there is no
        memory left. One in which it crashes three times parks the partition.

        Parameters
        ----------
        covered : offset of the newest checkpoint.
        crashed : whether it is known that the process has crashed, and was not killed.

        Returns
        -------
        bool : whether to note each record while it is applied: two runs in a row have brought no checkpoint.
        """
        what, offset = self._noted(topic, partition)
        if offset < covered:
            self._note(topic, partition, _BEGAN, covered)
            return crashed
        if what == _IN:
            ended = "crashed" if crashed else "was killed"
            count = self.record_fault(topic, partition, offset, f"the process {ended} in this record")
            self.leave(topic, partition)
            if count >= FAULTS and not crashed:
                self.skip(topic, partition, offset)
                log.error(
                    "%s partition %d offset %d: the process was killed in it %d times: it becomes a dead letter",
                    *(topic, partition, offset, count),
                )
        return True

    def _note(self, topic: str, partition: int, what: str, offset: int) -> None:
        self._files.write([(_inside_name(topic, partition), f"{what} {offset}".encode())])

    def _noted(self, topic: str, partition: int) -> tuple[str, int]:
        try:
            what, offset = self._files.read(_inside_name(topic, partition)).decode().split()
        except FileNotFoundError:
            return _BEGAN, -1
        return what, int(offset)

    def fault(self, topic: str, partition: int) -> WorkerFault | None:
        """The last fault without progress since, if any."""
        name = _fault_name(topic, partition)
        place = f"{self._files.url}/{name}"
        try:
            return WorkerFault(**unseal(self._files.read(name), place))
        except FileNotFoundError:
            return None
        except TypeError as error:
            raise CheckpointError(f"{place}: not a fault file: {error}; delete it") from error

    def parked_offset(self, topic: str, partition: int) -> int | None:
        """The offset at which the partition is parked, or None if it may run."""
        fault = self.fault(topic, partition)
        if fault is None or fault.count < FAULTS or fault.offset in self.skipped(topic, partition):
            return None
        return fault.offset

    def skip(self, topic: str, partition: int, offset: int) -> None:
        """Make every later run skip the record at `offset`.

        Raises
        ------
        CheckpointError : a checkpoint is past that offset, so that the record is part of a state already.
        """
        checkpoints = CheckpointStore(self._root, self._application, self._generation, topic, partition)
        past = [found for found in checkpoints.offsets() if found > offset]
        if past:
            raise CheckpointError(
                f"{self._application}: {topic} partition {partition}, offset {offset} cannot be skipped: the "
                f"checkpoint at offset {past[-1]} already has it in its state"
            )
        skip = {"offset": offset, "time_ms": int(self._clock() * 1000)}
        self._files.create(f"{_stem(topic, partition)}.skip@{offset:020d}.json", seal(skip))
        fault = self.fault(topic, partition)
        if fault is not None and fault.offset == offset:
            self.clear_faults(topic, partition)

    def skipped(self, topic: str, partition: int) -> frozenset[int]:
        """The offsets to skip."""
        pattern = re.compile(re.escape(_stem(topic, partition)) + r"\.skip@(\d{20})\.json")
        return frozenset(int(match[1]) for match in map(pattern.fullmatch, self._files.sizes("")) if match)


def _stem(topic: str, partition: int) -> str:
    return f"{file_name(topic)}-{partition}"


def _inside_name(topic: str, partition: int) -> str:
    return f"{_stem(topic, partition)}.inside"


def _fault_name(topic: str, partition: int) -> str:
    return f"{_stem(topic, partition)}.fault.json"
