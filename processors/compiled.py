"""The one way in which the kernels of builders are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile on first use, keep the machine code on disk, and run without the interpreter lock.

    No fastmath and no parallel loops: results depend on the input alone. A kernel's helpers belong into its own
    file, because numba's cache notices a change of that file only.
    """
    return cast("Callable[P, R]", numba.njit(nogil=True, cache=True, error_model="numpy")(function))
