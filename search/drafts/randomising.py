"""Which queries get a randomised list of the model that serves, and the lists that clients see."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Final

from kinstream.gate.lists.list_id import NONCE_BYTES, Keys, Shown, keys_of
from kinstream.gate.lists.randomisation import randomise
from kinstream.search.drafts.drafts import rows_of
from kinstream.streams.records.gate import Version
from kinstream.streams.records.randomised_id import DrawKind
from kinstream.streams.settings import RandomiseSettings, Settings

#: By `kind` of the settings.
KINDS: Final = {"fairpairs": DrawKind.FAIR_PAIRS, "swaps": DrawKind.SWAPS}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _nonce() -> bytes:
    return secrets.token_bytes(NONCE_BYTES)


class Randomising:
    """Randomises the lists of a space. Any thread may call it.

    Parameters
    ----------
    section : of the space.
    drafted : share of the queries that may get a drafted list; others are chosen here.
    now_ms, nonce : as of `kinstream.search.drafts.drafts.Drafts`.
    """

    def __init__(
        self,
        space: str,
        keys: Keys,
        section: RandomiseSettings,
        drafted: float = 0.0,
        *,
        now_ms: Callable[[], int] = _now_ms,
        nonce: Callable[[], bytes] = _nonce,
    ) -> None:
        self._space, self._keys, self._section = space, keys, section
        self._low, self._high = drafted, drafted + section.share
        self._now_ms, self._nonce = now_ms, nonce

    def rows(self, queries: Sequence[bytes], query_id: str | None, k: int) -> list[int]:
        """The numbers of the queries that get a randomised list; see `Drafts.rows`."""
        return rows_of(queries, query_id, k, self._chosen)

    def _chosen(self, query: bytes) -> bool:
        return self._keys.among(self._space, query, self._low, self._high)

    def shown(self, model: Version, ranking: Sequence[str], k: int) -> Shown:
        """The list of at most k items that is shown, and its id."""
        return randomise(
            self._keys,
            self._space,
            model,
            ranking,
            k,
            kind=KINDS[self._section.kind],
            depth=self._section.depth,
            time_ms=self._now_ms(),
            nonce=self._nonce(),
        )


def randomising_of(settings: Settings, space: str) -> Randomising | None:
    """The randomised lists of a space; None if its settings name none."""
    section = settings.randomise.get(space)
    if section is None:
        return None
    drafted = settings.gate[space].share if space in settings.gate else 0.0
    return Randomising(space, keys_of(settings), section, drafted)
