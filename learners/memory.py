"""How many bytes a space takes under a learner, from the number of its features and before anything is allocated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from kinstream.learners.base.learner import Learner
from kinstream.learners.registry import create

#: Numbers of a square matrix of all features, and of a table of so many rows, that a learner keeps while it learns.
#: Those with a rank, a budget or a subspace have no square.
_MATRICES: Final[dict[str, tuple[float, int]]] = {
    "adapter": (0.0, 1_500),
    "adasors": (4.0, 100),
    "copml": (2.0, 100),
    "euclidean": (0.0, 100),
    "itml": (4.0, 5_500),
    "itml-online": (2.0, 1_000),
    "kernel-lego": (0.0, 1_200),
    "lda": (0.0, 3_000),
    "lego": (2.0, 1_000),
    "lmnn": (4.0, 5_500),
    "lomdml": (0.0, 1_000),
    "mahalanobis": (4.0, 5_500),
    "mdml": (3.0, 500),
    "mixture": (8.0, 5_000),
    "oahu": (0.0, 1_500),
    "oasis": (2.0, 100),
    "omdl-lr-like": (0.0, 1_000),
    "omdml": (4.0, 500),
    "omks": (0.0, 1_500),
    "opml": (2.0, 100),
    "pola": (3.0, 100),
    "ranking": (0.0, 2_600),
    "rca": (4.0, 5_500),
    "rdml": (3.0, 100),
    "softmax": (3.0, 1_500),
    "soml-da": (0.0, 100),
    "soml-tg": (0.0, 100),
    "sors": (3.0, 100),
}
#: Of a learner of another distribution, which does not say.
_UNKNOWN: Final = (4.0, 5_000)
#: Of a query that `ranking` remembers.
_REMEMBERED: Final = 570
#: Of an adapter whose map is a full matrix.
_FULL_ADAPTER: Final = (6.0, 1_500)


def space_bytes(kind: str, learner: Learner, sizes: Sequence[int]) -> int:
    """Bytes of the state and the working arrays of a space, about. The learner is asked and not changed.

    Parameters
    ----------
    kind : of the learner. One of another distribution may have a method `space_bytes`, which takes the sizes.
    sizes : number of features of each modality.

    Examples
    --------
    >>> from kinstream.learners.registry import create
    >>> [space_bytes(kind, create(kind), [20_000]) // 10**6 for kind in ("opml", "euclidean")]
    [6416, 16]
    """
    own: Any = getattr(learner, "space_bytes", None)
    if own is not None:
        return int(own(tuple(sizes)))
    settings: Any = getattr(learner, "settings", None)
    base = getattr(learner, "base", None)
    if kind == "fusion" and isinstance(base, str):
        # One over each modality, and one over all of them side by side.
        inner = create(base, **(settings or {}))
        return sum(space_bytes(base, inner, one) for one in ([sum(sizes)], *([d] for d in sizes)))
    squares, rows = _MATRICES.get(kind, _UNKNOWN)
    rank_of: Any = getattr(learner, "rank_of", None)
    if rank_of is not None and rank_of(max(sizes)) == 0:
        squares, rows = _FULL_ADAPTER
    if kind == "lda":
        rows += 12 * int(getattr(learner, "subspace", 0))
    number = np.dtype(getattr(learner, "dtype", None) or np.float64).itemsize
    remembered = _REMEMBERED * int(getattr(learner, "remember", 0))
    return remembered + int(sum(number * (squares * d * d + rows * d) for d in sizes))
