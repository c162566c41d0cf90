"""Begins a generation with a replayed state: its birth record, a checkpoint of every partition, then its number.

The birth record comes first and takes the number, so that a second operator is refused before anything else is written.
No worker opens the generation until the file `newest` names its number, so a killed promotion has begun none; the same
promotion run again continues where that one stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kinstream.streams.agents.generations.birth import Birth, as_content, read_birth, write_birth
from kinstream.streams.agents.generations.generation import Generation
from kinstream.streams.agents.generations.numbers import make_newest
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.checkpoints.files import without_secret
from kinstream.streams.checkpoints.manifest import DataFile, Manifest
from kinstream.streams.checkpoints.state_bytes import State
from kinstream.streams.errors import CheckpointError, GenerationMismatch
from kinstream.streams.settings import Settings


@dataclass(frozen=True, slots=True)
class Start:
    """The starting checkpoint of one partition.

    Parameters
    ----------
    manifest : of the replayed state.
    load : reads a data file that it names.
    added, added_labels : spaces beside those of the manifest, and their labels.
    skipped, accepted_gaps : decisions of operators that the state, or the generation before, has followed.
    """

    manifest: Manifest
    load: Callable[[DataFile], State]
    added: Mapping[str, State]
    added_labels: Mapping[str, str]
    skipped: frozenset[int] = frozenset()
    accepted_gaps: frozenset[int] = frozenset()

    @property
    def partition(self) -> int:
        return self.manifest.partition


class _Spaces(Mapping[str, State]):
    """States that are read on access: a checkpoint holds one in memory at a time."""

    def __init__(self, start: Start) -> None:
        self._start = start

    def __getitem__(self, space: str) -> State:
        added = self._start.added.get(space)
        return self._start.load(self._start.manifest.spaces[space]) if added is None else added

    def __iter__(self) -> Iterator[str]:
        yield from self._start.manifest.spaces
        yield from self._start.added

    def __len__(self) -> int:
        return len(self._start.manifest.spaces) + len(self._start.added)


def unfinished(settings: Settings, spec: AgentSpec, number: int, state: str) -> Birth | None:
    """The birth record that an earlier promotion of the same state left behind when it was killed.

    Parameters
    ----------
    state : digest of the record of the state.

    Raises
    ------
    GenerationMismatch : something else has taken the number.
    CheckpointError : the existing record is damaged.
    """
    found = read_birth(settings.checkpoints.url, spec.application, number)
    if found is not None and (found.promotion is None or found.promotion.state != state):
        raise _taken(settings, spec, found)
    return found


def begin(settings: Settings, spec: AgentSpec, birth: Birth, starts: Sequence[Start]) -> Generation:
    """Write a promoted generation and make it the newest.

    Parameters
    ----------
    birth : with its `promotion`; its start offsets are the offsets of the checkpoints.
    starts : one of every partition of the input.

    Raises
    ------
    GenerationMismatch : the number is taken.
    CheckpointError : the store refuses, or a state cannot be read.
    """
    if sorted((s.partition, s.manifest.offset) for s in starts) != sorted(birth.start_offsets.items()):
        raise ValueError(
            "a promoted generation begins with a checkpoint of every partition, at that checkpoint's offset"
        )
    if not write_birth(settings.checkpoints.url, birth):
        found = read_birth(settings.checkpoints.url, spec.application, birth.generation)
        if found is None or _without_time(found) != _without_time(birth):
            raise _taken(settings, spec, found or birth)
    generation = Generation(spec, settings, birth)
    # Before the checkpoints: records that a state holds can no longer be skipped.
    for start in starts:
        _decide(generation, start)
    for start in starts:
        _save(generation, start)
    make_newest(settings, spec.application, birth.generation)
    return generation


def _save(generation: Generation, start: Start) -> None:
    store = generation.store(start.partition)
    manifest = start.manifest
    written = store.restore()
    if written is not None:
        # Written by this promotion before it was killed: no other process writes under a number that is not the newest.
        if written.manifest.offset != manifest.offset:
            raise CheckpointError(
                f"{store.url}: holds a checkpoint at offset {written.manifest.offset} already"
            )
        return
    labels = {space: file.label for space, file in manifest.spaces.items()}
    store.save(
        manifest.offset,
        changed=_Spaces(start),
        unchanged={},
        partition=start.load(manifest.partition_state),
        last_record=manifest.last_record,
        topic_id=generation.birth.input_topic_id,
        labels={**labels, **start.added_labels},
        segments={
            space: {name: start.load(file) for name, file in parts.items()}
            for space, parts in manifest.segments.items()
        },
    )


def _decide(generation: Generation, start: Start) -> None:
    topic, p = generation.birth.input_topic, start.partition
    for offset in sorted(start.skipped - generation.parking.skipped(topic, p)):
        generation.parking.skip(topic, p, offset)
    for offset in sorted(start.accepted_gaps):
        generation.accept_gap(p, offset)


def _without_time(birth: Birth) -> dict[str, object]:
    return {name: value for name, value in as_content(birth).items() if name != "created_ms"}


def _taken(settings: Settings, spec: AgentSpec, found: Birth) -> GenerationMismatch:
    """The error for a number that is already taken."""
    folder = f"{spec.application}/{found.generation}"
    url = without_secret(settings.checkpoints.url)
    if found.promotion is None:
        what = "it has a birth record, but the newest generation is another: a start was interrupted"
    else:
        what = f"a promotion of another state ({found.promotion.state[:12]}) was begun and did not end"
    return GenerationMismatch(
        f"{spec.application} generation {found.generation} exists: {what}. Nothing was written. Complete it, or delete "
        f"the folder {folder} under {url} if it is not needed"
    )
