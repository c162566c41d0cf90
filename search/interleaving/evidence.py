"""Evidence that one ranking wins more often than another, valid whenever somebody looks at it.

Of the impressions that one side won, let w be wins of the candidate and l those of the serving ranking. If the
candidate does not win more often (p <= 1/2), then for every q > 1/2

    E(q) = (2 q)^w (2 (1 - q))^l

is a supermartingale that starts at 1, and so is its mean over any q fixed before: the e-process here takes the
mean over a grid. By Ville's inequality it reaches 1 / a with a probability of at most a, over all looks together.

References
----------
Ramdas, Grünwald, Vovk, Shafer: Game-theoretic statistics and safe anytime-valid inference. Statistical Science 2023.
Robbins: Statistical methods related to the law of the iterated logarithm. Annals of Mathematical Statistics 1970.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

#: How much more often than half of the time the winner is supposed to win. Smaller advantages would need more lists
#: than comparisons have, and every further one costs evidence for the others.
ADVANTAGES: Final = np.geomspace(0.04, 0.3, 6)
#: Share of the error that is for the candidate. A comparison is there to promote; one that is lost ends early anyway.
_FOR: Final = 0.8
#: Standard errors above the share of wins that a candidate may hope for.
_LUCK: Final = 2.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """Counts of impressions, and what they say.

    Parameters
    ----------
    wins, losses, ties : impressions that the candidate won, lost, and those that nobody won.
    for_peak, against_peak : the largest log e-values up to now, for and against the candidate.
    """

    wins: int = 0
    losses: int = 0
    ties: int = 0
    for_peak: float = 0.0
    against_peak: float = 0.0

    def after(self, outcome: int) -> Evidence:
        """With one more impression: 1 for a win, -1 for a loss, 0 for a tie."""
        if outcome == 0:
            return replace(self, ties=self.ties + 1)
        wins, losses = self.wins + (outcome > 0), self.losses + (outcome < 0)
        return Evidence(
            wins,
            losses,
            self.ties,
            max(self.for_peak, log_e_value(wins, losses)),
            max(self.against_peak, log_e_value(losses, wins)),
        )

    def better(self, error: float = 0.05) -> bool:
        """Whether the candidate has been shown to win more often, at that error over all looks and both directions."""
        return self.for_peak >= decisive(error)

    def worse(self, error: float = 0.05) -> bool:
        """Whether the serving ranking has been shown to win more often."""
        return self.against_peak >= -math.log((1.0 - _FOR) * error)

    def hopeless(self, lists: int, most: int, error: float = 0.05) -> bool:
        """Whether the candidate would not be shown to win more often in `most` lists even if it had luck.

        Luck means that as many of the lists to come are decided as of those before, and one more; and that the
        candidate wins them as often as the share of its wins, and two standard errors, says.

        Parameters
        ----------
        lists : impressions up to now, clicked or not.

        References
        ----------
        Lan, Simon, Halperin: Stochastically curtailed tests in long-term clinical trials. Sequential Analysis 1982.
        """
        decided = self.wins + self.losses
        share = (self.wins + 1) / (decided + 2)
        lucky = min(1.0, share + _LUCK * math.sqrt(share * (1.0 - share) / (decided + 2)))
        left = (decided + 1) / (lists + 1) * max(0, most - lists)
        hoped = log_e_value(self.wins + lucky * left, self.losses + (1.0 - lucky) * left)
        return hoped < decisive(error)

    @property
    def share(self) -> float:
        """Share of the decided impressions that the candidate won; one half before any."""
        decided = self.wins + self.losses
        return self.wins / decided if decided else 0.5


def decisive(error: float) -> float:
    """The log e-value that decides for the candidate, at that error over all looks and both directions."""
    return -math.log(_FOR * error)


def log_e_value(wins: float, losses: float) -> float:
    """Log of the e-value against "no more wins than losses"; 0 before any impression."""
    values = wins * np.log1p(2.0 * ADVANTAGES) + losses * np.log1p(-2.0 * ADVANTAGES)
    top = float(values.max())
    return top + float(np.log(np.mean(np.exp(values - top))))


def interval(wins: int, losses: int, error: float = 0.05) -> tuple[float, float]:
    """A confidence interval of the share of wins that holds at all looks together.

    Each bound is where the likelihood ratio of a uniform mixture over shares to that share reaches 1 / error (Robbins
    1970). It is (0, 1) before any impression.
    """
    if wins + losses == 0:
        return 0.0, 1.0
    grid = (np.arange(10_000) + 0.5) / 10_000.0
    log_likelihood = wins * np.log(grid) + losses * np.log1p(-grid)
    top = float(log_likelihood.max())
    mixture = top + float(np.log(np.mean(np.exp(log_likelihood - top))))
    inside = grid[mixture - log_likelihood < np.log(1.0 / error)]
    return float(inside[0]), float(inside[-1])
