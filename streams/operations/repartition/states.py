"""The last states of an agent, space by space, and the starting state of each partition of a larger input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import numpy as np

from kinstream.streams.agents.generations.generation import Generation
from kinstream.streams.agents.inheritance import inherit
from kinstream.streams.agents.machine import Machine
from kinstream.streams.agents.refusals import Refusals, read_moved
from kinstream.streams.agents.space import on_another_partition
from kinstream.streams.checkpoints.manifest import LastRecord, Manifest
from kinstream.streams.checkpoints.state_bytes import State
from kinstream.streams.checkpoints.store import CheckpointStore, Restored
from kinstream.streams.errors import CheckpointError
from kinstream.streams.topics import partition_of

T = TypeVar("T")
Load = Callable[[], State]


class Lazy(Mapping[str, State]):
    """States that are read on access: a checkpoint holds one in memory at a time."""

    def __init__(self, loads: Mapping[str, Load]) -> None:
        self._loads = loads

    def __getitem__(self, name: str) -> State:
        return self._loads[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._loads)

    def __len__(self) -> int:
        return len(self._loads)


@dataclass(frozen=True, slots=True)
class LastSpace:
    """A space in the last checkpoint of its partition.

    Parameters
    ----------
    label : its label in a manifest.
    size : bytes of its files; 0 if it has none yet.
    """

    partition: int
    label: str
    load: Load
    segments: Mapping[str, Load]
    size: int


@dataclass(frozen=True, slots=True)
class Last:
    """The end of one partition of a generation.

    Parameters
    ----------
    offset : input offset that it would read next.
    """

    offset: int
    last_record: LastRecord | None
    state: State
    spaces: Mapping[str, LastSpace]
    manifest: Manifest | None


def last_of(generation: Generation, partition: int, offset: int) -> Last:
    """The end of a partition, at a given offset.

    Raises
    ------
    CheckpointError : its checkpoint cannot be read, or has another offset.
    """
    store = generation.store(partition)
    restored = store.restore()
    if restored is None:
        return _never_written(generation, partition, offset)
    if restored.manifest.offset != offset:
        raise CheckpointError(
            f"{store.url}: the newest whole checkpoint is at offset {restored.manifest.offset}, not {offset}: "
            f"{'; '.join(restored.notes) or 'its worker has not ended'}"
        )
    return _written(store, restored)


def _written(store: CheckpointStore, restored: Restored) -> Last:
    manifest = restored.manifest
    spaces = {}
    for name, file in manifest.spaces.items():
        parts = manifest.segments.get(name, {})
        spaces[name] = LastSpace(
            manifest.partition,
            file.label,
            partial(store.load_space, file),
            {part: partial(store.load_space, of) for part, of in parts.items()},
            file.size + sum(of.size for of in parts.values()),
        )
    return Last(manifest.offset, manifest.last_record, restored.partition, spaces, manifest)


def _never_written(generation: Generation, partition: int, offset: int) -> Last:
    """A partition without a checkpoint: it is at its beginning, with its inherited state."""
    machine = generation.spec.make_machine(generation.place(partition), lambda name: {})
    for store in generation.inherited(partition):
        inherit(machine, store)
    states = machine.space_states()
    labels = machine.labels(states)
    segments = machine.segments(states)
    spaces = {
        name: LastSpace(
            partition,
            labels[name],
            partial(_given, state),
            {part: partial(machine.segment, name, part) for part in segments.get(name, ())},
            0,
        )
        for name, state in states.items()
    }
    return Last(offset, None, machine.partition_state(), spaces, None)


def _given(state: State) -> State:
    return state


def refused(last: Mapping[int, Last]) -> set[tuple[int, int]]:
    """(partition, offset) of every record with a part that is still held as refused."""
    found = set()
    for p, one in last.items():
        own = Refusals()
        own.restore(np.asarray(one.state["refused_runs"]), np.asarray(one.state["refused_rows"]))
        for origin, refusals in {**read_moved(one.state), p: own}.items():
            found |= {(origin, offset) for offset, _ in refusals.parts()}
    return found


@dataclass(frozen=True, slots=True)
class Beginning:
    """The starting state of a partition of the larger input.

    Parameters
    ----------
    offset : the end of an old partition, 0 of a new one.
    """

    partition: int
    offset: int
    last_record: LastRecord | None
    state: State
    spaces: Mapping[str, LastSpace] = field(repr=False)

    @property
    def refusals(self) -> int:
        """Refused records and rows held in this partition."""
        own = Refusals()
        own.restore(np.asarray(self.state["refused_runs"]), np.asarray(self.state["refused_rows"]))
        return len(own) + sum(len(refusals) for refusals in read_moved(self.state).values())

    def save(self, store: CheckpointStore, topic_id: str | None) -> None:
        """Write it as a checkpoint, unless that exists already.

        Raises
        ------
        CheckpointError : the store refuses, or holds a checkpoint of another offset.
        """
        written = store.restore()
        if written is not None:
            # Written by this repartition before it was killed: no other process writes under a number that is not the
            # newest.
            if written.manifest.offset != self.offset:
                raise CheckpointError(
                    f"{store.url}: holds a checkpoint at offset {written.manifest.offset} already"
                )
            return
        store.save(
            self.offset,
            changed=Lazy({name: partial(self._space, space) for name, space in self.spaces.items()}),
            unchanged={},
            partition=self.state,
            last_record=self.last_record,
            topic_id=topic_id,
            labels={name: space.label for name, space in self.spaces.items()},
            segments={name: Lazy(space.segments) for name, space in self.spaces.items() if space.segments},
        )

    def _space(self, space: LastSpace) -> State:
        state = space.load()
        return state if space.partition == self.partition else on_another_partition(state)


def beginnings(
    last: Mapping[int, Last],
    homes: Mapping[tuple[int, int], int],
    make_machine: Callable[[int], Machine],
    partitions: int,
) -> Iterator[Beginning]:
    """The starting state of each new partition, in order.

    Parameters
    ----------
    last : of every old partition.
    homes : see `Machine.gather`.
    make_machine : a fresh machine of a partition of the larger input.
    """
    spaces: dict[int, dict[str, LastSpace]] = {p: {} for p in range(partitions)}
    for one in last.values():
        for name, space in one.spaces.items():
            spaces[partition_of(name, partitions)][name] = space
    parts = {p: one.state for p, one in last.items()}
    for p in range(partitions):
        machine = make_machine(p)
        machine.gather(parts, homes)
        old = last.get(p)
        yield Beginning(
            p,
            0 if old is None else old.offset,
            None if old is None else old.last_record,
            machine.partition_state(),
            spaces[p],
        )
