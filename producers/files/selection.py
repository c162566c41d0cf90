"""The columns to read from a file, and the format of a CSV file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kinstream.streams.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Selection:
    """The roles of columns (arrays, for NPZ).

    Parameters
    ----------
    features : modality -> column names, which may hold * and ?; None for all remaining columns.
    label : its column; None for a column named label, class, target or y (without a header: the last one).
    ids : column of item names, or None.
    label_type : "integer", "string", or "auto" for the type of all labels of the file.
    keep_missing : features that are empty or NaN are read as NaN; by default they are refused.
    """

    features: Mapping[str, Sequence[str]] | None = None
    label: str | None = None
    ids: str | None = None
    label_type: str = "auto"
    keep_missing: bool = False

    def __post_init__(self) -> None:
        if self.label_type not in ("auto", "integer", "string"):
            raise SettingsError(f"label type must be auto, integer or string, not {self.label_type!r}")


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """The format of a CSV file. `delimiter` None: a tab for .tsv, otherwise as the first line has it."""

    delimiter: str | None = None
    header: bool = True

    def __post_init__(self) -> None:
        if self.delimiter is not None and len(self.delimiter.encode()) != 1:
            raise SettingsError(f"the delimiter must be one character, not {self.delimiter!r}")
