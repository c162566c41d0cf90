"""The records, or rows of them, that a consumer has refused and not yet applied by a redrive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import merge
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

#: Stands for all the rows of a record.
WHOLE = None
Rows = tuple[int, ...] | None


class Refusals:
    """Refused parts by offset. Whole records are kept as runs of offsets, so a flood of bad ones stays small."""

    def __init__(self) -> None:
        self._runs: list[tuple[int, int]] = []
        self._rows: dict[int, tuple[int, ...]] = {}

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self._runs) + len(self._rows)

    def add(self, offset: int, rows: Rows) -> None:
        """Remember a refusal. Offsets come in rising order."""
        if rows is not None:
            self._rows[offset] = tuple(sorted({*self._rows.get(offset, ()), *rows}))
        elif self._runs and self._runs[-1][1] == offset - 1:
            self._runs[-1] = (self._runs[-1][0], offset)
        else:
            self._runs.append((offset, offset))

    def holds(self, offset: int, rows: Rows) -> bool:
        """Whether all of those parts are refused."""
        if rows is None:
            return self._run_of(offset) is not None
        return set(rows) <= set(self._rows.get(offset, ()))

    def parts(self) -> Iterator[tuple[int, Rows]]:
        """Every refused record or set of rows, in rising order of offsets."""
        whole: Iterator[tuple[int, Rows]] = (
            (offset, WHOLE) for first, last in self._runs for offset in range(first, last + 1)
        )
        some: list[tuple[int, Rows]] = sorted(self._rows.items())
        yield from merge(whole, some, key=itemgetter(0))

    def rows_of(self, offset: int) -> tuple[int, ...]:
        """The rows of a record that are refused by number."""
        return self._rows.get(offset, ())

    def remove(self, offset: int, rows: Rows) -> None:
        """Forget those parts, which a redrive has applied."""
        if rows is None:
            at = self._run_of(offset)
            if at is not None:
                first, last = self._runs[at]
                self._runs[at : at + 1] = [
                    r for r in ((first, offset - 1), (offset + 1, last)) if r[0] <= r[1]
                ]
            return
        left = tuple(row for row in self._rows.pop(offset, ()) if row not in rows)
        if left:
            self._rows[offset] = left

    def _run_of(self, offset: int) -> int | None:
        low, high = 0, len(self._runs)
        while low < high:
            middle = (low + high) // 2
            if self._runs[middle][1] < offset:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self._runs) and self._runs[low][0] <= offset else None

    def state(self) -> dict[str, NDArray[np.int64]]:
        pairs = [(offset, row) for offset, rows in sorted(self._rows.items()) for row in rows]
        return {
            "refused_runs": np.array(self._runs, dtype=np.int64).reshape(-1, 2),
            "refused_rows": np.array(pairs, dtype=np.int64).reshape(-1, 2),
        }

    def restore(self, runs: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        self._runs = [(int(first), int(last)) for first, last in runs]
        self._rows = {}
        for offset, row in rows:
            self._rows[int(offset)] = (*self._rows.get(int(offset), ()), int(row))


def moved_state(moved: Mapping[int, Refusals]) -> dict[str, NDArray[np.int64]]:
    """Refusals of records of other partitions, by their number; empty if there are none."""
    runs, rows = [], []
    for origin, refusals in sorted(moved.items()):
        own = refusals.state()
        runs += [(origin, *run) for run in own["refused_runs"].tolist()]
        rows += [(origin, *row) for row in own["refused_rows"].tolist()]
    if not runs and not rows:
        return {}
    return {
        "moved_runs": np.array(runs, dtype=np.int64).reshape(-1, 3),
        "moved_rows": np.array(rows, dtype=np.int64).reshape(-1, 3),
    }


def read_moved(state: Mapping[str, object]) -> dict[int, Refusals]:
    """The inverse of `moved_state`, from a state with other entries."""
    if "moved_runs" not in state:
        return {}
    runs, rows = np.asarray(state["moved_runs"]), np.asarray(state["moved_rows"])
    moved: dict[int, Refusals] = {}
    for origin in sorted({int(n) for n in (*runs[:, 0], *rows[:, 0])}):
        moved[origin] = Refusals()
        moved[origin].restore(runs[runs[:, 0] == origin, 1:], rows[rows[:, 0] == origin, 1:])
    return moved


def rows_text(rows: Rows) -> str:
    """Rows as a header names them: `all`, or `0-3,7`."""
    if rows is None:
        return "all"
    runs: list[list[int]] = []
    for row in sorted(set(rows)):
        if runs and runs[-1][1] == row - 1:
            runs[-1][1] = row
        else:
            runs.append([row, row])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


#: A block never has more rows than its bytes allow; a header that names more is false.
MAX_ROWS = 1_000_000


def parse_rows(text: str) -> Rows:
    """The inverse of `rows_text`.

    Raises
    ------
    ValueError : not such a text.
    """
    if text == "all":
        return None
    rows: list[int] = []
    for run in text.split(","):
        first, _, last = run.partition("-")
        low, high = int(first), int(last or first)
        if not 0 <= low <= high < MAX_ROWS or len(rows) + high - low > MAX_ROWS:
            raise ValueError(f"{text[:40]!r} names no rows")
        rows.extend(range(low, high + 1))
    return tuple(rows)
