"""The spaces of one partition: in memory, or left in their checkpoint files until they are needed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from kinstream.streams.agents.space import (
    Core,
    Judge,
    SegmentedCore,
    Space,
    core_state,
    judge_state,
    restore_space,
)
from kinstream.streams.agents.space_facts import label
from kinstream.streams.errors import MemoryShort
from kinstream.streams.records.state import State


class PartitionSpaces(ABC):
    """The spaces of a machine, in the order of last change.

    Parameters
    ----------
    load_space : returns the state of a space that was left in its checkpoint file.
    """

    def __init__(self, load_space: Callable[[str], State] | None = None) -> None:
        #: Names of the spaces that have changed since the last checkpoint.
        self.changed: set[str] = set()
        self._spaces: dict[str, Space | None] = {}
        self._load_space = load_space
        #: Returns a segment of a space: set by the keeper of the files.
        self._read_segment: Callable[[str, str], State] | None = None

    @abstractmethod
    def make_core(self, name: str, space: Space) -> Core:
        """A fresh algorithm for a space."""

    def make_judge(self, name: str) -> Judge:
        """A fresh judge for a space. Most agents have none."""
        raise RuntimeError(f"space {name!r} has a judge in its checkpoint, and this agent has none")

    def read_segments_with(self, read: Callable[[str, str], State]) -> None:
        """Set the function that reads segments of spaces."""
        self._read_segment = read

    def __len__(self) -> int:
        return len(self._spaces)

    def names(self) -> Iterable[str]:
        return self._spaces.keys()

    def find(self, name: str) -> Space | None:
        """The space, read from its checkpoint file if it was left there; None if there is none.

        Raises
        ------
        MemoryShort : there is no memory for it.
        """
        space = self._spaces.get(name)
        if space is None and name in self._spaces:
            if self._load_space is None:
                raise RuntimeError(f"space {name!r} has no state and no file")
            try:
                space = self._revive(name, self._load_space(name))
            except MemoryError as error:
                raise MemoryShort(
                    f"space {name!r}: its checkpoint does not fit into memory: {error}"
                ) from error
            self._spaces[name] = space
        return space

    def _revive(self, name: str, state: State) -> Space:
        space = restore_space(state)
        core = core_state(state)
        if core is not None:
            space.core = self.make_core(name, space)
            space.core.restore(core)
            if isinstance(space.core, SegmentedCore):
                space.core.restore_segments(lambda segment: self._load_segment(name, segment))
        judged = judge_state(state)
        if judged is not None:
            space.judge = self.make_judge(name)
            space.judge.restore(judged)
        return space

    def _load_segment(self, name: str, segment: str) -> State:
        if self._read_segment is None:
            raise RuntimeError(f"segment {segment!r} of space {name!r} has no file")
        return self._read_segment(name, segment)

    def open(self, name: str) -> Space:
        """The space for changing it; a new one if there is none."""
        space = self.find(name)
        if space is None:
            space = Space()
        self._spaces.pop(name, None)
        self._spaces[name] = space
        self.changed.add(name)
        return space

    def evict(self, name: str) -> None:
        """Drop an unchanged space from memory; its checkpoint file holds it."""
        if name not in self.changed:
            self._spaces[name] = None

    def resident(self) -> list[str]:
        """Names of the spaces that are in memory, the least recently changed first."""
        return [name for name, space in self._spaces.items() if space is not None]

    # ---- from a checkpoint, or another generation ---------------------------------------------------------------

    def leave_in_files(self, names: Iterable[str]) -> None:
        """Hold these spaces and no others, each in its checkpoint file."""
        self._spaces = dict.fromkeys(names)
        self.changed.clear()

    def take_in(self, states: Mapping[str, State]) -> None:
        """Hold spaces of states that a checkpoint holds."""
        for name, state in states.items():
            self._spaces[name] = self._revive(name, state)

    def add(self, name: str, space: Space) -> None:
        """Hold a space that no checkpoint holds."""
        self._spaces[name] = space
        self.changed.add(name)

    # ---- for a checkpoint ---------------------------------------------------------------------------------------

    def space_states(self) -> Mapping[str, State]:
        """The spaces changed since the last call of `settled`, each copied when it is taken: one at a time."""
        return _States(self._spaces, sorted(self.changed))

    def segments(self, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Names of the segments that these spaces need; spaces that are out of memory have none here."""
        found = {}
        for name in names:
            space = self._spaces[name]
            if space is not None and isinstance(space.core, SegmentedCore):
                found[name] = space.core.segments()
        return found

    def segment(self, name: str, segment: str) -> State:
        """The content of a segment of a space that is in memory."""
        space = self._spaces[name]
        if space is None or not isinstance(space.core, SegmentedCore):
            raise KeyError(f"{name}, segment {segment}")
        return space.core.segment(segment)

    def labels(self, names: Iterable[str]) -> dict[str, str]:
        """The label of each space in a manifest, so that models can be announced without reading their files."""
        found = {}
        for name in names:
            space = self._spaces[name]
            if space is not None:
                found[name] = label(space)
        return found

    def settled(self) -> None:
        """Note that a checkpoint holds all changes."""
        self.changed.clear()


class _States(Mapping[str, State]):
    """States of named spaces."""

    def __init__(self, spaces: Mapping[str, Space | None], names: Sequence[str]) -> None:
        self._changed = {name: space for name in names if (space := spaces[name]) is not None}

    def __getitem__(self, name: str) -> State:
        return self._changed[name].state()

    def __iter__(self) -> Iterator[str]:
        return iter(self._changed)

    def __len__(self) -> int:
        return len(self._changed)
