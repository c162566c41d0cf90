"""Team drafts: one list from two rankings, which says of every item whose pick it was."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Container, Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)

_DRAWN_AS: Final = b"team-draft/2"
#: Coins that one digest gives.
_COINS: Final = 512


class Side(IntEnum):
    """Whose pick an item is: of both, if it was the best item left of both rankings."""

    SERVING = 0
    CANDIDATE = 1
    BOTH = 2


SIDES: Final = (Side.SERVING, Side.CANDIDATE)


@dataclass(frozen=True, slots=True)
class Draft(Generic[Item]):
    """A list that was drafted from two rankings.

    Parameters
    ----------
    items : what is shown, first to last, each item once.
    picks : whose pick each of them was.
    """

    items: tuple[Item, ...]
    picks: tuple[Side, ...]


def team_draft(
    serving: Sequence[Item], candidate: Sequence[Item], size: int, *, seed: int, impression: str
) -> Draft[Item]:
    """Draft at most `size` items in rounds: a coin says who picks first, and each side picks its best item left.

    Before a round, items that are the best ones left of both sides are shown as the pick of both. A click on such an
    item says nothing about which ranking is better; with a coin to decide whose it is, it would only add noise.

    The coins are a function of (seed, impression), so who knows both can repeat the draft. A side that has nothing
    left to pick leaves the rest to the other one.

    Parameters
    ----------
    serving, candidate : rankings, best first; an item that a ranking repeats counts once.
    size : items to show.
    impression : identity of the shown list.

    References
    ----------
    Radlinski, Kurup, Joachims: How does clickthrough data reflect retrieval quality? CIKM 2008 (team draft).
    Chapelle, Joachims, Radlinski, Yue: Large-scale validation and analysis of interleaved search evaluation. ACM
    Transactions on Information Systems 2012 (items that both rankings begin with add noise).

    Examples
    --------
    >>> draft = team_draft("abcde", "acbde", 5, seed=1, impression="q-17")
    >>> draft.items
    ('a', 'c', 'b', 'd', 'e')
    >>> [side.name for side in draft.picks]
    ['BOTH', 'CANDIDATE', 'SERVING', 'BOTH', 'BOTH']
    """
    left = {Side.SERVING: list(serving)[::-1], Side.CANDIDATE: list(candidate)[::-1]}
    shown: dict[Item, Side] = {}
    turn = 0
    while len(shown) < size:
        best = {side: _best(left[side], shown) for side in SIDES}
        if not best[Side.SERVING] and not best[Side.CANDIDATE]:
            break
        if best[Side.SERVING] == best[Side.CANDIDATE]:
            shown[best[Side.SERVING][0]] = Side.BOTH
            continue
        first = Side(coin(seed, impression, turn))
        turn += 1
        for side in (first, Side(1 - first)):
            if len(shown) < size:
                shown |= dict.fromkeys(_best(left[side], shown), side)
    return Draft(tuple(shown), tuple(shown.values()))


def _best(left: list[Item], shown: Container[Item]) -> list[Item]:
    """The best item of a ranking, worst first, that is not shown, as a list; empty if all are. Forgets the others."""
    while left and left[-1] in shown:
        left.pop()
    return left[-1:]


def coin(seed: int, impression: str, turn: int) -> int:
    """0 or 1, each with probability 1/2: the coin of a turn."""
    block, bit = divmod(turn, _COINS)
    key = seed.to_bytes(8, "little", signed=True) + block.to_bytes(8, "little")
    digest = hashlib.blake2b(impression.encode(), digest_size=64, key=key, person=_DRAWN_AS).digest()
    return digest[bit >> 3] >> (bit & 7) & 1


def credit(draft: Draft[Item], clicked: Iterable[Item]) -> float:
    """How the list speaks for the candidate: above 0, at most 1, if it won; below 0, at least -1, if it lost.

    A list has one vote, which its clicked items share. The r-th pick of a side, with those of both, counts
    1 / log2(1 + r), as in NDCG. An item that both have picked counts for neither side, one that was not shown is no
    click, and each item counts once. It is 0 for a tie or no click at all.

    Examples
    --------
    >>> draft = team_draft("abcde", "acbde", 5, seed=1, impression="q-17")
    >>> round(credit(draft, "c"), 3), round(credit(draft, "ac"), 3), credit(draft, "a")
    (0.631, 0.315, 0.0)
    """
    clicks = set(clicked)
    total, number, picked = 0.0, 0, [0, 0]
    for item, pick in zip(draft.items, draft.picks, strict=True):
        for side in SIDES:
            picked[side] += pick in (side, Side.BOTH)
        if item not in clicks:
            continue
        number += 1
        if pick is not Side.BOTH:
            total += (1 if pick is Side.CANDIDATE else -1) / math.log2(1 + picked[pick])
    return total / number if number else 0.0
