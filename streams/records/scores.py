"""Named numbers of shown items, such as BM25, age or price: what else a ranking goes by, beside vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.signals import ADAPTED as ADAPTED
from kinstream.streams.signals import COMPUTED as COMPUTED
from kinstream.streams.signals import MOST_NAMES as MOST_NAMES
from kinstream.streams.signals import REMEMBERED as REMEMBERED
from kinstream.streams.signals import SIMILARITY as SIMILARITY

#: Characters of a name.
LONGEST_NAME: Final = 100


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """K numbers for each of m rows: of the items of a list, or of the constraints of a block.

    Parameters
    ----------
    names : K names, 1 to `MOST_NAMES`, sorted and distinct.
    values : (m, K) float32. NaN is a missing value; infinity is refused where records are read.

    Examples
    --------
    >>> scores = Scores.of({"price": [2.5, None], "bm25": [3.0, 1.0]})
    >>> scores.names, scores.values.tolist()
    (('bm25', 'price'), [[3.0, 2.5], [1.0, nan]])
    """

    names: tuple[str, ...]
    values: NDArray[np.float32]

    def __len__(self) -> int:
        """How many rows."""
        return len(self.values)

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> Self:
        """From (m,) numbers by name, None or NaN for a missing one."""
        names = tuple(sorted(columns))
        values = np.array([np.asarray(columns[name], np.float32) for name in names], np.float32)
        return cls(names, np.ascontiguousarray(values.T))

    def take(self, rows: slice | NDArray[np.bool_] | NDArray[np.integer[Any]]) -> Scores:
        """Some of the rows, under the same names."""
        return Scores(self.names, self.values[rows])

    def given(self) -> Scores | None:
        """Without the names that have no value in any row; None if no name is left."""
        held = np.flatnonzero(~np.isnan(self.values).all(axis=0))
        if len(held) == len(self.names):
            return self
        names = tuple(self.names[column] for column in held)
        return Scores(names, np.ascontiguousarray(self.values[:, held])) if names else None


def name_fault(name: str) -> str | None:
    """Why a score cannot have that name; None if it can."""
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        return f"the name of a score is 1 to {LONGEST_NAME} printable characters"
    if name.partition(".")[0] in COMPUTED:
        return (
            f"learners compute {name.partition('.')[0]!r} themselves: a score has another name than {name!r}"
        )
    return None
