"""What a store is for the service: one method that answers, one that checks.

A store of your own is a class with these methods. Its distribution names it under the entry point group
`kinstream.stores`, and `backend = "NAME"` selects it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from kinstream.streams.errors import KinstreamError, SettingsError
from kinstream.streams.records.values import Vectors


class StoreAway(KinstreamError):
    """The store does not answer in time, or cannot answer now; the message is one line without secrets."""


class BadFilter(KinstreamError):
    """The filter of a request, or without one its vectors, are not what the store takes."""


class BadVectors(BadFilter):
    """The vectors of a request are not what the store takes, whatever its filter is."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where items lie, as the settings of a space say.

    Parameters
    ----------
    connection : how to reach the store; it may hold a password.
    collection : the table or collection.
    distance : "inner-product" or "cosine".
    columns : what answers show of an item besides its id.
    seconds : longest wait for one answer.
    options : the store's own.
    """

    connection: str
    collection: str
    distance: str
    columns: tuple[str, ...] = ()
    seconds: float = 5.0
    options: Mapping[str, Any] = field(default_factory=dict)


class Hit(NamedTuple):
    """One item: its id, its inner product or cosine with the query, and its columns."""

    id: str
    similarity: float
    fields: dict[str, Any]


class StoreHits(NamedTuple):
    """The hits of each query, most similar first; and the state of the store that all of them come from.

    `version` is None for a store that cannot name its state.
    """

    hits: list[list[Hit]]
    version: str | None


class Store(Protocol):
    """A store of one space, made from a `Place`. Several threads call it at once.

    Every method may raise `StoreAway`, and returns within the place's `seconds` or little more.
    """

    def check(self) -> int | None:
        """Ask the store whether it can answer; returns the number of features, None if it takes any."""

    def search(self, queries: Vectors, k: int, where: Any) -> StoreHits:
        """The k most similar items to each query.

        Parameters
        ----------
        queries : (n, d) float32, n at least 1.
        where : the filter of the request, as JSON; None without one.

        Raises
        ------
        BadFilter : the filter cannot be used.
        """

    def close(self) -> None:
        """End connections; waits for nothing."""


def no_options(place: Place, *known: str) -> None:
    """Refuse options that a store does not have.

    Raises
    ------
    SettingsError : names them.
    """
    strange: Sequence[str] = sorted(set(place.options) - set(known))
    if strange:
        raise SettingsError(
            f"options: there is no {', '.join(strange)}; there are {', '.join(known) or 'none'}"
        )
