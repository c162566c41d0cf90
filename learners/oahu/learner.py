"""OAHU: a network in which every layer is a metric, weighted by its losses (Gao et al. 2019)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.events import write
from kinstream.learners.base.learner import Outcomes, Rows, State
from kinstream.learners.base.one_modality import Batch, Index, SingleModal
from kinstream.learners.base.removed import Removed
from kinstream.learners.base.scaler import LENGTH, WARM_UP, followed
from kinstream.learners.base.validation import one_of, positive, whole
from kinstream.learners.distances import of_embedded
from kinstream.learners.oahu import autograd, chunks, votes
from kinstream.learners.oahu.anchors import MEASURED, Lift, anchored, margins
from kinstream.learners.oahu.events import Look, measuring
from kinstream.learners.oahu.mini_batches import Batches, Machine, NumpyMachine
from kinstream.learners.oahu.network import OAHUNetwork
from kinstream.learners.oahu.positives import Positives, spread
from kinstream.learners.oahu.step_rule import Rule
from kinstream.learners.oahu.variants import REMOVED, Variant, varied
from kinstream.streams.compute.compilation import limit
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.state import without_prefix
from kinstream.streams.records.values import Kind

PATHS: Final = ("compiled", "torch", "cuda")
#: Triplets between two pulls towards the first weights. A pull costs about as much as a step.
PULLED: Final = 256


class OAHU(SingleModal):
    r"""A network with a metric at its input and after each of its L hidden layers, learned from triplets.

    Layer l takes h_l, with h_0 the input, to h_{l+1} = relu(h_l W_{l+1}) and to a unit vector f_l = u_l / |u_l|,
    u_l = h_l Theta_l. Its metric is D_l(x, y) = |f_l(x) - f_l(y)|, in [0, 2]. A triplet (x, x+, x-) costs model l

        L_l = (max(0, (D+ - c1) / (2 - c1)) + max(0, 1 - D- / c2)) / 2,

    D+ = D_l(x, x+) and D- = D_l(x, x-), with thresholds c1 <= D+ and c2 >= D- that follow from the distances before the
    step (Eq. 9 and 10) and are constants in it. So every triplet has a loss. One step of gradient descent on sum_l g_l
    L_l changes all layers; then the weight alpha_l of each model is lowered by its loss, kept above a floor, and
    normalised (Hedge, Eq. 20).

    A triplet is a mistake when sum_l alpha_l (D+ - D-), including the un-learned metrics' part, is not below zero
    before the step. The reported loss is sum_l alpha_l L_l.

    Parameters
    ----------
    variant : "published" is the algorithm of the paper. "anchored", the default, starts from the metric of the input
        and lets un-learned metrics vote beside the learned ones. It sets what is None below.
        In Python it can be a `kinstream.learners.oahu.variants.Variant` too.
    layers, hidden : L, and units S of each hidden layer; embeddings have m = S / 2 dimensions, rounded down.
    eta : step size, without unit: without biases the model does not depend on the scale of the features.
    tau : width of the thresholds, in (0, 2/3).
    share : of the learned models in the vote, up to 1; un-learned metrics share the rest. Always 1 if published.
    batch : triplets of one step, with the mean of their gradients. Above 1 it is another algorithm, for large streams.
    path : "compiled", or plain autograd, which needs the package torch: "torch" on a processor, "cuda" on a GPU. They
        agree to rounding.
    seed : of the first weights.
    dtype : "float32" or "float64", of the network. Distances, losses and alpha are float64.
    scaler : None or "none", "zscore", "unit", "minmax"; of the model, see `kinstream.learners.base.scaler`.
    warm_up : distinct vectors that scales are measured on; afterwards they follow the features.

    Attributes
    ----------
    alpha, weights : weights of the learned models, and of all that vote.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A hyper-parameter is out of range, or torch is required and not installed.

    Notes
    -----
    O(S d + L S^2) time for a triplet, O(S d + L S^2) memory.

    `classify`, `verify` and `retrieve` are the applications of the paper. `transform` concatenates all metrics that
    vote, for one vector index with the squared distance sum w_l D_l^2 / s_l, where s_l is the root mean square of D_l
    over the latest positive pairs: without it the metrics that tell least would decide (see `positives`).

    Triplets are learned in chunks of 32, counted from the first of a block, and the first layer's part of a chunk goes
    through matrix products. Nothing is approximated, but block boundaries affect the last digits.
    A vector whose squared length is above 1e-3 of the largest number of the type is refused.

    References
    ----------
    Gao, Li, Chandra, Khan, Thuraisingham: Towards self-adaptive metric learning on the fly. WWW 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from kinstream import OAHU
    >>> draw = np.random.default_rng(0)
    >>> label = draw.integers(0, 2, (2, 400))
    >>> label[1] = 1 - label[0]
    >>> def rings(label):
    ...     angle = draw.uniform(0, 2 * np.pi, len(label))
    ...     return ((1 + label) * np.array([np.cos(angle), np.sin(angle)])).T
    >>> model = OAHU(layers=2, hidden=32)
    >>> mistake = model.learn_triplets(rings(label[0]), rings(label[0]), rings(label[1])).mistake
    >>> bool(mistake[-100:].mean() < mistake[:100].mean())
    True
    """

    accepts: ClassVar[frozenset[Kind]] = frozenset({Kind.TRIPLET})
    form: ClassVar[Kind] = Kind.TRIPLET
    algorithm: ClassVar[str] = "oahu/11"
    removed: ClassVar[dict[str, Removed]] = REMOVED

    def __init__(
        self,
        variant: str | Variant = "anchored",
        *,
        layers: int | None = None,
        hidden: int = 100,
        eta: float = 0.3,
        tau: float = 0.1,
        share: float | None = None,
        batch: int = 1,
        path: str = "compiled",
        seed: int = 0,
        dtype: str = "float32",
        scaler: str | None = None,
        warm_up: int = WARM_UP,
    ) -> None:
        super().__init__(dtype=dtype, scaler=scaler, warm_up=warm_up, unit=followed(LENGTH, scaler))
        self.variant = usual = variant if isinstance(variant, Variant) else varied(variant)
        self.layers = whole("layers", usual.layers if layers is None else layers, 0)
        self.hidden = whole("hidden", hidden, 2)
        self.embedding = hidden // 2
        self.eta, self.tau = positive("eta", eta), positive("tau", tau, 2.0 / 3.0)
        self.share = _share(usual.share if share is None else share)
        if not usual.anchors:
            self.share = 1.0
        #: Un-learned metrics that vote.
        self.anchors = usual.anchors if self.share < 1.0 else ()
        self.seed = whole("seed", seed, 0)
        self.batch, self.path = whole("batch", batch, 1), one_of("path", path, PATHS)
        if self.path != "compiled":
            autograd.require(self._device)
        self._rule = Rule(
            eta=self.eta,
            tau=self.tau,
            temperature=usual.temperature,
            by_alpha=usual.gradient == "hedge",
            beta=usual.beta,
            floor=usual.smoothing / (self.layers + 1),
            hedge=usual.hedge,
            share=self.share,
        )
        self._lift = Lift(usual.lift)
        self._alpha: NDArray[np.float64] = np.full(self.layers + 1, 1.0 / (self.layers + 1))
        self._network = self._zeros(0)
        #: Gradients of a batch; empty in the compiled form with one triplet per step, which needs none.
        self._sums = self._zeros(0)
        self._batches = Batches(self.batch, self._alpha)
        #: The first weights, the target of the pull; empty without a pull.
        self._origin = self._zeros(0)
        self._bound, self._taken = -1.0, 0
        self._positives = Positives(0, self.dtype)
        self._factors: NDArray[np.float64] | None = None

    @property
    def alpha(self) -> NDArray[np.float64]:
        """Weights (L + 1,) of the metric models, a copy; their sum is 1."""
        return self._alpha.copy()

    @property
    def weights(self) -> dict[str, float]:
        """Weight of every metric in the vote: un-learned ones by name, the learned ones as E0 .. EL."""
        found = {name: (1.0 - self.share) / len(self.anchors) for name in self.anchors}
        return found | {f"E{k}": self.share * float(value) for k, value in enumerate(self._alpha)}

    @property
    def factors(self) -> NDArray[np.float64]:
        """What `transform` multiplies each metric by: root of weight over spread, of weight alone before 64 pairs."""
        if self._factors is None:
            voices, pairs = np.asarray(self._voices), self._positives.pairs
            with np.errstate(all="ignore"):
                apart = 1.0 if pairs is None else spread(*(self._embedded(side) for side in pairs))
            self._factors = np.sqrt(voices / apart)
        return self._factors

    @property
    def map(self) -> Rows:
        raise SettingsError(f"{self.algorithm} is not a linear map")

    @property
    def network(self) -> OAHUNetwork:
        """The network itself, for reading only."""
        return self._network

    @property
    def mean_length(self) -> float:
        """Mean squared length of the scaled vectors behind the lift; 1 before the first."""
        return self._lift.mean

    def embed(self, X: Rows) -> list[Rows]:
        """Raw features (n, d) under every metric of `weights`, in that order; the learned distances are Euclidean
        there.

        Raises
        ------
        ValueError
            Before the first block, or X is not (n, d).
        """
        if self._dimension is None:
            raise ValueError(f"{self.algorithm} has no metric yet: learn from a block first")
        with np.errstate(all="ignore"):
            return self._embedded(self.scale(X))

    def distance(self, X: Rows, Y: Rows) -> Rows:
        return of_embedded(self.transform, X, Y)

    def classify(self, gallery: Rows, labels: NDArray[Any], queries: Rows, k: int = 5) -> NDArray[Any]:
        """The label (q,) of each query by the weighted vote; see `kinstream.learners.oahu.votes.classify`.

        Every metric of `weights` votes, the un-learned ones too. This and the methods below embed all their arguments:
        to query one gallery repeatedly, embed it once and call `kinstream.learners.oahu.votes`.

        Parameters
        ----------
        gallery, labels, queries : raw features (n, d), a label of each, and raw features (q, d).
        k : neighbours by metric.

        Raises
        ------
        ValueError
            Shapes that do not fit, an empty gallery, k below 1, features that are not finite, or nothing was
            learned yet.
        """
        return votes.classify(self._voices, self.embed(gallery), labels, self.embed(queries), k)

    def class_scores(
        self, gallery: Rows, labels: NDArray[Any], queries: Rows, k: int = 5
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Classes (c,) in ascending order, and the sum of the votes (q, c) for each; see `classify`."""
        return votes.class_scores(self._voices, self.embed(gallery), labels, self.embed(queries), k)

    def verify(self, X: Rows, Y: Rows, threshold: float) -> NDArray[np.bool_]:
        """Whether rows (n, d) of X and Y are similar: half of the weight finds D / 2 < threshold, in (0, 1)."""
        return votes.verify(self._voices, self.embed(X), self.embed(Y), threshold)

    def verification_score(self, X: Rows, Y: Rows) -> NDArray[np.float64]:
        """Similarity (n,) of rows (n, d), from -1 to 0: minus the weighted median of D / 2.

        It is above -threshold when `verify` returns similar. The distance of "euclidean" has no bound; distances above
        2 count as 2. Unrelated vectors are about 1.4 apart.
        """
        return votes.verification_score(self._voices, self.embed(X), self.embed(Y))

    def retrieve(
        self, gallery: Rows, queries: Rows, top: int, k: int | None = None, repeated: str = "best"
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Rows of the gallery (q, top) with the greatest votes and those votes; see
        `kinstream.learners.oahu.votes.retrieve`.

        After the last row that any metric proposed, items are -1 and votes minus infinity. Errors are those of
        `classify`.

        Parameters
        ----------
        k : rows that each metric proposes; by default `top`.
        repeated : "best" keeps the best vote of a row that several metrics propose, "sum" adds the votes.
        """
        return votes.retrieve(self._voices, self.embed(gallery), self.embed(queries), top, k, repeated)

    @property
    def _voices(self) -> list[float]:
        return list(self.weights.values())

    def _embedded(self, Z: Rows) -> list[Rows]:
        mean = self._lift.mean
        found = [anchored(name, Z, mean, self._lift) for name in self.anchors]
        return found + self._network.embed(self._lift.apply(Z, mean))

    def _mapped(self, Z: Rows) -> Rows:
        factors = self.factors.astype(Z.dtype)
        return np.concatenate([f * e for f, e in zip(factors, self._embedded(Z), strict=True)], axis=1)

    def _zeros(self, d: int) -> OAHUNetwork:
        return OAHUNetwork.zeros(d, self.layers, self.hidden, self.embedding, self.variant.biases, self.dtype)

    def _random(self, inputs: int) -> OAHUNetwork:
        isometric = self.variant.initial == "isometric"
        return OAHUNetwork.random(
            inputs,
            self.layers,
            self.hidden,
            self.embedding,
            self.variant.biases,
            isometric,
            self.seed,
            self.dtype,
        )

    @property
    def _device(self) -> str:
        return "cuda" if self.path == "cuda" else "cpu"

    @property
    def _alone(self) -> bool:
        """Whether the compiled loop takes a step for each triplet."""
        return self.path == "compiled" and self.batch == 1

    def _rescale(self, ratio: NDArray[np.float64]) -> None:
        """The network stays."""
        self._positives.rescale(ratio)
        self._factors = None

    def _begin(self, d: int) -> None:
        inputs = d + (self._lift.kappa > 0.0)
        self._network = self._random(inputs)
        self._beside(inputs)
        self._bound, self._taken = -1.0, 0
        self._positives, self._factors = Positives(d, self.dtype), None

    def _beside(self, inputs: int) -> None:
        """Create the rest of the state for a network with that many inputs."""
        self._sums = self._zeros(0 if self._alone else inputs)
        self._origin = self._random(inputs) if self.variant.pull > 0.0 else self._zeros(0)

    def _model(self) -> State:
        state = {"alpha": self.alpha} | self._network.state() | self._lift.state() | self._positives.state()
        state["taken"] = self._taken
        if self.batch > 1:
            state |= self._batches.state()
            state |= {f"sum_{name}": value for name, value in self._sums.state().items()}
        return state

    def _restore_model(self, state: State) -> int:
        inputs = len(np.asarray(state["Theta0"]))
        network, sums = self._zeros(inputs), self._zeros(0 if self._alone else inputs)
        dimension = inputs - (self._lift.kappa > 0.0)
        positives = Positives(dimension, self.dtype)
        begun = without_prefix("sum_", state)
        alpha = np.array(state["alpha"], np.float64)
        try:
            if alpha.shape != (self.layers + 1,):
                raise ValueError(f"alpha should be {(self.layers + 1,)}, the state holds {alpha.shape}")
            if ("b1" in state) != ("b1" in network.state()):
                raise ValueError(f"biases are {self.variant.biases} here")
            if state["lift"] != self._lift.kappa:
                raise ValueError(f"lift is {self._lift.kappa} here")
            if bool(begun) != (self.batch > 1):
                raise ValueError(f"batch is {self.batch} here")
            network.restore(state)
            positives.restore(state)
            if begun:
                sums.restore(begun)
        except ValueError as error:
            raise SettingsError(f"the state to restore is of another network: {error}") from None
        self._beside(inputs)
        self._network, self._sums, self._alpha, self._bound = network, sums, alpha, -1.0
        self._taken = int(state["taken"])
        self._batches = Batches(self.batch, alpha)
        if begun:
            self._batches.restore(state)
        self._lift.restore(state)
        self._positives, self._factors = positives, None
        return dimension

    def _update(self, batch: Batch, outcomes: Outcomes) -> None:
        with np.errstate(all="ignore"):
            # Products of two inputs, and the sum of squares for the lift, must be finite too.
            short = np.einsum("ij,ij->i", batch.X, batch.X) < limit(np.dtype(self.dtype)) / (2.0 * MEASURED)
        batch = replace(batch, usable=batch.usable & short[batch.index].all(axis=1))
        self._positives.observe(batch.X, batch.index, batch.usable, self._taken)
        self._factors = None
        start = self._measured(batch, outcomes) if self._lift.missing else 0
        if start < len(batch):
            rows = slice(start, None)
            means = np.full(len(batch) - start, self._lift.mean)
            given = self._given(batch.X, batch.index[rows], means)
            X = self._lift.apply(batch.X, self._lift.mean)
            index, usable = batch.index[rows], batch.usable[rows]
            ends, found, levels = batch.events.judged
            judged = np.maximum(ends[rows] - start, 0), found[rows], levels[rows]
            look = Look(judged, X, index, usable, given)
            self._steps(X, index, usable, given, outcomes[rows], look)

    def _measured(self, batch: Batch, outcomes: Outcomes) -> int:
        """Learn the triplets during which the mean squared length still changes; returns their number."""
        good = np.flatnonzero(batch.usable)
        with np.errstate(all="ignore"):
            wide = batch.X.astype(np.float64)
            squares = np.einsum("ij,ij->i", wide, wide)
        missing = -(-self._lift.missing // 3)
        used = good[:missing]
        count = len(batch) if len(used) < missing else int(used[-1]) + 1
        means = np.ones(count)
        look = measuring(batch, squares, used, count, self._lift, self._given)
        if len(used):
            means[used] = self._lift.observe(squares[batch.index[used]])
        index = batch.index[:count]
        given = self._given(batch.X, index, means)
        X = self._lift.apply(batch.X[index.ravel()], np.repeat(means, 3))
        own = np.arange(3 * count, dtype=np.int32).reshape(count, 3)
        self._steps(X, own, batch.usable[:count], given, outcomes[:count], look)
        return count

    def _given(self, X: Rows, index: Index, means: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(all="ignore"):
            return (1.0 - self.share) * margins(self.anchors, X, index, means, self._lift)

    def _steps(
        self,
        X: Rows,
        index: Index,
        usable: NDArray[np.bool_],
        given: NDArray[np.float64],
        outcomes: Outcomes,
        look: Look,
    ) -> None:
        """Learn some triplets, with the pulls that are due among them."""
        counts = self._taken + np.cumsum(usable)
        every = max(PULLED, self.batch) if self.variant.pull > 0.0 else np.iinfo(np.int64).max
        stops = np.flatnonzero(usable & (counts % every == 0)) + 1
        start = 0
        for stop in stops.tolist():
            self._stepped(X, index, usable, given, outcomes, look, slice(start, stop))
            self._network.approach(self._origin, float(-np.expm1(-self.variant.pull * every)))
            self._bound, start = -1.0, stop
        self._stepped(X, index, usable, given, outcomes, look, slice(start, len(index)))
        self._taken += int(usable.sum())

    def _stepped(
        self,
        X: Rows,
        index: Index,
        usable: NDArray[np.bool_],
        given: NDArray[np.float64],
        outcomes: Outcomes,
        look: Look,
        rows: slice,
    ) -> None:
        if self._alone:
            self._bound = chunks.learn(
                self._network,
                self._alpha,
                self._rule,
                X,
                index,
                usable,
                given,
                self._bound,
                outcomes,
                look,
                rows,
            )
            return
        if self.path == "compiled":
            machine: Machine = NumpyMachine(self._network, self._sums)
        else:
            machine = autograd.TorchMachine(self._network, self._sums, self._device)
        self._batches.learn(machine, self._alpha, self._rule, X, index, usable, given, outcomes, look, rows)
        machine.close()

    def _judge(self, batch: Batch, outcomes: Outcomes) -> None:
        events, rows = batch.events, batch.events.rows
        margins = events.found[rows]
        write(outcomes, rows, margins <= 0.0, events.levels[rows], margins)

    def _score(self, points: NDArray[np.float64], sign: int) -> tuple[int, float, float]:
        """By the un-learned Euclidean distance, because the scaler's warm-up comes before the network."""
        near, far = (float(np.linalg.norm(points[0] - other)) for other in points[1:])
        return int(near >= far), 0.0, far - near


def _share(value: float) -> float:
    """A share above 0 and at most 1."""
    if value == 1 and not isinstance(value, bool):
        return 1.0
    return positive("share", value, 1.0)
