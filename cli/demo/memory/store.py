"""The documentation as a store of the service, and the service in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from kinstream.cli.demo.search.material import Material
from kinstream.search.stores.base import Asked, Candidates, Hit, Store, StoreCandidates, StoreHits
from kinstream.streams.records.values import Vectors
from kinstream.streams.settings import Settings
from kinstream.streams.signals import ADAPTED, SIMILARITY, TEXT


class DocumentationStore:
    """Functions as items, whose ids are their rows."""

    def __init__(self, material: Material) -> None:
        self._material = material

    def check(self) -> int | None:
        return int(self._material.items.shape[1])

    def search(self, queries: Vectors, k: int, where: Any) -> StoreHits:
        scores = queries @ self._material.items.T
        best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        hits = [
            [Hit(str(row), float(found[row]), {}) for row in rows.tolist()]
            for rows, found in zip(best, scores, strict=True)
        ]
        return StoreHits(hits, None)

    def candidates(self, asked: Sequence[Asked], n: int, where: Any) -> StoreCandidates:
        return StoreCandidates([self._candidates(one, n) for one in asked], None)

    def _candidates(self, asked: Asked, n: int) -> Candidates:
        made = self._material
        given = {SIMILARITY: asked.plain, ADAPTED: asked.mapped}
        signals = {name: made.items @ query for name, query in given.items() if query is not None}
        first = [made.items @ asked.nearest] if asked.nearest is not None else []
        if asked.text is not None:
            signals[TEXT] = made.text([asked.text])[0]
            first.append(signals[TEXT])
        rows = np.unique([np.argsort(-one, kind="stable")[:n] for one in first])
        found = {name: np.asarray(values[rows], np.float64) for name, values in signals.items()}
        return Candidates([str(row) for row in rows.tolist()], [{} for _ in rows], found)

    def close(self) -> None:
        """There is nothing to end."""


@contextmanager
def served(settings: Settings, store: Store) -> Iterator[str]:
    """The service on a port of its own; its address."""
    from kinstream.search.service.process import listening, web_server
    from kinstream.search.service.routes import make_app
    from kinstream.search.service.service import Service

    service = Service(settings, create=lambda *_: store)
    listener = listening(settings.serve)
    app = make_app(service)
    server = web_server(app, 1)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    service.start()
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(5.0)
        app.state.desk.close()
        service.stop(2.0)
        listener.close()
