"""The columns to read from a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Selection:
    """The roles of columns (arrays, for NPZ).

    Parameters
    ----------
    features : modality -> column names, which may hold * and ?; None for all remaining columns.
    label : its column; None for a column named label, class, target or y.
    ids : column of item names, or None.
    """

    features: Mapping[str, Sequence[str]] | None = None
    label: str | None = None
    ids: str | None = None
