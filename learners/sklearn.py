"""Any learner as an estimator of scikit-learn: labelled rows pass through a builder into a learner, in this process."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any, Final, Self
from warnings import warn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinstream.learners import registry as learners
from kinstream.learners.base.learner import Learner, Outcomes
from kinstream.processors import registry as builders
from kinstream.processors.base.builder import Builder, Origin
from kinstream.streams.errors import BadRecord, SettingsError
from kinstream.streams.extras import importing
from kinstream.streams.records.foreign.narrowing import narrowed, shift
from kinstream.streams.records.values import DEFAULT_MODALITY, Counts, Kind, SampleBlock, Table, Vectors

with importing("MetricLearner"):
    from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.utils.multiclass import check_classification_targets, unique_labels
    from sklearn.utils.validation import check_is_fitted, validate_data

#: Name of the space, on which a builder's random choices depend.
SPACE: Final = "estimator"
#: Types of rows that are taken as they are; others become the first.
_TYPES: Final = (np.float64, np.float32)
#: Kinds of numpy types whose labels are text.
_WORDS: Final = "OUS"
#: Builders that make constraints from labelled rows alone.
CONSTRAINTS: Final = ("adjacent-pairs", "one-pass", "random-pairs", "random-triplets")


class MetricLearner(ClassNamePrefixFeaturesOutMixin, ClassifierMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A learned metric as a transformer, and as a classifier by a vote of the nearest rows.

    The rows are streamed in their order: a builder makes constraints from them, block by block, and the learner learns
    from those. The same rows in an empty topic give the same bits.

    Parameters
    ----------
    learner : kind of the learner, of `kinstream.learners.registry.names()`. The default takes features as they are;
        most others need a scaler. A learner of several modalities gets these features as its only one.
    constraints : kind of the builder, of `CONSTRAINTS`. All learners learn from triplets, not all from pairs.
    seed : of all random choices, the builder's and the learner's.
    n_neighbors : rows that vote in `predict`; all rows if there are fewer.
    passes : how often `fit` streams the rows; `partial_fit` does it once.
    learner_settings, builder_settings : hyper-parameters by name; missing ones keep their defaults.
    block_rows : rows per block. With `constraints="one-pass"` the choice of negatives depends on it.
    gallery : number of the latest rows that are kept to vote; None for all.

    Attributes
    ----------
    learner_, builder_ : the objects of `learners` and `processors`, with the model and all state.
    shift_ : (d,) what was subtracted from each feature; 0 where float32 holds enough digits.
    classes_ : (c,) labels, ascending.
    n_features_in_, feature_names_in_ : of the rows; the names only if the first rows had some.
    n_constraints_ : constraints that the learner has seen; without the rejected and the ignored.
    utilisation_ : share of them that changed the model; NaN without any.
    mistake_rate_ : share of the scored ones that the model ranked wrong at that time; NaN without any.
    counts_ : all counts of the constraints, a `kinstream.streams.records.values.Counts`.

    Notes
    -----
    Vectors are float32, as in records. A feature of which too many digits would be lost, such as a time since 1970, is
    shifted by its first rows' median before; in a topic, who sends the rows has to do that. The result of
    `transform` has the `dtype` of the learner. A learner with a vote of its own, such as OAHU, predicts with it
    instead of with the nearest rows.

    Rows that are sorted by class give few and poor triplets: shuffle them.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import train_test_split
    >>> from kinstream import MetricLearner
    >>> x, u, y, v = train_test_split(*load_iris(return_X_y=True), random_state=0)
    >>> model = MetricLearner(passes=5).fit(x, y)
    >>> model.transform(u).shape, bool(model.score(u, v) > 0.9)
    ((38, 4), True)
    """

    n_constraints_: int

    def __init__(
        self,
        learner: str = "mixture",
        constraints: str = "one-pass",
        *,
        seed: int = 0,
        n_neighbors: int = 5,
        passes: int = 1,
        learner_settings: Mapping[str, Any] | None = None,
        builder_settings: Mapping[str, Any] | None = None,
        block_rows: int = 256,
        gallery: int | None = None,
    ) -> None:
        self.learner = learner
        self.constraints = constraints
        self.seed = seed
        self.n_neighbors = n_neighbors
        self.passes = passes
        self.learner_settings = learner_settings
        self.builder_settings = builder_settings
        self.block_rows = block_rows
        self.gallery = gallery

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Reset and learn from the rows (n, d) and their labels (n,), `passes` times in the given order.

        Raises
        ------
        ValueError
            Rows or labels that cannot be used, labels of one class only, or a setting that is unknown or out of range.

        Warns
        -----
        UserWarning
            The model has learned nothing: the rows gave no constraint, for example with one row per class, or they all
            went into the scales.
        """
        rows, labels = self._checked(X, y, begin=True)
        known = unique_labels(labels)
        if len(known) < 2:
            raise ValueError(
                f"a metric needs two classes at least, and y has one class: {known.tolist()[0]!r}"
            )
        self._begin()
        self._learn(rows, labels, known, _positive("passes", self.passes))
        if self.n_constraints_ == 0:
            warn(f"{len(rows)} rows gave no constraint: nothing was learned", UserWarning, stacklevel=2)
        elif self.counts_.utilised == 0 and self.learner != "euclidean":
            self._warn_of_nothing(rows)
        return self

    def _warn_of_nothing(self, rows: Vectors) -> None:
        model: Any = self.learner_
        why = ""
        if not getattr(model, "settled", True):
            why = (
                f": they all went into its scales, and {len(np.unique(rows, axis=0))} of them differ. Learning begins "
                "with more rows, with more passes, or with a smaller warm_up in learner_settings"
            )
        warn(f"{len(rows)} rows taught {self.learner} nothing{why}", UserWarning, stacklevel=3)

    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Continue with further rows after the last call of this method or of `fit`.

        Calls with multiples of `block_rows` rows give the same bits as one `fit` with `passes=1` of all of them.
        A learner, builder or setting that was changed since the first call takes effect at the next `fit`.

        Parameters
        ----------
        classes : all labels that will occur, in the first call. Without it `classes_` has the labels so far.

        Raises
        ------
        ValueError
            As `fit`, but rows of one class are allowed; or a label or `classes` that do not fit the first call's.
        """
        begin = not hasattr(self, "n_constraints_")
        rows, labels = self._checked(X, y, begin=begin)
        given = None if classes is None else unique_labels(classes)
        if begin:
            self._begin()
            self._fixed = given is not None
        elif given is not None and not np.array_equal(given, self.classes_):
            raise ValueError("classes are not those of the first call")
        known = unique_labels(labels) if given is None else given
        if not begin:
            if (known.dtype.kind in _WORDS) != (self.classes_.dtype.kind in _WORDS):
                raise ValueError(
                    f"labels of type {known.dtype}, and those before were of type {self.classes_.dtype}"
                )
            known = self.classes_ if self._fixed else np.unique(np.concatenate([self.classes_, known]))
        strangers = np.setdiff1d(labels, known)
        if len(strangers):
            raise ValueError(f"y has labels that are not in classes: {strangers[:5].tolist()}")
        self._learn(rows, labels, known, 1)
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.floating[Any]]:
        """Rows (n, d) in the learned space (n, k), where squared Euclidean distance is the learned one."""
        check_is_fitted(self, "n_constraints_")
        return self._mapped(self._rows(X))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The label (n,) of each row by the vote of the nearest training rows, or by the learner's own vote."""
        check_is_fitted(self, "n_constraints_")
        rows = self._rows(X)
        near, labels = self._voters()
        if self._votes_itself:
            model: Any = self.learner_
            return np.asarray(self.classes_[model.classify(near, labels, rows, self._wanted(near))])
        return np.asarray(self.classes_[self._vote(near, labels).predict(self._mapped(rows))])

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Shares of the vote (n, c) in the order of `classes_`; each row adds up to 1.

        `predict` takes the label with the largest share. The shares are not calibrated: with five neighbours they are
        multiples of a fifth. A class without a row in the gallery has 0.
        """
        check_is_fitted(self, "n_constraints_")
        rows = self._rows(X)
        near, labels = self._voters()
        if self._votes_itself:
            model: Any = self.learner_
            found, shares = model.class_scores(near, labels, rows, self._wanted(near))
            shares = shares / shares.sum(axis=1, keepdims=True)
        else:
            vote = self._vote(near, labels)
            found, shares = vote.classes_, vote.predict_proba(self._mapped(rows))
        wide = np.zeros((len(rows), len(self.classes_)))
        wide[:, found] = shares
        return wide

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # The result has the type of the learner.
        tags.transformer_tags.preserves_dtype = []
        return tags

    @property
    def _n_features_out(self) -> int:
        return int(self._mapped(np.zeros((1, self.n_features_in_), np.float32)).shape[1])

    @property
    def _votes_itself(self) -> bool:
        model: Any = self.learner_
        return hasattr(model, "classify") and model.dimension is not None

    def _wanted(self, near: Vectors) -> int:
        return min(_positive("n_neighbors", self.n_neighbors), len(near))

    def _vote(self, near: Vectors, labels: NDArray[np.int64]) -> Any:
        return KNeighborsClassifier(self._wanted(near), algorithm="brute").fit(self._mapped(near), labels)

    def _rows(self, X: ArrayLike) -> Vectors:
        return self._narrow(validate_data(self, X, dtype=_TYPES, order="C", reset=False))

    def _checked(self, X: ArrayLike, y: ArrayLike, *, begin: bool) -> tuple[Vectors, NDArray[Any]]:
        wide, labels = validate_data(self, X, y, dtype=_TYPES, order="C", reset=begin)
        check_classification_targets(labels)
        if begin:
            self.shift_ = shift(wide)
        return self._narrow(wide), np.asarray(labels)

    def _narrow(self, wide: NDArray[Any]) -> Vectors:
        if wide.dtype != np.float32 and self.shift_.any():
            wide = wide - self.shift_
        rows = narrowed(wide)
        if not np.isfinite(rows).all():
            at = tuple(int(i) for i in np.argwhere(~np.isfinite(rows))[0])
            raise ValueError(
                "Input X contains infinity or a value too large for dtype('float32'): "
                f"{float(wide[at])!r} in row {at[0]}, column {at[1]}"
            )
        return np.ascontiguousarray(rows)

    def _mapped(self, rows: Vectors) -> NDArray[np.floating[Any]]:
        return np.asarray(self.learner_.transform(rows))

    def _begin(self) -> None:
        """Set a new builder and learner, with nothing learned or kept."""
        if hasattr(self, "n_constraints_"):
            del self.n_constraints_
        self.learner_, self.builder_ = self._made()
        self.counts_ = Counts()
        self._blocks = 0
        self._fixed = False
        #: Labels to their number by first appearance, which the builder uses.
        self._numbers: dict[Any, int] = {}
        self._kept: list[tuple[Vectors, NDArray[np.int64]]] = []

    def _made(self) -> tuple[Learner, Builder]:
        own, built = dict(self.learner_settings or {}), dict(self.builder_settings or {})
        try:
            if learners.has(self.learner, "seed"):
                own.setdefault("seed", self.seed)
            learner = learners.create(self.learner, **own)
            built.setdefault("seed", self.seed)
            if self.constraints not in CONSTRAINTS:
                names = ", ".join(CONSTRAINTS)
                raise SettingsError(f"constraints must be one of {names}, not {self.constraints!r}")
            builder = builders.create(self.constraints, **built)
        except SettingsError as error:
            raise ValueError(str(error)) from error
        if not builder.emits & {learner.form, Kind.TRIPLET}:
            raise ValueError(
                f"{self.learner} learns from {learner.form}s, and {self.constraints} makes "
                f"{' and '.join(f'{kind}s' for kind in sorted(builder.emits))}"
            )
        return learner, builder

    def _learn(self, rows: Vectors, labels: NDArray[Any], classes: NDArray[Any], passes: int) -> None:
        size = _positive("block_rows", self.block_rows)
        most = None if self.gallery is None else _positive("gallery", self.gallery)
        numbers = self._numbered(labels)
        self.classes_ = classes
        for _ in range(passes):
            for start in range(0, len(rows), size):
                part = slice(start, start + size)
                self.counts_ += self._block(rows[part], numbers[part])
        # The latest rows, for votes, in pieces; the oldest is dropped when the others suffice.
        self._kept.append((rows.copy(), numbers))
        while most is not None and sum(len(piece) for piece, _ in self._kept[1:]) >= most:
            del self._kept[0]
        self.utilisation_ = _share(self.counts_.utilised, self.counts_.seen)
        self.mistake_rate_ = _share(self.counts_.mistakes, self.counts_.scored)
        # Set last: it marks the model as fitted.
        self.n_constraints_ = self.counts_.seen

    def _block(self, rows: Vectors, numbers: NDArray[np.int64]) -> Counts:
        """One block of samples, as the two agents would apply it."""
        samples = SampleBlock(SPACE, (Table(DEFAULT_MODALITY, rows),), numbers, time_ms=0)
        counts = Counts()
        try:
            made = self.builder_.process(samples, Origin(offset=self._blocks))
            for refused in made.refused:
                raise refused
            self._blocks += 1
            for block in made.blocks:
                taken = block.kind in self.learner_.accepts
                outcomes = self.learner_.learn(block) if taken else Outcomes.blank(len(block), ignored=True)
                counts += outcomes.counts()
        except BadRecord as error:
            raise ValueError(error.detail) from error
        return counts

    def _numbered(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        found, first, place = np.unique(labels, return_index=True, return_inverse=True)
        names = found.tolist()
        for at in np.argsort(first):
            self._numbers.setdefault(names[at], len(self._numbers))
        return np.array([self._numbers[name] for name in names], np.int64)[place]

    def _voters(self) -> tuple[Vectors, NDArray[np.int64]]:
        """The kept rows, and the place of each label in `classes_`."""
        latest = slice(None if self.gallery is None else -_positive("gallery", self.gallery), None)
        places = np.searchsorted(self.classes_, np.array(list(self._numbers), self.classes_.dtype))
        rows = np.concatenate([piece for piece, _ in self._kept])[latest]
        return rows, places[np.concatenate([numbers for _, numbers in self._kept])[latest]]


def _positive(name: str, value: Any) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")
    return int(value)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")
