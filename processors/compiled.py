"""The one way in which the kernels of builders are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar, cast
from uuid import uuid4

import numba

P = ParamSpec("P")
R = TypeVar("R")
_PROCESS: Final = uuid4().hex[:12]


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile on first use, keep the machine code on disk, and run without the interpreter lock.

    No fastmath and no parallel loops: results depend on the input alone. A kernel's helpers belong into its own
    file, because numba's cache notices a change of that file only.
    """
    dispatcher: Any = numba.njit(nogil=True, cache=True, error_model="numpy")(function)
    # numba numbers the files of machine code: what another process is about to write would be read as it was before,
    # and two that compile for different types would take the same number.
    kept = dispatcher._cache._cache_file
    kept._data_name_pattern = kept._data_name_pattern.replace("{number", f"{_PROCESS}.{{number")
    return cast("Callable[P, R]", dispatcher)
