"""An experiment: which metrics, on which constraints, with which splits and measures."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final

from kinstream.evaluation.experiment.data import Data
from kinstream.evaluation.experiment.feeds import Feed
from kinstream.evaluation.experiment.splits import RandomHalves, Scaling, Splitter
from kinstream.learners import registry as learners
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import Kind

#: Changes whenever the same plan gives other results, so that finished cells of older versions are not reused.
VERSION: Final = 2

#: The view of a contender of one modality on several.
SIDE_BY_SIDE: Final = "side-by-side"
TABLES: Final = "tables"

MEASURES: Final = ("classification", "verification", "retrieval")
#: Families of metrics, the simplest first; batch learners are only for comparison.
FAMILIES: Final = ("un-learned", "single", "ensemble", "batch")
#: Kinds of learners that consist of others.
ENSEMBLES: Final = frozenset({"fusion", "mixture", "oahu"})


@dataclass(frozen=True)
class Contender:
    """One metric of an experiment: a learner, or an un-learned metric as a reference.

    Parameters
    ----------
    name : as in results; unique in a plan.
    kind : of the learner, see `kinstream.learners.registry`.
    feed : the source of its constraints.
    settings : of the learner; `grid` overrides them.
    grid : settings to choose from, in each split separately and by the training rows alone. The first of equals wins.
    unlearned : whether it is a metric that learns nothing.
    scaling : kind of the scaler of its rows, see `kinstream.evaluation.experiment.splits.Scaling`; None for that
        of the plan.
    batch : whether it is fitted to all training rows at once; `kind` is then one of
        `kinstream.evaluation.experiment.contenders.BATCH`.
    view : "tables" (a block has a table for each modality), "side-by-side" (one table of all), or the name of the one
        modality that it sees.
    """

    name: str
    kind: str
    feed: Feed
    settings: Mapping[str, Any] = field(default_factory=dict)
    grid: tuple[Mapping[str, Any], ...] = ({},)
    unlearned: bool = False
    view: str = TABLES
    scaling: str | None = None
    batch: bool = False

    @property
    def family(self) -> str:
        """One of `FAMILIES`."""
        if self.unlearned:
            return "un-learned"
        if self.batch:
            return "batch"
        return "ensemble" if self.kind in ENSEMBLES else "single"

    def describe(self) -> dict[str, Any]:
        """Everything that its results depend on."""
        return {
            "name": self.name,
            "kind": self.kind,
            "feed": self.feed.describe(),
            "settings": dict(self.settings),
            "grid": [dict(point) for point in self.grid],
            "unlearned": self.unlearned,
            "view": self.view,
            "scaling": self.scaling,
            "batch": self.batch,
        }

    def arguments(self, point: Mapping[str, Any], seed: int | None = None) -> dict[str, Any]:
        """Of the learner's constructor, at one point of the grid; `seed` if the settings name none."""
        given = {**self.settings, **point}
        if seed is not None and not self.batch and learners.has(self.kind, "seed"):
            given.setdefault("seed", seed)
        return given


@dataclass(frozen=True)
class GridChoice:
    """The choice of a point of a grid, in each split, by the training rows.

    Parameters
    ----------
    by : "error" (5-NN on rows of the stream that are left out for it), "map" (mean average precision there), or
        "mistakes" (online mistake rate, which also works for constraints without labels).
    folds : how many parts are left out in turn; 1 leaves out 30 % once.
    limit : constraints of each trial at most; None for as many as in the experiment.
    """

    by: str = "error"
    folds: int = 1
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.by not in ("error", "map", "mistakes"):
            raise SettingsError(f"settings are chosen by error, map or mistakes, not by {self.by!r}")
        if self.folds < 1 or (self.limit is not None and self.limit < 1):
            raise SettingsError("folds and limit of a choice are whole numbers of at least 1")


@dataclass(frozen=True)
class Measuring:
    """The measures on the held-out rows.

    Parameters
    ----------
    what : of `MEASURES`; "classification" is 5-NN error and macro F1.
    neighbours : that vote.
    pairs : of test rows, for verification; half of them of one class.
    ranks : K of Recall@K and P@K.
    gallery : "train" (test rows are searched among the training rows) or "test" (each among the others).
    own_vote : classify by the vote of a learner that has one, as the OAHU paper does, and not by `transform`, which is
        what services use.
    """

    what: tuple[str, ...] = MEASURES
    neighbours: int = 5
    pairs: int = 10_000
    ranks: tuple[int, ...] = (1, 2, 5, 10, 20, 50)
    gallery: str = "train"
    own_vote: bool = False

    def __post_init__(self) -> None:
        if unknown := set(self.what) - set(MEASURES):
            raise SettingsError(f"measures are {', '.join(MEASURES)}, not {', '.join(sorted(unknown))}")
        if self.gallery not in ("train", "test"):
            raise SettingsError(f"the gallery is train or test, not {self.gallery!r}")
        if self.neighbours < 1 or self.pairs < 1 or not self.ranks or min(self.ranks) < 1:
            raise SettingsError("neighbours, pairs and ranks are whole numbers of at least 1")


