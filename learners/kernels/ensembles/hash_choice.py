"""Chooses rows of a table by a hash of their content."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.ensembles.vector_hashes import hashes
from kinstream.streams.compute.compilation import compiled

Words = NDArray[np.uint32]
_NEGATIVE_ZERO: Final = np.uint32(1 << 31)


@compiled
def chosen(words: Words, rows: NDArray[Any], key: Words, limit: np.uint64, found: NDArray[np.bool_]) -> None:
    """Fill in found (k,): whether the hash of a key and a row's own hash is below a limit; -0 counts as 0.

    Each row is hashed once.

    Parameters
    ----------
    words : (n, w) the table, the bits of float32.
    rows : (k,) of the table.
    key : (2,)
    """
    wanted = np.zeros(len(words), np.bool_)
    for t in range(len(rows)):
        wanted[rows[t]] = True
    places = np.flatnonzero(wanted)
    picked = words[places]
    for i in range(len(places)):
        for j in range(words.shape[1]):
            if picked[i, j] == _NEGATIVE_ZERO:
                picked[i, j] = 0
    own = hashes(picked)
    keyed = np.empty((len(places), 4), np.uint32)
    for i in range(len(places)):
        keyed[i, 0], keyed[i, 1] = key[0], key[1]
        keyed[i, 2] = np.uint32(own[i] & np.uint64(0xFFFFFFFF))
        keyed[i, 3] = np.uint32(own[i] >> np.uint64(32))
    below = hashes(keyed) < limit
    for i in range(len(places)):
        wanted[places[i]] = below[i]
    for t in range(len(rows)):
        found[t] = wanted[rows[t]]
