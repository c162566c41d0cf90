"""Turns relations between numbered items, of any origin, into seeds of the graph: logged, counted or refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.processors.base.draws import event_key
from kinstream.processors.base.id_table import Hashes, hashes
from kinstream.processors.closure import arrays as arrays
from kinstream.processors.closure import seed_log
from kinstream.processors.closure.arrays import RelationArrays
from kinstream.processors.closure.graph import ClosureGraph
from kinstream.processors.closure.item_log import ItemLog
from kinstream.processors.closure.paths import chain_text, seed_text
from kinstream.processors.closure.seed_log import SeedLog
from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.values import Click, ClickBlock, LoadPosition, RelationBlock, SampleBlock

_DRAWN_AS: Final = "closure/1"
#: Number of contradictions of an event that are refused separately; the others are refused together.
_REFUSED_APART: Final = 16
#: Number of contradicting relations that a refusal names.
_NAMED_SEEDS: Final = 8
_FATES: Final = {
    arrays.ACCEPTED: "accepted",
    arrays.KNOWN: "known",
    arrays.SUPPORTED: "known",
    arrays.CONTRADICTION: "contradiction",
    arrays.VOTED: "voted",
}
#: Counters besides the numbers of the graph.
COUNTED: Final = (
    "accepted",
    "known",
    "contradiction",
    "voted",
    "withdrawn",
    "votes-forgotten",
    "self-relation",
    "unknown-item",
    "no-id",
    "class-over-cap",
    "erased",
)


@dataclass(frozen=True, slots=True, eq=False)
class SeedBatch:
    """Relations of one event between numbered items, and their origins.

    Parameters
    ----------
    left, right, sign : (n,) each.
    row, part : (n,) the part of the event, and the number of the relation within this part.
    time_ms, source : (n,) as in `RelationBlock`.
    """

    left: NDArray[np.int32]
    right: NDArray[np.int32]
    sign: NDArray[np.int8]
    row: NDArray[np.int32]
    part: NDArray[np.int32]
    time_ms: NDArray[np.int64]
    source: NDArray[np.int32]
    sources: tuple[str, ...] = ()
    via: int = seed_log.RELATION

    def __len__(self) -> int:
        return len(self.left)


class Seeding:
    """Items, the seeds between them, and the graph that the seeds make.

    Parameters
    ----------
    graph : an empty one.
    seed : of the draws.
    """

    def __init__(self, graph: ClosureGraph, seed: int) -> None:
        self.items = ItemLog()
        self.seeds = SeedLog()
        self.graph = graph
        self.counts = dict.fromkeys(COUNTED, 0)
        self._seed = seed

    def erase(self, ids: Sequence[str], offset: int, time_ms: int) -> None:
        """Turn items of tombstones into links without a name."""
        if not ids:
            return
        gone = self.items.remove(hashes(ids)).astype(np.int32)
        if not len(gone):
            return
        self.graph.erase(gone)
        nobody = np.full(len(gone), -1, np.int32)
        rows = np.arange(len(gone), dtype=np.int32)
        times = np.full(len(gone), time_ms, np.int64)
        nothing = np.zeros(len(gone), np.int8)
        batch = SeedBatch(gone, nobody, nothing, rows, rows, times, nobody)
        self._log(batch, slice(None), np.full(len(gone), seed_log.ERASED, np.int8), offset)
        self.counts["erased"] += len(gone)

    def number(self, keys: Hashes, names: Sequence[str], order: NDArray[np.int64]) -> NDArray[np.int32]:
        """Numbers of items, by the hashes of their names; a new item gets the next one."""
        found = self.items.add(keys, names, order)
        self.graph.room_for(len(self.items))
        return found.astype(np.int32)

    def take(
        self,
        batch: SeedBatch,
        event: RelationBlock | SampleBlock | Click | ClickBlock,
        offset: int,
        *,
        vote: bool,
    ) -> list[BadRecord]:
        """Run relations through the graph, log those that it accepts and refuse those that contradict it."""
        if not len(batch):
            return []
        key = _draw_key(_DRAWN_AS, self._seed, event.space, event.load, offset)
        given = np.array([_source_hash(name) for name in (*batch.sources, None)], np.int64)
        rows = RelationArrays(batch.left, batch.right, batch.sign, batch.row, batch.part, given[batch.source])
        fates, contrary = np.zeros(len(batch), np.int8), np.full(len(batch), -1, np.int32)
        refused: list[BadRecord] = []
        start = 0
        while True:
            self.graph.parts.numbers[arrays.NEXT_SEED] = len(self.seeds)
            end, turned = self.graph.take(rows, key, start, fates, contrary, vote=vote)
            part = slice(start, end)
            self._note(batch, part, fates[part], offset)
            refused += self._contradictions(batch, part, fates[part], contrary[part], offset, len(refused))
            if not turned:
                break
            self._withdraw(batch, end, offset)
            start = end
        for fate, count in zip(*np.unique(fates, return_counts=True), strict=True):
            self.counts[_FATES[int(fate)]] += int(count)
        return grouped(refused)

    def _note(self, batch: SeedBatch, part: slice, fates: NDArray[np.int8], offset: int) -> None:
        kinds = np.where(batch.sign[part] > 0, seed_log.SIMILAR, seed_log.DISSIMILAR)
        kinds = np.where(fates == arrays.SUPPORTED, kinds + seed_log.SUPPORTED_SIMILAR, kinds)
        logged = np.flatnonzero((fates == arrays.ACCEPTED) | (fates == arrays.SUPPORTED))
        if len(logged):
            self._log(batch, logged + part.start, kinds[logged].astype(np.int8), offset)

    def _log(
        self, batch: SeedBatch, rows: NDArray[Any] | slice, kinds: NDArray[np.int8], offset: int
    ) -> None:
        left = batch.left[rows]
        self.seeds.append(
            {
                "left": left,
                "right": batch.right[rows],
                "kind": kinds,
                "via": np.full(len(left), batch.via, np.int8),
                "offset": np.full(len(left), offset, np.int64),
                "row": batch.row[rows],
                "time": batch.time_ms[rows],
                "source": batch.source[rows],
            },
            batch.sources,
        )

    def _withdraw(self, batch: SeedBatch, row: int, offset: int) -> None:
        """The votes on a pair no longer suffice: rebuild the graph without their seed."""
        self._log(batch, slice(row, row + 1), np.array([seed_log.WITHDRAWN], np.int8), offset)
        self.graph.turned(int(batch.left[row]), int(batch.right[row]))
        self.graph.rebuild(*self.seeds.standing())
        self.counts["withdrawn"] += 1

    def _contradictions(
        self,
        batch: SeedBatch,
        part: slice,
        fates: NDArray[np.int8],
        contrary: NDArray[np.int32],
        offset: int,
        before: int,
    ) -> list[BadRecord]:
        """A refusal for each relation that contradicts the graph, with both provenances."""
        places = np.flatnonzero(fates == arrays.CONTRADICTION)
        named = places[: max(0, _REFUSED_APART - before)]
        refused = []
        for place in named.tolist():
            at = part.start + place
            chain = self.against(int(batch.left[at]), int(batch.right[at]), int(contrary[place]))
            relation = "similar" if batch.sign[at] > 0 else "dissimilar"
            names = [short(self.items.name(int(side[at]))) for side in (batch.left, batch.right)]
            where = seed_text(
                seed_log.VIA[batch.via],
                offset,
                int(batch.row[at]),
                int(batch.time_ms[at]),
                batch.sources[batch.source[at]] if batch.source[at] >= 0 else None,
            )
            detail = f"items {names[0]} and {names[1]} are stated to be {relation} ({where}), against {chain}"
            refused.append(BadRecord(Reason.CONTRADICTION, detail, (int(batch.row[at]),)))
        for place in places[len(named) :].tolist():
            row = int(batch.row[part.start + place])
            refused.append(BadRecord(Reason.CONTRADICTION, "", (row,)))
        return refused

    def against(self, left: int, right: int, contrary: int) -> str:
        """The seeds that make two items similar, or with `contrary` dissimilar, as text."""
        if contrary < 0:
            ends = [(left, right)]
        else:
            edge = self.seeds.seed(contrary)
            inner, outer = edge.left, edge.right
            if self.graph.relation(left, inner) <= 0:
                inner, outer = outer, inner
            ends = [(left, inner), (outer, right)]
        pairs = np.array(ends, np.int32)
        chains, lengths = self.graph.chains(pairs[:, 0], pairs[:, 1], _NAMED_SEEDS)
        found = [number for chain in chains.tolist() for number in chain if number >= 0]
        total = int(lengths.sum())
        if contrary >= 0:
            # The dissimilar one first: it is never left out.
            found, total = [contrary, *found], total + 1
        return chain_text(self.seeds, self.items, found[:_NAMED_SEEDS], total)


def _draw_key(
    algorithm: str, seed: int, space: str, load: LoadPosition | None, offset: int
) -> tuple[int, int]:
    first, second = event_key(algorithm, seed, space, load, offset).tolist()
    return first, second


def _source_hash(source: str | None) -> int:
    if source is None:
        return 0
    return int.from_bytes(blake2b(source.encode(), digest_size=8).digest(), "little", signed=True)


def grouped(refused: list[BadRecord]) -> list[BadRecord]:
    """Refusals with a detail unchanged, the others as one."""
    named = [error for error in refused if error.detail]
    rest = tuple(row for error in refused if not error.detail for row in error.rows or ())
    if rest:
        named.append(BadRecord(Reason.CONTRADICTION, f"{len(rest)} more contradictions in this event", rest))
    return named


def short(name: str | None) -> str:
    """An item's name for a message."""
    if name is None:
        return "(erased)"
    return repr(name if len(name) <= 60 else name[:57] + "...")
