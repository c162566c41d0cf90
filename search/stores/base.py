"""What a store is for the service: one method that answers, one that checks.

A store of your own is a class with these methods. Its distribution names it under the entry point group
`kinstream.stores`, and `backend = "NAME"` selects it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.errors import KinstreamError, SettingsError
from kinstream.streams.records.values import Vectors
from kinstream.streams.signals import ADAPTED, SIMILARITY, TEXT


class StoreAway(KinstreamError):
    """The store does not answer in time, or cannot answer now; the message is one line without secrets."""


class BadFilter(KinstreamError):
    """The filter of a request, or without one its vectors, are not what the store takes."""


class BadVectors(BadFilter):
    """The vectors of a request are not what the store takes, whatever its filter is."""


class BadText(BadFilter):
    """A text of a request is not what the store takes, whatever its filter is."""


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
    text : what is searched by words; empty for nothing.
    signals : columns of numbers, and of further vectors of items, by which items are ranked.
    """

    connection: str
    collection: str
    distance: str
    columns: tuple[str, ...] = ()
    seconds: float = 5.0
    options: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    signals: tuple[str, ...] = ()


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


class Asked(NamedTuple):
    """A query of a store that ranks by more than a vector.

    Parameters
    ----------
    plain : (d,) float32, as the request has it; None for a query by text alone.
    mapped : (d,) float32, what the learned map makes of it; None where nothing is learned.
    text : None for a query by vector alone.
    own : the query's vectors (d',) for signals that are similarities, by name.
    """

    plain: Vectors | None
    mapped: Vectors | None = None
    text: str | None = None
    own: Mapping[str, Vectors] = MappingProxyType({})

    @property
    def nearest(self) -> Vectors | None:
        """The vector that candidates are near."""
        return self.plain if self.mapped is None else self.mapped

    def compared(self, sizes: Mapping[str, int | None], whose: str) -> dict[str, Vectors]:
        """The query's vector for each signal that is a similarity: its own one, or `plain` where that has its size.

        Parameters
        ----------
        sizes : of these signals, by name; None takes any.
        whose : signals they are, for the error.

        Raises
        ------
        BadVectors : an own vector has another size, or is for another signal.
        """
        for name, vector in self.own.items():
            if name not in sizes:
                raise BadVectors(f"{whose}.{name} is no column of vectors")
            if sizes[name] not in (None, len(vector)):
                raise BadVectors(f"{len(vector)} numbers; {whose}.{name} has {sizes[name]}")
        found = {name: self.own.get(name, self.plain) for name in sizes}
        return {
            name: vector
            for name, vector in found.items()
            if vector is not None and sizes[name] in (None, len(vector))
        }


class Candidates(NamedTuple):
    """The items that one query may be answered with, in any order.

    Parameters
    ----------
    ids : m of them, distinct.
    fields : the columns of each.
    signals : by name, (m,) float64; NaN where an item has none. "similarity" and "adapted" are those to the query as it
        is and as it was mapped, "text" how well the text matches (0 for not at all), the rest columns: their numbers,
        or similarities of their vectors to the query's.
    """

    ids: list[str]
    fields: list[dict[str, Any]]
    signals: dict[str, NDArray[np.float64]]


class StoreCandidates(NamedTuple):
    """The candidates of each query, and the state of the store as in `StoreHits`."""

    found: list[Candidates]
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


@runtime_checkable
class RankingStore(Store, Protocol):
    """A store that says more of an item than its similarity. Spaces with `text` or `signals` need one."""

    def candidates(self, asked: Sequence[Asked], n: int, where: Any) -> StoreCandidates:
        """The n nearest items to each query and the n that match its text best, with every signal of each.

        Parameters
        ----------
        asked : at least one.
        where : as of `search`.

        Raises
        ------
        BadFilter, BadVectors, BadText : what of the request cannot be used.
        """


def signals_of(
    place: Place,
    asked: Asked,
    rows: Sequence[Sequence[float | None]],
    powers: Mapping[str, int] = MappingProxyType({}),
    missing: Collection[str] = (),
) -> dict[str, NDArray[np.float64]]:
    """Signals of m candidates by name, (m,) float64. Those are left out that the query does not ask for.

    Parameters
    ----------
    rows : of each candidate the similarity, the adapted similarity, how its text matches if the place has a text, and
        the place's `signals`; None, or what is not finite, is missing.
    powers : of 2, by which similarities are to be multiplied, by signal.
    missing : columns of vectors that the query has none for.
    """
    names = [SIMILARITY, ADAPTED, *([TEXT] if place.text else []), *place.signals]
    # None becomes NaN.
    table = np.array(rows, np.float64).reshape(len(rows), len(names)).T.copy()
    for name, power in powers.items():
        if power:
            with np.errstate(over="ignore"):
                at = names.index(name)
                table[at] = np.ldexp(table[at], power)
    table[~np.isfinite(table)] = np.nan
    unasked = {
        name
        for name, value in ((SIMILARITY, asked.plain), (ADAPTED, asked.mapped), (TEXT, asked.text))
        if value is None
    } | {*missing}
    return {name: column for name, column in zip(names, table, strict=True) if name not in unasked}


def scaled_by_powers(queries: Vectors) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Queries (n, d) over powers of two, and their exponents (n,).

    Powers of two change no digit, and keep squares, products and half precision within their ranges.
    """
    _, exponents = np.frexp(np.abs(queries).max(axis=1).astype(np.float64))
    return np.ldexp(queries.astype(np.float64), -exponents[:, None]), exponents


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
