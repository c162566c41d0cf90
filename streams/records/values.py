"""The values that travel through the stream. Plain frozen data; the codec defines their encoding.

A message carries a block of 1..N rows. Vectors are float32, one table per modality, row-major.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.records.gate import GateDecision, GateOrder
from kinstream.streams.records.held_out import HeldOut, ShownLists
from kinstream.streams.records.lists.feedback import HEAVIEST as HEAVIEST
from kinstream.streams.records.lists.feedback import Feedback as Feedback
from kinstream.streams.records.lists.feedback import ItemClick as ItemClick
from kinstream.streams.records.lists.load_position import LoadPosition as LoadPosition
from kinstream.streams.records.scores import Scores
from kinstream.streams.records.vectors import ItemMap, VectorBlock

Vectors = NDArray[np.float32]

#: Name of the only modality of a space that has one.
DEFAULT_MODALITY: Final = "x"

#: Rule of the pairs that COPML learns from while one class is known (Algorithm 2 of the OPML paper).
PREFIX_RULE: Final = "one-pass-prefix"
#: Rules that prefer one item of a list over another, in the order of their numbers: the query is the anchor.
PREFERENCE_RULES: Final = (
    "click-skip-above",
    "last-click-skip-above",
    "click-skip-previous",
    "click-no-click-next",
    "click-earlier-click",
)
#: Rule of pairs that are lists: one list is an event, its query the first vector of each pair. What was clicked is
#: similar, and what was passed over dissimilar.
LIST_RULE: Final = "click-list"


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """The vectors of one modality.

    Parameters
    ----------
    name : modality.
    vectors : (n, d) float32, C-contiguous.
    """

    name: str
    vectors: Vectors


# ---- kinstream.events -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class SampleBlock:
    """Labelled vectors.

    Parameters
    ----------
    tables : one per modality, all with n rows.
    labels : (n,) int64, or n strings.
    time_ms : when the samples were created, milliseconds since the epoch.
    ids : n item names, or None.
    load : position in a load, or None for a producer without positions (at-least-once).
    """

    space: str
    tables: tuple[Table, ...]
    labels: NDArray[np.int64] | tuple[str, ...]
    time_ms: int
    ids: tuple[str, ...] | None = None
    load: LoadPosition | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ItemBlock:
    """Catalogue entries. An entry of `ids` with its vectors replaces the item; `tombstones` remove items."""

    space: str
    ids: tuple[str, ...]
    tables: tuple[Table, ...]
    time_ms: int
    tombstones: tuple[str, ...] = ()
    load: LoadPosition | None = None


#: The kind of an action without one.
CLICK: Final = "click"


@dataclass(frozen=True, slots=True, eq=False)
class Click:
    """One result list and its clicks.

    Parameters
    ----------
    query_item, query_vector : the query as an item of the catalogue, or as vectors of one row per modality.
    items, positions : the items shown, and the rank of each (0 is the top).
    address : a keyed hash of a prefix of the client's network address, never the address itself.
    scores : a row for each shown item; None without scores.
    """

    space: str
    list_id: str
    items: tuple[str, ...]
    positions: tuple[int, ...]
    clicks: tuple[ItemClick, ...]
    shown_at_ms: int
    session: str | None = None
    user: str | None = None
    query_item: str | None = None
    query_vector: tuple[Table, ...] = ()
    load: LoadPosition | None = None
    address: str | None = None
    scores: Scores | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ClickBlock:
    """Result lists in columns: n lists of m impressions and k clicks in all, over u distinct item names.

    Parameters
    ----------
    ids : u names of items, each once.
    list_ids : n names.
    actors : names of sessions, users and addresses, each once.
    session, user : (n,) int32 into `actors`; -1 for none.
    query : (n,) int32 into `ids`, or -1 for a list whose query is no item.
    query_row : (n,) int32 row of `query_vectors`, or -1 for a query without a vector of its own.
    query_vectors : one table per modality, or none.
    shown_at_ms : (n,) int64.
    starts : (n + 1,) int32; the impressions of list i are starts[i] .. starts[i + 1].
    item : (m,) int32 into `ids`.
    position : (m,) int32 rank in the list, 0 is the top.
    clicked : (k,) int32 number of the impression, 0 .. m - 1.
    click_ms : (k,) int64 time of the click.
    dwell_ms : (k,) int64; -1 if it was not measured.
    address : (n,) int32 into `actors`, -1 for none, see `Click`; None if no list has one.
    scores : a row for each impression; None if no list has scores.
    kinds : names of actions, each once; `action` (k,) int32 points into them, -1 for a click; None if all are clicks.
    weight : (k,) float32 of each action; None if all count as 1.
    """

    space: str
    ids: tuple[str, ...]
    list_ids: tuple[str, ...]
    actors: tuple[str, ...]
    session: NDArray[np.int32]
    user: NDArray[np.int32]
    query: NDArray[np.int32]
    query_row: NDArray[np.int32]
    query_vectors: tuple[Table, ...]
    shown_at_ms: NDArray[np.int64]
    starts: NDArray[np.int32]
    item: NDArray[np.int32]
    position: NDArray[np.int32]
    clicked: NDArray[np.int32]
    click_ms: NDArray[np.int64]
    dwell_ms: NDArray[np.int64]
    load: LoadPosition | None = None
    address: NDArray[np.int32] | None = None
    scores: Scores | None = None
    kinds: tuple[str, ...] = ()
    action: NDArray[np.int32] | None = None
    weight: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        """How many lists."""
        return len(self.list_ids)


@dataclass(frozen=True, slots=True)
class Relation:
    """A statement from a source that two items are similar or dissimilar."""

    space: str
    left: str
    right: str
    similar: bool
    time_ms: int
    source: str | None = None
    load: LoadPosition | None = None


@dataclass(frozen=True, slots=True, eq=False)
class RelationBlock:
    """Relations in columns.

    Parameters
    ----------
    ids : distinct names of items.
    left, right : (n,) int32 into `ids`.
    similar : (n,) bool.
    time_ms : (n,) int64.
    sources : distinct names of the sources; `source` (n,) int32 points into them, -1 if there is none.
    """

    space: str
    ids: tuple[str, ...]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    similar: NDArray[np.bool_]
    time_ms: NDArray[np.int64]
    sources: tuple[str, ...]
    source: NDArray[np.int32]
    load: LoadPosition | None = None

    def __len__(self) -> int:
        return len(self.left)


#: Scalers that a declaration may name.
SCALERS: Final = ("none", "zscore", "unit", "minmax")


class Action(StrEnum):
    """The effect of a control record on a space."""

    CREATE = "create"
    RESET = "reset"
    DELETE = "delete"
    PAUSE = "pause"
    RESUME = "resume"


@dataclass(frozen=True, slots=True)
class Declaration:
    """The declared content of a space. `labels` is "integer", "string" or "any"; `scaler` one of `SCALERS`, or None."""

    modalities: tuple[tuple[str, int], ...] = ()
    labels: str = "any"
    scaler: str | None = None


@dataclass(frozen=True, slots=True)
class Control:
    """Create, reset, delete, pause or resume a space. On `constraints` a builder passes it on with its epoch."""

    space: str
    action: Action
    time_ms: int
    declaration: Declaration | None = None
    epoch: int | None = None


# ---- kinstream.constraints --------------------------------------------------------------------------------------


class Kind(StrEnum):
    """The kind of a constraint row."""

    PAIR = "pair"
    TRIPLET = "triplet"


@dataclass(frozen=True, slots=True, eq=False)
class ConstraintBlock:
    """Pairs or triplets as rows of indices into tables of distinct vectors.

    Parameters
    ----------
    kind : of every row.
    tables : one per modality, the same row numbers in each.
    index : (m, 2) or (m, 3) int32; a triplet is (anchor, positive, negative).
    signs : (m,) int8, +1 similar and -1 dissimilar; zeros for triplets.
    targets : (m,) float32 target squared distances, or None.
    weights : (m,) float32.
    rules : names of the rules; `rule` (m,) uint8 points into them.
    derived : (m,) bool, False for a seed and True for a row derived from seeds.
    time_ms : of the newest event behind the block.
    events : (m,) int32 that does not decrease; rows of one number came from one event: a click list, a relation, a
        sample. Learners judge all rows of an event before they learn any. Events are numbered from 1; 0 is one
        that began in an earlier block, whose rows may have been learned already. None: every row is an event of
        its own.
    earlier : kind of the constraints that events of this block gave in blocks before it, if that is the other one, or
        None.
    lists : the lists behind the constraints; None where there are none. Judges get them, and the learner `ranking`.
    scores : a row for each constraint: of a pair of `LIST_RULE`, those that its item had in the list; None without.
    retracted : (r, 2) uint64, what memories of earlier blocks' lists are to forget: hash of a list's id, or 0 for all
        lists, and of an item's name. None if nothing.
    """

    space: str
    kind: Kind
    tables: tuple[Table, ...]
    index: NDArray[np.int32]
    signs: NDArray[np.int8]
    rules: tuple[str, ...]
    rule: NDArray[np.uint8]
    derived: NDArray[np.bool_]
    weights: NDArray[np.float32]
    time_ms: int
    epoch: int = 0
    targets: NDArray[np.float32] | None = None
    events: NDArray[np.int32] | None = None
    earlier: Kind | None = None
    lists: ShownLists | None = None
    scores: Scores | None = None
    retracted: NDArray[np.uint64] | None = None

    def __len__(self) -> int:
        return len(self.index)

    def split(self, form: Kind) -> NDArray[np.bool_]:
        """(m,) rows whose event started in an earlier block, so that a learner of that form may already have learned
        from it.

        A learner of pairs learns from triplets as well; a learner of triplets learns from triplets only.
        """
        if self.earlier is not None and (self.earlier is Kind.TRIPLET or form is Kind.PAIR):
            return np.ones(len(self), np.bool_)
        return np.zeros(len(self), np.bool_) if self.events is None else self.events == 0

    def take(self, rows: slice | NDArray[np.bool_] | NDArray[np.integer]) -> ConstraintBlock:
        """Some of the constraints, over the same tables, without the lists."""
        return ConstraintBlock(
            self.space,
            self.kind,
            self.tables,
            self.index[rows],
            self.signs[rows],
            self.rules,
            self.rule[rows],
            self.derived[rows],
            self.weights[rows],
            self.time_ms,
            self.epoch,
            None if self.targets is None else self.targets[rows],
            None if self.events is None else self.events[rows],
            self.earlier,
            scores=None if self.scores is None else self.scores.take(rows),
            retracted=self.retracted,
        )

    def without_lists(self) -> ConstraintBlock:
        """The constraints alone: tables of the vectors that they name."""
        if self.lists is None:
            return self
        used, index = np.unique(self.index, return_inverse=True)
        tables = tuple(Table(table.name, np.ascontiguousarray(table.vectors[used])) for table in self.tables)
        return replace(
            self, tables=tables, index=index.reshape(self.index.shape).astype(np.int32), lists=None
        )


# ---- kinstream.outcomes -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of constraints by outcome (docs/learning.md, "What is reported").

    `seen` are the accepted ones, scored or not. `mistakes` of `scored` were judged before anything of their event was
    learned: that is the mistake rate. `split_mistakes` of `split_scored` belong to an event that began in an earlier
    block. They were judged before anything of their own block was learned, and are in `seen` but not in `scored` and
    `mistakes`. `held_out` are of events that were judged and never learned: no other count includes them, so seen,
    rejected, ignored and held_out add up to the constraints of the block.
    """

    seen: int = 0
    scored: int = 0
    mistakes: int = 0
    utilised: int = 0
    clipped: int = 0
    rejected: int = 0
    degenerate: int = 0
    ignored: int = 0
    loss_sum: float = 0.0
    split_scored: int = 0
    split_mistakes: int = 0
    held_out: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, name) + getattr(other, name) for name in COUNT_NAMES))


