"""After a repartition and further load every space is what it would be had the partitions always been there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinstream.processors.closure import item_log, seed_log
from kinstream.streams.records.codec.codec import decode, encode
from kinstream.streams.records.scores import Scores
from kinstream.streams.records.values import (
    Action,
    Click,
    Control,
    Declaration,
    ItemBlock,
    ItemClick,
    Outcome,
    Table,
)
from kinstream.streams.topics import partition_of
from tests.streams.growing_system import OUTCOMES, GrowingSystem, Worker, comparable, in_memory
from tests.support import join_events
from tests.support.pipeline import samples

SPACES = tuple(f"space {number}" for number in range(7))
DECLARED = Declaration((("x", 4),), "any", None)
BAD = b"\x00 neither Avro nor JSON"


def first_half(system: GrowingSystem) -> None:
    for turn in range(4):
        for space in SPACES:
            system.send(space, samples(space, 8)[turn])
    for event in join_events.events("joined", 12):
        system.send("joined", event)
    system.control(SPACES[0], Action.RESET)
    system.send(SPACES[0], *samples(SPACES[0], 3, load="after the reset"))
    system.control("declared", Action.CREATE, DECLARED)
    system.control("gone", Action.CREATE, DECLARED)
    system.send("gone", *samples("gone", 2))
    system.control("gone", Action.DELETE)
    system.control(SPACES[1], Action.PAUSE)
    system.send(SPACES[1], *samples(SPACES[1], 2, load="while paused"))
    for space in SPACES[:4]:
        system.send(space, BAD)


def second_half(system: GrowingSystem) -> None:
    system.control(SPACES[1], Action.RESUME)
    for turn in range(2, 8):
        # The first two of these were there before: a load that was begun again.
        for space in SPACES:
            system.send(space, samples(space, 8)[turn])
    for event in join_events.events("joined", 24)[12:]:
        system.send("joined", event)
    system.send("declared", *samples("declared", 3))
    system.control("gone", Action.CREATE, DECLARED)
    system.send("gone", *samples("gone", 4))
    system.send("new", *samples("new", 3))
    system.control(SPACES[2], Action.RESET)
    system.send(SPACES[2], *samples(SPACES[2], 3, load="after the other reset"))


@pytest.fixture
def system(tmp_path: Path) -> Iterator[GrowingSystem]:
    """Of two partitions."""
    with in_memory():
        yield GrowingSystem(tmp_path / "grown", 2)


def second_half_of_both(*systems: GrowingSystem) -> list[dict[str, Worker]]:
    for one in systems:
        second_half(one)
    ended = [one.drain() for one in systems]
    for one in systems:
        # Refused before the partitions were added, and taken back after it.
        assert one.redrive(reason="space-paused") == 2 * 3
        assert one.redrive(reason="space-paused", consumer="nobody") == 0
    del ended
    return [one.drain() for one in systems]


@pytest.fixture
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of a catalogue are sealed that would fill no segment by far."""
    monkeypatch.setattr(seed_log, "SEGMENT", 8)
    monkeypatch.setattr(item_log, "SEGMENT", 6)


@pytest.mark.long
@pytest.mark.usefixtures("short_segments")
@pytest.mark.parametrize("steps", [(5,), (3, 7)], ids=str)
def test_it_ends_as_if_the_partitions_had_always_been_there(
    system: GrowingSystem, tmp_path: Path, steps: tuple[int, ...]
) -> None:
    other = GrowingSystem(tmp_path / "always", steps[-1])
    for one in (system, other):
        first_half(one)
        one.drain()
    for partitions in steps:
        system.repartition(partitions)
    grown, straight = second_half_of_both(system, other)
    assert {worker.generation.number for worker in grown.values()} == {1 + len(steps)}
    # The one that was paused has gone elsewhere, and not all have.
    counts = (2, *steps)
    went = {space: len({partition_of(space, count) for count in counts}) > 1 for space in (*SPACES, "joined")}
    assert went[SPACES[1]]
    assert len(set(went.values())) == 2 or len(steps) > 1
    for application, worker in grown.items():
        mine, theirs = worker.spaces(), straight[application].spaces()
        # The closure remembers at which offset each relation stood.
        but = ".offset" if application == "builder-joined" else "\0"
        assert comparable(mine, but=but) == comparable(theirs, but=but), application
        assert worker.counts() == straight[application].counts(), application
    joined = grown["builder-joined"].runners[partition_of("joined", steps[-1])].machine
    assert len(joined.segments(["joined"])["joined"]) > 3
    totals = system.totals(grown["metrics"])
    assert totals == system.totals(straight["metrics"])
    # What was counted of a space that was deleted is forgotten.
    seen = {key: counts.seen for key, (counts, _) in totals.items() if key[0] != "gone"}
    assert seen == {key: n for key, n in accepted(system).items() if key[0] != "gone"}
    assert grown["builder-one-pass"].counts()["duplicates"] == 2 * (len(SPACES) - 1)


