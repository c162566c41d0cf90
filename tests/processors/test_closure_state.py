"""A closure that was saved and restored goes on as if it had never stopped."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kinstream.processors.base.builder import Origin, State
from kinstream.processors.closure import item_log, seed_log
from kinstream.processors.closure.closure import Closure
from kinstream.streams.checkpoints.state_bytes import from_bytes, to_bytes
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.values import Click, Event, ItemClick
from tests.processors.bounds import closure
from tests.processors.closure_samples import SPACE, Said, items, relations, samples, tell

ROOT = Path(__file__).parents[2]

SETTINGS: dict[str, dict[str, object]] = {
    "plain": {"co_click_support": 1},
    "small caps": {"max_new_pairs": 2, "max_new_triplets": 3, "max_component": 6, "seed": 5},
    "no caps": {"max_new_pairs": 0, "max_new_triplets": 0, "max_component": 0},
    "budget": {"budget": 1.5, "max_component": 0},
    "support": {"contradictions": "support", "support": 2, "max_votes": 60},
    "support of one": {"contradictions": "support", "support": 1},
}


def events(count: int = 40, n: int = 30) -> list[Event]:
    """Relations, labelled samples, new items, changes and erasures, drawn."""
    rng = np.random.default_rng(11)
    made: list[Event] = [items(range(n))]
    for number in range(count):
        said: list[Said] = []
        for _ in range(int(rng.integers(1, 12))):
            left, right = rng.choice(n + 2, 2, replace=False).tolist()
            alike = bool(left % 4 == right % 4) != bool(rng.random() < 0.15)
            said.append((left, right, alike, [None, "ann", "bob", "cem"][rng.integers(4)]))
        made.append(relations(said, time_ms=1000 * number))
        if number % 7 == 3:
            gone = int(rng.integers(n))
            made.append(items([int(rng.integers(n))], [gone]))
            made.append(items([gone]))
        if number % 4 == 1:
            clicked = rng.choice(n, 3, replace=False).tolist()
            made.append(shown(f"list {number}", "ann", clicked, 2000 * number))
        if number % 9 == 5:
            some = rng.choice(n, 4, replace=False).tolist()
            made.append(samples(some, [item % 4 for item in some]))
    return made


def shown(list_id: str, session: str, clicked: list[int], time_ms: int) -> Click:
    clicks = tuple(ItemClick(f"item {n}", time_ms + n) for n in clicked)
    names = tuple(click.item for click in clicks)
    places = tuple(range(len(names)))
    return Click(SPACE, list_id, names, places, clicks, time_ms, session=session, query_item="item 0")


def saved(builder: Closure) -> dict[str, bytes]:
    """A checkpoint: the state, and every segment by name."""
    parts = {"": to_bytes(builder.state())}
    return parts | {name: to_bytes(builder.segment(name)) for name in builder.segments()}


def restored(checkpoint: dict[str, bytes], settings: dict[str, object]) -> Closure:
    builder = closure(**settings)
    builder.restore(from_bytes(checkpoint[""]))
    builder.restore_segments(lambda name: from_bytes(checkpoint[name]))
    return builder


def outputs(builder: Closure, event: Event, offset: int) -> list[object]:
    made = builder.process(event, Origin(offset))
    refused = [(e.reason, e.detail, e.rows) for e in made.refused]
    return [*[encode(block) for block in made.blocks], *refused]


@pytest.fixture(params=[True, False], ids=["small segments", "usual segments"])
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param:
        monkeypatch.setattr(seed_log, "SEGMENT", 7)
        monkeypatch.setattr(item_log, "SEGMENT", 5)
    return bool(request.param)


@pytest.mark.long
@pytest.mark.parametrize("name", SETTINGS)
def test_it_continues_from_every_message(name: str, small: bool) -> None:
    settings = SETTINGS[name]
    builder = closure(**settings)
    known: dict[str, bytes] = {}
    for offset, event in enumerate(events()):
        checkpoint = saved(builder)
        for part, data in checkpoint.items():
            # A name stands for the same content for ever.
            assert not part or known.setdefault(part, data) == data
        again = restored(checkpoint, settings)
        assert saved(again) == checkpoint
        assert again.counts() == builder.counts()
        assert outputs(again, event, offset) == outputs(builder, event, offset)
        assert saved(again) == saved(builder)
    assert builder.counts()["voted" if name == "support" else "contradiction"] > 0
    assert builder.counts()["withdrawn"] > 0 or not name.startswith("support")
    assert builder.counts()["erased"] > 0
    assert not small or len([name for name in known if name.startswith("seeds-")]) > 2


def test_a_restored_one_stays_the_same_over_all_that_follows() -> None:
    """Not only at the next message: the whole rest, from each of some places."""
    stream = events(60)
    settings = SETTINGS["small caps"]
    whole = closure(**settings)
    expected = [outputs(whole, event, offset) for offset, event in enumerate(stream)]
    for start in (1, 17, 40):
        first = closure(**settings)
        for offset, event in enumerate(stream[:start]):
            outputs(first, event, offset)
        second = restored(saved(first), settings)
        found = [outputs(second, event, offset) for offset, event in enumerate(stream[start:], start)]
        assert found == expected[start:]
        assert saved(second) == saved(whole)


def test_the_state_is_a_copy() -> None:
    builder = Closure()
    stream = events(20)
    for offset, event in enumerate(stream):
        builder.process(event, Origin(offset))
    before = saved(builder)
    states: list[State] = [builder.state()]
    for state in states:
        for value in state.values():
            if isinstance(value, np.ndarray):
                value[...] = 0
    assert saved(builder) == before


def test_an_erasure_rewrites_its_segment_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(item_log, "SEGMENT", 4)
    builder = Closure()
    builder.process(items(range(12)), Origin(0))
    tell(builder, *[(n, n + 1, True, None) for n in range(11)])
    before = [name for name in builder.segments() if name.startswith("items-")]
    builder.process(items([], [5]), Origin(2))
    after = [name for name in builder.segments() if name.startswith("items-")]
    assert before == ["items-00000000-0", "items-00000001-0", "items-00000002-0"]
    assert after == ["items-00000000-0", "items-00000001-1", "items-00000002-0"]
    assert not any(b"item 5" in part for part in saved(builder).values())


def test_memory_is_bounded() -> None:
    """The same events again and again take no more room."""
    builder = closure(contradictions="support", support=2, max_votes=100)
    stream = [event for event in events(30) if not getattr(event, "tombstones", ())]
    sizes = []
    for _ in range(4):
        for offset, event in enumerate(stream):
            builder.process(event, Origin(offset))
        sizes.append(builder.nbytes)
    assert sizes[-1] < 2 * sizes[0]


_OTHER_PROCESS = """
import hashlib
from tests.processors.test_closure_state import SETTINGS, digest_of
for settings in SETTINGS.values():
    print(digest_of(settings, half=True))
"""


def digest_of(settings: dict[str, object], *, half: bool) -> str:
    """Of all outputs and the last checkpoint; saved and restored half-way if asked for."""
    builder = closure(**settings)
    found = hashlib.sha256()
    stream = events()
    for offset, event in enumerate(stream):
        if half and offset == len(stream) // 2:
            builder = restored(saved(builder), settings)
        found.update(repr(outputs(builder, event, offset)).encode())
    for name, data in sorted(saved(builder).items()):
        found.update(name.encode() + data)
    return found.hexdigest()


@pytest.mark.long
@pytest.mark.parametrize("hash_seed", [0, 4711])
def test_it_does_the_same_in_another_process(hash_seed: int) -> None:
    found = subprocess.run(
        [sys.executable, "-c", _OTHER_PROCESS],
        capture_output=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        timeout=120,
    )
    expected = [digest_of(settings, half=False) for settings in SETTINGS.values()]
    assert found.stdout.decode().split() == expected
