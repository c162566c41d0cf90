"""Constraints as they come from the log."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.records.values import ConstraintBlock, Kind, Table


def constraint_block(
    tables: dict[str, NDArray[Any]],
    index: NDArray[Any],
    signs: NDArray[np.int8] | None = None,
    targets: NDArray[Any] | None = None,
) -> ConstraintBlock:
    """One block.

    Parameters
    ----------
    tables : modality -> (n, d); they become float32.
    index : (m, 2) or (m, 3) rows of the tables: pairs or triplets.
    signs, targets : (m,) of pairs.
    """
    m = len(index)
    return ConstraintBlock(
        space="benchmark",
        kind=Kind.PAIR if index.shape[1] == 2 else Kind.TRIPLET,
        tables=tuple(Table(name, np.ascontiguousarray(X, np.float32)) for name, X in tables.items()),
        index=np.ascontiguousarray(index, np.int32),
        signs=np.zeros(m, np.int8) if signs is None else signs,
        rules=("benchmark",),
        rule=np.zeros(m, np.uint8),
        derived=np.zeros(m, np.bool_),
        weights=np.ones(m, np.float32),
        time_ms=0,
        targets=None if targets is None else targets.astype(np.float32),
    )
