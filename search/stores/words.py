"""Texts as sparse vectors of their words, for a store that ranks by such vectors.

A word is a run of letters, digits and underscores, case-folded. Its place is the number that four bytes of BLAKE2b of
its UTF-8 make, the lowest first. Whoever fills a store uses `item_vector`, and the service asks with `query_vector`;
the store weighs places by how rare they are (in Qdrant: the modifier IDF). The scores are then those of BM25.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from hashlib import blake2b
from typing import Final

#: Of BM25: how fast repetition saturates, and how much the length of a text counts.
K1: Final = 1.2
B: Final = 0.75
_WORD: Final = re.compile(r"\w+")

#: Places, ascending, and the number at each.
SparseVector = tuple[list[int], list[float]]


def words(text: str) -> list[str]:
    """The words of a text, in their order."""
    return _WORD.findall(text.casefold())


@lru_cache(1 << 16)
def place_of(word: str) -> int:
    """The place of a word, below 2^32."""
    # A lone surrogate is no text, but may be in one.
    return int.from_bytes(blake2b(word.encode("utf-8", "replace"), digest_size=4).digest(), "little")


def query_vector(text: str) -> SparseVector:
    """1 at the place of each word of a query."""
    places = sorted({place_of(word) for word in words(text)})
    return places, [1.0] * len(places)


def item_vector(text: str, mean_words: float) -> SparseVector:
    """How much each word of an item counts, before rare words count more.

    Parameters
    ----------
    mean_words : the mean number of words of all items, above 0; an estimate will do.
    """
    found = words(text)
    counts = Counter(map(place_of, found))
    unit = K1 * (1.0 - B + B * len(found) / mean_words)
    places = sorted(counts)
    return places, [counts[one] * (K1 + 1.0) / (counts[one] + unit) for one in places]
