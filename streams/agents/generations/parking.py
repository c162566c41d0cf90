"""Parked partitions, in which a record ends the worker repeatedly, and the records that an operator skips.

Small files beside the birth record, so that every start and every replay sees them. The worker writes the
fault file; `kinstream skip` writes one file for each skipped record, so the two never write the same one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final

from kinstream.streams.checkpoints.names import file_name, open_files, seal, unseal
from kinstream.streams.checkpoints.store import CheckpointStore
from kinstream.streams.errors import CheckpointError

#: Number of faults at one offset, without progress between them, that parks the partition.
FAULTS: Final = 3


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


def _fault_name(topic: str, partition: int) -> str:
    return f"{_stem(topic, partition)}.fault.json"
