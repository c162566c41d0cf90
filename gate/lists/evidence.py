"""Evidence that one ranking is better than another, valid whenever somebody looks at it.

Each impression has a credit x between -1 and 1, above 0 if the candidate won it: see `draft.credit`. If the candidate
is not better (the mean of x is at most 0), then for every bet b between 0 and 1

    E(b) = product of (1 + b x)

is a supermartingale that starts at 1, and so is its mean over any bets fixed before: the e-process here takes the mean
over a grid. By Ville's inequality it reaches 1 / a with a probability of at most a, over all looks together. An
impression may count less, with a weight w that is known before its credit: its bets are on w x.

What decides is the e-value of the moment and not the largest one up to now, which the bound would allow as well: bought
clicks come at once, and honest ones that follow take back what they have said.

Comparisons with the same serving model follow each other, and each could promote by chance. So they bet with one stake:
it begins at 1, each comparison bets half of what is left, and its losses are carried over. The stake never exceeds 1 at
the beginning of a comparison. So the bound holds for all comparisons up to a promotion together, and for each one. The
stake never falls below 1/32 either, so that a better model can still be shown after a long time without one: each
comparison from there on adds at most 1/64 of the error.

References
----------
Ramdas, Grünwald, Vovk, Shafer: Game-theoretic statistics and safe anytime-valid inference. Statistical Science 2023.
Waudby-Smith, Ramdas: Estimating means of bounded random variables by betting. JRSS B 2024.
Robbins: Statistical methods related to the law of the iterated logarithm. Annals of Mathematical Statistics 1970.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np

from kinstream.streams.compute.betting import BETS, log_mean, multiplied

#: Share of the error that is for the candidate. A comparison is there to promote; one that is lost ends early anyway.
_FOR: Final = 0.8
#: Share of the stake that a comparison bets, and the least stake.
_STAKED: Final = 0.5
_LEAST: Final = 1.0 / 32.0
#: Standard errors above the mean credit that a candidate may hope for.
_LUCK: Final = 2.0
_NOTHING: Final = (0.0,) * len(BETS)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Counts of impressions, and what they say.

    Parameters
    ----------
    wins, losses, ties : impressions that the candidate won, lost, and those that nobody won.
    votes : sum of the weights of all these impressions.
    for_bets, against_bets : log of E(b) of each bet, for and against the candidate.
    decided, credit, squares : sums over the impressions that somebody won: of the weights, and of the credits and of
        their squares, each times its weight. A user with few votes has little of these as well.
    """

    wins: int = 0
    losses: int = 0
    ties: int = 0
    votes: float = 0.0
    for_bets: tuple[float, ...] = _NOTHING
    against_bets: tuple[float, ...] = _NOTHING
    decided: float = 0.0
    credit: float = 0.0
    squares: float = 0.0

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """From `dataclasses.asdict`; one of an earlier version may have other fields, and lack some."""
        known = {name: plain[name] for name in cls.__dataclass_fields__ if name in plain}
        return cls(**known | {name: tuple(known[name]) for name in known if name.endswith("bets")})

    def after(self, credit: float, weight: float = 1.0) -> Evidence:
        """With one more impression, of that credit: above 0 for a win, below 0 for a loss, 0 for a tie.

        Parameters
        ----------
        weight : above 0 and at most 1; known before the credit.
        """
        worth = weight * credit
        return Evidence(
            self.wins + (credit > 0.0),
            self.losses + (credit < 0.0),
            self.ties + (credit == 0.0),
            self.votes + weight,
            multiplied(self.for_bets, worth),
            multiplied(self.against_bets, -worth),
            self.decided + (weight if credit else 0.0),
            self.credit + worth,
            self.squares + worth * credit,
        )

    @property
    def log_e_for(self) -> float:
        """The log e-value for the candidate, now."""
        return log_mean(self.for_bets)

    @property
    def log_e_against(self) -> float:
        """The log e-value against the candidate, now."""
        return log_mean(self.against_bets)

    def log_e_without(self, bought: float) -> float:
        """The log e-value for the candidate without the best `bought` votes that there can be, at least.

        A vote of weight w multiplies E(b) by 1 + b w or less, which is at most exp(b w).
        """
        return log_mean(tuple(log - bet * bought for log, bet in zip(self.for_bets, BETS, strict=True)))

    def better(self, error: float = 0.05, stake: float = 1.0, bought: float = 0.0) -> bool:
        """Whether the candidate has been shown to be better, at that error over all looks and both directions.

        Parameters
        ----------
        bought : votes that may be anything; the others have to show it.
        """
        return self.log_e_without(bought) >= decisive(error, stake)

    def worse(self, error: float = 0.05) -> bool:
        """Whether the serving ranking has been shown to be better."""
        return self.log_e_against >= -math.log((1.0 - _FOR) * error)

    def hopeless(
        self, lists: float, most: int, error: float = 0.05, stake: float = 1.0, bought: float = 0.0
    ) -> bool:
        """Whether the candidate would not be shown to be better in `most` lists even if it had luck.

        Luck means that the lists to come bring as many decided votes as those before, and one more; and that their
        credits are two standard errors better. They are taken to be of one size, the root of the mean square. Two more
        votes are supposed before, with the credits 1 and -1.

        Parameters
        ----------
        lists : up to now, clicked or not, by what they count.

        References
        ----------
        Lan, Simon, Halperin: Stochastically curtailed tests in long-term clinical trials. Sequential Analysis 1982.
        """
        votes = self.decided + 2.0
        square, mean = (self.squares + 2.0) / votes, self.credit / votes
        size = math.sqrt(square)
        lucky = min(size, mean + _LUCK * math.sqrt(max(0.0, square - mean * mean) / votes))
        left = (self.decided + 1.0) / (lists + 1.0) * max(0.0, most - lists)
        won = (1.0 + lucky / size) / 2.0
        hoped = (
            log - bet * bought + left * (won * math.log1p(bet * size) + (1.0 - won) * math.log1p(-bet * size))
            for log, bet in zip(self.for_bets, BETS, strict=True)
        )
        return log_mean(tuple(hoped)) < decisive(error, stake)

    def stake_after(self, stake: float) -> float:
        """What is left of the stake when the comparison ends without a promotion."""
        left = stake * (1.0 - _STAKED + _STAKED * math.exp(self.log_e_for))
        return min(1.0, max(_LEAST, left))

    @property
    def share(self) -> float:
        """Share of the decided impressions that the candidate won; one half before any."""
        decided = self.wins + self.losses
        return self.wins / decided if decided else 0.5


def decisive(error: float, stake: float = 1.0) -> float:
    """The log e-value of a comparison that decides for the candidate.

    Parameters
    ----------
    error : over all looks, both directions, and all comparisons with the same serving model.
    stake : at the beginning of the comparison, above 0 and at most 1.
    """
    return math.log((1.0 / (_FOR * error * stake) - (1.0 - _STAKED)) / _STAKED)


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
