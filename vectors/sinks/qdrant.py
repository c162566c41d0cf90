"""Qdrant: a collection for each version, and an alias of the newest complete one.

Qdrant has no transactions. A position is stored after what lies before it was written, and writing again what was
written has the same result: so after a crash the last batch is written again, and what is shown ends as the log says.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any, Final

from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ApiException

from kinstream.search.stores.base import Place, StoreAway
from kinstream.search.stores.qdrant import connected, server_of
from kinstream.streams.records.vectors import ItemMap, VectorBlock
from kinstream.streams.secrets import hide
from kinstream.vectors.sinks.base import (
    Change,
    EpochBegins,
    Lane,
    StoreBehind,
    StoreFault,
    VersionName,
    version_of,
)

_SECONDS: Final = 60.0
#: Names of points are made of items' ids, since Qdrant takes numbers and UUIDs only; the payload holds the id.
_NAMESPACE: Final = uuid.UUID("5a5b1d2e-8c6f-5c8e-9a57-0d1f3b6b7c11")
#: Points of a request.
_POINTS: Final = 1_000


class QdrantWriter:
    """The writer of one collection.

    Parameters
    ----------
    connection : the URL of the server with an API key as its password, or a folder of the client's local mode.
    collection : the alias that readers ask; points have the payload `id`. `COLLECTION_kinstream` holds positions, the
        versions, and the maps of queries.

    Raises
    ------
    SettingsError : the connection is neither a URL nor a folder.
    """

    def __init__(self, connection: str, collection: str) -> None:
        server_of(connection)
        self._place = Place(connection, collection, "inner-product", seconds=_SECONDS)
        self._alias = collection
        self._book = f"{collection}_kinstream"
        self._client: QdrantClient | None = None

    def write(self, lane: Lane, first: int, changes: Sequence[tuple[int, Change]], end: int) -> None:
        try:
            if self._client is None:
                self._client = connected(self._place)
            self._written(self._client, lane, first, changes, end)
        # The client's local mode has errors of its own.
        except (ApiException, OSError, RuntimeError, ValueError) as error:
            self.close()
            raise StoreAway(hide(f"{self._alias}: {error}")) from error

    def check(self) -> None:
        if server_of(self._place.connection) is None:
            # A folder of the client's local mode belongs to one process: the sink.
            return
        try:
            client = connected(self._place)
            try:
                client.get_collections()
            finally:
                client.close()
        except (ApiException, OSError, RuntimeError, ValueError) as error:
            raise StoreAway(hide(f"{self._alias}: {error}")) from error

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _written(
        self, client: QdrantClient, lane: Lane, first: int, changes: Sequence[tuple[int, Change]], end: int
    ) -> None:
        if not client.collection_exists(self._book):
            params = models.VectorParams(size=1, distance=models.Distance.DOT)
            client.create_collection(self._book, vectors_config=params)
        key = json.dumps(lane)
        found = self._note(client, key)
        at = first if found is None else int(found["next_offset"])
        if at < first:
            raise StoreBehind(
                f"{self._alias}: the store holds what {lane.sink} wrote up to offset {at}, and it wrote up to {first}: "
                f"the store is an older one. Begin again: kinstream worker sink {lane.sink} --new-generation "
                "--from-start"
            )
        for offset, change in changes:
            if offset >= at:
                self._apply(client, change)
        shown = self._shown(client)
        for one in self._begun(client):
            if shown is not None and one < shown:
                client.delete_collection(self._collection(one))
        self._put_note(client, key, {"next_offset": max(at, end)})

    def _apply(self, client: QdrantClient, change: Change) -> None:
        shown, begun = self._shown(client), self._begun(client)
        if isinstance(change, EpochBegins):
            for name in {shown, *begun} - {None}:
                assert name is not None
                if name.epoch < change.epoch:
                    client.delete(self._collection(name), models.FilterSelector(filter=models.Filter()))
            return
        name = version_of(change)
        if isinstance(change, ItemMap) and change.first == 0 and all(name > one for one in begun):
            for old in begun - {shown}:
                client.delete_collection(self._collection(old))
            params = models.VectorParams(size=change.rank, distance=models.Distance.DOT)
            client.create_collection(self._collection(name), vectors_config=params)
            begun = {name}
        if name not in begun:
            return
        if isinstance(change, ItemMap):
            facts = {"learner": change.learner, "model": str(change.model), "query": change.query.tolist()}
            self._put_note(client, f"map {name} {change.first}", facts | {"first": change.first})
        else:
            self._take_block(client, name, change)
            if change.complete is not None and name != shown:
                self._show(client, name, change.complete)

    def _take_block(self, client: QdrantClient, name: VersionName, block: VectorBlock) -> None:
        collection = self._collection(name)
        for at in range(0, len(block.ids), _POINTS):
            points = [
                models.PointStruct(id=_point(item), vector=row.tolist(), payload={"id": item})
                for item, row in zip(
                    block.ids[at : at + _POINTS], block.vectors[at : at + _POINTS], strict=True
                )
            ]
            client.upsert(collection, points, wait=True)
        if block.tombstones:
            client.delete(collection, [_point(item) for item in block.tombstones], wait=True)

    def _show(self, client: QdrantClient, name: VersionName, wanted: int) -> None:
        """Switch the alias to a complete version."""
        count = client.count(self._collection(name), exact=True).count
        if count != wanted:
            raise StoreFault(f"{self._alias}: version {name} has {count} items, and should have {wanted}")
        made: list[Any] = [
            models.CreateAliasOperation(
                create_alias=models.CreateAlias(
                    collection_name=self._collection(name), alias_name=self._alias
                )
            )
        ]
        if self._shown(client) is not None:
            old = models.DeleteAlias(alias_name=self._alias)
            made.insert(0, models.DeleteAliasOperation(delete_alias=old))
        client.update_collection_aliases(made)

    # ---- parts --------------------------------------------------------------------------------------------------

    def _collection(self, name: VersionName) -> str:
        return f"{self._alias}_{name}"

    def _begun(self, client: QdrantClient) -> set[VersionName]:
        """The versions whose collection is there."""
        found = (one.name.removeprefix(f"{self._alias}_") for one in client.get_collections().collections)
        parts = [name.split("_") for name in found]
        return {
            VersionName(int(a), int(b)) for a, b in (p for p in parts if len(p) == 2) if (a + b).isdigit()
        }

    def _shown(self, client: QdrantClient) -> VersionName | None:
        for one in client.get_aliases().aliases:
            if one.alias_name == self._alias:
                epoch, number = one.collection_name.removeprefix(f"{self._alias}_").split("_")
                return VersionName(int(epoch), int(number))
        return None

    def _note(self, client: QdrantClient, key: str) -> dict[str, Any] | None:
        found = client.retrieve(self._book, [_point(key)], with_payload=True)
        return dict(found[0].payload or {}) if found else None

    def _put_note(self, client: QdrantClient, key: str, facts: dict[str, Any]) -> None:
        point = models.PointStruct(id=_point(key), vector=[0.0], payload={"key": key, **facts})
        client.upsert(self._book, [point], wait=True)


def _point(name: str) -> str:
    return str(uuid.uuid5(_NAMESPACE, name))
