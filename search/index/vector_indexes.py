"""Indexes over mapped vectors, by name: the exact scan, and those of FAISS.

They hold mapped items, so a new model needs a new index, which is built beside the old one.
"""

from __future__ import annotations

from typing import Final, Protocol

from kinstream.search.index.exact import Exact, First, Mapped, NearestSlots, first_slots
from kinstream.search.index.faiss import FLAT, HNSW, Faiss
from kinstream.search.index.items import Slots
from kinstream.streams.errors import SettingsError

EXACT: Final = "exact"
KINDS: Final = (EXACT, FLAT, HNSW)


class MappedIndex(Protocol):
    """Mapped items by slot. Searches may run beside each other, not beside a change."""

    def put(self, slots: Slots, Z: Mapped) -> None:
        """Add or replace (m,) items, (m, k) float32."""

    def drop(self, slots: Slots) -> None:
        """Remove items; unknown ones are ignored."""

    def search(self, Q: Mapped, k: int, first: First = first_slots) -> NearestSlots:
        """The k nearest of each query (q, k') float32.

        Parameters
        ----------
        first : chooses among equally near items at the cut; the lowest slots by default.
        """

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""


def create_mapped(kind: str, dimension: int, *, neighbours: int = 32, depth: int = 64) -> MappedIndex:
    """An empty index.

    Parameters
    ----------
    dimension : of the mapped vectors.
    neighbours, depth : of HNSW: links of an item, and candidates that a query keeps (M and efSearch).

    Raises
    ------
    SettingsError : unknown kind, or FAISS is not installed.
    """
    if kind == EXACT:
        return Exact(dimension)
    if kind in KINDS:
        return Faiss(kind, dimension, neighbours, depth)
    raise SettingsError(f"index must be one of {', '.join(KINDS)}, not {kind!r}")
