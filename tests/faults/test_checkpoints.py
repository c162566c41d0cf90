"""Damaged, lost and unwritable checkpoints: the good one before is used, or the worker says what is wrong."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.conftest import MakeSystem
from tests.faults.processes import System
from tests.faults.reference import blocks
from tests.kafka.broker import KafkaBroker
from tests.support.processes import Process, until

AGENTS = ("builder-one-pass", "learner-opml")


def start(system: System, *options: str) -> list[Process]:
    return [system.worker(agent, *options) for agent in AGENTS]


def stop(workers: list[Process]) -> None:
    assert [worker.stop() for worker in workers] == [0] * len(workers)


def covered(system: System, workers: list[Process]) -> None:
    """Wait until the workers themselves have written checkpoints at the end of their inputs."""
    for worker, role in zip(workers, ("events", "constraints"), strict=True):
        end = system.ends(role)[0]
        until(
            lambda worker=worker, end=end: worker.metric("kinstream_checkpoint_offset", partition="0") == end,  # type: ignore[misc]
            f"{worker.path.name} has a checkpoint of its own at {end}",
        )


def newest_files(system: System, application: str) -> tuple[Path, Path]:
    """The newest manifest of partition 0, and the data file that it alone names."""
    folder = system.folder_of(application, 0)
    manifest = folder / f"{system.checkpoints(application)[0][-1]:020d}.manifest.json"
    content = json.loads(manifest.read_text())["content"]
    return manifest, folder / content["partition_state"]["path"]


def tear(manifest: Path, data: Path) -> None:
    manifest.write_bytes(manifest.read_bytes()[:200])


def truncate(manifest: Path, data: Path) -> None:
    data.write_bytes(data.read_bytes()[:-1])


def flip(manifest: Path, data: Path) -> None:
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 0x10
    data.write_bytes(content)


def lose(manifest: Path, data: Path) -> None:
    data.unlink()


Damage = tuple[Callable[[Path, Path], None], str]
TORN: Damage = (tear, "manifest.json: torn or truncated")
TRUNCATED: Damage = (truncate, r"partition@\S+: has \d+ bytes, and \d+ were written")
FLIPPED: Damage = (flip, r"partition@\S+: its digest differs from the one that was written")
MISSING: Damage = (lose, r"checkpoint at offset \d+: missing: ")
#: In each round, one for the builder and one for the learner.
ROUNDS = ((TORN, TRUNCATED), (FLIPPED, MISSING))


@pytest.mark.kafka
@pytest.mark.long
def test_a_damaged_newest_checkpoint_is_passed_over_for_the_one_before_and_the_log_says_so(
    make_system: MakeSystem, kafka: KafkaBroker
) -> None:
    system = make_system(kafka)
    workers = start(system, "--create")
    system.send(blocks("a", 6))
    covered(system, workers)
    for number, damages in enumerate(ROUNDS, 1):
        system.send(blocks("a", 6, start=6 * number))
        covered(system, workers)
        stop(workers)
        before = [system.checkpoints(agent)[0][-2] for agent in AGENTS]
        for agent, (damage, _) in zip(AGENTS, damages, strict=True):
            damage(*newest_files(system, agent))
        workers = start(system)
        for worker, offset, (_, said) in zip(workers, before, damages, strict=True):
            worker.expect(rf"partition 0: continuing at {offset}\b")
            assert worker.said(said), said
        covered(system, workers)
    system.send(blocks("a", 6, start=18))
    covered(system, workers)
    system.check_exact()
    stop(workers)


@pytest.mark.kafka
@pytest.mark.long
def test_without_any_checkpoint_a_partition_is_read_again_from_its_birth_and_consumers_drop_the_copies(
    make_system: MakeSystem, kafka: KafkaBroker
) -> None:
    system = make_system(kafka)
    workers = start(system, "--create")
    system.send(blocks("a", 10))
    system.settle()
    stop(workers)
    for agent in AGENTS:
        shutil.rmtree(system.folder_of(agent, 0))
    workers = start(system)
    for worker in workers:
        worker.expect("partition 0: continuing at 0")
    system.send(blocks("a", 10, start=10))
    system.settle()
    # What was there before the loss came again with the same identities.
    wanted = system.check_exact()
    first = len(wanted.constraints["one-pass", "a"]) - 10
    assert system.chain("constraints").repeated == first
    until(
        lambda: workers[1].metric("kinstream_records_duplicate_total") == first,
        "the learner counts the copies that it has left out",
    )
    stop(workers)


@pytest.mark.kafka
@pytest.mark.long
def test_a_lost_birth_record_is_refused_until_the_log_is_read_again_in_a_new_generation(
    make_system: MakeSystem, kafka: KafkaBroker
) -> None:
    system = make_system(kafka)
    builder = system.worker("builder-one-pass", "--create")
    system.send(blocks("a", 10))
    system.settle(upto="builder-one-pass")
    assert builder.stop() == 0
    (system.root / "builder-one-pass" / "1" / "birth.json").unlink()
    builder = system.worker("builder-one-pass", "--create")
    assert builder.status() == 3
    assert builder.said(
        r"builder-one-pass has no birth record of generation 1 under \S+ Bring the file back from a copy, or read "
        r"the log again: kinstream worker builder one-pass --new-generation --from-start"
    )
    builder = system.begin_generation("builder-one-pass", "--from-start")
    system.wait_for("builder-one-pass", system.ends("events"))
    assert system.states("builder-one-pass") == system.expected().builder
    assert builder.stop() == 0


@pytest.mark.kafka
@pytest.mark.long
def test_a_lost_store_is_refused_even_with_create_until_the_log_is_read_again_in_a_new_generation(
    make_system: MakeSystem, kafka: KafkaBroker
) -> None:
    system = make_system(kafka)
    builder = system.worker("builder-one-pass", "--create")
    system.send(blocks("a", 10))
    system.settle(upto="builder-one-pass")
    until(
        lambda: system.committed("builder-one-pass", "events").get(0) == 10, "the group's offsets are written"
    )
    assert builder.stop() == 0
    shutil.rmtree(system.root)
    builder = system.worker("builder-one-pass", "--create")
    assert builder.status() == 3
    assert builder.said(
        r"the checkpoint store is not shared between workers, or is lost\. Bring it back, or read the"
    )
    builder = system.begin_generation("builder-one-pass", "--from-start")
    system.wait_for("builder-one-pass", system.ends("events"))
    assert system.states("builder-one-pass") == system.expected().builder
    assert builder.stop() == 0


# ---- a store that refuses -------------------------------------------------------------------------------------------


class Store:
    """A checkpoint folder that can be made to refuse: a small file system where we may mount one.

    Elsewhere the processes' files are limited in size, or the folders are closed to writing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        mount = ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(folder)]
        self.mounted = (
            os.geteuid() == 0 and not subprocess.run(mount, capture_output=True, check=False).returncode
        )

    def fill(self, process: Process) -> None:
        """From now on a state of more than some hundred thousand bytes has no room."""
        if not self.mounted:
            _limit_files(process, 160_000)

    def empty(self, process: Process) -> None:
        if self.mounted:
            self._remount("size=64m")
        else:
            _limit_files(process, resource.RLIM_INFINITY)

    def close_to_writing(self, process: Process) -> None:
        if self.mounted:
            self._remount("ro")
        else:
            self._chmod(0o555)

    def open_to_writing(self, process: Process) -> None:
        if self.mounted:
            self._remount("rw,size=64m")
        else:
            self._chmod(0o755)

    def _remount(self, option: str) -> None:
        # Busy while a file is open for writing.
        command = ["mount", "-o", f"remount,{option}", str(self.folder)]
        until(lambda: not subprocess.run(command, capture_output=True, check=False).returncode, "a remount")

    def _chmod(self, mode: int) -> None:
        for folder in [self.folder, *self.folder.rglob("*/")]:
            folder.chmod(mode)

    def close(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "--lazy", str(self.folder)], check=True)


