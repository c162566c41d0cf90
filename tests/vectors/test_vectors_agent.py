"""The agent `vectors` over a log: versions, changes and tombstones follow from the records alone."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kinstream.processors.base.builder import MAX_BLOCK_BYTES, Origin
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.codec.codec import decode_vectors, encode
from kinstream.streams.records.values import Action, Control, LoadPosition, Record, Table
from kinstream.streams.records.vectors import ItemMap, VectorBlock
from kinstream.streams.settings import Settings
from kinstream.vectors.agent import VectorMachine, vectors_spec
from kinstream.vectors.core import SpaceVectors
from kinstream.vectors.embedding import Embedding
from tests.support.crashes import deduplicated, disturbed, letters
from tests.support.equal import same_states
from tests.support.memory_log import MemoryLog
from tests.vectors.material import (
    EVENTS,
    VECTORS,
    Catalogue,
    D,
    agent,
    append,
    config,
    control,
    embedding,
    items,
    story,
)

SPACES = ("docs", "shop")


def written(log: MemoryLog, space: str) -> list[ItemMap | VectorBlock | Control]:
    found = deduplicated(log, VECTORS).get((b"vectors", space.encode()), [])
    return [decode_vectors(value) for value in found]


def held(log: MemoryLog, space: str) -> tuple[dict[str, NDArray[Any]], int]:
    """What a reader of the topic holds of the newest complete version, and its number; a rule of its own."""
    versions: dict[int, dict[str, NDArray[Any]]] = {}
    complete = 0
    for record in written(log, space):
        if isinstance(record, Control):
            versions, complete = {}, 0
        elif isinstance(record, ItemMap):
            versions.setdefault(record.version, {})
        else:
            rows = versions[record.version]
            rows.update(zip(record.ids, record.vectors, strict=True))
            for name in record.tombstones:
                del rows[name]  # a tombstone names what is there
            if record.complete is not None:
                assert len(rows) == record.complete
                complete = record.version
    return versions.get(complete, {}), complete


def agrees(found: dict[str, NDArray[Any]], said: Catalogue) -> None:
    wanted = said.holds()
    assert found.keys() == wanted.keys()
    for name, x in wanted.items():
        np.testing.assert_allclose(found[name], x, rtol=1e-5, atol=1e-5)


def filled() -> tuple[MemoryLog, dict[str, Catalogue]]:
    log, said = MemoryLog(), {space: Catalogue() for space in (*SPACES, "not followed")}
    stories = {space: list(story(space, one)) for space, one in said.items()}
    for number in range(max(map(len, stories.values()))):
        for some in stories.values():
            append(log, *some[number : number + 1])
    log.append(EVENTS, b"docs", b"\x00 of no use")
    return log, said


def test_a_reader_of_the_topic_holds_what_the_events_say(tmp_path: Path) -> None:
    log, said = filled()
    agent(config(*SPACES), log, tmp_path).run()
    for space in SPACES:
        found, version = held(log, space)
        agrees(found, said[space])
        orders = [r for r in written(log, space) if isinstance(r, ItemMap)]
        assert [one.version for one in orders] == sorted({one.version for one in orders})
        assert version == orders[-1].version
        assert len(orders[-1].query) == 3 and len(orders[0].query) == 0
    assert not written(log, "not followed")
    assert [reason for _, _, reason, _ in letters(log)] == [b"undecodable"]


@pytest.mark.long
def test_crashes_change_neither_outputs_nor_state(tmp_path: Path) -> None:
    settings = config(*SPACES)
    calm_log, _ = filled()
    calm = agent(settings, calm_log, tmp_path / "calm")
    calm.run()
    for seed in range(6):
        log, _ = filled()
        rough, crashes = disturbed(
            vectors_spec(settings), settings, log, tmp_path / str(seed), random.Random(seed)
        )
        assert crashes
        assert deduplicated(log, VECTORS) == deduplicated(calm_log, VECTORS)
        assert same_states(rough.states(), calm.states())
        assert same_states(rough.segments(), calm.segments())


def test_a_state_saved_and_restored_at_every_record_goes_on_alike() -> None:
    """Also between the parts of a map, and across segments of the catalogue."""
    rng = np.random.default_rng(3)
    big = embedding("docs", 4, d=400, k=400)
    assert len(big.parts()) == 3
    events: list[Record] = [
        items("docs", [f"{n}-{k}" for k in range(300)], rng.normal(size=(300, 400))) for n in range(4)
    ]
    events[2:2] = big.parts()
    events.append(items("docs", (), np.empty((0, 400)), [f"1-{k}" for k in range(0, 300, 2)]))
    events[-1:-1] = embedding("docs", 5, d=400, k=2).parts()

    def apply(core: SpaceVectors, record: Record, offset: int) -> list[bytes]:
        if isinstance(record, ItemMap):
            core.publish(record, offset)
        else:
            core.process(record, Origin(offset))  # type: ignore[arg-type]
        return [encode(made) for made in core.take()]

    calm, again = SpaceVectors("docs"), SpaceVectors("docs")
    for offset, record in enumerate(events):
        outputs = apply(calm, record, offset)
        assert apply(again, record, offset) == outputs
        assert all(len(one) < MAX_BLOCK_BYTES + 4096 for one in outputs)
        assert same_states({"": again.state()}, {"": calm.state()})
        fresh, segments = SpaceVectors("docs"), {name: again.segment(name) for name in again.segments()}
        fresh.restore(again.state())
        fresh.restore_segments(segments.__getitem__)
        again = fresh
    assert again.segments() and again.size == 4 * 300 - 150
    assert again.counts() == {"versions": 2, "vectors": 600 + 600 + 1200, "tombstones": 150}


def test_a_reset_ends_the_version_and_a_map_of_the_epoch_before_is_refused(tmp_path: Path) -> None:
    log, said = MemoryLog(), Catalogue()
    append(log, *story("docs", said), control("docs", Action.RESET))
    reset = log.end(EVENTS, 1) + log.end(EVENTS, 0) - 1
    append(log, *embedding("docs", 1).parts())
    fresh = Catalogue()
    append(log, fresh.put(items("docs", ["new"], np.ones((1, D)))))
    settings = config("docs")
    one = agent(settings, log, tmp_path)
    one.run()
    assert held(log, "docs") == ({}, 0)
    fresh.map = embedding("docs", 2, epoch=reset)
    append(log, *fresh.map.parts())
    one.run()
    found, _ = held(log, "docs")
    agrees(found, fresh)
    assert [reason for _, _, reason, _ in letters(log)] == [b"bad-shape"]
    append(log, control("docs", Action.DELETE))
    one.run()
    assert held(log, "docs") == ({}, 0)


def test_what_does_not_fit_is_a_dead_letter_and_changes_nothing(tmp_path: Path) -> None:
    log, said = MemoryLog(), Catalogue()
    append(log, *story("docs", said))
    settings = config("docs")
    one = agent(settings, log, tmp_path)
    one.run()
    before = held(log, "docs")
    X = np.ones((3, D))
    parts = embedding("docs", 9, d=400, k=400).parts()
    huge = X.copy()
    huge[1] = 1e30
    append(
        log,
        items("docs", ["a"], np.ones((1, D + 1))),
        items("docs", ["", "b\0"], X[:2]),
        items("docs", ["large", "larger"], huge[:2]),
        *embedding("docs", 8, d=D + 1).parts(),
        parts[1],
    )
    two = Table("y", X[:1].astype(np.float32))
    both = items("docs", ["a"], X[:1])
    append(log, type(both)("docs", ("a",), (*both.tables, two), 5))
    one.run()
    found, version = held(log, "docs")
    assert version == before[1]
    assert found.keys() == before[0].keys() | {"large"}
    reasons = sorted(str(reason, "ascii") for _, _, reason, _ in letters(log))  # type: ignore[arg-type]
    assert reasons == ["bad-shape", "bad-shape", "not-finite", *3 * ["wrong-dimension"]]


def test_a_load_that_is_sent_again_writes_nothing_twice(tmp_path: Path) -> None:
    log, settings = MemoryLog(), config("docs")
    append(log, *embedding("docs", 1).parts())
    block = items("docs", ["a", "b"], np.eye(2, D))
    loaded = type(block)("docs", block.ids, block.tables, 5, (), LoadPosition("load", 0))
    append(log, loaded, loaded)
    agent(settings, log, tmp_path).run()
    blocks = [r for r in written(log, "docs") if isinstance(r, VectorBlock)]
    assert [(one.ids, one.complete) for one in blocks] == [((), 0), (("a", "b"), None)]


def test_a_new_generation_goes_on_with_items_and_version(tmp_path: Path) -> None:
    log, said = MemoryLog(), Catalogue()
    append(log, *story("docs", said))
    settings = config("docs")
    first = agent(settings, log, tmp_path)
    first.run()
    machine = first.runners[next(p for p in (0, 1) if "docs" in first.runners[p].machine.names())].machine
    space = machine.find("docs")
    assert space is not None
    heir = VectorMachine(machine.place, ["docs"], 10)
    segments = {name: machine.segment("docs", name) for name in machine.segments(["docs"]).get("docs", ())}
    heir.inherit(machine.partition_state(), {"docs": space.state()}, lambda _, name: segments[name])
    inherited = heir.find("docs")
    assert inherited is not None and isinstance(inherited.core, SpaceVectors)
    assert isinstance(space.core, SpaceVectors)
    assert same_states({"": inherited.core.state()}, {"": space.core.state()})


def test_a_map_is_the_same_after_its_way_through_records() -> None:
    for one in (embedding("docs", 1, d=700), embedding("docs", 2, d=700, k=300)):
        parts = [decode_vectors(encode(part)) for part in one.parts(5)]
        assert len(parts) > 2 and all(isinstance(part, ItemMap) for part in parts)
        again = Embedding.of_parts(parts)  # type: ignore[arg-type]
        np.testing.assert_array_equal(again.item, one.item)
        np.testing.assert_array_equal(again.query, one.query)


def test_without_spaces_there_is_no_agent() -> None:
    with pytest.raises(SettingsError, match="nothing to embed"):
        vectors_spec(Settings())
