"""Impressions a second through the click builder: alone, and as a worker that drains a backlog on a real broker.

Lists of ten items out of a catalogue; every list has a query, a session and a
user, and on average 1.2 clicks. Decoding and encoding are measured beside it, for they share the worker's core.
"""

from __future__ import annotations

import json
import time
from typing import Any, Final

import numpy as np

from benchmarks.figures import Figure
from benchmarks.system import series, system
from kinstream.processors.base.builder import Origin
from kinstream.processors.base.catalogue import Catalogue
from kinstream.processors.clicks.clicks import Clicks
from kinstream.processors.warm_up import warm_up
from kinstream.streams.checkpoints.state_bytes import to_bytes
from kinstream.streams.records.codec.codec import decode_event, encode
from kinstream.streams.records.message import Output
from kinstream.streams.records.values import Click, ClickBlock, ItemBlock, ItemClick, Table

LIST = 10
DIMENSION = 64
#: Lists in a block: some 5,000 impressions.
BLOCK = 500
RULES = ("click-skip-above", "co-click")
NOW = 1_767_225_600_000
DRAIN_SECONDS: Final = 300.0


def catalogue(count: int) -> list[ItemBlock]:
    """Items in blocks of 1,000."""
    draw = np.random.default_rng(1)
    made = []
    for first in range(0, count, 1_000):
        names = tuple(f"item-{n:07d}" for n in range(first, min(first + 1_000, count)))
        vectors = draw.normal(size=(len(names), DIMENSION)).astype(np.float32)
        made.append(ItemBlock("benchmark", names, (Table("x", vectors),), NOW))
    return made