def _limit_files(process: Process, size: int) -> None:
    for one in process.family():
        resource.prlimit(one.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = Store(tmp_path / "store")
    yield found
    found.close()


FULL = r"cannot write \S+: .*(No space left on device|File too large)"
CLOSED = r"cannot write \S+: .*(Read-only file system|Permission denied)"


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("refuse", "accept", "said"),
    [
        pytest.param(Store.fill, Store.empty, FULL, id="full"),
        pytest.param(
            Store.close_to_writing, Store.open_to_writing, CLOSED, id="read-only", marks=pytest.mark.long
        ),
    ],
)
def test_a_store_that_refuses_stops_the_worker_with_nothing_committed_past_its_last_checkpoint(
    make_system: MakeSystem,
    kafka: KafkaBroker,
    store: Store,
    refuse: Callable[[Store, Process], None],
    accept: Callable[[Store, Process], None],
    said: str,
) -> None:
    system = make_system(kafka, checkpoints__url=str(store.folder))
    builder = system.worker("builder-one-pass", "--create")
    system.send(blocks("a", 4, d=784))
    system.settle(upto="builder-one-pass")
    refuse(store, builder)
    system.send(blocks("a", 20, start=4, d=784, classes=300))
    builder.expect(rf"CRITICAL kinstream.worker: CheckpointError: checkpoint store: {said}")
    builder.expect(r"the worker ended with status 75; starting it again")
    builder.expect(said, times=2)
    assert not builder.said("Traceback")
    last = system.checkpoints("builder-one-pass")[0][-1]
    assert last < system.ends("events")[0]
    assert system.committed("builder-one-pass", "events").get(0, 0) <= last
    accept(store, builder)
    system.send(blocks("a", 4, start=24, d=784, classes=300))
    system.settle(upto="builder-one-pass")
    system.check_exact(upto="builder-one-pass")
    assert builder.stop() == 0


@pytest.mark.kafka
def test_a_checkpoint_url_that_cannot_be_written_is_refused_at_the_start(
    make_system: MakeSystem, kafka: KafkaBroker, tmp_path: Path
) -> None:
    occupied = tmp_path / "occupied"
    occupied.touch()
    system = make_system(kafka, checkpoints__url=str(occupied / "checkpoints"))
    builder = system.worker("builder-one-pass", "--create")
    assert builder.status() == 3
    assert builder.said(
        rf"kinstream: checkpoint store: cannot \w+ {occupied}/checkpoints/\S+: .*Not a directory"
    )
    assert not builder.said("Traceback")
