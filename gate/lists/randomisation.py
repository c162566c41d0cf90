"""Lists of one model with pairs of places that were swapped by a coin, and their ids.

FairPairs swaps neighbours: a click on the lower item of a pair, and not on the upper one, is a preference that does not
depend on how users read lists. Swaps exchange the first place and another one: the clicks at both, over many lists, are
in the proportion in which users look there, since both items were at both places equally often.

References
----------
Radlinski, Joachims: Minimally invasive randomization for collecting unbiased preferences from clickthrough logs. AAAI
2006. (FairPairs)
Joachims, Swaminathan, Schnabel: Unbiased learning-to-rank with biased feedback. WSDM 2017. (swaps)
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from kinstream.gate.lists.list_id import MAX_ITEMS, NONCE_BYTES, Keys, Shown
from kinstream.gate.lists.varints import read_varint, varint
from kinstream.streams.records.gate import Version
from kinstream.streams.records.randomised_id import (
    PREFIX,
    TIME_BYTES,
    DrawKind,
    Drawn,
    id_of,
    mark_of,
    parts_of,
    written,
)

Item = TypeVar("Item")

#: Bytes of a digest that choose a place; the bits of the others are coins.
_PLACE_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Randomised:
    """A randomised list as its id holds it.

    Parameters
    ----------
    time_ms : when it was shown, by the service's clock.
    model : whose list it is.
    swapped : of each of `drawn.pairs`, whether it was swapped.
    """

    time_ms: int
    model: Version
    drawn: Drawn
    swapped: tuple[bool, ...]

    @property
    def ranking(self) -> tuple[int, ...]:
        """The marks of the items as the model ranked them."""
        return tuple(_exchanged(self.drawn.marks, self.drawn.pairs, self.swapped))


def randomise(
    keys: Keys,
    space: str,
    model: Version,
    ranking: Sequence[str],
    size: int,
    *,
    kind: DrawKind,
    depth: int,
    time_ms: int,
    nonce: bytes,
) -> Shown:
    """Randomise a list of a model, and give it its id.

    Of `FAIR_PAIRS`, a coin says whether pairs begin at the first place or the second one, and each pair is swapped with
    probability 1/2. Of `SWAPS`, one of the places from the second to `depth` is drawn, each equally often; it and the
    first one are swapped with probability 1/2.

    Parameters
    ----------
    ranking : what the model ranks, best first; an item that it repeats counts once.
    size : items to show, at most `MAX_ITEMS`.
    depth : the lowest place of swaps, counted from 1.
    nonce : `NONCE_BYTES` random bytes.

    Examples
    --------
    >>> keys = Keys("a secret of a deployment")
    >>> shown = randomise(keys, "docs", Version(1, 0, 500), "abcde", 5, kind=DrawKind.FAIR_PAIRS, depth=5,
    ...     time_ms=1_000, nonce=b"random")
    >>> found = read(keys, "docs", shown.list_id)
    >>> found.ranking == tuple(mark_of("docs", item) for item in "abcde")
    True
    """
    if len(nonce) != NONCE_BYTES:
        raise ValueError(f"a nonce has {NONCE_BYTES} bytes")
    items = tuple(dict.fromkeys(ranking))[: min(size, MAX_ITEMS)]
    head = time_ms.to_bytes(TIME_BYTES, "big") + nonce
    digest = hashlib.blake2b(
        len(space.encode()).to_bytes(4, "little") + space.encode() + head + bytes((kind,)),
        key=keys.seed.to_bytes(8, "little", signed=True),
        person=b"randomise/1",
    ).digest()
    coins = int.from_bytes(digest[_PLACE_BYTES:], "little")
    if kind is DrawKind.SWAPS:
        lowest = min(depth, len(items))
        place = 1 + int.from_bytes(digest[:_PLACE_BYTES], "little") % (lowest - 1) if lowest > 1 else 0
    else:
        place, coins = coins & 1, coins >> 1
    ranked = Drawn(kind, place, tuple(mark_of(space, item) for item in items))
    swapped = tuple(bool(coins >> n & 1) for n in range(len(ranked.pairs)))
    shown = tuple(_exchanged(items, ranked.pairs, swapped))
    drawn = Drawn(kind, place, tuple(_exchanged(ranked.marks, ranked.pairs, swapped)))
    return Shown(list_id_of(keys, space, Randomised(time_ms, model, drawn, swapped), nonce), shown)


def list_id_of(keys: Keys, space: str, one: Randomised, nonce: bytes) -> str:
    """The id of a randomised list."""
    head = one.time_ms.to_bytes(TIME_BYTES, "big") + nonce
    numbers = b"".join(varint(n) for n in (one.model.generation, one.model.epoch + 1, one.model.step))
    bits = sum(1 << n for n, swapped in enumerate(one.swapped) if swapped)
    body = numbers + bits.to_bytes(-(-len(one.swapped) // 8), "little")
    signed = written(head, one.drawn) + keys.mask(PREFIX.encode() + head, body)
    return id_of(signed, keys.tag(space, PREFIX.encode() + signed))


def read(keys: Keys, space: str, list_id: str) -> Randomised | None:
    """The list of an id; None for an id that was not made with these keys for this space, or was changed."""
    parts = parts_of(list_id)
    maker = None if parts is None else keys.made(space, PREFIX.encode() + parts.signed, parts.tag)
    if parts is None or maker is None:
        return None
    body = maker.mask(PREFIX.encode() + parts.head, parts.body)
    numbers, at = [], 0
    for _ in range(3):
        number, at = read_varint(body, at)
        numbers.append(number)
    bits = int.from_bytes(body[at:], "little")
    return Randomised(
        int.from_bytes(parts.head[:TIME_BYTES], "big"),
        Version(numbers[0], numbers[1] - 1, numbers[2]),
        parts.drawn,
        tuple(bool(bits >> n & 1) for n in range(len(parts.drawn.pairs))),
    )


def _exchanged(
    items: Sequence[Item], pairs: Sequence[tuple[int, int]], swapped: Sequence[bool]
) -> list[Item]:
    found = list(items)
    for (upper, lower), swap in zip(pairs, swapped, strict=True):
        if swap:
            found[upper], found[lower] = found[lower], found[upper]
    return found