def block(number: int, lists: int, catalogue_size: int) -> ClickBlock:
    """Lists of a block, drawn by its number."""
    draw = np.random.default_rng([2, number])
    # Popular items come more often: a block names fewer items than it shows.
    items = (catalogue_size * draw.random((lists, LIST + 1)) ** 3).astype(np.int64)
    items = (items + np.arange(LIST + 1) * 7) % catalogue_size
    for row in items:
        while len(set(row.tolist())) < LIST + 1:
            row[:] = draw.choice(catalogue_size, LIST + 1, replace=False)
    distinct, index = np.unique(items, return_inverse=True)
    index = index.reshape(items.shape).astype(np.int32)
    shown_at = NOW + number * lists * 50 + np.arange(lists, dtype=np.int64) * 50
    hits = draw.random((lists, LIST)) < 0.12
    clicked = np.flatnonzero(hits).astype(np.int32)
    sessions = draw.integers(0, lists // 3 + 1, lists)
    users, actor = np.unique(sessions, return_inverse=True)
    names = tuple(f"session-{number}-{s}" for s in users) + tuple(f"user-{number}-{s}" for s in users)
    return ClickBlock(
        space="benchmark",
        ids=tuple(f"item-{n:07d}" for n in distinct),
        list_ids=tuple(f"list-{number}-{n}" for n in range(lists)),
        actors=names,
        session=actor.astype(np.int32),
        user=(actor + len(users)).astype(np.int32),
        query=np.ascontiguousarray(index[:, LIST]),
        query_row=np.full(lists, -1, np.int32),
        query_vectors=(),
        shown_at_ms=shown_at,
        starts=np.arange(0, lists * LIST + 1, LIST, dtype=np.int32),
        item=index[:, :LIST].flatten().astype(np.int32),
        position=np.tile(np.arange(LIST, dtype=np.int32), lists),
        clicked=clicked,
        click_ms=shown_at[clicked // LIST] + 1_000,
        dwell_ms=np.full(len(clicked), -1, np.int64),
    )


def singles(many: ClickBlock) -> list[Click]:
    """The lists of a block as single records."""
    made = []
    for n in range(len(many)):
        rows = range(many.starts[n], many.starts[n + 1])
        names = tuple(many.ids[many.item[at]] for at in rows)
        hits = np.flatnonzero((many.clicked >= rows.start) & (many.clicked < rows.stop))
        made.append(
            Click(
                many.space,
                many.list_ids[n],
                names,
                tuple(many.position[rows.start : rows.stop].tolist()),
                tuple(ItemClick(many.ids[many.item[many.clicked[h]]], int(many.click_ms[h])) for h in hits),
                int(many.shown_at_ms[n]),
                many.actors[many.session[n]],
                many.actors[many.user[n]],
                many.ids[many.query[n]],
            )
        )
    return made


def run(quick: bool) -> dict[str, Any]:
    """Measure blocks and single lists.

    Returns
    -------
    dict
        Impressions a second of the builder alone ("blocks", "singles"), with decoding and encoding
        ("blocks_coded", "singles_coded"), and constraints for each impression.
    """
    size = 10_000 if quick else 100_000
    events = [block(n, BLOCK, size) for n in range(22 if quick else 62)]
    builder = Clicks(rules=RULES)
    for items in catalogue(size):
        builder.process(items, Origin(0, NOW))
    found: dict[str, Any] = {"items": size}
    append_ms = NOW + 10**9
    for at, event in enumerate(events[:2]):
        builder.process(event, Origin(at, append_ms))
        builder.process(singles(event)[0], Origin(at, append_ms))
    rest = events[2:]
    begun = time.perf_counter()
    made = [builder.process(event, Origin(at, append_ms)) for at, event in enumerate(rest)]
    spent = time.perf_counter() - begun
    shown = sum(len(event.item) for event in rest)
    found["blocks"] = shown / spent
    found["constraints"] = sum(len(b) for one in made for b in one.blocks) / shown

    values = [encode(block(10_000 + n, BLOCK, size)) for n in range(len(rest))]
    begun = time.perf_counter()
    for at, value in enumerate(values):
        for one in builder.process(decode_event(value), Origin(at, append_ms)).blocks:
            encode(one)
    found["blocks_coded"] = shown / (time.perf_counter() - begun)

    lists = [one for n in range(4) for one in singles(block(20_000 + n, BLOCK, size))]
    begun = time.perf_counter()
    for at, one_list in enumerate(lists):
        builder.process(one_list, Origin(at, append_ms))
    found["singles"] = len(lists) * LIST / (time.perf_counter() - begun)
    return found


def as_json(one: Click) -> bytes:
    """A list as a user's own service writes it."""
    event = {
        "kind": "click",
        "space": one.space,
        "list_id": one.list_id,
        "items": one.items,
        "clicks": [{"item": c.item, "time_ms": c.time_ms} for c in one.clicks],
        "shown_at_ms": one.shown_at_ms,
        "session": one.session,
        "user": one.user,
        "query_item": one.query_item,
    }
    return json.dumps(event).encode()


def drained(blocks: int, single: bool, size: int) -> tuple[float, dict[str, Any]]:
    """Impressions a second of one builder worker over a backlog on a real broker.

    The rate is that between the first and the last constraint block, by the timestamps that they are sent with, so
    neither the start of the process nor the reading of the catalogue counts.
    """
    sections = {"builders.clicks": {"kind": "clicks", "rules": list(RULES)}}
    with system(**sections) as on:
        topic = on.settings.topic("events")
        events = [block(n, BLOCK, size) for n in range(blocks)]
        values = (
            [as_json(one) for event in events for one in singles(event)]
            if single
            else [encode(event) for event in events]
        )
        records = [*(encode(items) for items in catalogue(size)), *values]
        on.append(Output(topic, b"benchmark", value, ()) for value in records)
        worker = on.run("worker", "builder", "clicks", "--create")
        stable = 0

        def done() -> bool:
            nonlocal stable
            lag = series(worker.page(), "kinstream_consumer_lag_records") if worker.ready() else {}
            stable = stable + 1 if lag and sum(lag.values()) == 0 else 0
            return stable > 3

        on.wait(done, "the builder drains the clicks", DRAIN_SECONDS, 0.5)
        worker.stop()
        made = on.read("constraints")
    shown = BLOCK * LIST * blocks
    seconds = (made[-1].timestamp_ms - made[0].timestamp_ms) / 1000
    # The lists before the first output and after the last are few.
    return shown / seconds, {"impressions": shown, "seconds": seconds, "outputs": len(made), "items": size}


def of_catalogue(count: int) -> list[Figure]:
    """Memory of a catalogue, and what a checkpoint writes of it while items go on changing."""
    held = Catalogue()
    for items in catalogue(count):
        held.put(items)
    written: set[str] = set(held.segments())
    sizes = []
    for number in range(100):
        # 1,000 items between two checkpoints, drawn among all.
        draw = np.random.default_rng([3, number])
        names = tuple(f"item-{n:07d}" for n in draw.choice(count, 1_000, replace=False))
        vectors = draw.normal(size=(1_000, DIMENSION)).astype(np.float32)
        held.put(ItemBlock("benchmark", names, (Table("x", vectors),), NOW))
        fresh = [name for name in held.segments() if name not in written]
        written.update(fresh)
        sizes.append(len(to_bytes(held.state())) + sum(len(to_bytes(held.segment(n))) for n in fresh))
    whole = len(to_bytes(held.state())) + sum(len(to_bytes(held.segment(n))) for n in held.segments())
    label = f"catalogue of {count:,} items, d = {DIMENSION}"
    return [
        Figure(
            "clicks", f"{label}: memory besides vectors", held.nbytes / count - 4 * DIMENSION, "bytes/item"
        ),
        Figure(
            "clicks",
            f"{label}: a checkpoint after 1,000 changes, of the whole",
            100 * float(np.mean(sizes)) / whole,
            "%",
        ),
    ]


def figures(quick: bool) -> list[Figure]:
    """The builder alone, and a worker on a real broker with the catalogue join."""
    warm_up(("clicks",))
    found = run(quick)
    size = 10_000 if quick else 100_000
    tries = [drained(60 if quick else 400, False, size) for _ in range(1 if quick else 2)]
    blocks, told = max(tries, key=lambda one: one[0])
    lists, told_of_lists = drained(2 if quick else 16, True, size)
    return [
        Figure("clicks", "builder alone, blocks", found["blocks"], "impressions/s", facts=found),
        Figure("clicks", "builder with Avro, blocks", found["blocks_coded"], "impressions/s"),
        Figure("clicks", "builder alone, lists of ten", found["singles"], "impressions/s"),
        Figure(
            "clicks",
            "worker on the broker, blocks",
            blocks,
            "impressions/s",
            at_least=50_000,
            goal=100_000,
            facts=told | {"tries": [rate for rate, _ in tries]},
        ),
        Figure(
            "clicks",
            "worker on the broker, JSON lists of ten",
            lists,
            "impressions/s",
            at_least=5_000,
            facts=told_of_lists,
        ),
        *of_catalogue(100_000 if quick else 1_000_000),
    ]
