"""The lists of a click record as they were served, each checked on its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from kinstream.gate.lists import randomisation
from kinstream.gate.lists.hashing import hash_of
from kinstream.gate.lists.list_id import PREFIX, Keys, mark_of, read
from kinstream.streams.records import randomised_id
from kinstream.streams.records.values import Click, ClickBlock, LoadPosition


class ListKind(StrEnum):
    """What the order of a list came from, as far as its id proves it. The values are labels of metrics.

    `ranked`: nothing was drawn. `drafted`, `randomised`: its places were drawn, from two rankings or from one, and the
    id proves the draw. `unreadable`, `changed`: the id says that the list was drawn, and was not made with this key, or
    is of other items or of another order; so the probabilities of its places are not known. `invalid`: a list that no
    builder accepts.
    """

    RANKED = "ranked"
    DRAFTED = "drafted"
    RANDOMISED = "randomised"
    UNREADABLE = "unreadable"
    CHANGED = "changed"
    INVALID = "invalid"


class Served(NamedTuple):
    """A list that came back.

    Parameters
    ----------
    key : hash of its id, however that is spelled, and of its load if it is of one: ids of several loads may be the
        same.
    items, positions : from the top down.
    clicked : places in `items` that were clicked.
    """

    list_id: str
    key: int
    items: tuple[str, ...]
    positions: tuple[int, ...]
    clicked: frozenset[int]

    @property
    def valid(self) -> bool:
        """Whether each item and each position is there once."""
        lowest = min(self.positions, default=-1)
        once = len(self.items) == len(set(self.items)) and len(self.positions) == len(set(self.positions))
        return once and lowest >= 0

    def kind(self, keys: Keys, space: str) -> ListKind:
        """What its order came from."""
        if not self.valid:
            return ListKind.INVALID
        if self.list_id.startswith(PREFIX):
            one = read(keys, space, self.list_id)
            return ListKind.UNREADABLE if one is None else self._as_shown(space, one.marks, ListKind.DRAFTED)
        if self.list_id.startswith(randomised_id.PREFIX):
            other = randomisation.read(keys, space, self.list_id)
            if other is None:
                return ListKind.UNREADABLE
            return self._as_shown(space, other.drawn.marks, ListKind.RANDOMISED)
        return ListKind.RANKED

    def _as_shown(self, space: str, marks: Sequence[int], kind: ListKind) -> ListKind:
        """The kind, or `changed`. A client may report only the part of the list that was seen."""
        left = iter(marks)
        return kind if all(mark_of(space, item) in left for item in self.items) else ListKind.CHANGED


def served(record: Click | ClickBlock) -> Iterator[Served]:
    """The lists of a record."""
    if isinstance(record, Click):
        clicked = {one.item for one in record.clicks}
        shown = len(record.items) == len(record.positions)
        positions = record.positions if shown else (-1,) * len(record.items)
        yield _served(
            record.list_id, record.load, record.items, positions, [i in clicked for i in record.items]
        )
        return
    flags = [False] * len(record.item)
    for number in record.clicked.tolist():
        flags[number] = True
    names = [record.ids[number] for number in record.item.tolist()]
    positions, starts = record.position.tolist(), record.starts.tolist()
    for number, list_id in enumerate(record.list_ids):
        part = slice(starts[number], starts[number + 1])
        yield _served(list_id, record.load, names[part], positions[part], flags[part])


def _served(
    list_id: str,
    load: LoadPosition | None,
    items: Sequence[str],
    positions: Sequence[int],
    clicked: Sequence[bool],
) -> Served:
    order = sorted(range(len(items)), key=positions.__getitem__)
    name = randomised_id.one_spelling(list_id)
    return Served(
        list_id,
        hash_of(name if load is None else f"{load.load_id}\0{name}"),
        tuple(items[n] for n in order),
        tuple(positions[n] for n in order),
        frozenset(place for place, n in enumerate(order) if clicked[n]),
    )
