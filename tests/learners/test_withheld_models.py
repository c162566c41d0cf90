"""A good model is not lost while its learner withholds a newer one: its file stays, and services use it and say so."""

from __future__ import annotations

import logging
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kinstream.cli.system.overview import _models
from kinstream.learners.agent import learner_spec
from kinstream.learners.held_out.judge import Judge
from kinstream.processors.agent import builder_spec
from kinstream.search.models.choice import Announcement
from kinstream.search.models.feed import ModelFeed
from kinstream.search.models.model import Name
from kinstream.search.models.sources import CheckpointSource
from kinstream.search.models.staleness import Failure
from kinstream.streams import failpoints
from kinstream.streams.agents.generations.birth import (
    Birth,
    TopicIdentity,
    read_birth,
    settings_digest,
    write_birth,
)
from kinstream.streams.agents.generations.numbers import make_newest
from kinstream.streams.agents.partition import PartitionRunner
from kinstream.streams.checkpoints.manifest import decode_manifest, encode_manifest
from kinstream.streams.checkpoints.store import CheckpointStore
from kinstream.streams.errors import BadRecord, CheckpointError
from kinstream.streams.operations.models import data_of, from_checkpoints, kept_at, withheld_after
from kinstream.streams.records.codec.codec import decode, encode
from kinstream.streams.records.values import Action, Control, ModelVersion
from kinstream.streams.records.withheld import Withheld
from kinstream.streams.settings import CheckpointSettings
from tests.learners.test_held_out_agent import config, embeddings, fill
from tests.search.fakes import ListSource
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent

FIGURE = (0.031, 1_240)
SPACE = "s"


class World:
    """A builder and a learner in memory, with checkpoints in a store; the judge says what a test wants."""

    def __init__(self, root: str, monkeypatch: pytest.MonkeyPatch, rows: int = 1_600) -> None:
        self.root, self._patch = root, monkeypatch
        self.settings = config(held_out=0.1).model_copy(update={"checkpoints": CheckpointSettings(url=root)})
        self.log = MemoryLog(partitions=1)
        fill(self.log, self.settings, *embeddings(rows, 8), rows=16)
        self.build()
        self.judged(worse=False)
        monkeypatch.setattr(Judge, "figure", FIGURE)
        self.begin()

    def build(self) -> None:
        root: Any = self.root
        Agent(builder_spec(self.settings, "triplets"), self.settings, self.log, root).run()

    def begin(self, generation: int = 1) -> None:
        """The learner's worker starts, anywhere."""
        spec, root = learner_spec(self.settings, "it"), self.root
        birth = Birth(
            spec.application,
            generation,
            settings_digest(spec.shaping),
            spec.shaping,
            {0: 0},
            "memory",
            spec.input_topic(self.settings),
            "id",
            1,
            {self.settings.topic("outcomes"): TopicIdentity("id", 1)},
            0,
            None,
        )
        write_birth(root, birth)
        where: Any = root
        self.agent = Agent(spec, self.settings, self.log, where, generation=generation)

    def judged(self, worse: bool) -> None:
        self._patch.setattr(Judge, "worse", worse)

    def checkpoints(self, number: int, worse: bool) -> None:
        """So many checkpoints after as many messages, of a model that is worse than none, or not."""
        self.judged(worse)
        for _ in range(number):
            assert self.agent.step(0, 1)
            self.agent.runners[0].checkpoint()

    def announced(self) -> list[tuple[ModelVersion, Withheld | None]]:
        """The records of the models topic."""
        self.agent.sink.confirm()
        found = []
        for message in self.log.read(self.settings.topic("models"), 0, 0):
            version = decode(message.value, ModelVersion)
            assert isinstance(version, ModelVersion)
            found.append((version, Withheld.of_headers(message.headers)))
        return found

    def compacted(self) -> list[tuple[ModelVersion, Withheld | None]]:
        """What compaction leaves of them."""
        self.agent.sink.confirm()
        last = {message.key: message for message in self.log.read(self.settings.topic("models"), 0, 0)}
        return [(decode(m.value, ModelVersion), Withheld.of_headers(m.headers)) for m in last.values()]  # type: ignore[misc]

    def good(self) -> ModelVersion:
        """The model that was announced last, whose bytes are there and are those that were announced."""
        version = max(
            (found for found, _ in self.announced()), key=lambda one: (one.generation, one.epoch, one.step)
        )
        assert data_of(version, self.settings)
        return version

    def started(self, checkpoints: bool = False) -> ModelFeed:
        """A service that starts now, over what compaction has left or over the checkpoint store; one round of it."""
        source: Any = CheckpointSource(self.settings, 1.0) if checkpoints else ListSource()
        if not checkpoints:
            with source._changed:
                source._waiting += [
                    Announcement(version, "a test", note) for version, note in self.compacted()
                ]
        feed = ModelFeed(self.settings, source=source)
        subscription = feed.subscribe(SPACE, "it")
        for _ in range(100):
            feed.step()
            if subscription.tried:
                return feed
        raise AssertionError("it did not catch up")

    def serves(self) -> Name:
        """What services serve that start now, however they follow."""
        names = {self.started(how).subscribe(SPACE, "it").serving.name for how in (False, True)}
        assert len(names) == 1, names
        return names.pop()


