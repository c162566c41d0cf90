"""Learners by name, each imported on first use.

Other distributions add learners by entry points of the group `kinstream.learners`: the name is the kind, the value
"package.module:Class".
"""

from __future__ import annotations

import logging
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from inspect import signature
from typing import Any, Final

from kinstream.learners.base import Learner
from kinstream.streams.errors import SettingsError
from kinstream.streams.spelling import meant

_LOG: Final = logging.getLogger(__name__)

#: Kind -> "module:class".
_KINDS: Final = {
    "adapter": "kinstream.learners.adapter.learner:Adapter",
    "adasors": "kinstream.learners.one_modality.adasors:AdaSORS",
    "copml": "kinstream.learners.one_modality.opml:COPML",
    "euclidean": "kinstream.learners.baselines.euclidean:Euclidean",
    "fusion": "kinstream.learners.several_modalities.fusion:Fusion",
    "itml": "kinstream.learners.baselines.itml:ITML",
    "itml-online": "kinstream.learners.one_modality.itml_online:ITMLOnline",
    "kernel-lego": "kinstream.learners.one_modality.kernel_lego:KernelLEGO",
    "lda": "kinstream.learners.one_modality.lda:LDA",
    "lego": "kinstream.learners.one_modality.lego:LEGO",
    "lmnn": "kinstream.learners.baselines.lmnn:LMNN",
    "lomdml": "kinstream.learners.several_modalities.lomdml:LOMDML",
    "mahalanobis": "kinstream.learners.baselines.mahalanobis:Mahalanobis",
    "mdml": "kinstream.learners.one_modality.mdml:MDML",
    "mixture": "kinstream.learners.mixture.learner:Mixture",
    "oasis": "kinstream.learners.one_modality.oasis:OASIS",
    "oahu": "kinstream.learners.oahu.learner:OAHU",
    "omdl-lr-like": "kinstream.learners.several_modalities.omdl_lr:OMDLLR",
    "omdml": "kinstream.learners.several_modalities.omdml:OMDML",
    "omks": "kinstream.learners.several_modalities.omks:OMKS",
    "opml": "kinstream.learners.one_modality.opml:OPML",
    "pola": "kinstream.learners.one_modality.pola:POLA",
    "rca": "kinstream.learners.baselines.rca:RCA",
    "rdml": "kinstream.learners.one_modality.rdml:RDML",
    "soml-da": "kinstream.learners.one_modality.soml_da:SOMLDA",
    "soml-tg": "kinstream.learners.one_modality.soml_tg:SOMLTG",
    "softmax": "kinstream.learners.one_modality.softmax:Softmax",
    "sors": "kinstream.learners.one_modality.sors:SORS",
}

#: Kinds of earlier versions, and what to use instead.
_GONE: Final = {"portfolio": "mixture"}

_BASELINES: Final = "kinstream.learners.baselines."

#: Members of a learner; see `kinstream.learners.base.Learner`.
_OFFERS: Final = ("accepts", "algorithm", "distance", "form", "learn", "restore", "state", "transform")

#: Entry points of this group are learners of other distributions.
GROUP: Final = "kinstream.learners"


def names() -> tuple[str, ...]:
    """Kinds that `create` accepts, in alphabetical order: Kinstream's own, and those of other distributions."""
    return tuple(sorted({*_KINDS, *_offered()}))


def own_names() -> tuple[str, ...]:
    """Kinds of Kinstream itself, in alphabetical order."""
    return tuple(sorted(_KINDS))


def distribution_of(kind: str) -> str | None:
    """The distribution of a kind, "name version"; None for a kind of Kinstream or an unknown one."""
    offers = _offered().get(kind)
    return ", ".join(_name_of(offer) for offer in offers) if offers else None


