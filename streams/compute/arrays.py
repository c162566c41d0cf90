"""Arrays as kernels take them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


def plain(array: Any, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """`array` if it is contiguous, aligned, writeable and of that type, or a copy that is; None: of any type.

    `numpy.require` does the same and takes longer: ten times as long for an array that needs no copy.
    """
    if isinstance(array, np.ndarray) and (dtype is None or array.dtype == dtype) and array.flags.carray:
        return array
    return np.array(array, dtype, order="C")
