"""The algorithm as it was published, and as it is by default."""

from __future__ import annotations

from typing import Any, Final

#: Values that a variant sets for settings that are None.
VARIANTS: Final[dict[str, dict[str, Any]]] = {
    "anchored": {
        "initial": "isometric",
        "lift": 0.25,
        "temperature": 0.1,
        "gradient": "uniform",
        "anchors": ("euclidean", "cosine", "lifted"),
        "share": 0.3,
        "layers": 2,
        "pull": 1e-4,
    },
    "published": {
        "initial": "uniform",
        "lift": 0.0,
        "temperature": float("inf"),
        "gradient": "hedge",
        "anchors": (),
        "share": 1.0,
        "layers": 5,
        "pull": 0.0,
    },
}
