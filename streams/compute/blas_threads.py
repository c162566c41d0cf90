"""BLAS on one thread, so that a product has the same bits on every number of cores."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import (  # type: ignore[import-untyped, unused-ignore]
    LibController,
    ThreadpoolController,
)

_lock = threading.Lock()
_inside = 0
_before: list[int] = []


@cache
def _libraries() -> list[LibController]:
    # Finding the loaded libraries takes milliseconds, setting their threads takes microseconds.
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


def find_libraries() -> None:
    """Find the libraries that were loaded since the last search; inside `one_blas_thread` they are set at once."""
    with _lock:
        known = {library.filepath for library in _libraries()}
        for library in ThreadpoolController().select(user_api="blas").lib_controllers:
            if library.filepath not in known:
                _libraries().append(library)
                if _inside:
                    _before.append(library.get_num_threads())
                    library.set_num_threads(1)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run the body with single-threaded BLAS; about 5 microseconds.

    The setting belongs to the process, not to the thread: the first caller sets it and the last one restores it, so
    that kernels of several partitions can overlap.
    """
    global _inside, _before
    with _lock:
        if _inside == 0:
            _before = [library.get_num_threads() for library in _libraries()]
            for library in _libraries():
                library.set_num_threads(1)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                for library, threads in zip(_libraries(), _before, strict=True):
                    library.set_num_threads(threads)
