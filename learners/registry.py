"""Learners by name, each imported on first use.

Other distributions add learners by entry points of the group `kinstream.learners`.
"""

from __future__ import annotations

from typing import Any, Final

from kinstream.learners.base.learner import Learner
from kinstream.streams.kinds import Kinds

#: Kind -> "module:class".
_OWN: Final = {
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
    "ranking": "kinstream.learners.ranking.learner:Ranking",
    "rca": "kinstream.learners.baselines.rca:RCA",
    "rdml": "kinstream.learners.one_modality.rdml:RDML",
    "soml-da": "kinstream.learners.one_modality.soml_da:SOMLDA",
    "soml-tg": "kinstream.learners.one_modality.soml_tg:SOMLTG",
    "softmax": "kinstream.learners.one_modality.softmax:Softmax",
    "sors": "kinstream.learners.one_modality.sors:SORS",
}

_KINDS: Final = Kinds("learner", "kinstream.learners", _OWN, gone={"portfolio": "mixture"})

_BASELINES: Final = "kinstream.learners.baselines."

#: Members of a learner; see `kinstream.learners.base.learner.Learner`.
_MEMBERS: Final = ("accepts", "algorithm", "distance", "form", "learn", "restore", "state", "transform")


def names() -> tuple[str, ...]:
    """Kinds that `create` accepts, in alphabetical order: Kinstream's own, and those of other distributions."""
    return _KINDS.names()


def own_names() -> tuple[str, ...]:
    """Kinds of Kinstream itself, in alphabetical order."""
    return tuple(sorted(_OWN))


def distribution_of(kind: str) -> str | None:
    """The distribution of a kind, "name version"; None for a kind of Kinstream or an unknown one."""
    return _KINDS.distribution_of(kind)


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
    'opml/7'
    """
    created: Learner = _KINDS.create(kind, settings, Learner, _MEMBERS)
    return created


def settings_of(kind: str) -> tuple[str, ...]:
    """Names of the hyper-parameters of a kind."""
    return _KINDS.settings_of(kind)


def removed_of(kind: str) -> tuple[str, ...]:
    """Names of those of earlier versions; `create` still reads a value that changes nothing."""
    return _KINDS.removed_of(kind)


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
    return hasattr(_KINDS.class_of(kind), method)


def is_baseline(kind: str) -> bool:
    """Whether learners of that kind are baselines: un-learned, or fitted again at intervals."""
    return _OWN.get(kind, "").startswith(_BASELINES)
