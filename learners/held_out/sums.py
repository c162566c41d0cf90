"""Sums of losses over judged events, as they grow block by block."""

from __future__ import annotations

from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.records.held_out import METRICS, UNLEARNED, HeldOutSums
from kinstream.streams.records.state import State

Numbers = NDArray[np.float64]

#: Factor of an older event in the window for each newer one; about the newest 1,000 events count.
KEEP: Final = 1.0 - 1.0 / 500.0
#: The same for lists, which tell less each.
KEEP_LISTS: Final = 1.0 - 1.0 / 1_000.0


class Sums:
    """`HeldOutSums` as arrays that never change.

    Parameters
    ----------
    weights : of the events, and of their squares.
    losses, squares : (6,) and (5,) by metric.
    """

    def __init__(self, weights: Numbers, losses: Numbers, squares: Numbers) -> None:
        self._weights, self._losses, self._squares = weights, losses, squares

    @classmethod
    def none(cls) -> Self:
        """The sums over no event."""
        return cls(np.zeros(2), np.zeros(len(METRICS)), np.zeros(len(UNLEARNED)))

    @property
    def events(self) -> int:
        """The number of events, if all have weight 1."""
        return int(self._weights[0])

    def after(self, losses: Numbers, keep: float = 1.0, worth: Numbers | None = None) -> Self:
        """The sums with more events.

        Parameters
        ----------
        losses : (k, 6) of events in order, by metric, the learned one first.
        keep : factor of the weights of all older events, for each event.
        worth : (k,) weights of the events in (0, 1]; 1 if left out.
        """
        weights = (keep ** np.arange(len(losses) - 1, -1, -1))[:, None]
        if worth is not None:
            weights = weights * worth[:, None]
        before = keep ** len(losses)
        squares = (losses[:, :1] - losses[:, 1:]) ** 2
        return type(self)(
            self._weights * (before, before * before) + (weights.sum(), (weights * weights).sum()),
            self._losses * before + (weights * losses).sum(axis=0),
            self._squares * before + (weights * squares).sum(axis=0),
        )

    def value(self) -> HeldOutSums:
        """The sums by names of metrics."""
        weight, squared = self._weights.tolist()
        losses = dict(zip(METRICS, self._losses.tolist(), strict=True))
        return HeldOutSums(weight, squared, losses, dict(zip(UNLEARNED, self._squares.tolist(), strict=True)))

    def state(self) -> State:
        """Copies of the sums."""
        return {
            "weights": self._weights.copy(),
            "losses": self._losses.copy(),
            "squares": self._squares.copy(),
        }

    @classmethod
    def of(cls, state: dict[str, Any]) -> Self:
        """The inverse of `state`."""
        return cls(*(np.array(state[name], np.float64) for name in ("weights", "losses", "squares")))
