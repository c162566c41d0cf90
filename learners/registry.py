"""Learners by name, each imported only when it is asked for."""

from __future__ import annotations

from importlib import import_module
from inspect import signature
from typing import Any, Final

from learners.base import Learner
from streams.errors import SettingsError
from streams.spelling import meant

#: Kind -> "module:class".
_KINDS: Final = {
    "adasors": "learners.adasors:AdaSORS",
    "copml": "learners.opml:COPML",
    "euclidean": "learners.euclidean:Euclidean",
    "fusion": "learners.fusion:Fusion",
    "itml": "learners.itml:ITML",
    "itml-online": "learners.itml_online:ITMLOnline",
    "kernel-lego": "learners.kernel_lego:KernelLEGO",
    "lego": "learners.lego:LEGO",
    "lmnn": "learners.lmnn:LMNN",
    "lomdml": "learners.lomdml:LOMDML",
    "mahalanobis": "learners.mahalanobis:Mahalanobis",
    "mdml": "learners.mdml:MDML",
    "oasis": "learners.oasis:OASIS",
    "oahu": "learners.oahu:OAHU",
    "omdl-lr-like": "learners.omdl_lr:OMDLLR",
    "omdml": "learners.omdml:OMDML",
    "omks": "learners.omks:OMKS",
    "opml": "learners.opml:OPML",
    "pola": "learners.pola:POLA",
    "portfolio": "learners.portfolio:Portfolio",
    "rca": "learners.rca:RCA",
    "rdml": "learners.rdml:RDML",
    "soml-da": "learners.soml_da:SOMLDA",
    "soml-tg": "learners.soml_tg:SOMLTG",
    "sors": "learners.sors:SORS",
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
