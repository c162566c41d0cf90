"""The running learners' outcomes of the constraints that a what-if has learned from, compared with its own.

The headers of an outcome name its record of `constraints`, so the two are matched record by record. An outcome holds
counts, in total and by rule, and no verdict on each constraint. So the comparison uses the constraints of one rule in
one block for which both scored equally many. If that is all of them, they are certainly the same ones.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.replay.what_if.statistics import Paired, paired
from kinstream.streams.errors import BadRecord
from kinstream.streams.records.codec.every_kind import decode_outcome
from kinstream.streams.records.identity import EMITTER, Identity, read_identity
from kinstream.streams.records.message import Message, Output
from kinstream.streams.records.values import Counts, Outcome

#: Number of parts of a curve.
POINTS: Final = 100
#: Of `constraints`: partition and offset.
Place = tuple[int, int]


class Unmatched(StrEnum):
    """Why a block that the what-if has learned from has no recorded outcome, or the reverse."""

    BEFORE_GENERATION = "before_generation"
    TRIMMED = "trimmed"
    NOT_YET = "not_yet"
    LEFT_OUT = "left_out"
    ONLY_RECORDED = "only_recorded"
    OTHER_BLOCK = "other_block"


#: The same as text.
REASONS: Final[Mapping[Unmatched, str]] = {
    Unmatched.BEFORE_GENERATION: "before the learner began",
    Unmatched.TRIMMED: "its outcome is no longer held (retention)",
    Unmatched.NOT_YET: "after the newest outcome: not learned yet",
    Unmatched.LEFT_OUT: "left out by the learner: a duplicate there, refused, skipped, not followed",
    Unmatched.ONLY_RECORDED: "learned from by the learner alone",
    Unmatched.OTHER_BLOCK: "not as many constraints: another block",
}


class Outcomes:
    """The outcomes of one learner by their record of `constraints`, each once.

    Parameters
    ----------
    topic : of the constraints.
    ranges : [start, stop) per partition; records outside are left out.
    generations : those that count; None for all.
    """

    def __init__(
        self, topic: str, ranges: Mapping[int, tuple[int, int]], generations: frozenset[int] | None = None
    ) -> None:
        self._topic = topic
        self._ranges = ranges
        self._generations = generations
        self._held: dict[Place, tuple[int, bytes]] = {}
        #: Offset of the first held outcome of each space, and of the newest of each partition, in range or not.
        self.first: dict[str, int] = {}
        self.newest: dict[int, int] = {}
        #: Repeated outcomes with the same identity, and unreadable records.
        self.again = 0
        self.unreadable = 0
        self.by_generation: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._held)

    def take(self, space: str, identity: Identity, value: bytes) -> None:
        """Note an outcome. The first of an identity counts, and of several generations the newest."""
        position, p = identity.position, identity.partition
        if identity.topic != self._topic or p not in self._ranges:
            return
        if self._generations is not None and position.generation not in self._generations:
            return
        self.first[space] = min(self.first.get(space, position.offset), position.offset)
        self.newest[p] = max(self.newest.get(p, -1), position.offset)
        start, stop = self._ranges[p]
        if not start <= position.offset < stop:
            return
        place = (p, position.offset)
        held = self._held.get(place)
        if held is not None and held[0] == position.generation:
            self.again += 1
            return
        if held is not None and held[0] > position.generation:
            return
        if held is not None:
            self.by_generation[held[0]] -= 1
        self._held[place] = (position.generation, value)
        self.by_generation[position.generation] += 1

    def places(self) -> Iterable[Place]:
        return self._held.keys()

    def __contains__(self, place: Place) -> bool:
        return place in self._held

    def read(self, place: Place) -> Outcome | None:
        """The outcome for that record; None for a control, or one that cannot be read."""
        try:
            record = decode_outcome(self._held[place][1])
        except BadRecord:
            self.unreadable += 1
            return None
        return record if isinstance(record, Outcome) else None


class Tap:
    """Passed to a replay: records the outcomes of its learner."""

    def __init__(self, outcomes: Outcomes, topic: str) -> None:
        self._outcomes = outcomes
        self._topic = topic

    def __call__(self, output: Output) -> None:
        if output.topic == self._topic:
            self._outcomes.take(
                (output.key or b"").decode(), read_identity(output.headers), output.value or b""
            )


def read_recorded(messages: Iterable[Message], wanted: Mapping[str, Outcomes]) -> None:
    """Sort the records of the outcomes topic by learner; unneeded ones are skipped by their headers."""
    names = {name.encode(): outcomes for name, outcomes in wanted.items()}
    for message in messages:
        outcomes = names.get(dict(message.headers).get(EMITTER) or b"")
        if outcomes is None:
            continue
        try:
            identity = read_identity(message.headers)
            space = (message.key or b"").decode()
        except (BadRecord, UnicodeDecodeError):
            outcomes.unreadable += 1
            continue
        outcomes.take(space, identity, message.value or b"")


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A part of the curve: mistake rates within it and since the beginning.

    Parameters
    ----------
    constraints : compared so far.
    offset : in `constraints`, of the last block of the part.
    """

    constraints: int
    offset: int
    recorded: float
    what_if: float
    recorded_so_far: float
    what_if_so_far: float


