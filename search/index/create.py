"""Indexes that follow a changing metric, by the name of their way of searching."""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

from kinstream.search.index.lsh.hashed import LazyIndex, NaiveIndex, StaticIndex
from kinstream.search.index.online.base import Index
from kinstream.search.index.online.linear import LinearIndex
from kinstream.search.index.online.settings import Settings
from kinstream.streams.errors import SettingsError

Mode = Literal["linear", "naive", "lazy", "static"]
MODES: Final[tuple[str, ...]] = get_args(Mode)


def create(mode: str = "lazy", **settings: Any) -> Index:
    """An empty index.

    Parameters
    ----------
    mode : "linear" looks at every item. "lazy" keeps keys of locality-sensitive hashing up to date as far as the
        metric has moved, and looks at the items whose keys are nearest. "naive" computes all keys anew for the first
        search after every change of the metric. "static" stays with the metric that it has when its first item is
        put, for keys and distances: what a search without learning finds.
    settings : see `kinstream.search.index.online.settings.Settings`; those that a mode has no use for are ignored.

    Raises
    ------
    SettingsError
        A mode or setting is unknown or out of range.
    """
    made = Settings.of(**settings)
    if mode == "linear":
        return LinearIndex(made)
    if mode == "naive":
        return NaiveIndex(made)
    if mode == "lazy":
        return LazyIndex(made)
    if mode == "static":
        return StaticIndex(made)
    raise SettingsError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
