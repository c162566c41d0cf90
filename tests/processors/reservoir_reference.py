"""The reservoirs and their picks one sample at a time, with lists and sums; nothing shared with the product.

Samples are known by their numbers.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field


@dataclass
class Class:
    label: Hashable
    seen: int = 0
    last: int = -1
    held: list[int] = field(default_factory=list)

    def weight(self, rows: int) -> int:
        return self.seen * len(self.held) // min(self.seen, rows) if self.seen else 0


class PlainReservoir:
    """Draws are whole numbers below 2^64, in the order: where the sample goes, then two for each pick."""

    def __init__(self, rows: int, max_classes: int) -> None:
        self.rows, self.max_classes = rows, max_classes
        self.slots: list[Class] = []
        self.samples = self.forgotten = 0

    def of(self, label: Hashable) -> Class | None:
        return next((one for one in self.slots if one.label == label), None)

    def step(self, label: Hashable, draws: Sequence[int], wants: Sequence[str]) -> list[int | str]:
        """The picks of the next sample: the number of an earlier one, or why there is none."""
        own, made = self.of(label), list[int | str]()
        center, mate = own, -1
        for place, want in enumerate(wants):
            one, two = draws[1 + 2 * place : 3 + 2 * place]
            if want == "anchor":
                rich = [c for c in self.slots if len(c.held) >= 2]
                center = rich[one * len(rich) >> 64] if rich else None
                mate = two * len(center.held) >> 64 if center else -1
                made.append(center.held[mate] if center else "no-class")
            elif want == "mate" or (want == "others" and "anchor" in wants and center is None):
                if center is None:
                    made.append("no-class")
                    continue
                left = center.held[:mate] + center.held[mate + 1 :]
                made.append(left[two * len(left) >> 64])
            elif want == "own":
                if own is None or not own.held:
                    made.append("first-of-class" if own is None else "class-erased")
                else:
                    made.append(own.held[two * len(own.held) >> 64])
            else:
                among = [c for c in self.slots if want == "any" or c is not center]
                found = self._weighted(among, one)
                if found is None:
                    made.append("no-class" if want == "any" else "one-class")
                else:
                    made.append(found.held[two * len(found.held) >> 64])
        self._enter(label, draws[0])
        return made

    def _weighted(self, among: list[Class], draw: int) -> Class | None:
        at = draw * sum(c.weight(self.rows) for c in among) >> 64
        for one in among:
            if at < one.weight(self.rows):
                return one
            at -= one.weight(self.rows)
        return None

    def _enter(self, label: Hashable, draw: int) -> None:
        own = self.of(label)
        if own is None:
            own = Class(label)
            if len(self.slots) < self.max_classes:
                self.slots.append(own)
            else:
                oldest = min(range(len(self.slots)), key=lambda slot: self.slots[slot].last)
                self.slots[oldest] = own
                self.forgotten += 1
        own.seen += 1
        own.last = self.samples
        place = len(own.held) if own.seen <= self.rows else draw * own.seen >> 64
        if place < len(own.held):
            own.held[place] = self.samples
        elif place < self.rows:
            own.held.append(self.samples)
        self.samples += 1

    def erase(self, samples: set[int]) -> int:
        before = sum(len(c.held) for c in self.slots)
        for one in self.slots:
            one.held = [n for n in one.held if n not in samples]
        return before - sum(len(c.held) for c in self.slots)
