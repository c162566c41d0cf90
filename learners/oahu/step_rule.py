"""The parameters of a step, shared by all forms of OAHU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

HEDGES: Final = ("literal", "exp", "linear")


@dataclass(frozen=True, slots=True)
class Rule:
    """One step of OAHU (Eq. 9 to 20 of the paper; Gao et al. 2019).

    Parameters
    ----------
    eta, tau : step size, and the width of the thresholds in (0, 2/3).
    temperature : of the rank weight 2 sigma((D(x, x+) - D(x, x-)) / temperature); infinity for none.
    by_alpha : whether a model's gradient is weighted with its alpha, and not with 1 / (L + 1).
    beta, floor, hedge : of the update of alpha; the floor counts before alpha is normalised.
    share : of the learned models in the fused score.
    """

    eta: float
    tau: float
    temperature: float
    by_alpha: bool
    beta: float
    floor: float
    hedge: str
    share: float