def create(kind: str, **settings: Any) -> Learner:
    """A new learner.

    Parameters
    ----------
    kind : one of `names()`.
    settings : its hyper-parameters; missing ones keep their defaults.

    Raises
    ------
    SettingsError
            Unknown kind, unknown setting, or a value out of range. A learner of another distribution cannot be
            imported or created, or is not a learner; the error names the distribution.

    Examples
    --------
    >>> create("opml", gamma=1e-2).algorithm
    'opml/5'
    """
    learner = _class(kind)
    known = settings_of(kind)
    unknown = sorted(set(settings) - set(known))
    if unknown:
        raise SettingsError(
            f"{kind} has no setting {', '.join(unknown)}; it has {', '.join(known)}{meant(unknown, known)}"
        )
    if kind in _KINDS:
        created: Learner = learner(**settings)
        return created
    return _made(kind, learner, settings)


def settings_of(kind: str) -> tuple[str, ...]:
    """Names of the hyper-parameters of a kind."""
    return tuple(signature(_class(kind)).parameters)


def create_in(declared: str | None, kind: str, /, **settings: Any) -> Learner:
    """A learner for a space that declares a scaler, or none. A kind without that setting has its own scaling.

    Raises
    ------
    SettingsError
        As `create`.
    """
    if declared is not None and has(kind, "scaler"):
        settings["scaler"] = declared
    return create(kind, **settings)


def has(kind: str, setting: str) -> bool:
    """Whether learners of that kind have a setting of that name."""
    return setting in settings_of(kind)


def offers(kind: str, method: str) -> bool:
    """Whether learners of that kind have a method of that name, beyond what every learner has."""
    return hasattr(_class(kind), method)


def is_baseline(kind: str) -> bool:
    """Whether learners of that kind are baselines: un-learned, or fitted again at intervals."""
    return _KINDS.get(kind, "").startswith(_BASELINES)


def _class(kind: str) -> type:
    if kind not in _KINDS:
        if kind in _offered():
            return _loaded(kind)
        if kind in _GONE:
            raise SettingsError(f"the learner {kind!r} was removed: use {_GONE[kind]!r} in a new generation")
        raise SettingsError(
            f"no learner is called {kind!r}; known are {', '.join(names())}{meant([kind], names())}"
        )
    module, name = _KINDS[kind].split(":")
    found: type = getattr(import_module(module), name)
    return found


@cache
def _offered() -> dict[str, tuple[EntryPoint, ...]]:
    """The entry points of other distributions by kind."""
    # One distribution may be found twice, such as an editable installation that is on the path as well.
    found: dict[str, dict[tuple[str, str], EntryPoint]] = {}
    for offer in entry_points(group=GROUP):
        found.setdefault(offer.name, {})[_name_of(offer), offer.value] = offer
    for kind in sorted(found.keys() & _KINDS.keys()):
        for offer in found.pop(kind).values():
            _LOG.warning(
                "%s offers a learner %r (%s): ignored, because Kinstream has a learner of that name",
                _name_of(offer),
                kind,
                offer.value,
            )
    return {kind: tuple(sorted(offers.values(), key=_name_of)) for kind, offers in found.items()}


def _name_of(offer: EntryPoint) -> str:
    return "an unknown distribution" if offer.dist is None else f"{offer.dist.name} {offer.dist.version}"


def _loaded(kind: str) -> type:
    """The class of another distribution's entry point."""
    offer, *others = _offered()[kind]
    if others:
        raise SettingsError(
            f"several distributions offer a learner {kind!r}: {distribution_of(kind)}; uninstall all but one"
        )
    try:
        found = offer.load()
    except Exception as error:
        raise SettingsError(
            f"the learner {kind!r} of {_name_of(offer)} cannot be imported from {offer.value}: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not isinstance(found, type):
        raise SettingsError(f"the learner {kind!r} of {_name_of(offer)} is not a class: {offer.value}")
    return found


def _made(kind: str, learner: type, settings: dict[str, Any]) -> Learner:
    """A learner of another distribution."""
    whose = f"the learner {kind!r} of {distribution_of(kind)}"
    try:
        created = learner(**settings)
    except SettingsError:
        raise
    except Exception as error:
        raise SettingsError(f"{whose} cannot be made: {type(error).__name__}: {error}") from error
    if not isinstance(created, Learner):
        missing = [name for name in _OFFERS if not hasattr(created, name)]
        raise SettingsError(f"{whose} is not a learner: it has no {', '.join(missing)}")
    return created
