"""The roles of the columns of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from kinstream.producers.files.selection import Selection
from kinstream.streams.errors import SourceError
from kinstream.streams.records.values import DEFAULT_MODALITY

LABEL_NAMES: Final = ("label", "class", "target", "y")


@dataclass(frozen=True, slots=True)
class Columns:
    """Names of columns. `features` holds those of each modality, in order; `left_out` those that only number rows."""

    features: tuple[tuple[str, tuple[str, ...]], ...]
    label: str
    ids: str | None
    left_out: tuple[str, ...] = ()

    def all(self) -> list[str]:
        """Every column that is read, once."""
        found = [name for _, names in self.features for name in names]
        found += [self.label] if self.ids is None else [self.label, self.ids]
        return list(dict.fromkeys(found))


def choose(
    place: str,
    names: Sequence[str],
    selection: Selection,
    usable: Sequence[str],
    left_out: Sequence[str] = (),
) -> Columns:
    """Find the columns of a selection.

    Parameters
    ----------
    place : of the table, for messages.
    names : all columns.
    usable : the default features.
    left_out : those of the default features that only number rows.

    Raises
    ------
    SourceError : a column is missing, or the label cannot be guessed.
    """
    label = _label(place, names, selection.label)
    if selection.ids is not None:
        _present(place, names, selection.ids)
    left: tuple[str, ...] = ()
    if selection.features is None:
        rest = tuple(name for name in usable if name not in (label, selection.ids, *left_out))
        left = tuple(name for name in left_out if name not in (label, selection.ids))
        features: tuple[tuple[str, tuple[str, ...]], ...] = ((DEFAULT_MODALITY, rest),)
    else:
        features = tuple((m, matching(place, names, wanted)) for m, wanted in selection.features.items())
    if not features or not all(found for _, found in features):
        raise no_features(place, names, left)
    return Columns(features, label, selection.ids, left)


def no_features(place: str, names: Sequence[str], left_out: Sequence[str]) -> SourceError:
    """The error of a table whose columns all have another role."""
    only = (
        f"; {', '.join(map(repr, left_out))} only numbers rows: name it as a feature to keep it"
        if left_out
        else ""
    )
    return SourceError(f"{place}: no column is left for the features; there are: {', '.join(names)}{only}")


def _label(place: str, names: Sequence[str], wanted: str | None) -> str:
    if wanted is not None:
        return _present(place, names, wanted)
    likely = [name for name in names if name.strip().lower() in LABEL_NAMES]
    if len(likely) == 1:
        return likely[0]
    found = "no column is" if not likely else f"several columns are ({', '.join(likely)})"
    raise SourceError(
        f"{place}: {found} called one of {', '.join(LABEL_NAMES)}; choose the column of the label: "
        f"{', '.join(names)}"
    )


def _present(place: str, names: Sequence[str], wanted: str) -> str:
    if wanted not in names:
        raise SourceError(f"{place}: there is no column {wanted!r}; there are: {', '.join(names)}")
    return wanted


def matching(place: str, names: Sequence[str], patterns: Sequence[str]) -> tuple[str, ...]:
    """The columns of each pattern in turn; an existing name is used literally."""
    found: dict[str, None] = {}
    for pattern in patterns:
        matches = [pattern] if pattern in names else [name for name in names if fnmatchcase(name, pattern)]
        if not matches:
            _present(place, names, pattern)
        found.update(dict.fromkeys(matches))
    return tuple(found)


def refuse_twice(place: Path, names: Sequence[str]) -> None:
    """Refuse a table in which two columns have one name, with SourceError."""
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise SourceError(f"{place}: the header names {', '.join(map(repr, twice))} twice")
