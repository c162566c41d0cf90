"""Drafted lists: which queries get one, and the list that a client sees."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from kinstream.search.gateway.gated import ModelPair
from kinstream.search.interleaving.impression import MAX_ITEMS, NONCE_BYTES, Keys, show
from kinstream.search.stores.base import Hit
from kinstream.streams.records.gate import Version
from kinstream.streams.records.values import Vectors


class DraftedList(NamedTuple):
    """A list as it is shown: its id, and its items in order."""

    list_id: str
    hits: list[Hit]


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

    def rows(self, pair: ModelPair, queries: Vectors, query_id: str | None, k: int) -> list[int]:
        """The numbers of the queries (n, d) that get a drafted list.

        A query is known by `query_id`, or else by the bytes of its vector (float32, little-endian).
        """
        candidate = pair.candidate
        # An id holds at most `MAX_ITEMS` places.
        if candidate is None or k > MAX_ITEMS or candidate.dimension not in (None, queries.shape[1]):
            return []
        if query_id is not None:
            name = b"id/" + query_id.encode("utf-8", "surrogatepass")
            chosen = self._keys.chosen(self._space, name, self._share)
            return list(range(len(queries))) if chosen else []
        return [
            row
            for row, query in enumerate(np.asarray(queries, "<f4"))
            if self._keys.chosen(self._space, query.tobytes(), self._share)
        ]

    def drafted(
        self, pair: ModelPair, serving: Sequence[Hit], candidate: Sequence[Hit], k: int
    ) -> DraftedList | None:
        """The list of at most k items that is shown; None if the candidate's similarities are too large.

        An item that both have found is shown as the serving model has found it.
        """
        if any(math.isinf(hit.similarity) for hit in candidate):
            return None
        assert pair.candidate is not None and pair.decided is not None
        rankings = [
            [hit.id for hit in hits if not math.isnan(hit.similarity)] for hits in (serving, candidate)
        ]
        shown = show(
            self._keys,
            self._space,
            ((pair.decided, rankings[0]), (Version(*pair.candidate.name), rankings[1])),
            k,
            time_ms=self._now_ms(),
            nonce=self._nonce(),
        )
        found = {hit.id: hit for hits in (candidate, serving) for hit in hits}
        return DraftedList(shown.list_id, [found[item] for item in shown.items])
