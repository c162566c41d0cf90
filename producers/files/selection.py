"""What of a file is read, and how it is written: which columns are what, and the form of CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kinstream.streams.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Selection:
    """Which columns (arrays, for NPZ) are what.

    Parameters
    ----------
    features : modality -> column names, which may hold * and ?; None for all columns that are left over.
    label : its column; None for one called label, class, target or y (without a header: the last one).
    ids : column of item names, or None.
    label_type : "integer", "string", or "auto" for what all labels of the file are.
    """

    features: Mapping[str, Sequence[str]] | None = None
    label: str | None = None
    ids: str | None = None
    label_type: str = "auto"

    def __post_init__(self) -> None:
        if self.label_type not in ("auto", "integer", "string"):
            raise SettingsError(f"label type must be auto, integer or string, not {self.label_type!r}")


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """How a CSV file is written. `delimiter` None: a tab for .tsv, else a comma."""

    delimiter: str | None = None
    header: bool = True

    def __post_init__(self) -> None:
        if self.delimiter is not None and len(self.delimiter.encode()) != 1:
            raise SettingsError(f"the delimiter must be one character, not {self.delimiter!r}")
