"""Takes over the last checkpoints of a generation into the next one."""

from __future__ import annotations

from typing import NamedTuple

from kinstream.streams.agents.machine import Machine
from kinstream.streams.checkpoints.state_bytes import State
from kinstream.streams.checkpoints.store import CheckpointStore, Manifest
from kinstream.streams.topics import partition_of


class Inherited(NamedTuple):
    """What a machine has taken over: the checkpoint, how many of its spaces, and notes for the operator."""

    manifest: Manifest
    spaces: int
    notes: tuple[str, ...]


def inherit(machine: Machine, store: CheckpointStore) -> Inherited | None:
    """Give a fresh machine the state that it continues from; None if there is none.

    If the number of partitions has changed, the spaces of a partition come from several stores: call this for each.

    Raises
    ------
    CheckpointError : the checkpoints cannot be read.
    """
    old = store.restore()
    if old is None:
        return None
    place, manifest = machine.place, old.manifest
    here = {
        name: file
        for name, file in manifest.spaces.items()
        if partition_of(name, place.input_partitions) == place.partition
    }

    def segment(space: str, name: str) -> State:
        return store.load_space(manifest.segments[space][name])

    spaces = {name: store.load_space(file) for name, file in here.items()}
    machine.inherit(old.partition if manifest.partition == place.partition else None, spaces, segment)
    return Inherited(manifest, len(spaces), old.notes)
