"""Whatever a model record or a file of a model holds: it is left out and counted, and all other spaces are served."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinstream.search.models.attempts import Limits
from kinstream.search.models.feed import ModelFeed
from kinstream.search.models.loader import Loader, Unloadable
from kinstream.search.models.model import Model, name_of
from kinstream.search.models.staleness import Failure
from kinstream.search.models.subscription import Subscription
from kinstream.streams.checkpoints.names import seal
from kinstream.streams.checkpoints.state_bytes import from_bytes, to_bytes
from kinstream.streams.operations.models import checkpointed
from kinstream.streams.records.codec.codec import decode, encode
from kinstream.streams.records.values import ModelVersion
from tests.search.learned_world import World

SECONDS = 60.0
QUICK = Limits(wait_seconds=0.01, slow_seconds=0.2, at_once=2, hanging=16)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Two spaces that have learned."""
    world = World(tmp_path_factory.mktemp("world"))
    for space in ("a", "b"):
        world.learn(space, 2)
    return world


@pytest.fixture(autouse=True)
def _fresh_source(learned: World) -> None:
    learned.source.__init__()  # type: ignore[misc]


def good(world: World, space: str = "a", learner: str = "opml") -> ModelVersion:
    return world.announced(space, learner)[-1]


def stated(version: ModelVersion, folder: Path, data: bytes, step: int) -> ModelVersion:
    """A newer version, whose file holds these bytes and has their digest."""
    file = folder / f"{step}.safetensors"
    file.write_bytes(data)
    return replace(version, step=step, location=f"file://{file}", sha256=hashlib.sha256(data).hexdigest())


class Followed:
    """A running feed of the spaces a and b, in which b has to be served whatever is announced for a."""

    def __init__(self, world: World, **options: Any) -> None:
        self.world = world
        self.feed = world.feed(**options)
        self.a: Subscription = self.feed.subscribe("a", "opml")
        self.b: Subscription = self.feed.subscribe("b", "opml")
        self._step = 10_000

    def __enter__(self) -> Followed:
        self.feed.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.feed.close()

    def announce(self, *versions: ModelVersion) -> None:
        self.world.source.announce(*versions)

    def still_serves(self) -> None:
        """A model of the other space that is announced now comes to serve."""
        self._step += 1
        newer = replace(good(self.world, "b"), step=self._step)
        self.announce(newer)
        self.b.wait(name_of(newer), timeout=SECONDS)
        assert self.feed.healthy

    def failures(self) -> dict[Failure, int]:
        return {reason: count for reason, count in self.a.staleness().failures.items() if count}

    def fails(self, reason: Failure, count: int = 1) -> None:
        self.a.wait(lambda _: self.failures().get(reason, 0) >= count, timeout=SECONDS)


# ---- places -----------------------------------------------------------------------------------------------------


