"""Records of re-embedded catalogues: the map of a version, and the vectors of its items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.records.gate import Version

#: (n, k) float32.
Rows = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class ItemMap:
    """A map of items to vectors, or a part of it: the order on `events` to write a version of the catalogue with it.

    On `vectors` the agent passes it on at the start of the version. A record holds a run of the map's rows, so that it
    stays below the size of a message; all but `first`, `item` and `query` are equal in all parts.

    Parameters
    ----------
    learner, model, sha256 : whose map it is; digest of the model's state.
    product : "cosine" if items are divided by their length before they are mapped, else "dot".
    dimension, rank : d and k of the map (k, d).
    first : number of the first row in this part.
    item : (n, d) float32, rows of the map of items.
    query : (n, d) float32, rows of the map of queries; (0, d) if queries stay as they are.
    version : number of the version in the epoch of the space; 0 on `events`, where nothing has numbered it.
    epoch : of the space; 0 on `events`.
    """

    space: str
    learner: str
    model: Version
    sha256: str
    product: str
    dimension: int
    rank: int
    first: int
    item: Rows
    query: Rows
    time_ms: int
    version: int = 0
    epoch: int = 0

    @property
    def origin(self) -> tuple[Any, ...]:
        """What all parts of one map have in common."""
        return (self.learner, self.model, self.sha256, self.product, self.dimension, self.rank, self._maps)

    @property
    def _maps(self) -> bool:
        return len(self.query) > 0


@dataclass(frozen=True, slots=True, eq=False)
class VectorBlock:
    """Items of a version that have these vectors from now on, and items that are gone.

    Parameters
    ----------
    version : number of the version in the epoch; a higher one is newer.
    ids : of the vectors; none is named twice in a block.
    vectors : (n, k) float32.
    tombstones : items that were deleted; none of them is among the ids.
    complete : in the last block of a new version, how many items it has; otherwise None.
    """

    space: str
    version: int
    ids: tuple[str, ...]
    vectors: Rows
    tombstones: tuple[str, ...]
    time_ms: int
    complete: int | None = None
    epoch: int = 0