@dataclass(slots=True)
class SideBySide:
    """The what-if and one running learner on one space.

    Parameters
    ----------
    recorded, what_if : counts over the compared constraints.
    recorded_all, what_if_all : counts over all matched blocks.
    blocks : matched.
    certain : compared constraints of which it is certain that both scored the same ones.
    uneven : rules in blocks that are not compared, because one scored fewer than the other.
    generations : matched blocks by the generation that recorded them.
    unmatched : blocks.
    """

    learner: str
    space: str
    partition: int
    recorded: Counts = field(default_factory=Counts)
    what_if: Counts = field(default_factory=Counts)
    recorded_all: Counts = field(default_factory=Counts)
    what_if_all: Counts = field(default_factory=Counts)
    blocks: int = 0
    certain: int = 0
    uneven: int = 0
    generations: Counter[int] = field(default_factory=Counter)
    unmatched: Counter[Unmatched] = field(default_factory=Counter)
    #: Offset, constraints scored by both, and mistakes of either, of each compared block, in no order.
    _rows: array[int] = field(default_factory=lambda: array("q"))

    def add(self, place: Place, there: Outcome, here: Outcome) -> None:
        """Count a matched block."""
        self.blocks += 1
        self.generations[there.generation] += 1
        self.recorded_all += there.counts
        self.what_if_all += here.counts
        scored = ours = theirs = 0
        for rule in sorted(there.by_rule.keys() | here.by_rule.keys()):
            old, new = there.by_rule.get(rule, Counts()), here.by_rule.get(rule, Counts())
            if old.scored != new.scored or _rows_of(old) != _rows_of(new):
                self.uneven += 1
                continue
            self.recorded += old
            self.what_if += new
            # The block and the learner's form determine which rows are split; the block and the share which are held
            # out.
            apart = new.split_scored if new.split_scored == old.split_scored else 0
            held_out = new.held_out if new.held_out == old.held_out else 0
            self.certain += new.scored if new.scored + apart + held_out == _rows_of(new) else 0
            scored, theirs, ours = scored + new.scored, theirs + old.mistakes, ours + new.mistakes
        if scored:
            self._rows.extend((place[1], scored, theirs, ours))

    def _table(self) -> NDArray[np.int64]:
        """(k, 4) of the compared blocks, in the order of the log."""
        table = np.array(self._rows, np.int64).reshape(-1, 4)
        return table[np.argsort(table[:, 0], kind="stable")]

    def test(self) -> Paired:
        """The paired comparison of the mistakes."""
        table = self._table()
        return paired(table[:, 1], table[:, 2], table[:, 3])

    def curve(self, points: int = POINTS) -> list[CurvePoint]:
        """Mistake rates along the log, in at most so many parts of about as many constraints each."""
        table = self._table()
        if not len(table):
            return []
        sums = table[:, 1:].cumsum(axis=0)
        targets = np.linspace(0, sums[-1, 0], min(points, len(table)) + 1)[1:]
        # Rounded sums may pass the last one.
        ends = np.unique(np.minimum(np.searchsorted(sums[:, 0], targets), len(table) - 1))
        found, before = [], np.zeros(3, np.int64)
        for end in ends:
            scored, theirs, ours = (int(v) for v in sums[end] - before)
            total, their_total, our_total = (int(v) for v in sums[end])
            found.append(
                CurvePoint(
                    total,
                    int(table[end, 0]),
                    theirs / scored,
                    ours / scored,
                    their_total / total,
                    our_total / total,
                )
            )
            before = sums[end]
        return found


def side_by_side(
    learner: str,
    recorded: Outcomes,
    what_if: Outcomes,
    *,
    births: Mapping[int, int],
    trimmed: Mapping[str, bool],
    space: str | None = None,
) -> list[SideBySide]:
    """Match the outcomes of a running learner with those of the what-if.

    Parameters
    ----------
    births : where the running generation began; partitions with an unknown start are missing.
    trimmed : by space, whether the log no longer holds the beginning of its outcomes.
    space : only this one.
    """
    found: dict[str, SideBySide] = {}
    first = dict(recorded.first)

    def of(name: str, partition: int) -> SideBySide:
        if name not in found:
            found[name] = SideBySide(learner, name, partition)
        return found[name]

    for place, here in _decoded(what_if):
        row = of(here.space, place[0])
        there = recorded.read(place) if place in recorded else None
        if there is None:
            row.unmatched[_why(here.space, place, recorded, first, births, trimmed)] += 1
        elif (there.space, _rows_of(there.counts)) != (here.space, _rows_of(here.counts)):
            row.unmatched[Unmatched.OTHER_BLOCK] += 1
        else:
            row.add(place, there, here)
    for place in recorded.places():
        if place not in what_if:
            there = recorded.read(place)
            if there is not None and space in (None, there.space):
                of(there.space, place[0]).unmatched[Unmatched.ONLY_RECORDED] += 1
    return [found[name] for name in sorted(found)]


def _decoded(outcomes: Outcomes) -> Iterator[tuple[Place, Outcome]]:
    for place in outcomes.places():
        outcome = outcomes.read(place)
        if outcome is not None:
            yield place, outcome


def _why(
    space: str,
    place: Place,
    recorded: Outcomes,
    first: Mapping[str, int],
    births: Mapping[int, int],
    trimmed: Mapping[str, bool],
) -> Unmatched:
    partition, offset = place
    if offset < births.get(partition, 0):
        return Unmatched.BEFORE_GENERATION
    if trimmed.get(space, False) and offset < first.get(space, offset + 1):
        return Unmatched.TRIMMED
    if offset > recorded.newest.get(partition, -1):
        return Unmatched.NOT_YET
    return Unmatched.LEFT_OUT


def _rows_of(counts: Counts) -> int:
    """The number of constraints in the counts."""
    return counts.seen + counts.rejected + counts.ignored + counts.held_out


def counts_as_dict(counts: Counts) -> dict[str, Any]:
    """Counts, with the mistake rate (without split constraints) and the utilisation; null if a denominator is 0."""
    found: dict[str, Any] = {name: getattr(counts, name) for name in Counts.__dataclass_fields__}
    found["mistake_rate"] = counts.mistakes / counts.scored if counts.scored else None
    found["utilisation"] = counts.utilised / counts.seen if counts.seen else None
    return found
