"""The randomised lists of a log: the pairs of places that were swapped by a coin, and the clicks at both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from kinstream.evaluation.propensities.places import Compared
from kinstream.gate.exposure.lists import ListKind, Served, served
from kinstream.gate.lists.list_id import Keys
from kinstream.gate.lists.randomisation import read
from kinstream.streams.records.randomised_id import mark_of
from kinstream.streams.records.values import Click, ClickBlock


class Use(StrEnum):
    """Whether a list counts, or why not.

    `no_pair`: the part that came back holds no pair. The others are those of `ListKind`.
    """

    USED = "used"
    NO_PAIR = "no_pair"
    RANKED = "ranked"
    DRAFTED = "drafted"
    UNREADABLE = "unreadable"
    CHANGED = "changed"
    INVALID = "invalid"


class LogPairs(NamedTuple):
    """The pairs of a log, and its lists by `Use`."""

    pairs: Compared
    uses: dict[str, int]


class _List(NamedTuple):
    pairs: tuple[tuple[int, int], ...]
    clicked: set[int]
    person: str


def compared(records: Iterable[object], space: str, keys: Keys) -> LogPairs:
    """Read the lists of a space. A list that comes back several times is one, with all its clicks."""
    lists: dict[str, _List] = {}
    uses: Counter[str] = Counter(dict.fromkeys(map(str, Use), 0))
    for record in records:
        if not isinstance(record, Click | ClickBlock):
            continue
        for one, person in zip(served(record), _people(record), strict=True):
            known = lists.get(one.list_id)
            if known is not None:
                known.clicked.update(one.clicked)
                continue
            kind = one.kind(keys, space)
            if kind is not ListKind.RANDOMISED:
                uses[str(kind)] += 1
                continue
            pairs = _pairs(one, space, keys)
            if pairs is None:
                uses[Use.CHANGED] += 1
                continue
            uses[Use.USED if pairs else Use.NO_PAIR] += 1
            lists[one.list_id] = _List(pairs, set(one.clicked), person or f"list {one.list_id}")
    people = {name: n for n, name in enumerate(dict.fromkeys(one.person for one in lists.values()))}
    rows = [
        (upper, lower, upper in one.clicked, lower in one.clicked, people[one.person])
        for one in lists.values()
        for upper, lower in one.pairs
    ]
    table = np.array(rows, np.int64).reshape(-1, 5)
    return LogPairs(Compared(table[:, 0], table[:, 1], table[:, 2:4], table[:, 4]), dict(uses))


def _pairs(one: Served, space: str, keys: Keys) -> tuple[tuple[int, int], ...] | None:
    """The pairs in the part of a list that came back; None if it is not the beginning of what was shown."""
    found = read(keys, space, one.list_id)
    marks = tuple(mark_of(space, item) for item in one.items)
    if found is None or marks != found.drawn.marks[: len(marks)]:
        return None
    return tuple(pair for pair in found.drawn.pairs if pair[1] < len(marks))


def _people(record: Click | ClickBlock) -> Iterator[str | None]:
    """Whose each list is: the user, else the session."""
    if isinstance(record, Click):
        yield record.user or record.session
        return
    for user, session in zip(record.user.tolist(), record.session.tolist(), strict=True):
        number = user if user >= 0 else session
        yield record.actors[number] if number >= 0 else None
