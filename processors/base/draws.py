"""Random choices that depend only on the identity of their event or sample.

A sequential generator would make them depend on earlier choices, so a restart or a replay from the middle would need
the past. Here the seed and the identity of an event are the key of a counter-based generator (Philox), and the draw of
a row is the number at its place in the stream of that key. A builder that needs its past in any case uses the seed as
the key and the number of a sample in its space as the place, so that draws do not depend on how samples are cut into
blocks.

References
----------
Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3. SC 2011.
"""

from __future__ import annotations

import json
import threading
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.records.values import Click, ClickBlock, LoadPosition, SampleBlock

#: Factor from numbers below 2^64 to fractions of 53 bits.
_FRACTION_SHIFT = np.uint64(11)
#: Mask for multiplying 64 by 64 bits in halves.
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFF_FFFF)


class _Generator(threading.local):
    """A generator for each thread: making a new one costs eight times as much as setting its key."""

    def __init__(self) -> None:
        self._philox = np.random.Philox(key=0)
        self._start: Any = self._philox.state

    def at(self, key: NDArray[np.uint64]) -> np.random.Philox:
        """The generator as `Philox(key=key)` makes it, until the next call."""
        state: Any = {**self._start, "state": {**self._start["state"], "key": key}}
        self._philox.state = state
        return self._philox


_generator = _Generator()


def event_key(
    algorithm: str, seed: int, space: str, load: LoadPosition | None, offset: int
) -> NDArray[np.uint64]:
    """The key (2,) of an event's draws: algorithm, seed, space and its place in its load, or its offset."""
    place: list[str | int] = [offset] if load is None else [load.load_id, load.sequence]
    text = json.dumps([algorithm, seed, space, *place], separators=(",", ":"))
    return np.frombuffer(blake2b(text.encode(), digest_size=16).digest(), dtype="<u8").astype(np.uint64)


def raw_draws(
    algorithm: str, seed: int, event: SampleBlock | Click | ClickBlock, offset: int, count: int
) -> NDArray[np.uint64]:
    """The first `count` draws of an event, (count,) whole numbers in [0, 2^64)."""
    key = event_key(algorithm, seed, event.space, event.load, offset)
    return np.asarray(_generator.at(key).random_raw(count), np.uint64)


def block_draws(algorithm: str, seed: int, block: SampleBlock, offset: int, count: int) -> list[int]:
    """The same as Python integers."""
    draws: list[int] = raw_draws(algorithm, seed, block, offset, count).tolist()
    return draws


def sample_draws(
    algorithm: str, seed: int, space: str, first: int, count: int, each: int
) -> NDArray[np.uint64]:
    """Draws of samples by their number in the space, independent of blocks.

    Parameters
    ----------
    first, count : number of the first sample, and number of samples.
    each : draws of a sample; made a multiple of four.

    Returns
    -------
    (count, each) whole numbers in [0, 2^64).
    """
    text = json.dumps([algorithm, seed, space], separators=(",", ":"))
    key = np.frombuffer(blake2b(text.encode(), digest_size=16).digest(), dtype="<u8").astype(np.uint64)
    # The generator counts in groups of four numbers.
    groups = -(-each // 4)
    raw = np.random.Philox(key=key, counter=first * groups).random_raw(count * groups * 4)
    return np.asarray(raw, np.uint64).reshape(count, groups * 4)


def fractions(draws: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Draws as numbers in [0, 1)."""
    return np.asarray((draws >> _FRACTION_SHIFT) * 2.0**-53, np.float64)


def below(draw: int, count: int) -> int:
    """A draw as an index among `count`. The bias is below count / 2^64."""
    return draw * count >> 64


def below_each(draws: NDArray[np.uint64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same of each draw and its count."""
    high, low = draws >> _HALF, draws & _LOW
    many, few = counts.astype(np.uint64) >> _HALF, counts.astype(np.uint64) & _LOW
    middle = high * few + (low * few >> _HALF)
    upper = high * many + (middle >> _HALF) + ((low * many + (middle & _LOW)) >> _HALF)
    return np.asarray(upper, np.int64)
