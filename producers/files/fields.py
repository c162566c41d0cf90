"""Finds the columns for the fields of a record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kinstream.streams.errors import SettingsError, SourceError


@dataclass(frozen=True, slots=True)
class Field:
    """A field that a column may hold.

    Parameters
    ----------
    name : its name for `--column`.
    known : names of columns that are used by default.
    joins : whether it may be joined from several columns.
    """

    name: str
    known: tuple[str, ...]
    joins: bool = False


def find_columns(
    place: str, names: Sequence[str], fields: Sequence[Field], given: Mapping[str, Sequence[str]]
) -> dict[str, tuple[str, ...]]:
    """The columns of each field that the file has.

    Parameters
    ----------
    names : all columns of the file.
    given : field -> its columns, as the user has given.

    Raises
    ------
    SettingsError : a field is not known, or takes one column only.
    SourceError : a column is missing, or several could be the field.
    """
    by_name = {field.name: field for field in fields}
    for name, columns in given.items():
        if name not in by_name:
            raise SettingsError(f"--column: there is no field {name!r}; there are: {', '.join(by_name)}")
        if len(columns) > 1 and not by_name[name].joins:
            raise SettingsError(f"--column: {name} takes one column, not {', '.join(columns)}")
        if missing := [column for column in columns if column not in names]:
            raise SourceError(f"{place}: there is no column {missing[0]!r}; there are: {', '.join(names)}")
    taken = {column for columns in given.values() for column in columns}
    found = {name: tuple(columns) for name, columns in given.items()}
    for field in fields:
        likely = [name for name in names if name.strip().lower() in field.known and name not in taken]
        if field.name in found or not likely:
            continue
        if len(likely) > 1:
            raise SourceError(
                f"{place}: the columns {', '.join(likely)} could all be {field.name}; choose one: "
                f"--column {field.name}={likely[0]}"
            )
        found[field.name] = (likely[0],)
    return found


def require(place: str, found: Mapping[str, Sequence[str]], names: Sequence[str], *fields: str) -> None:
    """Refuse a file in which a field has no column, with SourceError."""
    for field in fields:
        if field not in found:
            raise SourceError(
                f"{place}: which column is {field}? Use --column {field}=COLUMN; there are: {', '.join(names)}"
            )
