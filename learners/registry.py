"""Learners by name, each imported only when it is asked for."""

from __future__ import annotations

from importlib import import_module
from inspect import signature
from typing import Any, Final

from kinstream.learners.base import Learner
from kinstream.streams.errors import SettingsError
from kinstream.streams.spelling import meant

#: Kind -> "module:class".
_KINDS: Final = {
    "adasors": "kinstream.learners.adasors:AdaSORS",
    "copml": "kinstream.learners.opml:COPML",
    "euclidean": "kinstream.learners.euclidean:Euclidean",
    "fusion": "kinstream.learners.fusion:Fusion",
    "itml": "kinstream.learners.itml:ITML",
    "itml-online": "kinstream.learners.itml_online:ITMLOnline",
    "kernel-lego": "kinstream.learners.kernel_lego:KernelLEGO",
    "lego": "kinstream.learners.lego:LEGO",
    "lmnn": "kinstream.learners.lmnn:LMNN",
    "lomdml": "kinstream.learners.lomdml:LOMDML",
    "mahalanobis": "kinstream.learners.mahalanobis:Mahalanobis",
    "mdml": "kinstream.learners.mdml:MDML",
    "oasis": "kinstream.learners.oasis:OASIS",
    "oahu": "kinstream.learners.oahu:OAHU",
    "omdl-lr-like": "kinstream.learners.omdl_lr:OMDLLR",
    "omdml": "kinstream.learners.omdml:OMDML",
    "omks": "kinstream.learners.omks:OMKS",
    "opml": "kinstream.learners.opml:OPML",
    "pola": "kinstream.learners.pola:POLA",
    "portfolio": "kinstream.learners.portfolio:Portfolio",
    "rca": "kinstream.learners.rca:RCA",
    "rdml": "kinstream.learners.rdml:RDML",
    "soml-da": "kinstream.learners.soml_da:SOMLDA",
    "soml-tg": "kinstream.learners.soml_tg:SOMLTG",
    "softmax": "kinstream.learners.softmax:Softmax",
    "sors": "kinstream.learners.sors:SORS",
}


def names() -> tuple[str, ...]:
    """Kinds that `create` knows, in alphabetical order."""
    return tuple(sorted(_KINDS))


def create(kind: str, **settings: Any) -> Learner:
    """A new learner.

    Parameters
    ----------
    kind : one of `names()`.
    settings : its hyper-parameters; those left out keep their defaults.

    Raises
    ------
    SettingsError
        Unknown kind, unknown setting, or a value out of range.

    Examples
    --------
    >>> create("opml", gamma=1e-2).algorithm
    'opml/1'
    """
    learner = _class(kind)
    known = settings_of(kind)
    unknown = sorted(set(settings) - set(known))
    if unknown:
        raise SettingsError(
            f"{kind} has no setting {', '.join(unknown)}; it has {', '.join(known)}{meant(unknown, known)}"
        )
    created: Learner = learner(**settings)
    return created


def settings_of(kind: str) -> tuple[str, ...]:
    """Names of the hyper-parameters of a kind."""
    return tuple(signature(_class(kind)).parameters)


def has(kind: str, setting: str) -> bool:
    """Whether learners of that kind have a setting of that name."""
    return setting in settings_of(kind)


def _class(kind: str) -> type:
    if kind not in _KINDS:
        raise SettingsError(
            f"no learner is called {kind!r}; known are {', '.join(names())}{meant([kind], names())}"
        )
    module, name = _KINDS[kind].split(":")
    found: type = getattr(import_module(module), name)
    return found
