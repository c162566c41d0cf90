"""Indexes that follow a changing metric, by the name of their search mode."""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

from kinstream.search.index.lsh.key_index import LazyIndex, NaiveIndex, StaticIndex
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
    mode : "linear" scans every item. "lazy" updates keys of locality-sensitive hashing as far as the metric has moved,
        and measures the items whose keys are nearest. "naive" recomputes all keys for the first search after every
        change of the metric. "static" keeps the metric of its first item, for keys and distances, as a search without
        learning does.
    settings : see `kinstream.search.index.online.settings.Settings`; a mode ignores settings that it does not use.

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
