"""The algorithm as it was published, and as it is by default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kinstream.learners.base.removed import Removed
from kinstream.learners.base.scaler import LENGTH, UNITS, followed
from kinstream.learners.base.validation import not_negative, one_of, positive
from kinstream.learners.oahu.anchors import ANCHORS
from kinstream.learners.oahu.step_rule import HEDGES
from kinstream.streams.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Variant:
    """What a form of OAHU does not leave to its settings.

    Parameters
    ----------
    layers, share : of a learner that is given none.
    initial : first weights, "isometric" or "uniform"; see `kinstream.learners.oahu.network.OAHUNetwork.random`.
    lift : squared constant appended to every vector, over the mean squared length of the first 512; 0 for none.
    temperature : T of the weight by rank 2 sigma((D+ - D-) / T) of a model's gradient; infinity for none.
    gradient : g_l, "hedge" for alpha_l and "uniform" for 1 / (L + 1).
    anchors : un-learned metrics that vote, of "euclidean", "cosine" and "lifted" (the cosine of lifted vectors).
    pull : rate at which weights return to the first ones: after every 256 triplets (or a batch, if larger) the
        difference is multiplied by exp(-256 pull).
    beta, smoothing : a model's weight falls by the factor beta for a loss of 1, but not below smoothing / (L + 1).
    hedge : "literal", the printed update; or one of its branches for all, "exp" or "linear". They nearly agree.
    biases : whether hidden layers have biases, 0 at first.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A value is out of range.
    """

    layers: int
    share: float
    initial: str
    lift: float
    temperature: float
    gradient: str
    anchors: tuple[str, ...]
    pull: float
    beta: float = 0.99
    smoothing: float = 0.1
    hedge: str = "literal"
    biases: bool = False

    def __post_init__(self) -> None:
        one_of("initial", self.initial, ("isometric", "uniform"))
        not_negative("lift", self.lift)
        if self.temperature != float("inf"):
            positive("temperature", self.temperature)
        one_of("gradient", self.gradient, ("uniform", "hedge"))
        for name in self.anchors:
            one_of("anchors", name, ANCHORS)
        if len(set(self.anchors)) < len(self.anchors):
            raise SettingsError(f"anchors must be different ones, not {', '.join(self.anchors)}")
        not_negative("pull", self.pull)
        positive("beta", self.beta, 1.0)
        positive("smoothing", self.smoothing)
        one_of("hedge", self.hedge, HEDGES)
        one_of("biases", self.biases, (False, True))


VARIANTS: Final[dict[str, Variant]] = {
    "anchored": Variant(
        layers=2,
        share=0.3,
        initial="isometric",
        lift=0.25,
        temperature=0.1,
        gradient="uniform",
        anchors=("euclidean", "cosine", "lifted"),
        pull=1e-4,
    ),
    "published": Variant(
        layers=5,
        share=1.0,
        initial="uniform",
        lift=0.0,
        temperature=float("inf"),
        gradient="hedge",
        anchors=(),
        pull=0.0,
    ),
}


def varied(variant: str = "anchored", **changes: Any) -> Variant:
    """A variant with other values, for studies.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        There is no such variant, or a value is out of range.
    """
    return replace(VARIANTS[one_of("variant", variant, VARIANTS)], **changes)


def _of_variant(name: str) -> Removed:
    def same(value: Any, settings: Mapping[str, Any]) -> bool:
        found = settings.get("variant")
        usual = getattr(VARIANTS.get(found if isinstance(found, str) else "", VARIANTS["anchored"]), name)
        return bool(value is None or value == (list(usual) if isinstance(usual, tuple) else usual))

    return Removed("it follows from `variant`; leave it out, in a new generation", same)


def _same_anchors(value: Any, settings: Mapping[str, Any]) -> bool:
    alone = value == [] and settings.get("share") == 1.0
    return alone or _of_variant("anchors").same(value, settings)


def _same_embedding(value: Any, settings: Mapping[str, Any]) -> bool:
    hidden = settings.get("hidden", 100)
    return isinstance(hidden, int) and bool(value == hidden // 2)


def _same_unit(value: Any, settings: Mapping[str, Any]) -> bool:
    scaler = settings.get("scaler")
    return value in UNITS and followed(value, scaler) == followed(LENGTH, scaler)


#: Settings of earlier versions.
REMOVED: Final = {
    name: _of_variant(name)
    for name in ("initial", "lift", "temperature", "gradient", "pull", "beta", "smoothing", "hedge", "biases")
} | {
    "anchors": Removed(
        "they follow from `variant`; leave it out, in a new generation, or write `share = 1.0` for none",
        _same_anchors,
    ),
    "embedding": Removed("it is half of `hidden`; leave it out, in a new generation", _same_embedding),
    "device": Removed(
        'write `path = "cuda"`, in a new generation', lambda value, settings: bool(value == "cpu")
    ),
    "unit": Removed("scales always follow the features; leave it out, in a new generation", _same_unit),
}
