"""Builders by name, each imported only on use.

Other distributions add builders by entry points of the group `kinstream.builders`.
"""

from __future__ import annotations

from typing import Any, Final

from kinstream.processors.base.builder import Builder
from kinstream.streams.kinds import Kinds

#: Kind -> "module:class".
_OWN: Final = {
    "adjacent-pairs": "kinstream.processors.samples.adjacent_pairs:AdjacentPairs",
    "clicks": "kinstream.processors.clicks.clicks:Clicks",
    "closure": "kinstream.processors.closure.closure:Closure",
    "one-pass": "kinstream.processors.samples.one_pass:OnePass",
    "random-pairs": "kinstream.processors.samples.random_pairs:RandomPairs",
    "random-triplets": "kinstream.processors.samples.random_triplets:RandomTriplets",
}

_KINDS: Final = Kinds("builder", "kinstream.builders", _OWN)

#: Members of a builder; see `kinstream.processors.base.builder.Builder`.
_MEMBERS: Final = ("algorithm", "follows", "emits", "process", "counts", "state", "restore")


def names() -> tuple[str, ...]:
    """Kinds that `create` accepts, in alphabetical order: Kinstream's own, and those of other distributions."""
    return _KINDS.names()


def create(kind: str, **settings: Any) -> Builder:
    """A new builder, for one space.

    Parameters
    ----------
    kind : one of `names()`.
    settings : arguments of its constructor; missing ones keep their defaults.

    Raises
    ------
    SettingsError
        Unknown kind, unknown setting, or a value out of range. A builder of another distribution cannot be imported or
        created, or is not a builder; the error names the distribution.

    Examples
    --------
    >>> create("one-pass", negatives="official").algorithm
    'one-pass/1'
    """
    created: Builder = _KINDS.create(kind, settings, Builder, _MEMBERS)
    return created


def settings_of(kind: str) -> tuple[str, ...]:
    """Names of the constructor arguments of a kind."""
    return _KINDS.settings_of(kind)


def removed_of(kind: str) -> tuple[str, ...]:
    """Names of those of earlier versions; `create` still reads a value that changes nothing."""
    return _KINDS.removed_of(kind)
