"""Compiles the kernels of an index, so that no search waits for it."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np

from kinstream.search.index.create import create
from kinstream.search.index.online.settings import DTYPES
from kinstream.search.index.scan_kernels import measure, products

_ITEMS: Final = 1_000
_D: Final = 8
#: Few candidates of many items, and rebuilds after every change.
_EVERYTHING: Final[dict[str, Any]] = {"eps": 1.0, "candidates": 1.0, "share": 0.0}
#: Modes and settings that together run every loop.
_ALL: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("linear", {}),
    ("lazy", {"sample": 100}),
)


def warm_up_all() -> None:
    """Compile the kernels of all indexes, for items of both number types."""
    warm_up_scans()
    for mode, settings in _ALL:
        for dtype in DTYPES:
            warm_up(mode, settings | {"dtype": dtype})


@cache
def warm_up_scans() -> None:
    """Run the kernels of exact scans once."""
    one, place = np.ones((1, 1), np.float32), np.zeros(1, np.int64)
    measure(one, place, np.ones(1), np.empty(1))
    products(np.ones((1, 1)), np.ones((1, 1)), place, place, np.empty(1))


def warm_up(mode: str, settings: dict[str, Any]) -> None:
    """Run all operations of a small index once: seconds the first time, then a load from numba's cache.

    Parameters
    ----------
    mode, settings : as `kinstream.search.index.create.create` takes them.
    """
    draw = np.random.default_rng(0)
    index = create(mode, **(settings | _EVERYTHING))
    index.put([str(row) for row in range(_ITEMS)], draw.normal(size=(_ITEMS, _D)))
    for _ in range(3):
        index.step(0.01 * draw.normal(size=(_D, 1)), draw.normal(size=(1, _D)))
        index.search(draw.normal(size=(1, _D)), 3)
