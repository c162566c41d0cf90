"""Transitive closure by definition: four rules over all facts until nothing is new. Slow, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations, permutations

Pair = frozenset[int]
Triplet = tuple[int, int, int]
Relation = tuple[int, int, bool]


def fixpoint(seeds: Iterable[Relation]) -> tuple[set[Pair], set[Pair]]:
    """All similar and all dissimilar pairs that follow from the seeds."""
    similar: set[Pair] = set()
    dissimilar: set[Pair] = set()
    for left, right, alike in seeds:
        (similar if alike else dissimilar).add(frozenset((left, right)))
    items = sorted({item for pair in similar | dissimilar for item in pair})
    while True:
        new_similar: set[Pair] = set()
        new_dissimilar: set[Pair] = set()
        for one, two, three in permutations(items, 3):
            first, second, third = frozenset((one, two)), frozenset((one, three)), frozenset((two, three))
            if first in similar and second in similar:
                new_similar.add(third)
            if first in similar and third in similar:
                new_similar.add(second)
            if first in similar and second in dissimilar:
                new_dissimilar.add(third)
            if first in similar and third in dissimilar:
                new_dissimilar.add(second)
        if new_similar <= similar and new_dissimilar <= dissimilar:
            return similar, dissimilar
        similar |= new_similar
        dissimilar |= new_dissimilar


def triplets(similar: set[Pair], dissimilar: set[Pair]) -> set[Triplet]:
    """(anchor, positive, negative) of two similar items and one that both are dissimilar from."""
    items = sorted({item for pair in similar | dissimilar for item in pair})
    return {
        (anchor, positive, negative)
        for anchor, positive, negative in permutations(items, 3)
        if frozenset((anchor, positive)) in similar and frozenset((anchor, negative)) in dissimilar
    }


def groups(similar: set[Pair], items: Iterable[int]) -> list[list[int]]:
    """Items in groups of similar ones."""
    found: list[list[int]] = []
    for item in items:
        for group in found:
            if frozenset((item, group[0])) in similar:
                group.append(item)
                break
        else:
            found.append([item])
    return found


def triplet_count(similar: set[Pair], dissimilar: set[Pair], items: Iterable[int]) -> int:
    """The closed form of the count: sum over components of |C| (|C| - 1) N(C)."""
    components = groups(similar, items)
    total = 0
    for one in components:
        around = sum(len(c) for c in components if frozenset((one[0], c[0])) in dissimilar)
        total += len(one) * (len(one) - 1) * around
    return total


@dataclass
class Reference:
    """Takes relations one at a time, under either policy.

    Parameters
    ----------
    support : votes that a relation needs, or 0 for the policy "reject".
    """

    support: int = 0
    seeds: list[Relation] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)
    votes: dict[Pair, dict[str | None, int]] = field(default_factory=dict)
    standing: dict[Pair, int] = field(default_factory=dict)

    def take(
        self, left: int, right: int, alike: bool, source: str | None = None
    ) -> tuple[str, set[tuple[Pair, bool]], set[Triplet]]:
        """The fate of a relation, the pairs (with their sign) and the triplets that are new with it."""
        sign = 1 if alike else -1
        pair = frozenset((left, right))
        if self.support:
            self.votes.setdefault(pair, {})[source] = sign
            net = sum(self.votes[pair].values())
            counts = 1 if net >= self.support else -1 if net <= -self.support else 0
            if self.standing.get(pair, 0) not in (0, counts):
                self.standing[pair] = 0
                self.seeds = [seed for seed in self.seeds if frozenset(seed[:2]) != pair]
            if self.standing.get(pair, 0) == sign:
                return "known", set(), set()
            if counts != sign:
                return "voted", set(), set()
        similar, dissimilar = fixpoint(self.seeds)
        if pair in (dissimilar if alike else similar):
            return "contradiction", set(), set()
        known = pair in (similar if alike else dissimilar)
        if self.support:
            self.standing[pair] = sign
        if not known or self.support:
            self.seeds.append((left, right, alike))
        if known:
            return "known", set(), set()
        now_similar, now_dissimilar = fixpoint(self.seeds)
        pairs = {(p, True) for p in now_similar - similar} | {(p, False) for p in now_dissimilar - dissimilar}
        before = triplets(similar, dissimilar)
        new = {t for t in triplets(now_similar, now_dissimilar) - before if not self.gone & set(t)}
        return "accepted", {(p, s) for p, s in pairs if not self.gone & p}, new


def all_pairs(items: Iterable[int]) -> list[tuple[int, int]]:
    return list(combinations(items, 2))
