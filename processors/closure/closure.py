"""Pairs and triplets by transitive closure of relations between items (OAHU paper, Gao et al. 2019)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.processors.base.builder import MAX_BLOCK_BYTES, Made, Origin, State
from kinstream.processors.base.catalogue import Catalogue
from kinstream.processors.base.id_table import hashes
from kinstream.processors.base.packing import Packing, References
from kinstream.processors.base.validation import flag, one_of, whole
from kinstream.processors.closure import arrays as arrays
from kinstream.processors.closure import seed_log
from kinstream.processors.closure.arrays import Options
from kinstream.processors.closure.clicks import Bounds, CoClickedItems
from kinstream.processors.closure.graph import ClosureGraph
from kinstream.processors.closure.labels import Labels
from kinstream.processors.closure.paths import Explanation, explain
from kinstream.processors.closure.seeding import SeedBatch, Seeding, short
from kinstream.streams.errors import BadRecord, Reason, SettingsError
from kinstream.streams.records.state import with_prefix, without_prefix
from kinstream.streams.records.values import (
    Click,
    ClickBlock,
    ConstraintBlock,
    Event,
    ItemBlock,
    Kind,
    Relation,
    RelationBlock,
    SampleBlock,
    Table,
)

#: Rules in the order of their numbers in `kinstream.processors.closure.arrays`.
PAIR_RULES: Final = ("closure-seed", "closure-similar", "closure-dissimilar")
TRIPLET_RULE: Final = "closure-triplet"
EMITTED: Final = ("pairs", "triplets", "both")
POLICIES: Final = ("reject", "support")

_DAY_MS: Final = 86_400_000
#: The entries of `counts`, by their place in `Graph.numbers`.
_NUMBERS: Final = {
    "derived": arrays.DERIVED,
    "seed-withheld": arrays.SEEDS_WITHHELD,
    "pairs-withheld": arrays.PAIRS_WITHHELD,
    "triplets-withheld": arrays.TRIPLETS_WITHHELD,
    "component-over-cap": arrays.OVER_CAP,
}


class Closure:
    """Constraints derived from relations: similarity is transitive, and similar items share their dissimilar items.

    Similar relations join items into components, and dissimilar ones separate components. Each accepted relation, a
    seed, gives itself and its new consequences: similar pairs and dissimilar pairs, and triplets (anchor, positive,
    negative) of two items of one component and one item of a component that is dissimilar from it.

    Seeds come from relations, from labelled samples (a sample with an id is an item as well, similar to the first
    item of its class; classes are dissimilar) and from items that are clicked together.

    Parameters
    ----------
    emit : "pairs", "triplets" or "both". A seed itself is a pair; every triplet is derived.
    max_new_pairs, max_new_triplets : derived from one seed at most, drawn uniformly without replacement; 0 or None
        means no limit: then each derived pair and triplet is given exactly once, otherwise at most once.
    max_component : members of a component; a union beyond it is accepted and gives only the seed, and later derivation
        ignores the component. 0 or None means no limit.
    budget : derived constraints for each seed, on average over all seeds so far; None means no limit.
    contradictions : the treatment of relations that contradict each other.

        - "reject": the first relation holds; a relation that contradicts it is refused.
        - "support": a relation counts once its votes, those for less those against, reach `support`.
    support : votes that a relation needs under "support". Each source has one vote on a pair of items, its last;
        relations without a source share one. Labels and co-clicks need no votes.
    from_labels : whether labelled samples make seeds.
    from_co_clicks : whether co-clicked items make seeds.
    co_click_support : votes that a co-clicked pair needs.
    min_dwell_ms : a click known to be shorter counts neither as a click nor as a skip; 0 uses all.
    seed : of the draws, which depend only on the seed, the identity of the event and the row.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A setting is out of range.

    Notes
    -----
    The graph holds exactly the fixpoint of the four rules over its seeds. A relation that is already
    known, as a seed or as a consequence, is counted and gives nothing.

    Constraints are never withdrawn. Under "support" a relation whose net vote falls below `support` no longer counts:
    the graph is rebuilt from the seeds that still count, in their order, at the cost of all seeds. Later constraints
    follow the new graph, and a consequence that holds again may be given again. Votes for a relation that contradicts
    the graph are kept, and the relation is tried again with each further vote. A relation that was already known when
    its votes sufficed counts like a seed: it still holds when the relations that it followed from fall.

    A tombstone erases an item: its name, its vectors and its hash. Only a number remains, which links its component and
    never appears in a constraint. A later item of the same name is another item.

    Constraints of a record: pairs in the order of their seeds, each seed before its consequences; then triplets in the
    same order. Vectors are those of the catalogue after the record. The consequences of one relation, one sample or one
    list are one event, and are numbered as such.

    References
    ----------
    Gao, Li, Chandra, Khan, Thuraisingham: Towards self-adaptive metric learning on the fly. WWW 2019 (the closure).
    Tarjan: Efficiency of a good but not linear set union algorithm. Journal of the ACM 22, 1975.

    Examples
    --------
    >>> import numpy as np
    >>> from kinstream.processors.base.builder import Origin
    >>> from kinstream.processors.closure.closure import Closure
    >>> from kinstream.streams.records.values import ItemBlock, Relation, Table
    >>> builder = Closure(emit="pairs")
    >>> items = ItemBlock("shop", ("cup", "mug", "pan"), (Table("x", np.eye(3, dtype=np.float32)),), time_ms=0)
    >>> _ = builder.process(items, Origin(offset=0))
    >>> _ = builder.process(Relation("shop", "cup", "mug", similar=True, time_ms=1), Origin(offset=1))
    >>> made = builder.process(Relation("shop", "mug", "pan", similar=False, time_ms=2), Origin(offset=2))
    >>> made.blocks[0].signs.tolist(), made.blocks[0].derived.tolist()
    ([-1, -1], [False, True])
    >>> [link.offset for link in builder.explain("cup", "pan").links]
    [1, 2]
    """

    #: Version 2 records which constraints come from one relation, sample or list, and counts co-clicks once in their
    #: window in any order of arrival. Version 3 refuses late lists, a wrong time of the log makes no others late, and
    #: an id of a drawn list has one spelling. Version 4 forgets what a wrong time of the log has left.
    #: The random draws are those of version 1.
    algorithm: ClassVar[str] = "closure/4"

    #: Votes that are remembered; beyond it the oldest are dropped.
    max_votes: ClassVar[int] = 1_000_000
    #: Classes that are made dissimilar from each other; later ones only give similar pairs.
    max_classes: ClassVar[int] = 1_000
    #: Of click records.
    click_bounds: ClassVar[Bounds] = Bounds()
    #: No encoded block is larger.
    max_bytes: ClassVar[int] = MAX_BLOCK_BYTES

    def __init__(
        self,
        emit: str = "both",
        max_new_pairs: int | None = 50,
        max_new_triplets: int | None = 50,
        max_component: int | None = 1000,
        budget: float | None = None,
        contradictions: str = "reject",
        support: int = 2,
        from_labels: bool = True,
        from_co_clicks: bool = True,
        co_click_support: int = 2,
        min_dwell_ms: int = 0,
        seed: int = 0,
    ) -> None:
        self.emit = one_of("emit", emit, EMITTED)
        self.max_new_pairs = whole("max_new_pairs", max_new_pairs or 0, 0, 1_000_000)
        self.max_new_triplets = whole("max_new_triplets", max_new_triplets or 0, 0, 1_000_000)
        self.max_component = whole("max_component", max_component or 0, 0, 50_000)
        self.budget = _budget(budget)
        self.contradictions = one_of("contradictions", contradictions, POLICIES)
        self.support = whole("support", support, 1, 1_000_000)
        self.from_labels = flag("from_labels", from_labels)
        self.from_co_clicks = flag("from_co_clicks", from_co_clicks)
        self.co_click_support = whole("co_click_support", co_click_support, 1, 1_000_000)
        self.min_dwell_ms = whole("min_dwell_ms", min_dwell_ms, 0, 10 * _DAY_MS)
        self.seed = whole("seed", seed, 0, 2**63 - 1)
        options = Options(
            pairs=emit != "triplets",
            triplets=emit != "pairs",
            max_new_pairs=self.max_new_pairs,
            max_new_triplets=self.max_new_triplets,
            max_component=self.max_component,
            budget=-1.0 if self.budget is None else self.budget,
            support=self.support if contradictions == "support" else 0,
        )
        self._catalogue = Catalogue()
        self._seeding = Seeding(ClosureGraph(options, self.max_votes), self.seed)
        self._items, self._seeds, self._graph = self._seeding.items, self._seeding.seeds, self._seeding.graph
        self._labels = Labels(self._seeding, self.max_classes)
        self._clicks = CoClickedItems(self.click_bounds, self.co_click_support, self.min_dwell_ms)

    # ---- the builder interface ---------------------------------------------------------------------------------

    @property
    def follows(self) -> tuple[type, ...]:
        samples = (SampleBlock,) if self.from_labels else ()
        clicks = (Click, ClickBlock) if self.from_co_clicks else ()
        return (ItemBlock, Relation, RelationBlock, *samples, *clicks)

    @property
    def emits(self) -> frozenset[Kind]:
        kinds = {"pairs": {Kind.PAIR}, "triplets": {Kind.TRIPLET}, "both": {Kind.PAIR, Kind.TRIPLET}}
        return frozenset(kinds[self.emit])

    def counts(self) -> dict[str, int]:
        numbers = {name: self._graph.number(place) for name, place in _NUMBERS.items()}
        clicks = (
            {**self._clicks.counts, "memory-evicted": self._clicks.evicted} if self.from_co_clicks else {}
        )
        return {**self._seeding.counts, **numbers, **clicks}

    @property
    def nbytes(self) -> int:
        """Bytes of memory, by part."""
        return self._graph.nbytes + self._items.nbytes + self._seeds.nbytes + self._catalogue.nbytes

    def process(self, event: Event, origin: Origin) -> Made:
        self._graph.empty_outbox()
        match event:
            case ItemBlock():
                self._take_items(event, origin)
                return Made()
            case Relation():
                return self._relations(_as_block(event), origin)
            case RelationBlock():
                return self._relations(event, origin)
            case SampleBlock() if self.from_labels:
                return self._samples(event, origin)
            case Click() | ClickBlock() if self.from_co_clicks:
                return self._co_clicked(event, origin)
        raise TypeError(f"closure does not follow {type(event).__name__}")

    def space_bytes(self, event: Event) -> int:
        return self._catalogue.bytes_with(event)

    def explain(self, left: str, right: str) -> Explanation | None:
        """Why two items are similar or dissimilar: the shortest chain of seeds; None if they are neither.

        Raises
        ------
        SettingsError : an item is in no relation, or was erased.
        """
        numbers = self._items.table.find(hashes([left, right])).tolist()
        for name, number in zip((left, right), numbers, strict=True):
            if number < 0:
                raise SettingsError(f"item {name!r} is in no relation of this space, or was erased")
        return explain(self._seeds, self._items, self._graph.relation(*numbers), *numbers)

    # ---- items --------------------------------------------------------------------------------------------------

    def _take_items(self, block: ItemBlock, origin: Origin) -> None:
        if block.ids:
            self._check_size(block.space, block.tables)
        self._catalogue.put(block)
        self._seeding.erase(block.tombstones, origin.offset, block.time_ms)

    def _check_size(self, space: str, tables: tuple[Table, ...]) -> None:
        sizes = tuple((t.name, t.vectors.shape[1]) for t in tables)
        packing = Packing(space, sizes, self.max_bytes)
        both = ((Kind.TRIPLET, (TRIPLET_RULE,)), (Kind.PAIR, PAIR_RULES))
        if not all(packing.fits(kind, *rules, grouped=True) for kind, rules in both):
            detail = f"three of these vectors do not fit into {self.max_bytes} bytes"
            raise BadRecord(Reason.TOO_LARGE, detail)

    # ---- relations ----------------------------------------------------------------------------------------------

    def _relations(self, block: RelationBlock, origin: Origin) -> Made:
        rows = np.arange(len(block)) if origin.rows is None else np.array(sorted(set(origin.rows)), np.int64)
        if len(rows) and rows[-1] >= len(block):
            raise BadRecord(Reason.BAD_SHAPE, f"row {rows[-1]} of a block of {len(block)}")
        refused: list[BadRecord] = []
        self._seeding.counts["votes-forgotten"] += self._graph.forget_votes()
        keys = hashes(block.ids)
        same = block.left[rows] == block.right[rows]
        if same.any():
            refused.append(self._of_itself(block, rows[same]))
            rows = rows[~same]
        known = self._catalogue.find(keys) >= 0
        there = known[block.left[rows]] & known[block.right[rows]]
        if not there.all():
            refused.append(self._unknown(block, rows[~there], known))
            rows = rows[there]
        both = np.column_stack([block.left[rows], block.right[rows]]).astype(np.int64).ravel()
        items = self._seeding.number(keys, block.ids, both).reshape(-1, 2)
        batch = SeedBatch(
            left=items[:, 0].copy(),
            right=items[:, 1].copy(),
            sign=np.where(block.similar[rows], 1, -1).astype(np.int8),
            row=rows.astype(np.int32),
            part=np.zeros(len(rows), np.int32),
            time_ms=block.time_ms[rows],
            source=block.source[rows],
            sources=block.sources,
        )
        refused += self._seeding.take(batch, block, origin.offset, vote=True)
        time_ms = int(block.time_ms[rows].max(initial=0))
        return Made(self._pack(block.space, time_ms), refused)

    def _of_itself(self, block: RelationBlock, rows: NDArray[Any]) -> BadRecord:
        self._seeding.counts["self-relation"] += len(rows)
        name = block.ids[block.left[rows[0]]]
        return BadRecord(
            Reason.BAD_SHAPE, f"a relation of item {short(name)} with itself", tuple(rows.tolist())
        )

    def _unknown(self, block: RelationBlock, rows: NDArray[Any], known: NDArray[np.bool_]) -> BadRecord:
        self._seeding.counts["unknown-item"] += len(rows)
        places = np.unique(np.concatenate([block.left[rows], block.right[rows]]))
        names = [block.ids[place] for place in places[~known[places]].tolist()]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        named = ", ".join(short(name) for name in names[:3])
        return BadRecord(
            Reason.UNKNOWN_ITEM, f"not in the catalogue: item {named}{more}", tuple(rows.tolist())
        )

    # ---- labels -------------------------------------------------------------------------------------------------

    def _samples(self, block: SampleBlock, origin: Origin) -> Made:
        count = len(block.labels)
        if block.ids is None:
            self._seeding.counts["no-id"] += count
            return Made()
        named = np.array([bool(name) for name in block.ids], np.bool_)
        self._seeding.counts["no-id"] += int(count - named.sum())
        rows = np.flatnonzero(named)
        if not len(rows):
            return Made()
        labels = self._labels.checked(block)
        self._check_size(block.space, block.tables)
        keys = hashes(block.ids)
        tables = tuple(Table(t.name, t.vectors[rows]) for t in block.tables)
        ids = tuple(block.ids[row] for row in rows.tolist())
        self._catalogue.check(ItemBlock(block.space, ids, tables, block.time_ms))
        self._catalogue.add(keys[rows], tables)
        items = self._seeding.number(keys, block.ids, rows.astype(np.int64))
        refused = self._labels.take(block, origin.offset, rows.tolist(), labels, items.tolist())
        return Made(self._pack(block.space, block.time_ms), refused)

    # ---- co-clicks --------------------------------------------------------------------------------------------------

    def _co_clicked(self, event: Click | ClickBlock, origin: Origin) -> Made:
        """Pairs with enough votes as similar ones. A contradicting one is only counted, since it belongs to no single
        record."""
        found = self._clicks.take(event, origin, self._catalogue.find)
        lists, pairs = found.lists, found.pairs
        # A later list can form a pair with items clicked here, without their names.
        self._seeding.number(lists.keys, lists.block.ids, found.clicked)
        keys = pairs.keys.reshape(-1, 2)
        items = np.where(self._catalogue.find(keys) >= 0, self._items.table.find(keys), -1).reshape(-1, 2)
        there = np.flatnonzero((items >= 0).all(axis=1))
        self._clicks.counts["co-click-gone"] += len(pairs) - len(there)
        of = pairs.lists[there]
        batch = SeedBatch(
            left=items[there, 0].astype(np.int32),
            right=items[there, 1].astype(np.int32),
            sign=np.ones(len(there), np.int8),
            row=of.astype(np.int32),
            part=there.astype(np.int32),
            time_ms=lists.time_ms[of],
            source=np.full(len(there), -1, np.int32),
            via=seed_log.CO_CLICK,
        )
        before = self._seeding.counts["contradiction"]
        self._seeding.take(batch, event, origin.offset, vote=False)
        self._clicks.counts["co-click-contradiction"] += self._seeding.counts["contradiction"] - before
        time_ms = int(lists.time_ms[of].max(initial=0))
        return Made(self._pack(event.space, time_ms, bool(found.partly[of].any())), found.refused)

    # ---- constraints --------------------------------------------------------------------------------------------

    def _pack(self, space: str, time_ms: int, begun: bool = False) -> list[ConstraintBlock]:
        pairs, signs, rules, pair_rows, triplets, triplet_rows = self._graph.made()
        packing = Packing(space, self._catalogue.modalities, self.max_bytes)
        derived = rules != arrays.SEED
        made = packing.blocks(
            Kind.PAIR,
            PAIR_RULES,
            pairs,
            self._vectors,
            time_ms,
            rule_of=rules,
            signs=signs,
            derived=derived,
            events=pair_rows,
            begun=begun,
        )
        return made + packing.blocks(
            Kind.TRIPLET,
            TRIPLET_RULE,
            triplets,
            self._vectors,
            time_ms,
            derived=np.ones(len(triplets), np.bool_),
            events=triplet_rows,
            begun=begun,
            earlier=Kind.PAIR if np.isin(triplet_rows, pair_rows).any() else None,
        )

    def _vectors(self, items: References) -> tuple[Table, ...]:
        found = self._catalogue.find(self._items.table.hashes_of(items.astype(np.int64)))
        return self._catalogue.vectors(found)

    # ---- checkpoints --------------------------------------------------------------------------------------------

    def state(self) -> State:
        state = self._labels.state() | {"counts": json.dumps(self._seeding.counts)}
        for name, part in self._parts().items():
            state |= with_prefix(f"{name}.", part.state())
        return state

    def restore(self, state: State) -> None:
        self._labels.restore(state)
        self._seeding.counts = json.loads(str(state["counts"]))
        for name, part in self._parts().items():
            part.restore(without_prefix(f"{name}.", state))

    def segments(self) -> tuple[str, ...]:
        return (*self._items.segments(), *self._seeds.segments(), *self._catalogue.segments())

    def segment(self, name: str) -> State:
        for part in (self._items, self._seeds):
            if part.holds(name):
                return part.segment(name)
        return self._catalogue.segment(name)

    def restore_segments(self, load: Callable[[str], State]) -> None:
        for part in (self._items, self._seeds, self._catalogue):
            part.restore_segments(load)
        self._graph.room_for(len(self._items))
        self._graph.replay(*self._seeds.standing())

    def inherit(self, state: State, load: Callable[[str], State]) -> None:
        """Take over items, classes and seeds from a builder of other settings; votes and filters start empty."""
        self._labels.restore(state)
        kept: dict[str, Any] = {"catalogue": self._catalogue, "items": self._items, "seeds": self._seeds}
        for name, part in kept.items():
            part.restore(without_prefix(f"{name}.", state))
            part.restore_segments(load)
        self._graph.room_for(len(self._items))
        self._graph.replay(*self._seeds.standing())

    def _parts(self) -> dict[str, Any]:
        clicks = {"clicks": self._clicks} if self.from_co_clicks else {}
        return {
            "catalogue": self._catalogue,
            "items": self._items,
            "seeds": self._seeds,
            "graph": self._graph,
            **clicks,
        }


def _as_block(relation: Relation) -> RelationBlock:
    same = relation.left == relation.right
    return RelationBlock(
        relation.space,
        ids=(relation.left,) if same else (relation.left, relation.right),
        left=np.zeros(1, np.int32),
        right=np.array([0 if same else 1], np.int32),
        similar=np.array([relation.similar], np.bool_),
        time_ms=np.array([relation.time_ms], np.int64),
        sources=() if relation.source is None else (relation.source,),
        source=np.array([-1 if relation.source is None else 0], np.int32),
        load=relation.load,
    )


def _budget(value: float | None) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e6:
        raise SettingsError(f"budget must be a number from 0 to 1000000, not {value!r}")
    return float(value)
