"""What retrievers make of a neighbour: its text, its metadata, its score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kinstream.streams.errors import SettingsError

#: The metadata that names the list of a document.
LIST_ID: Final = "list_id"


def content_of(neighbour: Mapping[str, Any], content: str | Mapping[str, str]) -> str:
    """The text of a neighbour.

    Parameters
    ----------
    content : the column that holds it, or texts by id.

    Raises
    ------
    SettingsError : there is no such column, or no text of this id.
    """
    name = neighbour["id"]
    if not isinstance(content, str):
        if name not in content:
            raise SettingsError(f"content: there is no text of the item {name!r}")
        return content[name]
    fields = neighbour.get("fields") or {}
    if content not in fields:
        raise SettingsError(
            f"content: the item {name!r} comes without the column {content!r}: name it in `columns` of the served "
            f"space (there are {', '.join(fields) or 'none'}), or pass texts by id"
        )
    return str(fields[content])


def metadata_of(neighbour: Mapping[str, Any], content: str | Mapping[str, str]) -> dict[str, Any]:
    """The columns of a neighbour besides its text."""
    return {name: value for name, value in (neighbour.get("fields") or {}).items() if name != content}


def score_of(neighbour: Mapping[str, Any]) -> float | None:
    """What ranks a neighbour, more for a better one; None in a list that was drafted from two models."""
    for name, sign in (("value", 1.0), ("similarity", 1.0), ("squared_distance", -1.0)):
        if (value := neighbour.get(name)) is not None:
            return sign * float(value)
    return None