@pytest.fixture(params=["folder", "object store"])
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    root = str(tmp_path) if request.param == "folder" else f"memory://{uuid.uuid4().hex}"
    return World(root, monkeypatch)


@pytest.mark.long
def test_the_file_of_the_last_announced_model_stays_through_checkpoints_and_restarts(world: World) -> None:
    world.checkpoints(3, worse=False)
    good = world.good()
    for restart in range(5):
        world.checkpoints(4, worse=True)
        assert world.good() == good
        assert world.serves() == Name(good.generation, good.epoch, good.step)
        withheld = world.announced()[-1][1]
        assert (
            withheld is not None and withheld.step > good.step and (withheld.worse_by, withheld.of) == FIGURE
        )
        if restart % 2:
            world.begin()
            world.agent.runners[0].announce_all()
    # It is found by its name as well, as a gate asks for it.
    assert kept_at(world.settings, good, good.generation, good.epoch, good.step) == good
    world.checkpoints(4, worse=False)
    newest = world.good()
    assert newest.step > good.step and world.announced()[-1][1] is None
    assert world.serves().step == newest.step
    # The file that nobody needs any more goes.
    with pytest.raises(CheckpointError):
        data_of(good, world.settings)


@pytest.mark.long
@pytest.mark.parametrize(
    "point", ["checkpoint.during-prune", "checkpoint.before-manifest", "checkpoint.after-manifest"]
)
def test_it_stays_whenever_the_worker_dies(
    point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(str(tmp_path), monkeypatch)
    world.checkpoints(3, worse=False)
    good = world.good()
    hit, dies_at = failpoints.hit, 1

    class Killed(Exception):
        pass

    for dies_at in range(1, 9):
        seen = 0

        def once(name: str, limit: int = dies_at) -> None:
            nonlocal seen
            seen += name == point
            if name == point and seen == limit:
                raise Killed

        monkeypatch.setattr(failpoints, "hit", once)
        world.judged(worse=True)
        try:
            for _ in range(4):
                world.agent.step(0, 1)
                world.agent.runners[0].checkpoint()
        except Killed:
            pass
        monkeypatch.setattr(failpoints, "hit", hit)
        assert world.good() == good
        world.begin()
        assert world.serves().step == good.step


def test_a_stale_owner_takes_it_away_from_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(str(tmp_path), monkeypatch)
    world.checkpoints(3, worse=False)
    stale = world.agent
    world.begin()
    # The new owner is ahead and withholds; the stale one goes on for a checkpoint, and announces it.
    world.checkpoints(2, worse=True)
    owner, world.agent = world.agent, stale
    world.checkpoints(1, worse=False)
    world.agent.sink.confirm()
    world.agent = owner
    world.checkpoints(6, worse=True)
    assert world.serves().step > 0


@pytest.mark.parametrize("action", [Action.RESET, Action.DELETE])
def test_a_model_of_another_epoch_is_not_kept(
    action: Action, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(str(tmp_path), monkeypatch, rows=320)
    world.checkpoints(6, worse=False)
    good = world.good()
    world.checkpoints(6, worse=True)
    world.log.append(world.settings.topic("events"), SPACE.encode(), encode(Control(SPACE, action, 1)))
    world.build()
    while world.agent.step(0, 1):
        world.judged(worse=False)
        world.agent.runners[0].checkpoint()
    for _ in range(4):
        world.log.append(world.settings.topic("events"), b"other", b"{}")
    assert world.serves().epoch > good.epoch
    manifest = world.agent.runners[0].manifest
    assert manifest is not None and not manifest.announced


def test_a_generation_that_begins_withheld_leaves_the_model_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(str(tmp_path), monkeypatch)
    world.checkpoints(3, worse=False)
    good = world.good()
    world.checkpoints(4, worse=True)
    old = world.agent.runners[0]
    spec, place = world.agent.spec, replace(old.machine.place, generation=2)
    store = CheckpointStore(world.root, spec.application, 2, place.topic, 0)
    made = PartitionRunner(
        lambda load: spec.make_machine(place, load),
        store,
        world.agent.sink,
        announce=spec.announce(store),
        inherited=[old.store],
    )
    made.restore(old.machine.next_offset, 0, world.log.end(place.topic, 0))
    write_birth(world.root, replace(_birth(world), generation=2))
    make_newest(world.settings, "learner-it", 2)
    world.agent.runners[0] = made
    # Enough is judged before its first checkpoint.
    world.agent.step(0, 6)
    world.checkpoints(5, worse=True)
    version, note = world.announced()[-1]
    assert (version, note and note.generation) == (good, 2)
    found = from_checkpoints(world.settings)
    assert found.models()[SPACE, "it"] == good and data_of(good, world.settings)
    assert found.withheld[SPACE, "it"].generation == 2
    assert world.serves() == Name(1, good.epoch, good.step)


def _birth(world: World) -> Birth:
    found = read_birth(world.root, "learner-it", 1)
    assert found is not None
    return found


def test_a_manifest_names_it_apart_from_the_checkpoint_and_old_ones_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(str(tmp_path), monkeypatch)
    world.checkpoints(2, worse=False)
    plain = world.agent.runners[0].manifest
    assert plain is not None
    assert b'"format":1' in encode_manifest(plain) and b"announced" not in encode_manifest(plain)
    world.checkpoints(4, worse=True)
    manifest = world.agent.runners[0].manifest
    assert manifest is not None and decode_manifest(encode_manifest(manifest), "a test") == manifest
    (file,) = manifest.announced.values()
    assert file is not None and file not in manifest.files()
    assert manifest.same_state(replace(manifest, announced={}))
    # Its loss harms no restore.
    (Path(world.agent.runners[0].store.url.removeprefix("file://")) / file.path).unlink()
    world.begin()
    assert world.agent.runners[0].machine.next_offset == manifest.offset


def test_the_figure_is_in_what_people_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(str(tmp_path), monkeypatch)
    world.checkpoints(3, worse=False)
    assert withheld_after(world.good(), world.settings) is None
    world.checkpoints(1, worse=True)
    found = withheld_after(world.good(), world.settings)
    step = world.agent.runners[0].machine.find(SPACE).step  # type: ignore[union-attr]
    text = f"1.0.{step}: 0.031 worse than the best un-learned metric on 1240 held-out events"
    assert found is not None and str(found) == text
    (row,) = _models(world.settings, 0.0)
    assert (row.step, row.withheld) == (world.good().step, text)


def test_services_say_it_once_and_end_saying_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kinstream.follower")
    world = World(str(tmp_path), monkeypatch)
    world.checkpoints(3, worse=False)
    world.checkpoints(5, worse=True)
    caplog.clear()
    feed = world.started()
    one = feed.subscribe(SPACE, "it")
    source: Any = feed._source
    for _ in range(5):
        source._waiting += [Announcement(version, "again", note) for version, note in world.announced()]
        feed.step()
    lines = [record.getMessage() for record in caplog.records if "withh" in record.getMessage()]
    assert len(lines) == 1 and "0.031 worse" in lines[0] and f"{one.serving.name} is the newest" in lines[0]
    assert one.staleness().withheld == one.choice.withheld is not None
    assert not one.staleness().behind and one.failures.total() == 0
    world.checkpoints(1, worse=False)
    source._waiting += [Announcement(version, "again", note) for version, note in world.announced()]
    feed.step()
    feed.step()
    assert one.staleness().withheld is None
    lines = [record.getMessage() for record in caplog.records if "withheld any more" in record.getMessage()]
    assert len(lines) == 1


@pytest.mark.long
@pytest.mark.parametrize("failure", [Failure.MISSING, Failure.DAMAGED, Failure.UNREACHABLE, Failure.REFUSED])
def test_a_store_that_has_none_of_64_models_is_one_line_of_the_log(
    failure: Failure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from kinstream.search.models.loader import Unloadable

    world = World(str(tmp_path), monkeypatch, rows=64)
    world.checkpoints(1, worse=False)
    good = world.good()

    class Nothing:
        def load(self, version: ModelVersion, present: Any) -> Any:
            raise Unloadable(failure, f"no {version.step}")

    source = ListSource()
    feed = ModelFeed(world.settings, source=source, loader=Nothing())
    one = feed.subscribe(SPACE, "it")
    for more in range(3):
        many = [
            replace(good, step=100 * more + n, offset=n, location=f"{more}/{n}", sha256="0" * 64)
            for n in range(64)
        ]
        source.announce(*many)
        for _ in range(20):
            feed.step()
    warned = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warned) == 1, [record.getMessage() for record in warned]
    assert one.failures[failure] > 64


NOTE = b'{"generation":1,"epoch":0,"step":9,"worse_by":1.0,"of":1}'


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"null", b"[]", b"{", b"\xff", b"9" * 2_000),
        NOTE.replace(b":9,", b':"9",'),
        NOTE.replace(b"1.0", b'"x"'),
        NOTE.replace(b'"generation":1', b'"generation":true'),
        NOTE.replace(b'"of":1', b'"of":-1'),
        NOTE.replace(b',"of":1', b""),
    ],
)
def test_a_note_that_is_none_is_a_bad_record(value: bytes) -> None:
    assert Withheld.of_headers(()) is None and Withheld.of_headers([("other", value)]) is None
    with pytest.raises(BadRecord):
        Withheld.of_headers([("withheld", value)])
    whole = Withheld(2, 7, 900, 0.031, 1_240)
    assert Withheld.of_headers([whole.header()]) == whole
    assert Withheld.of_headers([Withheld(1, 0, 5).header()]) == Withheld(1, 0, 5)
