"""The query map of a learner: what makes of a query the vector that a store of raw items is asked with.

A learner of a bilinear similarity q^T W x needs nothing of the items but themselves: with q' = W^T q, the inner product
q'.x ranks them as the learner does. So the items stay where they are, in any vector store, and only queries change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.learner import Learner
from kinstream.learners.forms.bilinear import Bilinear
from kinstream.streams.errors import CheckpointError, SettingsError

Matrix = NDArray[np.floating[Any]]
#: What metadata of an exported file says under `query_map`: the mapped queries, in numpy.
LOW_RANK: Final = "q + (q @ U) @ V.T"
DENSE: Final = "q @ W"
#: The same of a file that has W as `similarity`.
SIMILARITY: Final = "q @ similarity"
#: Scalers behind which a linear map of raw queries ranks as the learner does.
SCALERS: Final = ("none", "unit")


@dataclass(frozen=True, slots=True, eq=False)
class QueryMap:
    """A linear map of queries. It never changes.

    Parameters
    ----------
    arrays : `W` (d, d); or `U` and `V`, both (d, r), of W = I + U V^T.
    """

    arrays: dict[str, Matrix]

    @property
    def use(self) -> str:
        """The mapped queries in numpy, `q` being (n, d) raw queries and the rest the arrays."""
        return DENSE if "W" in self.arrays else LOW_RANK

    @property
    def dimension(self) -> int:
        """Number of features of a query, and of what becomes of it."""
        return len(next(iter(self.arrays.values())))

    def __call__(self, Q: Matrix) -> NDArray[np.float32]:
        """Mapped queries (n, d) float32, whose inner products with raw items rank as the learner does.

        Raises
        ------
        ValueError
            Q is not (n, d).
        """
        if Q.ndim != 2 or Q.shape[1] != self.dimension:
            raise ValueError(f"expected queries of shape (n, {self.dimension}), got {Q.shape}")
        if "W" in self.arrays:
            return np.asarray(Q @ self.arrays["W"], np.float32)
        U, V = self.arrays["U"], self.arrays["V"]
        return np.asarray(Q + (Q @ U) @ V.T, np.float32)


def query_map(learner: Learner) -> QueryMap:
    """The query map of a learner.

    The inner product of a mapped query and a raw item is the learned similarity, up to a positive factor. With the
    scaler "unit" it is that up to the item's length: stores then rank by the cosine.

    Raises
    ------
    SettingsError : the learner is no bilinear similarity, or has a scaler that a map of queries cannot hold.
    CheckpointError : nothing has been learned yet.
    """
    if not isinstance(learner, Bilinear):
        raise SettingsError(
            f"{learner.algorithm} has no query map: its distance is not a similarity q^T W x of raw items"
        )
    if learner.scaler not in SCALERS:
        raise SettingsError(
            f"{learner.algorithm} with the scaler {learner.scaler} has no query map: items in a store are not scaled. "
            f"Use one of {', '.join(SCALERS)}"
        )
    if learner.dimension is None:
        raise CheckpointError("nothing has been learned yet")
    # A learner of low rank has its factors; W would be d / 2r times as large.
    factors: tuple[Matrix, ...] = learner.factors if hasattr(learner, "factors") else (learner.W,)
    return QueryMap(dict(zip(("W",) if len(factors) == 1 else ("U", "V"), factors, strict=True)))
