"""The modalities of a model, and tables of vectors matched to them by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.compute.arrays import plain
from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.values import DEFAULT_MODALITY, ConstraintBlock

Rows = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Modalities:
    """Name and dimension of each, in the order of the first block."""

    pairs: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, tables: Sequence[tuple[str, Rows]]) -> Self:
        """The modalities of some tables (n, d).

        Raises
        ------
        ValueError
            A table has another shape.
        """
        if not tables or any(table.ndim != 2 for _, table in tables):
            raise ValueError(f"expected tables of shape (n, d), got {_shapes(dict(tables))}")
        return cls(tuple((name, table.shape[1]) for name, table in tables))

    @property
    def starts(self) -> NDArray[np.int64]:
        """(m + 1,) the start of each in a vector of all modalities."""
        return np.cumsum([0, *(size for _, size in self.pairs)], dtype=np.int64)

    def ordered(self, tables: Mapping[str, Rows]) -> list[Rows]:
        """The tables (n, d) of all modalities, in order.

        Raises
        ------
        ValueError
            They are not these modalities, or differ in their number of rows.
        """
        rows = {table.shape[0] for table in tables.values() if table.ndim == 2}
        sizes = {name: table.shape[1] for name, table in tables.items() if table.ndim == 2}
        if sizes != dict(self.pairs) or len(tables) != len(self.pairs) or len(rows) != 1:
            wanted = ", ".join(f"{name}: (n, {size})" for name, size in self.pairs)
            raise ValueError(f"expected features of {wanted}, got {_shapes(tables)}")
        return [tables[name] for name, _ in self.pairs]


def named(X: Rows | Mapping[str, Rows], known: Modalities | None) -> dict[str, Rows]:
    """Features by modality.

    Parameters
    ----------
    X : modality -> (n, d); or (n, d) where there is only one.
    known : the model's modalities, None before its first block.

    Raises
    ------
    ValueError
        One table for several modalities.
    """
    if isinstance(X, Mapping):
        return {str(name): np.asarray(table) for name, table in X.items()}
    if known is not None and len(known.pairs) > 1:
        raise ValueError(f"expected a table for each of {', '.join(name for name, _ in known.pairs)}")
    return {DEFAULT_MODALITY if known is None else known.pairs[0][0]: np.asarray(X)}


def stacked(roles: Sequence[Mapping[str, Rows]]) -> tuple[list[tuple[str, Rows]], int]:
    """One table for each modality that holds the vectors (m, d) of all roles, one role after the other, and m.

    Raises
    ------
    ValueError
        The roles differ in modalities or shapes.
    """
    shapes = [{name: table.shape for name, table in role.items()} for role in roles]
    found = set(shapes[0].values())
    if any(shape != shapes[0] for shape in shapes) or any(len(s) != 2 for s in found):
        raise ValueError(f"expected tables of the same shapes (m, d), got {shapes}")
    if len({rows for rows, _ in found}) != 1:
        raise ValueError(f"expected as many rows of each modality, got {shapes[0]}")
    tables = [(name, np.concatenate([role[name] for role in roles])) for name in roles[0]]
    return tables, next(iter(found))[0]


def checked_columns(block: ConstraintBlock) -> None:
    """Refuse a block whose columns are not as long as its index."""
    for name in ("signs", "rule"):
        found = getattr(block, name)
        if found.shape != (len(block),):
            raise BadRecord(Reason.BAD_SHAPE, f"{len(block)} constraints, and {name} of shape {found.shape}")


def checked_tables(
    tables: Sequence[tuple[str, Rows]], known: Modalities | None
) -> tuple[Modalities, list[Rows]]:
    """The modalities of a block, and its tables in the model's order.

    Parameters
    ----------
    known : the model's modalities, None before its first block.

    Raises
    ------
    BadRecord
        There is no table, a name appears twice, a shape is not that of a table, or the modalities differ from the
        known ones.
    """
    found = dict(tables)
    shapes = {table.shape[:1] for table in found.values()}
    if not tables or len(found) != len(tables) or len(shapes) != 1:
        raise BadRecord(
            Reason.BAD_SHAPE,
            f"a block needs a table (n, d) for each modality, all with n rows: {_shapes(found)}",
        )
    if any(table.ndim != 2 or table.shape[1] == 0 for table in found.values()):
        raise BadRecord(Reason.BAD_SHAPE, f"vectors without features: {_shapes(found)}")
    modalities = Modalities.of(tables)
    if known is None:
        return modalities, [table for _, table in tables]
    if dict(known.pairs) != dict(modalities.pairs):
        raise BadRecord(
            Reason.WRONG_DIMENSION, f"the model has {dict(known.pairs)}, not {dict(modalities.pairs)}"
        )
    return known, known.ordered(found)


def checked_index(index: NDArray[np.int32], width: int, rows: int) -> NDArray[np.int32]:
    """The index (m, width) in the form for kernels.

    Raises
    ------
    BadRecord
        It has another shape, or points outside the table.
    """
    if index.ndim != 2 or index.shape[1] != width:
        raise BadRecord(Reason.BAD_SHAPE, f"an index of shape {index.shape}, not (m, {width})")
    if len(index) and (index.min() < 0 or index.max() >= rows):
        raise BadRecord(Reason.BAD_SHAPE, f"the index points outside its table of {rows} rows")
    return plain(index, np.int32)


def _shapes(tables: Mapping[str, Rows]) -> dict[str, tuple[int, ...]]:
    return {name: table.shape for name, table in tables.items()}
