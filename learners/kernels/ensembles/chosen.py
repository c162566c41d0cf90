"""Which rows of a table a hash of their content chooses."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.ensembles.distinct import hashes
from kinstream.streams.compute.compiled import compiled

Words = NDArray[np.uint32]


@compiled
def chosen(words: Words, rows: NDArray[Any], key: Words, limit: np.uint64, found: NDArray[np.bool_]) -> None:
    """Fill in found (k,): whether the hash of a key and of a row's own hash is below a limit. Each row is hashed once.

    Parameters
    ----------
    words : (n, w) the table.
    rows : (k,) of the table.
    key : (2,)
    """
    known = np.zeros(len(words), np.int8)
    keyed = np.empty((1, 4), np.uint32)
    keyed[0, 0], keyed[0, 1] = key[0], key[1]
    for t in range(len(rows)):
        row = rows[t]
        if known[row] == 0:
            own = hashes(words[row : row + 1])[0]
            keyed[0, 2] = np.uint32(own & np.uint64(0xFFFFFFFF))
            keyed[0, 3] = np.uint32(own >> np.uint64(32))
            known[row] = 1 if hashes(keyed)[0] < limit else -1
        found[t] = known[row] > 0
