"""The graph of a closure: its arrays, which grow by doubling, and the votes on pairs that do not count yet."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.processors.base.builder import State
from kinstream.processors.closure import arrays as arrays
from kinstream.processors.closure import claims as closure_claims
from kinstream.processors.closure import components
from kinstream.processors.closure.arrays import GraphArrays, Options, Outbox, PairVotes, RelationArrays
from kinstream.streams.compute.whole_number_map import fill_map, number_map

#: Initial room for constraints; an outbox that grew beyond the second number is freed.
_OUTBOX: Final = 1024
_LARGE_OUTBOX: Final = 2**20
_LEAST: Final = 64
#: Number of hubs whose sums are kept.
_HUBS: Final = 8
#: Entries of `Graph.numbers` that are not a function of the seeds.
_COUNTED: Final = (
    arrays.SEEDS,
    arrays.DERIVED,
    arrays.PAIRS_WITHHELD,
    arrays.TRIPLETS_WITHHELD,
    arrays.OVER_CAP,
    arrays.SEEDS_WITHHELD,
)

Array = NDArray[Any]


def empty_graph() -> GraphArrays:
    """A graph without items."""
    return GraphArrays(
        parent=np.full(_LEAST, -1, np.int32),
        proof=np.full(_LEAST, -1, np.int32),
        proof_seed=np.full(_LEAST, -1, np.int32),
        gone=np.zeros(_LEAST, np.bool_),
        components=np.zeros((_LEAST, 8), np.int32),
        pool=np.zeros(_LEAST, np.int32),
        free=np.full(32, -1, np.int32),
        keys=np.zeros(_LEAST, np.int64),
        where=np.full(_LEAST, -1, np.int32),
        numbers=arrays.new_numbers(),
        **_hubs(arrays.HUB >> arrays.BLOCK_BITS),
    )


class ClosureGraph:
    """A graph that takes relations between numbered items, and gives the consequences of each."""

    def __init__(self, options: Options, max_votes: int) -> None:
        self.options = options
        self.max_votes = max_votes
        self.parts = empty_graph()
        self.votes = _empty_votes()
        self.out = _outbox(_OUTBOX, _OUTBOX)

    # ---- relations ----------------------------------------------------------------------------------------------

    def room_for(self, items: int) -> None:
        """Make room for items with numbers below `items`."""
        if items > len(self.parts.parent):
            more = max(items, 2 * len(self.parts.parent)) - len(self.parts.parent)
            self.parts = self.parts._replace(
                **{
                    name: _longer(getattr(self.parts, name), more, fill)
                    for name, fill in (("parent", -1), ("proof", -1), ("proof_seed", -1), ("gone", 0))
                }
            )

    def empty_outbox(self) -> None:
        """Begin a new event."""
        self.parts.numbers[arrays.PAIRS] = self.parts.numbers[arrays.TRIPLETS] = 0
        if len(self.out.pairs) > _LARGE_OUTBOX or len(self.out.triplets) > _LARGE_OUTBOX:
            self.out = _outbox(_OUTBOX, _OUTBOX)

    def take(
        self,
        rows: RelationArrays,
        key: tuple[int, int],
        start: int,
        fates: Array,
        contrary: Array,
        *,
        vote: bool,
    ) -> tuple[int, bool]:
        """Add relations from row `start` on; see `kinstream.processors.closure.claims.take`.

        Returns
        -------
        The row before which it stopped, and whether that is because the votes on its pair have turned.
        """
        options = self.options if vote else self.options._replace(support=0)
        if options.support:
            self._room_for_votes(len(rows.left))
        key0, key1 = np.uint64(key[0]), np.uint64(key[1])
        while True:
            start, status = closure_claims.take(
                self.parts, self.out, self.votes, options, rows, key0, key1, start, fates, contrary
            )
            if status in (arrays.DONE, arrays.WITHDRAW):
                return start, status == arrays.WITHDRAW
            self._grow(status)

    def replay(self, left: Array, right: Array, sign: Array, seed: Array) -> None:
        """Apply accepted relations and erasures again; nothing is emitted."""
        start = 0
        while start < len(left):
            start, status = components.replay(
                self.parts, left, right, sign, seed, start, self.options.max_component
            )
            if status != arrays.DONE:
                self._grow(status)

    def rebuild(self, left: Array, right: Array, sign: Array, seed: Array) -> None:
        """Rebuild the graph from these relations and erasures; counts stay."""
        numbers = self.parts.numbers
        items = len(self.parts.parent)
        self.parts = empty_graph()
        self.room_for(items)
        self.replay(left, right, sign, seed)
        for place in (*_COUNTED, arrays.PAIRS, arrays.TRIPLETS, arrays.NEXT_SEED):
            self.parts.numbers[place] = numbers[place]

    def erase(self, items: Array) -> None:
        """Turn items into links only."""
        components.erase(self.parts, items.astype(np.int32))

    def made(self) -> tuple[Array, Array, Array, Array, Array, Array]:
        """The constraints since the outbox was emptied, in the order of `Outbox`: of m pairs, and of t triplets."""
        m, t = int(self.parts.numbers[arrays.PAIRS]), int(self.parts.numbers[arrays.TRIPLETS])
        out = self.out
        pairs = out.pairs[:m], out.signs[:m], out.rules[:m], out.pair_rows[:m]
        return *pairs, out.triplets[:t], out.triplet_rows[:t]

    # ---- queries ------------------------------------------------------------------------------------------------

    def relation(self, left: int, right: int) -> int:
        """1 for similar items, -1 for dissimilar ones, 0 if nothing is known."""
        p, q = (components.component_of(self.parts, item) for item in (left, right))
        if p < 0 or q < 0:
            return 1 if left == right else 0
        if p == q:
            return 1
        return -1 if components.edge_seed(self.parts, p, q) >= 0 else 0

    def chains(self, left: Array, right: Array, most: int) -> tuple[Array, Array]:
        """The seeds between items of one component: see `components.chains`."""
        seeds, lengths = components.chains(self.parts, left.astype(np.int32), right.astype(np.int32), most)
        return seeds, lengths

    def first_similar(self, item: int, others: Array) -> int:
        """The place of the first of the others that an item is similar to; -1 if there is none."""
        return int(components.first_with(self.parts, np.int32(item), others.astype(np.int32)))

    def number(self, field: int) -> int:
        """One of `Graph.numbers`."""
        return int(self.parts.numbers[field])

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return sum(a.nbytes for a in (*self.parts, *self.votes, *self.out))

    # ---- growing ------------------------------------------------------------------------------------------------

    def _grow(self, status: int) -> None:
        parts, room = self.parts, int(self.parts.numbers[arrays.ROOM])
        match status:
            case arrays.NO_POOL:
                more = max(room, 2 * len(parts.pool)) - len(parts.pool)
                self.parts = parts._replace(pool=_longer(parts.pool, more, 0))
            case arrays.NO_COMPONENTS:
                self.parts = parts._replace(components=_longer(parts.components, len(parts.components), 0))
            case arrays.NO_KEYS:
                keys, where = _map(2 * len(parts.keys))
                fill_map(keys, where, parts.keys, parts.where)
                self.parts = parts._replace(keys=keys, where=where)
            case arrays.NO_HUBS:
                parts.numbers[arrays.HUBS] = 0
                self.parts = parts._replace(**_hubs(2 * room))
            case arrays.NO_PAIRS:
                more = max(room, 2 * len(self.out.pairs)) - len(self.out.pairs)
                self.out = self.out._replace(
                    pairs=_longer(self.out.pairs, more, 0),
                    signs=_longer(self.out.signs, more, 0),
                    rules=_longer(self.out.rules, more, 0),
                    pair_rows=_longer(self.out.pair_rows, more, 0),
                )
            case arrays.NO_TRIPLETS:
                more = max(room, 2 * len(self.out.triplets)) - len(self.out.triplets)
                self.out = self.out._replace(
                    triplets=_longer(self.out.triplets, more, 0),
                    triplet_rows=_longer(self.out.triplet_rows, more, 0),
                )

    # ---- votes --------------------------------------------------------------------------------------------------

    def turned(self, left: int, right: int) -> None:
        """Stop counting the votes of a pair."""
        pair = (min(left, right) << 32) | max(left, right)
        self.votes.standing[int(np.flatnonzero(self._voted().pair == pair)[0])] = 0

    def _voted(self) -> PairVotes:
        """The votes without unused room."""
        p, v = self.votes.counts.tolist()
        names = ("pair", "net", "standing")
        others = ("vote", "vote_pair", "vote_sign")
        return self.votes._replace(
            **{name: getattr(self.votes, name)[:p] for name in names},
            **{name: getattr(self.votes, name)[:v] for name in others},
        )

    def forget_votes(self) -> int:
        """If there are more votes than allowed, drop the oldest, so that three quarters of the limit stay.

        The net vote of a pair stays as long as it counts or has votes.
        """
        if self.votes.counts[arrays.VOTES] <= self.max_votes:
            return 0
        held = self._voted()
        last = slice(len(held.vote) - self.max_votes * 3 // 4, None)
        kept = (held.standing != 0) | np.isin(held.pair, held.vote_pair[last])
        self._fill_votes(
            (held.pair[kept], held.net[kept], held.standing[kept]),
            (held.vote[last], held.vote_pair[last], held.vote_sign[last]),
            0,
        )
        return len(held.vote) - len(self._voted().vote)

    def _room_for_votes(self, more: int) -> None:
        p, v = self.votes.counts.tolist()
        if max(p, v) + more > len(self.votes.vote):
            held = self._voted()
            self._fill_votes(
                (held.pair, held.net, held.standing), (held.vote, held.vote_pair, held.vote_sign), more
            )

    def _fill_votes(
        self, pairs: tuple[Array, Array, Array], votes: tuple[Array, Array, Array], more: int
    ) -> None:
        p, v = len(pairs[0]), len(votes[0])
        room = _LEAST
        while room < max(p, v) + more:
            room *= 2
        self.votes = _empty_votes(room)
        self.votes.counts[:] = p, v
        new = self.votes
        new.pair[:p], new.net[:p], new.standing[:p] = pairs
        new.vote[:v], new.vote_pair[:v], new.vote_sign[:v] = votes
        number_map(self.votes.pair_keys, self.votes.pair_where, pairs[0])
        number_map(self.votes.vote_keys, self.votes.vote_where, votes[0])

    # ---- checkpoints --------------------------------------------------------------------------------------------

    def state(self) -> State:
        """The state that is not a function of the accepted relations."""
        held = self._voted()
        state: State = {"numbers": self.parts.numbers[list(_COUNTED)]}
        state |= {f"votes.{name}": getattr(held, name).copy() for name in PairVotes._fields[:6]}
        return state

    def restore(self, state: State) -> None:
        """The inverse of `state`, on an empty graph."""
        self.parts = empty_graph()
        self.out = _outbox(_OUTBOX, _OUTBOX)
        self.parts.numbers[list(_COUNTED)] = state["numbers"]
        voted = [np.asarray(state[f"votes.{name}"]) for name in PairVotes._fields[:6]]
        self._fill_votes((voted[0], voted[1], voted[2]), (voted[3], voted[4], voted[5]), 0)


def _longer(array: Array, more: int, fill: int) -> Array:
    return np.concatenate([array, np.full((more, *array.shape[1:]), fill, array.dtype)])


def _map(places: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    return np.zeros(places, np.int64), np.full(places, -1, np.int32)


def _hubs(blocks: int) -> dict[str, Array]:
    """An empty cache of sums of hubs with this many blocks of edges."""
    return {
        "hubs": np.full((_HUBS, 2), -1, np.int64),
        "hub_sums": np.zeros((_HUBS, blocks, 2), np.int64),
        "hub_stale": np.ones((_HUBS, blocks), np.bool_),
    }


def _outbox(pairs: int, triplets: int) -> Outbox:
    return Outbox(
        np.zeros((pairs, 2), np.int32),
        np.zeros(pairs, np.int8),
        np.zeros(pairs, np.uint8),
        np.zeros(pairs, np.int32),
        np.zeros((triplets, 3), np.int32),
        np.zeros(triplets, np.int32),
    )


def _empty_votes(room: int = 1) -> PairVotes:
    return PairVotes(
        np.zeros(room, np.int64),
        np.zeros(room, np.int32),
        np.zeros(room, np.int8),
        np.zeros(room, np.int64),
        np.zeros(room, np.int64),
        np.zeros(room, np.int8),
        *_map(2 * room),
        *_map(2 * room),
        np.zeros(2, np.int64),
    )
