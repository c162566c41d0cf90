"""The kinds of stores: ours, and those that other distributions offer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kinstream.search.stores.base import Place, RankingStore, Store
from kinstream.streams.errors import SettingsError
from kinstream.streams.extras import require
from kinstream.streams.kinds import Kinds

#: Kind -> the package that it needs, whose extra is named as the kind.
_PACKAGES: Final = {"pgvector": "psycopg", "qdrant": "qdrant_client", "opensearch": "urllib3"}
#: Entry points of the group are stores of other distributions.
_KINDS: Final = Kinds(
    "store",
    "kinstream.stores",
    {
        "pgvector": "kinstream.search.stores.pgvector:PgVector",
        "qdrant": "kinstream.search.stores.qdrant:Qdrant",
        "opensearch": "kinstream.search.stores.opensearch:OpenSearch",
    },
)


def names() -> tuple[str, ...]:
    """Every kind."""
    return _KINDS.names()


def create(kind: str, place: Place) -> Store:
    """A store of that kind. It does not connect yet.

    Raises
    ------
    SettingsError : there is no such kind, its options are wrong, or its package is not installed.
    """
    if kind in _PACKAGES:
        require(_PACKAGES[kind], who=f'backend = "{kind}"', extra=kind)
    made: Callable[[Place], Store] = _KINDS.class_of(kind)
    store = made(place)
    if (place.text or place.signals) and not isinstance(store, RankingStore):
        raise SettingsError(f"{kind} ranks by vectors alone: remove text and signals")
    return store
