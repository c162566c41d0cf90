"""What the memory gives: bytes a second of a pass that reads and writes every number of a buffer in place.

That is how a learner goes through its model, so a buffer of the model's size lies in the same cache. The loop is
compiled, because a call of numpy costs more than a pass over a small buffer.
"""

from __future__ import annotations

import time
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.compute.compilation import compiled

#: Bytes of a buffer that no cache of a core holds.
LARGE: Final = 2**29
#: Bytes that one measurement moves at least, and how many there are: the fastest counts.
_MOVED: Final = 2**28
_TRIES: Final = 5


@compiled
def _pass(values: NDArray[Any], factor: float, times: int) -> None:
    for _ in range(times):
        for i in range(len(values)):
            values[i] *= factor


@cache
def bandwidth(size: int) -> float:
    """Bytes a second, read and written, over a buffer of so many bytes."""
    values = np.ones(max(1, size // 8))
    times = max(1, _MOVED // (2 * values.nbytes))
    _pass(values, 1.0, 1)
    found = []
    for _ in range(_TRIES):
        begun = time.thread_time()
        _pass(values, 1.0, times)
        found.append(time.thread_time() - begun)
    return 2.0 * values.nbytes * times / min(found)
