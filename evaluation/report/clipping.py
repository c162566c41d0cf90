"""The report's sentence on a learner whose guard shortens many steps."""

from __future__ import annotations

from typing import Final

#: Share of shortened steps from which it is reported.
MOST: Final = 0.05


def clipped_text(who: str, clipped: int, steps: int) -> str | None:
    """A sentence about `clipped` of `steps` steps; None if they are few."""
    if clipped <= MOST * steps:
        return None
    return (
        f"{who}: the guard shortened {clipped / steps:.0%} of the steps, so the step size does not fit the features; "
        "take a smaller one"
    )