def accepted(system: GrowingSystem) -> dict[tuple[str, str], int]:
    """Constraints that each learner has accepted of each space, from the log and without the code under test."""
    blocks: dict[tuple[object, ...], Outcome] = {}
    for p in range(system.cluster.counts[OUTCOMES]):
        for message in system.log.read(OUTCOMES, p, 0):
            record = decode(message.value, Outcome, Control)
            if isinstance(record, Outcome):
                blocks[tuple(sorted(message.headers)), message.key] = record
    found: dict[tuple[str, str], int] = {}
    for record in blocks.values():
        found[record.space, record.learner] = (
            found.get((record.space, record.learner), 0) + record.counts.seen
        )
    return found


#: Learns weights from lists with scores.
RANKING: dict[str, Any] = {
    "builders": {"clicks": {"kind": "clicks", "rules": ["click-list"]}},
    "learners": {
        "ranked": {"kind": "ranking", "from": ["clicks"], "start": {"similarity": 0.5, "bm25": 0.5}}
    },
}
SHOWN = 6


def searched(space: str, first: int, last: int) -> Iterator[bytes]:
    """Items of a space, and lists of them with scores, of which some come with the later lists."""
    draw = np.random.default_rng([31, *space.encode()])
    items = draw.normal(size=(40, 4)).astype(np.float32)
    names = tuple(f"doc {n}" for n in range(len(items)))
    if not first:
        yield encode(ItemBlock(space, names, (Table("x", items),), 0))
    for number in range(last):
        shown = draw.choice(len(items), SHOWN, replace=False).tolist()
        columns = {
            "bm25": draw.normal(size=SHOWN).tolist(),
            "age": [None, *draw.normal(size=SHOWN - 1).tolist()],
        }
        if number < 40:
            columns.pop("age")
        query = (items[shown[2]] + draw.normal(size=4)).astype(np.float32)
        if number >= first:
            made = Click(
                space,
                f"{space} {number}",
                tuple(names[item] for item in shown),
                tuple(range(SHOWN)),
                (ItemClick(names[shown[int(np.argmax(columns["bm25"]))]], 6),),
                5,
                user=f"u{number}",
                query_vector=(Table("x", query[None]),),
                scores=Scores.of(columns),
            )
            yield encode(made)


@pytest.mark.long
def test_weights_of_scores_are_learned_on_where_their_space_has_gone(tmp_path: Path) -> None:
    with in_memory():
        systems = [GrowingSystem(tmp_path / str(n), n, **RANKING) for n in (2, 3)]
        for one in systems:
            for space in SPACES:
                one.send(space, *searched(space, 0, 60))
            one.drain()
        systems[0].repartition(3)
        ended = []
        for one in systems:
            for space in SPACES:
                one.send(space, *searched(space, 60, 120))
            ended.append(one.drain())
    assert len({partition_of(space, 2) == partition_of(space, 3) for space in SPACES}) == 2
    grown, straight = (comparable(found["learner-ranked"].spaces()) for found in ended)
    assert grown == straight and grown.keys() == set(SPACES)
    for worker in ended[0].values():
        assert not any(name.startswith("dead") for name in worker.counts())
    for space in SPACES:
        core = ended[0]["learner-ranked"].spaces()[space]["core"]
        signals = json.loads(str(core["ranking.signals"]))
        weights = dict(zip(signals, core["ranking.weights"].tolist(), strict=True))
        assert weights.keys() == {"adapted", "age", "bm25", "similarity"}
        assert weights["bm25"] > 1.5 > abs(weights["age"]) and weights["age"] != 0.0
