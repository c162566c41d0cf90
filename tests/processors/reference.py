"""One-pass constraints by the rule of the OPML paper, one sample at a time; nothing shared with the product."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable
from hashlib import blake2b

import numpy as np

#: A constraint as numbers of samples: ("pair", previous, current) or ("triplet", anchor, positive, negative).
Constraint = tuple[str, int, int] | tuple[str, int, int, int]


def one_pass(
    labels: Iterable[Hashable], negatives: str, choose: Callable[[int, int], int] | None = None
) -> list[Constraint]:
    """The constraints of a stream of labels.

    Parameters
    ----------
    choose : (number of the sample, m) -> index below m, for random negatives.
    """
    H: dict[Hashable, int] = {}
    order: list[Hashable] = []
    previous: tuple[int, Hashable] | None = None
    made: list[Constraint] = []
    for x, k in enumerate(labels):
        if k not in H:
            order.append(k)
        elif len(order) < 2:
            assert previous is not None
            made.append(("pair", previous[0], x))
        else:
            positive = H[k]
            if negatives == "random":
                assert choose is not None
                others = [c for c in order if c != k]
                negative = H[others[choose(x, len(others))]]
            elif previous is not None and previous[1] == k:
                newest = order[-1] if order[-1] != k else order[-2]
                negative = H[newest]
            else:
                assert previous is not None
                negative = previous[0]
            made.append(("triplet", x, positive, negative))
        H[k] = x
        previous = (x, k)
    return made


def keyed_choice(
    seed: int, space: str, blocks: Iterable[tuple[list[str | int], int]]
) -> Callable[[int, int], int]:
    """The choice by Philox: 64 random bits for each row of a block, keyed by seed, space and place of the block.

    Parameters
    ----------
    blocks : place ([load id, sequence] or [offset]) and rows of each block.
    """
    bits: list[int] = []
    for place, rows in blocks:
        name = json.dumps(["one-pass/1", seed, space, *place], separators=(",", ":")).encode()
        low, high = (
            int.from_bytes(blake2b(name, digest_size=16).digest()[i : i + 8], "little") for i in (0, 8)
        )
        bits += [int(b) for b in np.random.Philox(key=low + (high << 64)).random_raw(rows)]
    return lambda x, m: (bits[x] * m) // 2**64
