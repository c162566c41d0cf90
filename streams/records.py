"""The values that travel through the stream. Plain frozen data; how they are written down is `streams.codec`.

A message carries a block of 1..N rows. Vectors are float32, one table per modality, row-major.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]

#: Name of the only modality of a space that has one.
DEFAULT_MODALITY: Final = "x"

#: Rule that names the pairs COPML learns from while one class is known (spec 4.2).
PREFIX_RULE: Final = "one-pass-prefix"


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


@dataclass(frozen=True, slots=True)
class LoadPosition:
    """Where a block stands in a producer's load, so that a restarted load counts nothing twice."""

    load_id: str
    sequence: int


@dataclass(frozen=True, slots=True, eq=False)
class SampleBlock:
    """Labelled vectors.

    Parameters
    ----------
    tables : one per modality, all with n rows.
    labels : (n,) int64, or n strings.
    time_ms : when the samples came to be, milliseconds since the epoch.
    ids : n item names, or None.
    load : position in a load, or None for a producer that has none (at-least-once).
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


@dataclass(frozen=True, slots=True)
class ItemClick:
    """One click in a shown list. `dwell_ms` is None where it was not measured."""

    item: str
    time_ms: int
    dwell_ms: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Click:
    """One result list and what was clicked in it.

    Parameters
    ----------
    query_item, query_vector : the query as an item of the catalogue, or as vectors of one row per modality.
    items, positions : what was shown, and the rank of each (0 is the top).
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


@dataclass(frozen=True, slots=True)
class Relation:
    """Somebody's word that two items are similar, or that they are not."""

    space: str
    left: str
    right: str
    similar: bool
    time_ms: int
    source: str | None = None
    load: LoadPosition | None = None


class Action(StrEnum):
    """What a control record does to a space."""

    CREATE = "create"
    RESET = "reset"
    DELETE = "delete"
    PAUSE = "pause"
    RESUME = "resume"


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a space holds. `labels` is "integer", "string" or "any"; `scaler` a name of `learners.scaler`."""

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
    derived : (m,) bool, False for a seed and True for what was concluded from seeds.
    time_ms : of the newest event behind the block.
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

    def __len__(self) -> int:
        return len(self.index)


# ---- kinstream.outcomes -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Counts:
    """How many constraints met which fate (spec 1.3). `seen` = scored or not, without the rejected."""

    seen: int = 0
    scored: int = 0
    mistakes: int = 0
    utilised: int = 0
    clipped: int = 0
    rejected: int = 0
    degenerate: int = 0
    ignored: int = 0
    loss_sum: float = 0.0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, name) + getattr(other, name) for name in COUNT_NAMES))


COUNT_NAMES: Final = tuple(Counts.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one learner did with one constraint block.

    Parameters
    ----------
    emitter, emitter_generation : the builder whose block it was.
    generation, epoch : of the learner's space.
    step : constraints accepted by the space's model so far.
    by_rule : the same counts for each rule in the block.
    weights : of experts or modalities, by name; empty for a single metric.
    time_ms : of the newest event behind the block.
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


# ---- kinstream.models -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """Where the newest model of a space lies. `location` is a URL; `deleted` says that the space is gone."""

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


Event = SampleBlock | ItemBlock | Click | Relation | Control
Record = Event | ConstraintBlock | Outcome | ModelVersion
