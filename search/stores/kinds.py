"""The kinds of stores: ours, and those that other distributions offer."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import Final

from kinstream.search.stores.base import Place, Store
from kinstream.streams.errors import SettingsError
from kinstream.streams.extras import require
from kinstream.streams.spelling import meant

#: Entry points of other distributions: name of a kind -> class.
GROUP: Final = "kinstream.stores"
#: Kind -> the class, and the package that it needs, whose extra is named as the kind.
_OWN: Final = {
    "pgvector": ("kinstream.search.stores.pgvector:PgVector", "psycopg"),
    "qdrant": ("kinstream.search.stores.qdrant:Qdrant", "qdrant_client"),
}


def names() -> list[str]:
    """Every kind."""
    return sorted({*_OWN, *(one.name for one in entry_points(group=GROUP))})


def create(kind: str, place: Place) -> Store:
    """A store of that kind. It does not connect yet.

    Raises
    ------
    SettingsError : there is no such kind, its options are wrong, or its package is not installed.
    """
    if kind in _OWN:
        target, package = _OWN[kind]
        require(package, who=f'store = "{kind}"', extra=kind)
        module, _, name = target.partition(":")
        own: Callable[[Place], Store] = getattr(import_module(module), name)
        return own(place)
    for offer in entry_points(group=GROUP):
        if offer.name == kind:
            try:
                made: Callable[[Place], Store] = offer.load()
            except Exception as error:
                raise SettingsError(f"store {kind!r} of {offer.value} cannot be imported: {error}") from error
            return made(place)
    hint = meant([kind], names()) or f"; there are {', '.join(names())}"
    raise SettingsError(f"no store is called {kind!r}{hint}")
