"""Evidence that a model is worse than an un-learned metric, of which one may look as often as one likes.

With d the weighted loss of the learned metric less that of an un-learned one, E(b) = product of (1 + b d) is an e-value
for every bet b, see `kinstream.streams.compute.betting`; the evidence is their mean over bets and metrics. It is
forgotten as the window of events is: with every event the logs are multiplied by the factor by which the window keeps
older ones. So a model that was good for long is still found out, and one that was bad for long comes back. A kept log
can only be nearer to 0, so that a false alarm in a stretch of the log as long as the window stays as rare as 1 / E.
"""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.compute.betting import BETS, log_mean, multiplied
from kinstream.streams.records.held_out import UNLEARNED


class Evidence:
    """Logs of the bets against a model, by un-learned metric; it never changes."""

    def __init__(self, logs: tuple[tuple[float, ...], ...]) -> None:
        self._logs = logs

    @classmethod
    def none(cls) -> Self:
        """Before any event."""
        return cls(((0.0,) * len(BETS),) * len(UNLEARNED))

    def after(self, losses: NDArray[np.float64], worth: NDArray[np.float64], keep: float) -> Self:
        """With more events.

        Parameters
        ----------
        losses : (k, 6) in [0, 1], by metric, the learned one first.
        worth : (k,) weights in (0, 1], known before the losses.
        keep : what is kept of the logs with every event.
        """
        logs = self._logs
        for lost, weight in zip(losses.tolist(), worth.tolist(), strict=True):
            logs = tuple(
                multiplied((keep * log for log in some), weight * (lost[0] - other))
                for some, other in zip(logs, lost[1:], strict=True)
            )
        return type(self)(logs)

    @property
    def log_e(self) -> float:
        """The log e-value of the moment."""
        return log_mean([log for some in self._logs for log in some])

    def array(self) -> NDArray[np.float64]:
        """(5, b) of a state."""
        return np.array(self._logs)

    @classmethod
    def of(cls, logs: NDArray[np.float64]) -> Self:
        """The inverse of `array`."""
        return cls(tuple(map(tuple, np.asarray(logs, np.float64).tolist())))
