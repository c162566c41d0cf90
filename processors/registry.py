"""Builders by name, each imported only on use."""

from __future__ import annotations

from importlib import import_module
from inspect import signature
from typing import Any, Final

from kinstream.processors.shared.base import Builder
from kinstream.streams.errors import SettingsError
from kinstream.streams.spelling import meant

#: Kind -> "module:class".
_KINDS: Final = {
    "adjacent-pairs": "kinstream.processors.samples.adjacent_pairs:AdjacentPairs",
    "clicks": "kinstream.processors.clicks.clicks:Clicks",
    "closure": "kinstream.processors.closure.closure:Closure",
    "one-pass": "kinstream.processors.samples.one_pass:OnePass",
    "random-pairs": "kinstream.processors.samples.random_pairs:RandomPairs",
    "random-triplets": "kinstream.processors.samples.random_triplets:RandomTriplets",
}


def names() -> tuple[str, ...]:
    """Kinds that `create` accepts, in alphabetical order."""
    return tuple(sorted(_KINDS))


def create(kind: str, **settings: Any) -> Builder:
    """A new builder, for one space.

    Parameters
    ----------
    kind : one of `names()`.
    settings : arguments of its constructor; missing ones keep their defaults.

    Raises
    ------
    SettingsError
        Unknown kind, unknown setting, or a value out of range.

    Examples
    --------
    >>> create("one-pass", negatives="official").algorithm
    'one-pass/1'
    """
    builder = _class(kind)
    known = settings_of(kind)
    unknown = sorted(set(settings) - set(known))
    if unknown:
        raise SettingsError(
            f"{kind} has no setting {', '.join(unknown)}; it has {', '.join(known)}{meant(unknown, known)}"
        )
    created: Builder = builder(**settings)
    return created


def settings_of(kind: str) -> tuple[str, ...]:
    """Names of the constructor arguments of a kind."""
    return tuple(signature(_class(kind)).parameters)


def _class(kind: str) -> type:
    if kind not in _KINDS:
        raise SettingsError(
            f"no builder is called {kind!r}; known are {', '.join(names())}{meant([kind], names())}"
        )
    module, name = _KINDS[kind].split(":")
    found: type = getattr(import_module(module), name)
    return found
