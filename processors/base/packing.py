"""Constraints as rows of references, packed into blocks that stay under a size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.compute.compilation import compiled
from kinstream.streams.records.scores import Scores
from kinstream.streams.records.values import ConstraintBlock, Kind, Table

#: References to sample vectors; each builder defines their meaning.
References = NDArray[np.int64]

#: Upper bounds of a block's size without vectors and rows: fixed fields, and the fields of one table.
_FIXED_BYTES: Final = 128
_TABLE_BYTES: Final = 32
#: Longest UTF-8 form of a character.
_CHARACTER_BYTES: Final = 4
#: Bytes of the name of a rule beyond the first, besides its characters.
_NAME_BYTES: Final = 8


#: Upper bounds of what scores take in a block, besides names and numbers, and of each name, besides its characters.
_SCORES_BYTES: Final = 16
_SCORE_NAME_BYTES: Final = 2

#: Means that each constraint is its own event.
_APART: Final = np.empty(0, np.int64)


def row_bytes(kind: Kind, weighted: bool = False, targeted: bool = False, grouped: bool = False) -> int:
    """Bytes of one constraint without its vectors: index, rule, derived, the sign of a pair, a weight other than 1,
    a target, the number of its event."""
    return (4 * 2 + 3 if kind is Kind.PAIR else 4 * 3 + 2) + 4 * weighted + 4 * targeted + 4 * grouped


def scores_bytes(scores: Scores | None) -> tuple[int, int]:
    """Upper bounds of the bytes of scores in a block: of the names, and of a row."""
    if scores is None:
        return 0, 0
    names = sum(_SCORE_NAME_BYTES + len(name.encode()) for name in scores.names)
    return _SCORES_BYTES + names, 4 * len(scores.names)


@dataclass(frozen=True, slots=True)
class Packing:
    """Properties common to the blocks of a builder.

    Parameters
    ----------
    space : of all blocks.
    modalities : name and dimension of each table.
    max_bytes : no encoded block is larger.
    """

    space: str
    modalities: tuple[tuple[str, int], ...]
    max_bytes: int

    @property
    def vector_bytes(self) -> int:
        """Bytes of one sample, in all modalities."""
        return 4 * sum(dimension for _, dimension in self.modalities)

    def room(self, *rules: str) -> int:
        """Bytes of a block that are left for vectors and rows."""
        names = len(self.space) + sum(map(len, rules)) + sum(len(name) for name, _ in self.modalities)
        more = _NAME_BYTES * (len(rules) - 1)
        tables = _TABLE_BYTES * len(self.modalities)
        return self.max_bytes - _FIXED_BYTES - tables - more - _CHARACTER_BYTES * names

    def fits(
        self,
        kind: Kind,
        *rules: str,
        weighted: bool = False,
        targeted: bool = False,
        grouped: bool = False,
    ) -> bool:
        """Whether one constraint with distinct vectors fits into a block."""
        vectors = 2 if kind is Kind.PAIR else 3
        one_row = row_bytes(kind, weighted, targeted, grouped)
        return vectors * self.vector_bytes + one_row <= self.room(*rules)

    def blocks(
        self,
        kind: Kind,
        rules: str | tuple[str, ...],
        references: References,
        vectors: Callable[[References], tuple[Table, ...]],
        time_ms: int,
        *,
        rule_of: NDArray[np.integer[Any]] | None = None,
        signs: NDArray[np.int8] | None = None,
        derived: NDArray[np.bool_] | None = None,
        weights: NDArray[np.float32] | None = None,
        targets: NDArray[np.float32] | None = None,
        events: NDArray[np.integer[Any]] | None = None,
        begun: bool = False,
        earlier: Kind | None = None,
        scores: Scores | None = None,
    ) -> list[ConstraintBlock]:
        """The constraints as blocks, in order, each with a table of the distinct vectors that it needs.

        The constraints of an event share a block if they fit into one.

        Parameters
        ----------
        rules : names; a block holds those that its rows use.
        references : (m, 2) or (m, 3).
        vectors : the tables that hold the given distinct references, in that order.
        rule_of : (m,) places in `rules`; the first if left out.
        signs : (m,) of pairs; +1 if left out.
        derived : (m,); none if left out.
        weights : (m,); 1 if left out.
        targets : (m,); none if left out.
        events : (m,) numbers of any kind that do not decrease, one for each event; if left out, each constraint is an
            event of its own.
        begun : whether all of these events gave constraints before.
        earlier : of the blocks.
        scores : (m, K); a block holds the names that have a value in it.
        """
        names = (rules,) if isinstance(rules, str) else rules
        packed = []
        names_of_scores, of_scores = scores_bytes(scores)
        one_row = row_bytes(kind, weights is not None, targets is not None, events is not None) + of_scores
        room = self.room(*names) - names_of_scores
        of = _APART if events is None else events.astype(np.int64)
        for part in self._parts(room, references, of, one_row):
            distinct, index = np.unique(references[part], return_inverse=True)
            rows = len(references[part])
            used, rule = (0,), np.zeros(rows, np.uint8)
            if rule_of is not None:
                found, places = np.unique(rule_of[part], return_inverse=True)
                used, rule = tuple(found.tolist()), places.astype(np.uint8)
            packed.append(
                ConstraintBlock(
                    space=self.space,
                    kind=kind,
                    tables=vectors(distinct),
                    index=index.reshape(rows, -1).astype(np.int32),
                    signs=np.full(rows, kind is Kind.PAIR, np.int8) if signs is None else signs[part].copy(),
                    rules=tuple(names[number] for number in used),
                    rule=rule,
                    derived=np.zeros(rows, np.bool_) if derived is None else derived[part].copy(),
                    weights=np.ones(rows, np.float32) if weights is None else weights[part].copy(),
                    time_ms=time_ms,
                    targets=None if targets is None else targets[part].copy(),
                    events=None if events is None else _numbered(of, part, begun),
                    earlier=earlier,
                    scores=None if scores is None else scores.take(part).given(),
                )
            )
        return packed

    def _parts(
        self, room: int, references: References, events: NDArray[np.int64], one_row: int
    ) -> Iterator[slice]:
        """Cut before the row that would make the block too large, or at the start of its event in the block."""
        if references.size * self.vector_bytes + len(references) * one_row <= room:
            # Fits even if no vector is used twice.
            return iter([slice(0, len(references))] if len(references) else [])
        given = np.ascontiguousarray(references, np.int64)
        ends = _cuts(given, events, room, self.vector_bytes, one_row)
        return (slice(first, end) for first, end in pairwise([0, *ends.tolist()]))


def _numbered(events: NDArray[np.int64], part: slice, begun: bool) -> NDArray[np.int32] | None:
    """`ConstraintBlock.events` for some of the rows."""
    own = events[part]
    if begun:
        return np.zeros(len(own), np.int32)
    numbers = np.ones(len(own), np.int32)
    numbers[1:] += np.cumsum(own[1:] != own[:-1], dtype=np.int32)
    if part.start > 0 and events[part.start - 1] == own[0]:
        return numbers - np.int32(1)
    return None if numbers[-1] == len(own) else numbers


@compiled
def _cuts(
    references: References, events: NDArray[np.int64], room: int, vector_bytes: int, one_row: int
) -> NDArray[np.int64]:
    """The end of each part. The references of a part are in a table whose places are marked by its number."""
    rows, width = references.shape
    most = min(rows * width, room // max(1, vector_bytes) + 2 * width)
    places = 16
    while places < 2 * most:
        places *= 2
    held = np.zeros(places, np.int64)
    marks = np.zeros(places, np.int64)
    ends = np.empty(rows, np.int64)
    parts = used = first = began = 0
    row = 0
    while row < rows:
        if row > 0 and (len(events) == 0 or events[row] != events[row - 1]):
            began = row
        more = one_row
        for column in range(width):
            reference = references[row, column]
            at = ((reference * 0x9E3779B1) >> 7) & (places - 1)
            while marks[at] == parts + 1 and held[at] != reference:
                at = (at + 1) & (places - 1)
            if marks[at] != parts + 1:
                held[at], marks[at] = reference, parts + 1
                more += vector_bytes
        if row > first and used + more > room:
            # The row, or its event's rows in this part, begins the next part and is counted again there.
            row = began if began > first else row
            ends[parts] = row
            parts += 1
            first, used = row, 0
            continue
        used += more
        row += 1
    if rows > 0:
        ends[parts] = rows
        parts += 1
    return ends[:parts]
