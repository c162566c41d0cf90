"""Team drafts: one list from two rankings, which says of every item whose pick it was."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)

_DRAWN_AS: Final = b"team-draft/1"
#: Coins that one digest gives.
_COINS: Final = 512


class Side(IntEnum):
    """Whose pick an item is."""

    SERVING = 0
    CANDIDATE = 1


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

    The coins are a function of (seed, impression), so whoever knows both can repeat the draft. A side that has nothing
    left to pick leaves the rest to the other one.

    Parameters
    ----------
    serving, candidate : rankings, best first; an item that a ranking repeats counts once.
    size : items to show.
    impression : identity of the shown list.

    References
    ----------
    Radlinski, Kurup, Joachims: How does clickthrough data reflect retrieval quality? CIKM 2008 (team draft).

    Examples
    --------
    >>> draft = team_draft("abcd", "bxac", 3, seed=1, impression="q-17")
    >>> draft.items
    ('a', 'b', 'c')
    >>> [side.name for side in draft.picks]
    ['SERVING', 'CANDIDATE', 'SERVING']
    """
    left = {Side.SERVING: iter(serving), Side.CANDIDATE: iter(candidate)}
    shown: dict[Item, Side] = {}
    turn = 0
    while len(shown) < size:
        first = Side(coin(seed, impression, turn))
        turn += 1
        before = len(shown)
        for side in (first, Side(1 - first)):
            found = next((one for one in left[side] if one not in shown), None)
            if found is not None and len(shown) < size:
                shown[found] = side
        if len(shown) == before:
            break
    return Draft(tuple(shown), tuple(shown.values()))


def coin(seed: int, impression: str, turn: int) -> int:
    """0 or 1, each with probability 1/2: the coin of a turn."""
    block, bit = divmod(turn, _COINS)
    key = seed.to_bytes(8, "little", signed=True) + block.to_bytes(8, "little")
    digest = hashlib.blake2b(impression.encode(), digest_size=64, key=key, person=_DRAWN_AS).digest()
    return digest[bit >> 3] >> (bit & 7) & 1


def credit(draft: Draft[Item], clicked: Iterable[Item]) -> int:
    """Who won: 1 for the candidate, -1 for the serving ranking, 0 for a tie or no click at all.

    The side wins that more of the clicked items were picked by. An item counts once, and an item that was not shown
    does not count.
    """
    owner = dict(zip(draft.items, draft.picks, strict=True))
    sides = [owner[item] for item in set(clicked) if item in owner]
    ahead = sum(1 if side is Side.CANDIDATE else -1 for side in sides)
    return (ahead > 0) - (ahead < 0)
