"""Which queries get a drafted list, and the lists that clients see."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from kinstream.gate.lists.list_id import MAX_ITEMS, NONCE_BYTES, Keys, Shown, keys_of, show
from kinstream.streams.records.gate import Version
from kinstream.streams.records.values import Vectors
from kinstream.streams.settings import Settings

#: A model and what it ranks, best first.
Ranking = tuple[Version, Sequence[str]]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _nonce() -> bytes:
    return secrets.token_bytes(NONCE_BYTES)


class Drafts:
    """Drafts the lists of a space. Any thread may call it.

    Parameters
    ----------
    share : of the queries, from 0 to 1.
    now_ms, nonce : the time of a list, and `NONCE_BYTES` random bytes that make its id unique.
    """

    def __init__(
        self,
        space: str,
        keys: Keys,
        share: float,
        *,
        now_ms: Callable[[], int] = _now_ms,
        nonce: Callable[[], bytes] = _nonce,
    ) -> None:
        self._space, self._keys, self._share = space, keys, share
        self._now_ms, self._nonce = now_ms, nonce

    def rows(self, queries: Sequence[bytes], query_id: str | None, k: int) -> list[int]:
        """The numbers of the queries that get a drafted list of k items.

        Parameters
        ----------
        queries : what tells one query from another; see `of_queries`.
        query_id : tells all of them from those of other requests, in place of `queries`.
        """
        return rows_of(queries, query_id, k, self._chosen)

    def _chosen(self, query: bytes) -> bool:
        return self._keys.chosen(self._space, query, self._share)

    def shown(self, serving: Ranking, candidate: Ranking, k: int, newest: Version | None = None) -> Shown:
        """The list of at most k items that is shown, and its id.

        Parameters
        ----------
        newest : a newer model than the candidate's, if there is one.
        """
        return show(
            self._keys,
            self._space,
            (serving, candidate),
            k,
            time_ms=self._now_ms(),
            nonce=self._nonce(),
            newest=newest,
        )


def drafts_of(settings: Settings, space: str) -> Drafts:
    """The drafted lists of a space with a gate."""
    return Drafts(space, keys_of(settings), settings.gate[space].share)


def rows_of(
    queries: Sequence[bytes], query_id: str | None, k: int, chosen: Callable[[bytes], bool]
) -> list[int]:
    """The numbers of the queries that `chosen` chooses, for lists of k items; see `Drafts.rows`."""
    # An id holds at most `MAX_ITEMS` places.
    if k > MAX_ITEMS:
        return []
    if query_id is not None:
        name = b"id/" + query_id.encode("utf-8", "surrogatepass")
        return list(range(len(queries))) if chosen(name) else []
    return [row for row, query in enumerate(queries) if chosen(query)]


def of_queries(
    vectors: Vectors | None,
    texts: Sequence[str] | None = None,
    own: Mapping[str, Vectors] = MappingProxyType({}),
) -> list[bytes]:
    """What tells queries from one another: the bytes of each vector, float32, little-endian, and its text.

    Parameters
    ----------
    vectors : (n, d); None for queries by text alone.
    texts : n; None for queries by vector alone.
    own : vectors (n, d') for signals, by name.
    """
    parts = [] if vectors is None else [_bytes(vectors)]
    if texts is not None:
        parts.append([b"text/" + text.encode("utf-8", "surrogatepass") for text in texts])
    for name, rows in sorted(own.items()):
        parts.append([f"own/{name}/".encode("utf-8", "surrogatepass") + row for row in _bytes(rows)])
    return [b"".join(query) for query in zip(*parts, strict=True)]


def _bytes(vectors: Vectors) -> list[bytes]:
    return [query.tobytes() for query in np.asarray(vectors, "<f4")]
