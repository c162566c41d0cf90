"""A sink that is killed 20 times: of 10,000 items with 1,000 tombstones, 0 lost, 0 stale, 0 undeleted."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psycopg
import pytest

from kinstream.streams.records.codec.codec import decode_vectors
from kinstream.streams.records.values import Record
from kinstream.streams.records.vectors import VectorBlock
from kinstream.vectors.agent import vectors_spec
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent
from tests.support.postgres import postgres
from tests.support.processes import ROOT
from tests.vectors.material import VECTORS, Catalogue, append, config, embedding, items
from tests.vectors.sink_process import save
from tests.vectors.stores import PostgresView

pytestmark = pytest.mark.long

ITEMS, TOMBSTONES, KILLS, D = 10_000, 1_000, 20, 16


def story(said: Catalogue) -> list[Record]:
    """Three versions, every item changed between them, and a tenth of them deleted under each."""
    rng = np.random.default_rng(11)
    names = [f"i{n}" for n in range(ITEMS)]
    gone = rng.permutation(ITEMS)[:TOMBSTONES]
    found: list[Record] = [
        said.put(items("docs", names[at : at + 100], rng.normal(size=(100, D))))
        for at in range(0, ITEMS, 100)
    ]
    for version in range(3):
        said.map = embedding("docs", version, d=D, k=None if version % 2 == 0 else 8)
        found += said.map.parts()
        ended = {names[n] for n in gone[: TOMBSTONES * version // 3]}
        for at in range(0, ITEMS, 50):
            some = [name for name in names[at : at + 50] if name not in ended]
            found.append(said.put(items("docs", some, rng.normal(size=(len(some), D)))))
        low, high = (TOMBSTONES * n // 3 for n in (version, version + 1))
        for n in range(low, high, 10):
            dead = [names[k] for k in gone[n : min(high, n + 10)]]
            found.append(said.put(items("docs", (), np.empty((0, D)), dead)))
    return found


def sizes(log: MemoryLog) -> dict[str, set[int]]:
    """How many items a version may show: after each record since it is complete."""
    rows: dict[int, set[str]] = {}
    found: dict[str, set[int]] = {}
    for message in log.read(VECTORS, 0, 0):
        record = decode_vectors(message.value)
        if isinstance(record, VectorBlock):
            held = rows.setdefault(record.version, set())
            held.update(record.ids)
            held.difference_update(record.tombstones)
            name = f"0_{record.version}"
            if record.complete is not None or name in found:
                found.setdefault(name, set()).add(len(held))
    return found


class Reader(threading.Thread):
    """Counts what is shown, again and again."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url, self.seen, self.stop = url, set[tuple[str, int]](), threading.Event()
        self.looks = 0

    def run(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            while not self.stop.wait(0.005):
                try:
                    row = connection.execute(
                        "select min(version), max(version), count(*) from docs"
                    ).fetchone()
                except psycopg.errors.UndefinedTable:
                    continue  # before the first version
                assert row is not None and row[0] == row[1]
                self.looks += 1
                self.seen.add((row[0], row[2]))


def test_a_sink_killed_20_times_loses_nothing_keeps_nothing_stale_and_deletes_all(tmp_path: Path) -> None:
    log, said = MemoryLog(partitions=1), Catalogue()
    append(log, *story(said))
    settings = config("docs")
    Agent(vectors_spec(settings), settings, log, tmp_path / "agent").run()
    path, total = tmp_path / "log", len(log.read(VECTORS, 0, 0))
    save(log, path)
    draw, busy = random.Random(12), 0
    with postgres() as server:
        reader = Reader(server.url)
        reader.start()
        try:
            for kill in range(KILLS + 1):
                # Each run sees more of the log, so none is done with it before the last.
                most = total * (kill + 1) // (KILLS + 1)
                command = [sys.executable, "-m", "tests.vectors.sink_process", str(path), server.url]
                process = subprocess.Popen(
                    [*command, str(tmp_path / "sink"), str(most)],
                    stdout=subprocess.PIPE,
                    text=True,
                    cwd=ROOT,
                )
                assert process.stdout is not None
                try:
                    assert process.stdout.readline() == "began\n"
                    if kill < KILLS:
                        time.sleep(draw.uniform(0.0, 0.25))
                        assert process.poll() is None
                    else:
                        assert process.stdout.readline() == "ended\n"
                finally:
                    process.kill()
                    process.wait()
                    busy += kill < KILLS and "ended" not in process.stdout.read()
                    process.stdout.close()
        finally:
            reader.stop.set()
            reader.join()
        view = PostgresView(server.url, "docs")
        found, version = view.held()
        leftovers = view.leftovers()
    assert busy >= KILLS // 2
    wanted, allowed = said.holds(), sizes(log)
    lost = wanted.keys() - found.keys()
    undeleted = found.keys() - wanted.keys()
    stale = [
        n for n, x in wanted.items() if n in found and not np.allclose(found[n], x, rtol=1e-5, atol=1e-5)
    ]
    print(f"{len(wanted)} items, {busy} of {KILLS} kills in the middle of its work")
    print(f"{reader.looks} looks of a reader, {len(reader.seen)} different ones")
    assert (len(lost), len(stale), len(undeleted)) == (0, 0, 0)
    assert len(wanted) == ITEMS - TOMBSTONES and version == list(allowed)[-1] and leftovers == []
    assert reader.looks > 100 and all(count in allowed[name] for name, count in reader.seen)
