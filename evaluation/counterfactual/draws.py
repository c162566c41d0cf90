"""The probabilities of a team draft: where each item is shown, over all coins. Exact."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.gate.lists.draft import Side

#: Places that are evaluated at most: a draft of so many places has at most 2^10 outcomes that differ.
MOST_PLACES: Final = 20


def place_probabilities(
    serving: Sequence[str], candidate: Sequence[str], size: int, *, shared: bool = True
) -> dict[str, NDArray[np.float64]]:
    """By item, the probability of each place (size,) in a team draft of the two rankings.

    The order in which the sides have picked before does not matter to what they pick next, so outcomes that show the
    same items are followed together.

    Parameters
    ----------
    serving, candidate : rankings, best first, each item once.
    size : places, at most `MOST_PLACES`.
    shared : as in `Impression`.

    References
    ----------
    Radlinski, Kurup, Joachims: How does clickthrough data reflect retrieval quality? CIKM 2008 (team draft).

    Examples
    --------
    >>> found = place_probabilities("ab", "ba", 2)
    >>> {item: places.tolist() for item, places in sorted(found.items())}
    {'a': [0.5, 0.5], 'b': [0.5, 0.5]}
    """
    if size > MOST_PLACES:
        raise ValueError(f"at most {MOST_PLACES} places, not {size}")
    rankings = (serving, candidate)
    found: defaultdict[str, NDArray[np.float64]] = defaultdict(lambda: np.zeros(size))
    outcomes: dict[frozenset[str], float] = {frozenset(): 1.0}
    while outcomes:
        after: defaultdict[frozenset[str], float] = defaultdict(float)
        for shown, probability in outcomes.items():
            best = [_best(ranking, shown) for ranking in rankings]
            # An item that is the best one of both is shown without a coin.
            orders = ((0,),) if shared and best[0] == best[1] else ((0, 1), (1, 0))
            for order in orders:
                now = shown
                for side in order:
                    picked = _best(rankings[side], now)
                    if picked is not None and len(now) < size:
                        found[picked][len(now)] += probability / len(orders)
                        now = now | {picked}
                if len(shown) < len(now) < size:
                    after[now] += probability / len(orders)
        outcomes = after
    return dict(found)


def _best(ranking: Sequence[str], shown: Collection[str]) -> str | None:
    return next((item for item in ranking if item not in shown), None)


def was_drafted(
    serving: Sequence[str], candidate: Sequence[str], items: Sequence[str], picks: Sequence[Side]
) -> bool:
    """Whether a draft of the two rankings shows these items when the sides pick in this order."""
    rankings = {Side.SERVING: (serving,), Side.CANDIDATE: (candidate,), Side.BOTH: (serving, candidate)}
    shown: set[str] = set()
    for item, side in zip(items, picks, strict=True):
        if any(item != _best(ranking, shown) for ranking in rankings[side]):
            return False
        shown.add(item)
    return True
