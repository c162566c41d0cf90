"""Fusions of learners of one modality for several: the baselines of multi-modal learning (Wu et al. 2016)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.events import Events, shared
from kinstream.learners.base.learner import UNDEFINED, Learner, Outcomes, Rows, State
from kinstream.learners.base.modalities import (
    Modalities,
    checked_columns,
    checked_index,
    checked_tables,
    named,
    stacked,
)
from kinstream.learners.base.scaler import WARM_UP
from kinstream.learners.base.several_modalities import Features, MultiModal
from kinstream.learners.base.validation import WIDTH, one_of, whole
from kinstream.learners.kernels.several_modalities import fusion
from kinstream.streams.errors import BadRecord, Reason, SettingsError
from kinstream.streams.records.state import without_prefix
from kinstream.streams.records.values import DEFAULT_MODALITY, ConstraintBlock, Kind, Table

HOWS: Final = ("concatenate", "uniform", "best")


class Fusion:
    r"""One metric over all modalities, or one for each, which are then combined.

    Any learner of one modality becomes a learner of several:

    - "concatenate" learns one metric for the vectors x = (x_1, ..., x_m).
    - "uniform" learns a metric for each modality separately and adds squared distances, sum_i d_i(x_i, y_i), or
      similarities if the base learns one.
    - "best" learns a metric for each modality separately and measures with the one that has the lowest share of
      mistakes so far, where a constraint that is k constraints old weighs (1 - 1 / memory)^k. It begins with the first
      modality.

    The mistake of a triplet is that of the fused measure before the update. With "uniform" that is whether the metrics'
    margins (`kinstream.learners.base.learner.Outcomes`) add up to at most 0, even if some reject their step; it is
    undefined if one of them could not measure the triplet. With "best" it is the mistake of the modality that was best
    before. A pair has no fused threshold with "uniform", so its mistake is undefined. A constraint is utilised when a
    metric changed; its loss is the mean of the metrics' losses.

    Parameters
    ----------
    base : kind of the learner.
    how : "concatenate", "uniform" or "best".
    settings : the hyper-parameters of `base`; in `kinstream.toml` the table `[learners.NAME.settings]`.
    memory : for "best", the number of constraints that count; above 1.
    scaler : as the setting of `base`, which it overrides. With "concatenate", "unit" divides by the length of all
        modalities together.

    unit : as the setting of `base`, if it has one.

    Attributes
    ----------
    accepts, form : those of `base`.
    algorithm : names `how` and the base with its version.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A setting is out of range, or `base` is not a learner of one modality.

    Notes
    -----
    The sources select the best modality by its precision in retrieval on a validation set. A stream has none, so the
    counted mistakes replace it; the memory lets the choice follow a changing stream.

    Every metric gets whole blocks, so the cost is that of the base for each metric. The metrics are independent: the
    fusion uses the margins that they report from before each step. Margins of "oahu" are those of its vote, which uses
    distances that are not squared.

    References
    ----------
    Wu, Hoi, Zhao, Miao, Liu: Online multi-modal distance metric learning with application to image retrieval. IEEE
    Transactions on Knowledge and Data Engineering 28(2), 2016, the baselines of section 5.

    Examples
    --------
    >>> import numpy as np
    >>> from kinstream import Fusion
    >>> draw = np.random.default_rng(7)
    >>> noise = [draw.normal(size=(200, 3)) for _ in range(3)]
    >>> shape = [place + 0.3 * draw.normal(size=(200, 2)) for place in (0.0, 0.0, 1.0)]
    >>> model = Fusion("opml", "best", settings={"gamma": 0.01})
    >>> outcomes = model.learn_triplets(*({"noise": n, "shape": s} for n, s in zip(noise, shape)))
    >>> model.weights
    {'noise': 0.0, 'shape': 1.0}
    """

    def __init__(
        self,
        base: str = "opml",
        how: str = "concatenate",
        *,
        settings: Mapping[str, Any] | None = None,
        memory: int = 1000,
        scaler: str | None = None,
        unit: str | None = None,
    ) -> None:
        from kinstream.learners.registry import has, names

        self.base = one_of("base", base, names())
        self.how = one_of("how", how, HOWS)
        self.memory = whole("memory", memory, 2)
        if settings is not None and not isinstance(settings, Mapping):
            raise SettingsError(f"settings must be a table of {base}'s hyper-parameters, not {settings!r}")
        self.settings = dict(settings or {}) | ({} if scaler is None else {"scaler": scaler})
        if unit is not None and has(base, "unit"):
            self.settings["unit"] = unit
        first = self._new()
        if isinstance(first, (MultiModal, Fusion)):
            raise SettingsError(f"base must be a learner of one modality, and {base} is one of several")
        self.scaler: str = getattr(first, "scaler", None) or "none"
        self.warm_up: int = getattr(first, "warm_up", WARM_UP)
        self._accepts, self._form = first.accepts, first.form
        self.lists: bool = getattr(first, "lists", False)
        self._algorithm = f"fusion-{how}-{first.algorithm.replace('/', '-')}/1"
        self._modalities: Modalities | None = None
        self._learners: list[Any] = []
        #: Decayed numbers of mistakes and of scored constraints of each modality; they change only with "best".
        self._wrong = np.zeros(0)
        self._seen = np.zeros(0)

    @property
    def renewals(self) -> int:
        """How often a scaler was renewed because the features had left its range."""
        return sum(learner.renewals for learner in self._learners)

    @property
    def accepts(self) -> frozenset[Kind]:
        """Kinds of constraints that `base` takes."""
        return self._accepts

    @property
    def form(self) -> Kind:
        """The kind of constraint that `base` is made for."""
        return self._form

    @property
    def algorithm(self) -> str:
        """Such as "fusion-uniform-opml-6/1"."""
        return self._algorithm

    @property
    def modalities(self) -> tuple[tuple[str, int], ...]:
        """Name and dimension of each, none before the first block."""
        return () if self._modalities is None else self._modalities.pairs

    @property
    def weights(self) -> dict[str, float]:
        """Share of each modality in the measure; empty for one metric of all, and before the first block."""
        if self.how == "concatenate" or self._modalities is None:
            return {}
        shares = np.full(len(self._learners), 1.0 / len(self._learners))
        if self.how == "best":
            shares = np.eye(len(self._learners))[fusion.leader(self._wrong, self._seen)]
        return {name: float(share) for (name, _), share in zip(self.modalities, shares, strict=True)}

    @property
    def learners(self) -> dict[str, Learner]:
        """The metrics that measure, by modality; a single metric over all has an empty name."""
        if self.how == "concatenate":
            return dict(zip([""], self._learners, strict=False))
        return {self.modalities[i][0]: self._learners[i] for i in self._measuring(len(self._learners))}

    def learn(self, block: ConstraintBlock) -> Outcomes:
        """Learn from the rows of a block in order.

        Returns
        -------
        Outcomes
            One entry per row. A row is rejected if one of its vectors in any modality is not finite, or if all metrics
            reject it.

        Raises
        ------
        kinstream.streams.errors.BadRecord
            Wrong kind, modalities, dimension or shape; the state is untouched.
        """
        checked_columns(block)
        shared(block.events, len(block))
        if block.kind not in self.accepts:
            raise BadRecord(Reason.WRONG_KIND, f"{self.algorithm} does not learn from {block.kind}s")
        modalities, parts = checked_tables([(t.name, t.vectors) for t in block.tables], self._modalities)
        index = checked_index(block.index, WIDTH[block.kind], len(parts[0]))
        outcomes = Outcomes.blank(len(index))
        finite = np.all([np.isfinite(part).all(axis=1) for part in parts], axis=0)
        use = finite[index].all(axis=1)
        outcomes.rejected[~use] = True
        outcomes.split[:] = block.split(self.form)
        if not use.any():
            return outcomes
        if self.how == "concatenate":
            parts = [np.concatenate(parts, axis=1)]
        if self._modalities is None:
            self._modalities = modalities
            self._learners = [self._new() for _ in parts]
            self._wrong, self._seen = np.zeros(len(parts)), np.zeros(len(parts))
        kept = block.take(use)
        found = self._fused(
            [one.learn(_over(kept, part)) for one, part in zip(self._learners, parts, strict=True)],
            Events.of(shared(kept.events, len(kept))),
        )
        for name in Outcomes.__dataclass_fields__:
            getattr(outcomes, name)[use] = getattr(found, name)
        return outcomes

    def learn_triplets(self, anchors: Features, positives: Features, negatives: Features) -> Outcomes:
        """Learn from m triplets given as three times m raw vectors of each modality; see `learn`."""
        return self.learn(self._stacked([anchors, positives, negatives], Kind.TRIPLET, None))

    def learn_pairs(self, left: Features, right: Features, signs: NDArray[np.int8] | None = None) -> Outcomes:
        """Learn from m pairs given as twice m raw vectors of each modality; all similar if no signs are given."""
        return self.learn(self._stacked([left, right], Kind.PAIR, signs))

    def state(self) -> State:
        """The states of all metrics, and how often each modality was wrong."""
        state: State = {}
        if self._modalities is None:
            return state
        state |= {"modalities": json.dumps(self._modalities.pairs)}
        if self.how == "best":
            state |= {"wrong": self._wrong.copy(), "seen": self._seen.copy()}
        for i, one in enumerate(self._learners):
            state |= {f"{i}.{name}": value for name, value in one.state().items()}
        return state

    def restore(self, state: State) -> None:
        """Continue from `state()` of a learner with the same hyper-parameters."""
        self._modalities, self._learners = None, []
        if "modalities" not in state:
            return
        self._modalities = Modalities(
            tuple((str(name), int(size)) for name, size in json.loads(str(state["modalities"])))
        )
        count = 1 if self.how == "concatenate" else len(self._modalities.pairs)
        self._learners = [self._new() for _ in range(count)]
        self._wrong = np.array(state.get("wrong", np.zeros(count)), np.float64)
        self._seen = np.array(state.get("seen", np.zeros(count)), np.float64)
        for i, one in enumerate(self._learners):
            one.restore(without_prefix(f"{i}.", state))

    def transform(self, X: Features) -> Rows:
        """Map raw features so that squared Euclidean distance is the fused one; see `MultiModal.transform`."""
        parts = self._parts(X)
        return np.concatenate(
            [self._metric(i).transform(parts[i]) for i in self._measuring(len(parts))], axis=1
        )

    def scale(self, X: Features) -> Rows:
        """Raw features after the scalers, of all modalities, one after the other."""
        parts = self._parts(X)
        return np.concatenate([self._metric(i).scale(part) for i, part in enumerate(parts)], axis=1)

    def distance(self, X: Features, Y: Features) -> Rows:
        """Fused squared distances (n,) between the rows of X and those of Y."""
        left, right = self._parts(X), self._parts(Y)
        found = [self._metric(i).distance(left[i], right[i]) for i in self._measuring(len(left))]
        return np.asarray(np.sum(found, axis=0))

    def similarity(self, X: Features, Y: Features) -> Rows:
        """Fused similarities (n,) between the rows of X and those of Y, if the base learns a similarity.

        Raises
        ------
        AttributeError
            The base learns a distance.
        """
        left, right = self._parts(X), self._parts(Y)
        found = [self._metric(i).similarity(left[i], right[i]) for i in self._measuring(len(left))]
        return np.asarray(np.sum(found, axis=0))

    def _measuring(self, metrics: int) -> list[int]:
        """The numbers of the metrics that measure."""
        if self.how == "best":
            return [fusion.leader(self._wrong, self._seen)] if self._modalities is not None else [0]
        return list(range(metrics))

    def _new(self) -> Learner:
        from kinstream.learners.registry import create

        return create(self.base, **self.settings)

    def _metric(self, i: int) -> Any:
        return self._learners[i] if self._learners else self._new()

    def _parts(self, X: Features) -> list[Rows]:
        tables = named(X, self._modalities)
        parts = (self._modalities or Modalities.of(list(tables.items()))).ordered(tables)
        return [np.concatenate(parts, axis=1)] if self.how == "concatenate" else parts

    def _stacked(self, roles: list[Features], kind: Kind, signs: NDArray[np.int8] | None) -> ConstraintBlock:
        tables, m = stacked([named(role, self._modalities) for role in roles])
        return ConstraintBlock(
            space="",
            kind=kind,
            tables=tuple(Table(name, table) for name, table in tables),
            index=np.arange(len(roles) * m, dtype=np.int32).reshape(-1, m).T,
            signs=np.full(m, kind is Kind.PAIR, np.int8) if signs is None else signs,
            rules=("",),
            rule=np.zeros(m, np.uint8),
            derived=np.zeros(m, np.bool_),
            weights=np.ones(m, np.float32),
            time_ms=0,
        )

    def _fused(self, found: list[Outcomes], events: Events) -> Outcomes:
        """The outcomes of the metrics on the same constraints, combined as those of one learner."""
        if len(found) == 1 and self.how != "best":
            return found[0]
        fused = _together(found)
        margins = np.array([one.margin for one in found])
        if self.how == "uniform":
            with np.errstate(all="ignore"):
                fused.margin[:] = margins.sum(axis=0)
            judged = ~(fused.rejected | fused.ignored | np.isnan(fused.margin))
            fused.mistake[judged] = fused.margin[judged] <= 0.0
            return fused
        rows = np.arange(len(fused))
        chosen = np.empty(len(fused), np.intp)
        mistakes = np.array([one.mistake for one in found])
        fusion.follow(mistakes, events.ends, 1.0 - 1.0 / self.memory, self._wrong, self._seen, chosen)
        fused.mistake[:] = np.where(fused.rejected, UNDEFINED, mistakes[chosen, rows])
        fused.margin[:] = margins[chosen, rows]
        return fused


def _over(block: ConstraintBlock, vectors: Rows) -> ConstraintBlock:
    """The constraints of a block over another, single table."""
    return replace(block, tables=(Table(DEFAULT_MODALITY, vectors),))


def _together(found: list[Outcomes]) -> Outcomes:
    """The combined outcomes of several metrics on the same constraints, without mistakes and margins."""
    fused = Outcomes.blank(len(found[0]))
    for name, combine in (
        ("utilised", np.any),
        ("clipped", np.any),
        ("rejected", np.all),
        ("degenerate", np.all),
        ("ignored", np.all),
        ("split", np.all),
        ("loss", np.mean),
    ):
        getattr(fused, name)[:] = combine([getattr(one, name) for one in found], axis=0)
    return fused
