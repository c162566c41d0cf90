"""Takes over the last checkpoints of a generation into the next one."""

from __future__ import annotations

from kinstream.streams.agents.machine import Machine
from kinstream.streams.checkpoints.state_bytes import State
from kinstream.streams.checkpoints.store import CheckpointStore
from kinstream.streams.topics import partition_of


def inherit(machine: Machine, store: CheckpointStore) -> list[str]:
    """Give a fresh machine the state that it continues from; returns notes for the operator.

    If the number of partitions has changed, the spaces of a partition come from several stores: call this for each.

    Raises
    ------
    CheckpointError : the checkpoints cannot be read.
    """
    old = store.restore()
    if old is None:
        return []
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
    return [f"{store.url}: {len(spaces)} spaces continue in their epochs", *old.notes]
