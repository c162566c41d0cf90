"""Data sets that a benchmark uses where they are there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def arrays(name: str) -> dict[str, NDArray[Any]] | None:
    """The arrays of one data set by name, as `make data` leaves them; None where it is not there."""
    path = Path(os.environ.get("KINSTREAM_DATA", "../shared/data")) / f"{name}.npz"
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as found:
        return dict(found)
