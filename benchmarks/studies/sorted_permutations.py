"""Charikar's candidates, which the LEGO paper uses: keys in sorted lists, each under a permutation of the bits.

For comparison with `kinstream.search.index.lsh.candidates`, on keys that do not change: all lists would have to move an
item when one of its bits flips.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.search.index.create import create
from kinstream.search.index.lsh.key_index import HashedIndex

Words = NDArray[np.uint64]


class SortedPermutations:
    """Lists of items, sorted by keys whose bits are permuted; the first 64 of the permuted bits are compared.

    Parameters
    ----------
    bits : (n, b) keys.
    lists : how many.
    """

    def __init__(self, bits: NDArray[np.bool_], lists: int, seed: int) -> None:
        draw = np.random.default_rng(seed)
        self._chosen = [draw.permutation(bits.shape[1])[:64] for _ in range(lists)]
        self._lists: list[tuple[Words, NDArray[np.int32]]] = []
        for chosen in self._chosen:
            words = prefix(bits[:, chosen])
            order = np.argsort(words, kind="stable").astype(np.int32)
            self._lists.append((words[order], order))

    def of(self, query: NDArray[np.bool_], budget: int) -> NDArray[np.int64]:
        """At most `budget` items in the order of the longest prefix that they share with the query in some list."""
        reach = 2 * budget // len(self._lists) + 1
        rows, apart = [], []
        for chosen, (words, order) in zip(self._chosen, self._lists, strict=True):
            word = prefix(query[None, chosen])[0]
            place = int(np.searchsorted(words, word))
            near = slice(max(0, place - reach), place + reach)
            rows.append(order[near])
            # The position of the first bit that differs, by the size of the difference.
            apart.append(np.floor(np.log2((words[near] ^ word).astype(np.float64) + 0.5)))
        found = np.concatenate(rows)[np.argsort(np.concatenate(apart), kind="stable")]
        _, first = np.unique(found, return_index=True)
        return found[np.sort(first)[:budget]].astype(np.int64)


def prefix(bits: NDArray[np.bool_]) -> Words:
    """64 bits (n, 64) as one number, the first bit the highest."""
    packed = np.zeros((len(bits), 8), np.uint8)
    packed[:, : -(-bits.shape[1] // 8)] = np.packbits(bits, axis=1)
    return np.asarray(packed.view(">u8")[:, 0].astype(np.uint64))


def compared(
    X: NDArray[np.float32], Q: NDArray[np.float32], search: dict[str, Any], lists: int, k: int = 10
) -> dict[str, tuple[float, float]]:
    """Recall within k of the un-learned scan, and milliseconds for the candidates of a query, of both ways."""
    n = len(X)
    ids = [str(row) for row in range(n)]
    scan, hashed = create("linear", **search), create("static", **search)
    for index in (scan, hashed):
        index.put(ids, X)
    assert isinstance(hashed, HashedIndex)
    truth = [[int(name) for name in one] for one in scan.search(Q, k).ids]
    slots, budget = np.arange(n), hashed.settings.budget(n, k)
    bits = np.stack([hashed.keys.bit(slots, j) for j in range(hashed.settings.bits)], axis=1)
    permuted = SortedPermutations(bits, lists, seed=1)
    found = {}
    for name in ("keys", "sorted permutations"):
        hits, spent = 0, 0.0
        for q, nearest in zip(Q.astype(np.float64), truth, strict=True):
            query = hashed.metric.P @ q >= 0.0
            begun = time.thread_time()
            rows = hashed.candidates.of(q, budget) if name == "keys" else permuted.of(query, budget)
            spent += time.thread_time() - begun
            hits += len(set(rows.tolist()) & set(nearest))
        found[name] = (hits / (k * len(Q)), 1e3 * spent / len(Q))
    return found