COUNT_NAMES: Final = tuple(Counts.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcomes of one learner on one constraint block.

    Parameters
    ----------
    emitter, emitter_generation : the builder whose block it was.
    generation, epoch : of the learner's space.
    step : constraints accepted by the space's model so far.
    by_rule : the same counts for each rule in the block.
    weights : of experts or modalities, by name; empty for a single metric.
    time_ms : of the newest event behind the block.
    held_out : None if no held-out event was judged in the block.
    """

    space: str
    learner: str
    generation: int
    epoch: int
    emitter: str
    emitter_generation: int
    step: int
    counts: Counts
    time_ms: int
    by_rule: dict[str, Counts] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    kind: str = "triplet"
    held_out: HeldOut | None = None


# ---- kinstream.models -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """The location of the newest model of a space. `location` is a URL; `deleted`: the space was deleted."""

    space: str
    learner: str
    algorithm: str
    generation: int
    epoch: int
    step: int
    topic: str
    partition: int
    offset: int
    location: str
    sha256: str
    time_ms: int
    deleted: bool = False


# ---- kinstream.updates ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class ModelUpdate:
    """The change of a space's map by one constraint block, or a part of it: new map = old map + U V.

    The map is of scaled features. U and V have as many columns and rows as the change has directions; a record holds
    a run of them, and the parts of an update add up. A change without directions means that the map did not change.

    Parameters
    ----------
    generation, epoch : of the learner's space.
    topic, partition, offset : of the constraint block.
    base_step, step : constraints accepted by the space's model before and after the block, as in `Outcome.step`.
    whole : False if the change has no such form, because the model's dimension or scaler began with the block. A reader
        that adds updates then waits for an announced model of this step or a later one.
    part, parts : number of this part, from 0, and how many there are.
    dimension : d, of the map (d, d).
    rank, first : directions of the whole update, and the number of the first one in this part.
    check : CRC-32 of the whole U and then the whole V, so that parts of two runs are never put together.
    U, V : (d, k) and (k, d), of the learner's own type, float64 or float32.
    time_ms : of the newest event behind the block.
    """

    space: str
    learner: str
    generation: int
    epoch: int
    topic: str
    partition: int
    offset: int
    base_step: int
    step: int
    whole: bool
    part: int
    parts: int
    dimension: int
    rank: int
    first: int
    check: int
    U: NDArray[np.floating[Any]]
    V: NDArray[np.floating[Any]]
    time_ms: int


#: What a load consists of.
Loaded = SampleBlock | ItemBlock | Click | ClickBlock | Relation | RelationBlock | Feedback
Event = Loaded | Control | GateOrder | ItemMap
Record = Event | ConstraintBlock | Outcome | ModelVersion | GateDecision | ModelUpdate | VectorBlock