@pytest.fixture
def places(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Names of what is no file that could be read, by what it is."""
    pipe, folder, loop = tmp_path / "pipe", tmp_path / "folder", tmp_path / "loop"
    os.mkfifo(pipe)
    folder.mkdir()
    loop.symlink_to(loop)
    to_pipe = tmp_path / "link"
    to_pipe.symlink_to(pipe)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "socket"))
    huge = tmp_path / "huge"
    with huge.open("wb") as file:
        file.truncate(9 * 2**30)
    yield {
        "pipe": f"file://{pipe}",
        "link to a pipe": str(to_pipe),
        "socket": str(tmp_path / "socket"),
        "folder": f"file://{folder}",
        "parent": f"file://{folder}/..",
        "root": "/",
        "loop": str(loop),
        "device": "file:///dev/zero",
        "huge": f"file://{huge}",
        "nul": f"file://{tmp_path}/a\0b",
        "escape": f"{tmp_path}/\x1b[2J",
        "empty": "",
        "long": "/" + "a" * 3_000,
        "longer": "file:///" + "a/" * 3_000,
        "nothing": f"{tmp_path}/not-here",
        "below a file": f"{huge}/x",
        "no url": "file://[",
        "strange": "s3://",
        "memory": "memory://nothing",
        "web": "http://127.0.0.1:9/x",
        "surrogate": f"{tmp_path}/\ud83d",
    }
    listener.close()


def test_no_place_that_a_record_names_stops_the_feed(learned: World, places: dict[str, str]) -> None:
    version = good(learned)
    with Followed(learned) as followed:
        for number, place in enumerate(places.values()):
            bad = replace(version, step=1_000 + number, location=place, partition=7)
            followed.announce(bad)
        followed.announce(version)
        followed.a.wait(name_of(version), timeout=SECONDS)
        followed.still_serves()
        told = followed.a.staleness()
        assert sum(told.failures.values()) >= len(places), "each is counted"
        assert told.behind and told.trouble


def test_each_place_is_refused_by_itself(learned: World, places: dict[str, str]) -> None:
    loader, found = Loader(learned.settings), {}
    for what, place in places.items():
        with pytest.raises(Unloadable) as refused:
            loader.load(replace(good(learned), location=place, partition=7), Model())
        found[what] = refused.value.failure
        assert "\0" not in str(refused.value) and "\x1b" not in str(refused.value)
    damaged = {"pipe", "link to a pipe", "socket", "folder", "parent", "root", "device", "huge"}
    assert {what for what, failure in found.items() if failure is Failure.DAMAGED} == damaged
    refused_ = {"nul", "escape", "empty", "longer", "web", "surrogate"}
    assert {what for what, failure in found.items() if failure is Failure.REFUSED} == refused_
    assert {found["nothing"], found["memory"]} == {Failure.MISSING}


def test_a_pipe_in_the_place_of_a_checkpoints_file_is_left_out(learned: World, tmp_path: Path) -> None:
    world = World(tmp_path)
    world.learn("a", 2)
    version = good(world)
    Path(version.location).unlink()
    os.mkfifo(version.location)
    ended = threading.Event()
    found: list[BaseException] = []

    def load() -> None:
        try:
            Loader(world.settings).load(version, Model())
        except Unloadable as error:
            found.append(error)
        ended.set()

    threading.Thread(target=load, daemon=True).start()
    assert ended.wait(SECONDS), "it waits for a writer of the pipe"
    assert [error.failure for error in found if isinstance(error, Unloadable)] == [Failure.DAMAGED]


# ---- stores that hang -------------------------------------------------------------------------------------------


class Hanging(Loader):
    """Loads of these locations do not end before `go`."""

    def __init__(self, world: World, *locations: str) -> None:
        super().__init__(world.settings)
        self.go = threading.Event()
        self._locations = locations
        self.begun: list[str] = []

    def load(self, version: ModelVersion, present: Model) -> Model:
        if version.location in self._locations:
            self.begun.append(version.location)
            assert self.go.wait(SECONDS)
            return Model(version, present.learner)
        return super().load(version, present)


def test_stores_that_hang_hold_up_neither_other_spaces_nor_the_older_model(learned: World) -> None:
    version = good(learned)
    hanging = [replace(version, step=1_000 + n, location=f"hangs-{n}") for n in range(6)]
    loader = Hanging(learned, *(one.location for one in hanging))
    with Followed(learned, loader=loader, limits=QUICK) as followed:
        followed.announce(*hanging, version)
        followed.still_serves()
        followed.a.wait(name_of(version), timeout=SECONDS)
        assert followed.a.wait(timeout=SECONDS).name == name_of(version), "all was tried"
        followed.fails(Failure.UNREACHABLE, len(hanging))
        followed.still_serves()
        assert sorted(loader.begun) == sorted(one.location for one in hanging), "none was begun twice"
        # The stores answer after all.
        loader.go.set()
        followed.a.wait(name_of(hanging[-1]), timeout=SECONDS)


@pytest.mark.long
def test_loads_that_hang_are_bounded(learned: World) -> None:
    version = good(learned)
    hanging = [replace(version, step=1_000 + n, location=f"hangs-{n}") for n in range(30)]
    loader = Hanging(learned, *(one.location for one in hanging))
    with Followed(learned, loader=loader, limits=QUICK) as followed:
        followed.announce(*hanging)
        followed.fails(Failure.UNREACHABLE, QUICK.hanging)
        followed.still_serves()
        assert len(loader.begun) == QUICK.hanging
        loader.go.set()
        followed.a.wait(name_of(hanging[-1]), timeout=SECONDS)


# ---- what cannot be loaded, and what was announced before -------------------------------------------------------


@pytest.mark.parametrize("number", [4, 20])
@pytest.mark.parametrize("kind", ["missing", "refused", "one file"])
def test_newer_ones_that_cannot_be_loaded_do_not_starve_an_older_one(
    learned: World, tmp_path: Path, number: int, kind: str
) -> None:
    version = good(learned)
    bad = [
        replace(version, step=1_000 + n, location=str(tmp_path / f"{n}"), partition=7) for n in range(number)
    ]
    if kind == "refused":
        bad = [replace(one, location=f"http://nowhere/{one.step}") for one in bad]
    if kind == "one file":
        bad = [replace(bad[0], offset=n) for n in range(number)]
    with Followed(learned) as followed:
        followed.announce(version, *bad)
        followed.a.wait(name_of(version), timeout=SECONDS)
        followed.still_serves()
    # One that comes after them is taken as well.
    with Followed(learned) as followed:
        followed.announce(*bad)
        followed.fails(Failure.REFUSED if kind == "refused" else Failure.MISSING)
        followed.announce(version)
        followed.a.wait(name_of(version), timeout=SECONDS)
        assert followed.a.staleness().behind


def test_a_record_is_logged_once_with_its_place_and_counted_each_time(
    learned: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from tests.search.fakes import Clock

    clock = Clock()
    feed = learned.feed(clock=clock, wall=clock)
    one = feed.subscribe("a", "opml")
    learned.source.announce(replace(good(learned), step=1_000, location=str(tmp_path / "gone"), partition=7))
    caplog.set_level(logging.INFO)
    for _ in range(4):
        feed.step()
        clock.now = one.retry_at
    assert one.failures == {Failure.MISSING: 4}
    told = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert len(told) == 1
    assert "models partition 0 offset 0" in told[0] and "missing" in told[0] and "a/opml" in told[0]


def test_files_that_a_learner_has_deleted_are_no_news_while_a_restart_reads_the_topic(
    learned: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from tests.search.fakes import Clock

    clock, caught_up = Clock(), replace(good(learned), step=1_000)
    feed = learned.feed(clock=clock, wall=clock)
    one = feed.subscribe("a", "opml")
    caplog.set_level(logging.INFO)
    learned.source.complete = False
    # A topic is compacted late, and its announcements come in pieces: in each the newest is of a file that is gone.
    for n in range(57):
        learned.source.announce(replace(caught_up, step=n + 1, location=str(tmp_path / f"{n}"), partition=7))
        clock.now += 60.0
        feed.step()
    learned.source.announce(caught_up)
    learned.source.complete = True
    clock.now += 60.0
    feed.step()
    assert one.serving.name == name_of(caught_up)
    assert "left out" not in caplog.text
    assert not one.failures
    # The newest should be there, and one line says that it is not; those before it need not be.
    learned.source.announce(
        *(
            replace(
                caught_up,
                step=2_000 + n,
                location=str(tmp_path / f"new {n}"),
                partition=7,
                sha256=f"{n:064x}",
            )
            for n in range(5)
        )
    )
    for _ in range(3):
        clock.now += 60.0
        feed.step()
    told = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert len(told) == 1 and "new 4" in told[0]


def test_what_nobody_expects_is_counted_with_its_traceback_and_passed_over(
    learned: World, caplog: pytest.LogCaptureFixture
) -> None:
    class Panic(BaseException):
        """As a library written in Rust raises it."""

    class Broken(Loader):
        def load(self, version: ModelVersion, present: Model) -> Model:
            if version.step > 1_000:
                raise Panic("out of its mind") if version.step % 2 else AssertionError("our own")
            return super().load(version, present)

    version = good(learned)
    with Followed(learned, loader=Broken(learned.settings)) as followed:
        followed.announce(*(replace(version, step=1_001 + n) for n in range(2)), version)
        followed.a.wait(name_of(version), timeout=SECONDS)
        followed.world.source.announce(replace(good(learned, "b"), step=50))
        followed.b.wait(lambda model: model.name.step == 50, timeout=SECONDS)
        assert followed.failures() == {Failure.FAULT: 2}
    faults = [record for record in caplog.records if record.exc_info]
    assert len(faults) == 2 and "Traceback" in caplog.text and "our own" in caplog.text


# ---- mutated records --------------------------------------------------------------------------------------------

WORDS = ["", "\0", "a" * 5_000, "../..", "ü/\u202e", "%00", "{}", "'", "-1", "opml/1", "copml/1", "\ud83d"]
NUMBERS = [-(2**31), -1, 0, 1, 7, 2**31 - 1]
LONGS = [*NUMBERS, -(2**63), 2**63 - 1]


def mutated(version: ModelVersion, rng: np.random.Generator) -> ModelVersion:
    """A version of which one to three fields hold something else."""
    fields: dict[str, list[Any]] = {
        **dict.fromkeys(("algorithm", "topic", "location", "sha256"), WORDS),
        **dict.fromkeys(("generation", "partition"), NUMBERS),
        **dict.fromkeys(("epoch", "step", "offset", "time_ms"), LONGS),
        "deleted": [True, False],
    }
    names = rng.choice(sorted(fields), size=int(rng.integers(1, 4)), replace=False)
    return changed(version, **{name: fields[name][rng.integers(len(fields[name]))] for name in names})


def changed(version: ModelVersion, **fields: Any) -> ModelVersion:
    return replace(version, **fields)


def test_mutated_records_stop_nothing(learned: World) -> None:
    rng = np.random.default_rng([17, 6])
    with Followed(learned) as followed:
        for _ in range(6):
            followed.announce(*(mutated(good(learned), rng) for _ in range(60)))
            followed.still_serves()
        assert followed.failures(), "some of them could not be loaded"


def test_bytes_of_records_that_are_mutated_are_read_or_counted(learned: World) -> None:
    from tests.search.test_follower import Record, Topic

    rng = np.random.default_rng([17, 7])
    whole = encode(good(learned))
    topic, sent = Topic(), 400
    records = []
    for _ in range(sent):
        data = bytearray(whole)
        for at in rng.integers(0, len(data), int(rng.integers(1, 5))):
            data[at] = rng.integers(256)
        records.append(bytes(data[: rng.integers(len(data) // 2, len(data) + 1)]))
    found = [announced for data in records for announced in topic.poll(Record(0, data))]
    assert len(found) + topic.source.unreadable == sent and topic.source.unreadable > sent // 2
    for announced in found:
        version = announced.version
        assert (
            min(version.step, version.partition, version.offset, version.generation - 1, version.epoch + 1)
            >= 0
        )
        assert announced.where.startswith("kinstream.models partition 0 offset")


def test_a_record_with_a_negative_number_is_none(learned: World) -> None:
    from kinstream.streams.errors import BadRecord

    version = good(learned)
    assert decode(encode(replace(version, epoch=-1)), ModelVersion)
    for name in ("generation", "step", "partition", "offset"):
        with pytest.raises(BadRecord, match="negative"):
            decode(encode(changed(version, **{name: -1})), ModelVersion)
    with pytest.raises(BadRecord):
        decode(encode(replace(version, epoch=-2)), ModelVersion)


# ---- mutated files ----------------------------------------------------------------------------------------------


def other_value(value: Any, rng: np.random.Generator) -> Any:
    """Something else in the place of a part of a state."""
    if not isinstance(value, np.ndarray):
        choices: list[Any] = ["", "x", -1, 0, 2**40, 2**70, float("nan"), float("inf"), True, np.zeros(3)]
        return choices[rng.integers(len(choices))]
    number = value.astype(np.float64)
    ways: list[Any] = [
        lambda: np.full_like(number, np.nan),
        lambda: np.full_like(number, np.inf),
        lambda: np.where(rng.random(number.shape) < 0.3, -np.inf, number),
        lambda: number * 1e308 * 1e5 if number.size else number,
        lambda: value.astype(np.float32),
        lambda: value.astype(np.int64) if np.isfinite(number).all() else number,
        lambda: value.astype(np.uint8) if np.isfinite(number).all() else number,
        lambda: value.astype(np.complex64),
        lambda: value[..., None],
        lambda: value.reshape(-1),
        lambda: value.T.copy(),
        lambda: np.array(1.0),
        lambda: np.zeros((0, 2**33)),
        lambda: np.zeros(0),
        lambda: value[:-1] if value.ndim else value,
        lambda: np.concatenate([value, value]) if value.ndim else value,
        lambda: "text",
        lambda: 3,
    ]
    with np.errstate(all="ignore"):
        return ways[rng.integers(len(ways))]()


def mutated_state(state: dict[str, Any], rng: np.random.Generator) -> bytes:
    found = dict(state)
    for name in rng.choice(sorted(found), size=int(rng.integers(1, 3)), replace=False).tolist():
        match rng.integers(8):
            case 0:
                del found[name]
            case 1:
                found[f"{name}x"] = found.pop(name)
            case 2:
                found["core.extra"] = np.ones(3)
            case _:
                found[name] = other_value(found[name], rng)
    return to_bytes(found)


def mutated_bytes(data: bytes, rng: np.random.Generator) -> bytes:
    """Bytes that are turned, cut off or in excess, mostly in the header."""
    found = bytearray(data)
    end = min(len(found), 8 + int.from_bytes(data[:8], "little"))
    for at in rng.integers(0, end if rng.random() < 0.7 else len(found), int(rng.integers(1, 6))):
        found[at] = rng.integers(256)
    match rng.integers(4):
        case 0:
            return bytes(found[: rng.integers(len(found))])
        case 1:
            return bytes(found) + rng.bytes(9)
        case _:
            return bytes(found)


def usable(model: Model) -> bool:
    """Whether a model that was loaded gives numbers."""
    if model.dimension is None:
        return True
    return bool(np.isfinite(model.transform(np.ones((2, model.dimension)))).all())


@pytest.mark.long
@pytest.mark.parametrize("learner", ["opml", "copml"])
def test_mutated_files_are_loaded_or_refused(learned: World, tmp_path: Path, learner: str) -> None:
    rng = np.random.default_rng([17, 8, len(learner)])
    version = good(learned, learner=learner)
    data = Path(version.location).read_bytes()
    state, loader, refused, number = from_bytes(data), Loader(learned.settings), 0, 400
    for step in range(number):
        bad = mutated_state(state, rng) if step % 2 else mutated_bytes(data, rng)
        try:
            model = loader.load(stated(version, tmp_path, bad, 1_000), Model())
        except Unloadable as error:
            assert error.failure in (Failure.REFUSED, Failure.FAULT)
            refused += 1
        else:
            assert usable(model)
    assert refused > number // 2


def test_files_that_do_not_fit_are_counted_and_other_spaces_are_served(
    learned: World, tmp_path: Path
) -> None:
    rng = np.random.default_rng([17, 9])
    version = good(learned)
    data = Path(version.location).read_bytes()
    state = from_bytes(data)
    with Followed(learned) as followed:
        for turn in range(3):
            files = [
                mutated_state(state, rng) if step % 2 else mutated_bytes(data, rng) for step in range(10)
            ]
            followed.announce(
                *(stated(version, tmp_path, bad, 1_000 + 10 * turn + n) for n, bad in enumerate(files))
            )
            followed.still_serves()
            followed.a.wait(timeout=SECONDS)
            assert usable(followed.a.model)
        followed.fails(Failure.REFUSED)


def test_a_state_of_another_learner_and_one_of_no_number_are_refused(learned: World, tmp_path: Path) -> None:
    version = good(learned)
    state = from_bytes(Path(version.location).read_bytes())
    L = np.asarray(state["core.L"])
    wrong: dict[str, bytes] = {
        "nan": to_bytes(state | {"core.L": np.where(np.eye(len(L), dtype=bool), np.nan, L)}),
        "inf": to_bytes(state | {"core.L": np.full_like(L, np.inf)}),
        "0-d": to_bytes(state | {"core.L": np.array(1.0, L.dtype)}),
        "giant": giant(2**62),
        "wide": giant(0),
        "no file": b"",
        "length": (2**63).to_bytes(8, "little") + b"{}",
        "deep": deep(),
    }
    loader = Loader(learned.settings)
    for what, data in wrong.items():
        try:
            loader.load(stated(version, tmp_path, data, 1_000), Model())
        except Unloadable as error:
            assert error.failure is Failure.REFUSED, (what, error)
        else:
            pytest.fail(f"loaded: {what}")
    other = stated(good(learned, learner="copml"), tmp_path, to_bytes(state), 1_000)
    with pytest.raises(Unloadable, match="copml"):
        loader.load(other, Model())


def giant(rows: int) -> bytes:
    """A header that claims a shape that no memory has."""
    described = json.dumps({"format": 1, "scalars": {}, "texts": []})
    tensor = {"dtype": "F64", "shape": [rows, 2**40], "data_offsets": [0, 0]}
    header = json.dumps({"__metadata__": {"kinstream": described}, "core.L": tensor}).encode()
    return len(header).to_bytes(8, "little") + header


def deep() -> bytes:
    header = b'{"__metadata__":' + b'{"a":' * 100_000
    return len(header).to_bytes(8, "little") + header


# ---- what lies beside the file ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"kind": "opml"},
        {"kind": 7, "arguments": {}},
        {"kind": "opml", "arguments": [1]},
        {"kind": "x", "arguments": {}},
    ],
)
def test_a_birth_record_without_hyper_parameters_is_left_out(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    world = World(tmp_path)
    world.learn("a", 2)
    (file,) = (path for path in tmp_path.rglob("birth.json") if "learner-opml" in str(path))
    content = json.loads(file.read_bytes())["content"]
    file.write_bytes(seal(content | {"settings": settings}))
    with Followed(world) as followed:
        followed.announce(good(world))
        followed.a.wait(lambda _: bool(followed.failures()), timeout=SECONDS)
        assert followed.feed.healthy and not followed.a.model.learned


def test_a_manifest_that_holds_no_facts_leaves_a_store_that_is_polled_in_trouble_and_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    world.learn("a", 2)
    whole = checkpointed

    def broken(*arguments: Any) -> Iterator[ModelVersion]:
        raise KeyError("epoch")

    monkeypatch.setattr("kinstream.search.models.sources.checkpointed", broken)
    with ModelFeed.from_checkpoints(world.settings, interval=0.01) as feed:
        one = feed.subscribe("a", "opml")
        one.wait(lambda _: "KeyError" in (one.staleness().trouble or ""), timeout=SECONDS)
        assert one.staleness().failures[Failure.UNREADABLE] > 0
        monkeypatch.setattr("kinstream.search.models.sources.checkpointed", whole)
        one.wait(lambda model: model.learned, timeout=SECONDS)