@dataclass(frozen=True)
class Plan:
    """An experiment.

    Parameters
    ----------
    name : of the report.
    contenders : in the order of display.
    splits : how many of each data set.
    seed : of learners and builders without one, plus the number of the split. Learners of recorded constraints
        run with the settings that they have, as they would live.
    splitter : for labelled rows.
    hold_out : of recorded constraints, the share in each test part at their end.
    curve_points : of the curve over constraints, at most.
    """

    name: str
    contenders: tuple[Contender, ...]
    splits: int = 5
    seed: int = 0
    splitter: Splitter = field(default_factory=RandomHalves)
    scaling: Scaling = field(default_factory=Scaling)
    hold_out: float = 0.2
    choice: GridChoice = field(default_factory=GridChoice)
    measuring: Measuring = field(default_factory=Measuring)
    curve_points: int = 200

    def __post_init__(self) -> None:
        names = [contender.name for contender in self.contenders]
        if not names:
            raise SettingsError("there is nothing to evaluate: name a learner")
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise SettingsError(f"two metrics have the name {repeated[0]!r}")
        for name, value, least in (
            ("splits", self.splits, 1),
            ("curve_points", self.curve_points, 2),
        ):
            if value < least:
                raise SettingsError(f"{name} must be at least {least}, not {value}")
        if not 0.0 <= self.hold_out < 1.0:
            raise SettingsError(f"hold_out must be at least 0 and below 1, not {self.hold_out!r}")
        for contender in self.contenders:
            check(contender)

    def describe(self) -> dict[str, Any]:
        """The plan as written in a result."""
        return {
            "name": self.name,
            "contenders": [contender.describe() for contender in self.contenders],
            "splits": self.splits,
            "seed": self.seed,
            "splitter": self.splitter.describe(),
            "scaling": {"kind": self.scaling.kind, "fitted": self.scaling.fitted},
            "hold_out": self.hold_out,
            "choice": {"by": self.choice.by, "folds": self.choice.folds, "limit": self.choice.limit},
            "measuring": {
                "what": list(self.measuring.what),
                "neighbours": self.measuring.neighbours,
                "pairs": self.measuring.pairs,
                "ranks": list(self.measuring.ranks),
                "gallery": self.measuring.gallery,
            },
            "curve_points": self.curve_points,
        }

    def cells(self, data: Sequence[Data]) -> list[Cell]:
        """Every cell of the experiment, in the order of the result."""
        return [
            Cell(place, number, at)
            for place, _ in enumerate(data)
            for number in range(self.splits)
            for at, _ in enumerate(self.contenders)
        ]

    def key(self, data: Data, cell: Cell) -> str:
        """Name of a cell by everything that its result depends on, which excludes other contenders and the number of
        splits."""
        described = self.describe()
        del described["contenders"], described["name"]
        if not _splits_matter(self, data):
            del described["splits"]
        described |= {
            "version": VERSION,
            "contender": self.contenders[cell.contender].describe(),
            "split": cell.split,
            "data": data.digest,
            "called": data.name,
        }
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:24]


@dataclass(frozen=True, order=True)
class Cell:
    """One metric on one split of one data set, by their numbers."""

    data: int
    split: int
    contender: int


def _splits_matter(plan: Plan, data: Data) -> bool:
    """Whether the parts depend on the number of splits."""
    return not isinstance(plan.splitter, RandomHalves) or not hasattr(data, "labels")


def check(contender: Contender) -> None:
    """Refuse a metric that cannot be made, or that cannot learn from any constraint of its feed.

    Raises
    ------
    SettingsError
    """
    if not contender.grid:
        raise SettingsError(f"{contender.name}: an empty grid leaves no settings to run with")
    if contender.scaling is not None:
        Scaling(contender.scaling)
    if contender.batch:
        return
    for point in contender.grid:
        try:
            learner = learners.create(contender.kind, **contender.arguments(point))
        except SettingsError as error:
            raise SettingsError(f"{contender.name}: {error}") from error
    if not contender.feed.emits & {learner.form, Kind.TRIPLET}:
        kinds = " and ".join(f"{kind}s" for kind in sorted(contender.feed.emits))
        raise SettingsError(
            f"{contender.name} ({contender.kind}) learns from {learner.form}s, and {contender.feed.name} makes {kinds}"
        )


def grid(settings: Mapping[str, Sequence[Any]]) -> tuple[Mapping[str, Any], ...]:
    """All combinations of values, in the order in which they are written.

    Examples
    --------
    >>> grid({"gamma": [0.01, 0.1]})
    ({'gamma': 0.01}, {'gamma': 0.1})
    """
    return tuple(dict(zip(settings, values, strict=True)) for values in product(*settings.values()))
