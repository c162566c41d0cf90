"""Which items answer a query, and how well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Judgements:
    """Grades of pairs of a query and an item; what has none does not answer.

    Parameters
    ----------
    query, item : (m,) rows, in the order of the queries; a pair comes once.
    grade : (m,) above 0.
    """

    query: Numbers
    item: Numbers
    grade: NDArray[np.float64]

    @classmethod
    def of_rows(cls, n: int) -> Judgements:
        """Row i of n items answers row i of n queries."""
        return cls(np.arange(n), np.arange(n), np.ones(n))

    @classmethod
    def of_table(cls, table: NDArray[Any], queries: int, items: int) -> Judgements:
        """From rows of (query, item) or (query, item, grade); grades of 0 and below are left out.

        Raises
        ------
        ValueError : the table is not of that shape, names a row that is not there, or a pair twice; or none answers.
        """
        table = np.asarray(table)
        if table.ndim != 2 or table.shape[1] not in (2, 3) or table.dtype.kind not in "iuf":
            raise ValueError(
                f"judgements are rows of query, item and grade, not {table.dtype} of shape {table.shape}"
            )
        grade = np.ones(len(table)) if table.shape[1] == 2 else table[:, 2].astype(np.float64)
        query, item = (table[:, column].astype(np.int64) for column in (0, 1))
        if not np.isfinite(grade).all() or (table[:, :2] != np.stack([query, item], axis=1)).any():
            raise ValueError("judgements have rows and grades that are no numbers")
        for name, rows, most in (("query", query, queries), ("item", item, items)):
            if len(rows) and not (rows.min() >= 0 and rows.max() < most):
                bad = int(np.flatnonzero((rows < 0) | (rows >= most))[0])
                raise ValueError(f"judgement {bad} names {name} {rows[bad]} of {most}")
        order = np.lexsort((item, query))
        query, item, grade = query[order], item[order], grade[order]
        twice = np.flatnonzero((query[1:] == query[:-1]) & (item[1:] == item[:-1]))
        if len(twice):
            raise ValueError(f"query {query[twice[0]]} and item {item[twice[0]]} are judged twice")
        good = grade > 0.0
        if not good.any():
            raise ValueError("no item answers a query")
        return cls(query[good], item[good], grade[good])

    @property
    def queries(self) -> Numbers:
        """(q,) rows of the queries that have an answer."""
        return np.unique(self.query)

    def of(self, row: int) -> tuple[Numbers, NDArray[np.float64]]:
        """Rows of the items that answer a query, and their grades."""
        places = slice(*np.searchsorted(self.query, (row, row + 1)).tolist())
        return self.item[places], self.grade[places]

    def best(self, rows: Numbers) -> Numbers:
        """(q,) row of the item with the highest grade for each query."""
        found = (self.of(row) for row in rows.tolist())
        return np.array([items[grades.argmax()] for items, grades in found], np.int64)

    def answers(self, rows: Numbers, items: Numbers) -> NDArray[np.bool_]:
        """(q, k) which of the items (q, k) answer the queries (q,)."""
        return np.stack(
            [np.isin(some, self.of(row)[0]) for row, some in zip(rows.tolist(), items, strict=True)]
        )
