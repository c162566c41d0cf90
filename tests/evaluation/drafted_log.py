"""A log of a space with a gate in memory: items, and lists drafted for users whose taste is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from kinstream.gate.lists.list_id import NONCE_BYTES, show
from kinstream.learners.models.export import encode as encoded
from kinstream.learners.models.export import export
from kinstream.search.queries.model import QueryModel
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.gate import UNADAPTED, Version
from kinstream.streams.records.values import Click, ItemBlock, ItemClick, ModelVersion, Table
from tests.gate.gates import KEYS, SECRET
from tests.replay.system import System, connect
from tests.search.store_service import bilinear
from tests.support.memory_log import MemoryLog

SPACE: Final = "docs"
D, ITEMS, SIZE, LISTS = 6, 50, 8, 300
#: The model that has drafted lists with the un-adapted features, and one that nobody was shown.
DRAFTED, NEW = Version(1, 0, 100), Version(1, 0, 200)


class DraftedLog:
    """The log, and the files of the models in a folder."""

    def __init__(self, folder: Path) -> None:
        draw = np.random.default_rng(7)
        self.items = draw.normal(size=(ITEMS, D)).astype(np.float32)
        self.items /= np.linalg.norm(self.items, axis=1, keepdims=True)
        names = tuple(f"doc {n}" for n in range(ITEMS))
        self.files = {DRAFTED: folder / "drafted.npz", NEW: folder / "new.npz"}
        for version, file in self.files.items():
            told = ModelVersion(SPACE, "adapter", "?", *version, "t", 0, 9, "", "ab" * 32, 1)
            file.write_bytes(encoded(export(bilinear(D, version.step), told, {}), "npz"))
        self.log = MemoryLog(partitions=1)
        self.append(ItemBlock(SPACE, names, (Table("x", self.items),), 0))
        model = QueryModel.from_file(self.files[DRAFTED])
        # Users want what the new model ranks first.
        taste = QueryModel.from_file(self.files[NEW])
        for number in range(LISTS):
            query = draw.normal(size=D).astype(np.float32)
            wanted = {names[row] for row in np.argsort(-(self.items @ taste.map(query)))[:SIZE]}
            sides = [
                [names[row] for row in np.argsort(-(self.items @ q))[:SIZE]]
                for q in (query, model.map(query))
            ]
            nonce = number.to_bytes(NONCE_BYTES, "big")
            made = show(
                KEYS, SPACE, ((UNADAPTED, sides[0]), (DRAFTED, sides[1])), SIZE, time_ms=1, nonce=nonce
            )
            looked = draw.random(SIZE) < 1.0 / np.arange(1, SIZE + 1)
            chance = [0.8 if item in wanted else 0.05 for item in made.items]
            clicked = [
                item for item, a, p in zip(made.items, looked, chance, strict=True) if a and draw.random() < p
            ]
            clicks = tuple(ItemClick(item, 2) for item in clicked)
            people = {"user": f"u{number // 2}", "query_vector": (Table("x", query[None]),)}
            self.append(Click(SPACE, made.list_id, made.items, tuple(range(SIZE)), clicks, 1, **people))  # type: ignore[arg-type]

    def append(self, record: Any) -> None:
        self.log.append("kinstream.events", SPACE.encode(), encode(record))

    def connect(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have commands read this log, with the key of the gate in the environment."""
        system = System.__new__(System)
        system.log = self.log
        connect(self.log, monkeypatch)
        monkeypatch.setattr("kinstream.replay.log.sources.read_range", system.read_range)
        monkeypatch.setenv("KINSTREAM_GATE_KEY", SECRET)
