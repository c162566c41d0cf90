"""A checkpoint is whole or does not count, whatever kills the writer, damages a file or prunes meanwhile."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec  # type: ignore[import-untyped, unused-ignore]
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped, unused-ignore]

from kinstream.streams import failpoints
from kinstream.streams.agents.generations.birth import read_birth
from kinstream.streams.agents.generations.parking import Parking
from kinstream.streams.checkpoints import names as checkpoint_files
from kinstream.streams.checkpoints.names import file_name
from kinstream.streams.checkpoints.state_bytes import State
from kinstream.streams.checkpoints.store import CheckpointStore, DataFile, LastRecord, Manifest, Restored
from kinstream.streams.errors import CheckpointError

GOLDEN = Path(__file__).parent.parent / "golden" / "checkpoint-v1"
DAY = 24 * 3600.0


def space(step: int, size: int = 4) -> State:
    return {"map": np.arange(size, dtype=np.float64) * step, "step": step}


def save(store: CheckpointStore, offset: int, before: Manifest | None = None, **changed: int) -> Manifest:
    """Save spaces at the given steps; the others are taken over."""
    unchanged = {} if before is None else {n: f for n, f in before.spaces.items() if n not in changed}
    return store.save(
        offset,
        changed={name: space(step) for name, step in changed.items()},
        unchanged=unchanged,
        partition={"read": offset},
        last_record=LastRecord(offset - 1, offset * 7),
    )


def steps(store: CheckpointStore, restored: Restored | None) -> tuple[int, dict[str, int]]:
    """What was restored: the offset, and the step of each space."""
    assert restored is not None
    assert restored.partition == {"read": restored.manifest.offset}
    found = {}
    for name, file in restored.manifest.spaces.items():
        state = store.load_space(file)
        step = state["step"]
        assert isinstance(step, int)
        np.testing.assert_array_equal(state["map"], space(step)["map"])
        found[name] = step
    return restored.manifest.offset, found


def open_store(root: str | Path, **options: Any) -> CheckpointStore:
    return CheckpointStore(str(root), "learner", 1, "constraints", 0, **options)


def folder(root: Path) -> Path:
    return root / "learner" / "1" / "constraints-0"


def files(root: Path) -> set[str]:
    return {str(path.relative_to(folder(root))) for path in folder(root).rglob("*") if path.is_file()}


@pytest.fixture(params=["path", "file-url", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {"path": str(tmp_path), "file-url": tmp_path.as_uri(), "memory": f"memory://{uuid4()}"}[
        request.param
    ]


# ---- what is written comes back ----------------------------------------------------------------------------


def test_the_newest_checkpoint_comes_back(root: str) -> None:
    store = open_store(root)
    assert store.restore() is None
    first = save(store, 10, a=1, b=1)
    second = save(store, 20, first, b=2)
    assert second.spaces["a"] == first.spaces["a"]
    other = open_store(root)
    restored = other.restore()
    assert restored is not None
    assert steps(other, restored) == (20, {"a": 1, "b": 2})
    assert (restored.manifest, restored.notes) == (second, ())
    assert restored.manifest.last_record == LastRecord(19, 140)
    assert set(restored.manifest.versions) == {"kinstream", "numpy", "numba", "python", "cpu"}
    assert other.offsets() == [10, 20]


def test_partitions_generations_and_applications_do_not_meet(root: str) -> None:
    save(open_store(root), 10, a=1)
    for place in [
        ("learner", 1, "constraints", 1),
        ("learner", 2, "constraints", 0),
        ("x", 1, "constraints", 0),
    ]:
        assert CheckpointStore(root, *place).restore() is None


def test_spaces_may_have_any_name(root: str) -> None:
    names = ["a/b", "..", ".", "a@b", "", "A", "a", "été", "%2F", "x" * 5000, "x" * 4999 + "y", "\ud800", "~"]
    assert len({file_name(name) for name in names}) == len(names)
    store = open_store(root)
    store.save(
        1,
        changed={name: space(number) for number, name in enumerate(names)},
        unchanged={},
        partition={"read": 1},
        last_record=None,
    )
    assert steps(store, open_store(root).restore()) == (
        1,
        {name: number for number, name in enumerate(names)},
    )


def test_many_spaces_are_written_in_one_go(root: str) -> None:
    many = {f"s{number}": number for number in range(100)}
    store = open_store(root)
    save(store, 5, None, **many)
    assert steps(store, store.restore()) == (5, many)


def test_nothing_temporary_stays(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    save(store, 5, a=1)
    save(store, 5, a=1)
    assert len(files(tmp_path)) == 3


def test_a_space_cannot_be_changed_and_unchanged(root: str) -> None:
    store = open_store(root)
    first = save(store, 1, a=1)
    with pytest.raises(CheckpointError, match="both changed and unchanged"):
        store.save(2, changed={"a": {}}, unchanged=first.spaces, partition={}, last_record=None)


def test_a_state_that_cannot_be_written_names_its_space(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with pytest.raises(CheckpointError, match="offset 3, space 'bad': state: 'x'"):
        store.save(
            3, changed={"a": {}, "bad": {"x": np.array(["s"])}}, unchanged={}, partition={}, last_record=None
        )
    assert files(tmp_path) == set()
    assert store.restore() is None


# ---- two owners --------------------------------------------------------------------------------------------


def test_a_stale_owner_that_writes_the_same_is_harmless(root: str) -> None:
    stale, owner = open_store(root), open_store(root)
    first = save(stale, 10, a=1)
    between = save(owner, 15, first, a=2)
    newest = save(owner, 20, between)
    # The stale owner made no checkpoint at 15, so its space changed at 20; the state is the same.
    assert save(stale, 20, first, a=2) == newest
    assert steps(owner, owner.restore()) == (20, {"a": 2})
    save(stale, 15, first, a=2)
    assert steps(owner, open_store(root).restore()) == (20, {"a": 2})


def test_another_state_at_the_same_offset_is_refused(root: str) -> None:
    first = save(open_store(root), 10, a=1)
    with pytest.raises(CheckpointError, match=r"1 spaces differ \(a\)") as caught:
        save(open_store(root), 10, a=2)
    assert "not the same log" not in str(caught.value)
    with pytest.raises(CheckpointError, match=r"own state differs.*not the same log"):
        open_store(root).save(
            10, changed={"a": space(1)}, unchanged={}, partition={"read": 9}, last_record=LastRecord(9, 1)
        )
    restored = open_store(root).restore()
    assert restored is not None
    assert restored.manifest == first


def test_a_damaged_checkpoint_is_mended_by_writing_it_again(tmp_path: Path) -> None:
    first = save(open_store(tmp_path), 10, a=1)
    for name in (first.spaces["a"].path, f"{10:020d}.manifest.json"):
        path = folder(tmp_path) / name
        path.write_bytes(path.read_bytes()[:-9])
        with pytest.raises(CheckpointError):
            open_store(tmp_path).restore()
        store = open_store(tmp_path)
        save(store, 10, a=1)
        assert steps(store, store.restore()) == (10, {"a": 1})


# ---- damage ------------------------------------------------------------------------------------------------


def tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) * 2 // 3] ^= 0x10
    path.write_bytes(data)


def extend(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


@pytest.mark.parametrize("damage", [tear, empty, flip, extend, Path.unlink])
@pytest.mark.parametrize("which", ["spaces/b@*", "partition@*", "*.manifest.json"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    tmp_path: Path, which: str, damage: Callable[[Path], None]
) -> None:
    store = open_store(tmp_path)
    first = save(store, 10, a=1, b=1)
    save(store, 20, first, b=2)
    hurt = max(folder(tmp_path).glob(which))
    damage(hurt)
    restored = open_store(tmp_path).restore()
    assert steps(store, restored) == (10, {"a": 1, "b": 1})
    assert restored is not None
    if hurt.exists() or "manifest" not in which:
        assert hurt.name in restored.notes[0]
        assert str(tmp_path) in restored.notes[0]
    else:
        assert restored.notes == ()


def test_when_none_is_whole_it_refuses(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    first = save(store, 10, a=1)
    save(store, 20, first)
    flip(folder(tmp_path) / first.spaces["a"].path)
    with pytest.raises(CheckpointError, match=r"none of 2 checkpoints can be read.*--new-generation"):
        store.restore()
    with pytest.raises(CheckpointError, match="digest"):
        store.load_space(first.spaces["a"])


def test_a_missing_space_file_is_an_error_on_load(root: str) -> None:
    with pytest.raises(CheckpointError, match="missing"):
        open_store(root).load_space(DataFile("spaces/gone.safetensors", "0" * 64, 1))


def test_a_manifest_from_elsewhere_does_not_count(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    save(store, 10, a=1)
    path = folder(tmp_path) / f"{10:020d}.manifest.json"
    path.with_name(f"{11:020d}.manifest.json").write_bytes(path.read_bytes())
    restored = store.restore()
    assert steps(store, restored)[0] == 10
    assert restored is not None
    assert "belongs to" in restored.notes[0]


def test_a_manifest_cannot_lead_out_of_its_folder(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    save(store, 10, a=1)
    path = folder(tmp_path) / f"{10:020d}.manifest.json"
    content = json.loads(path.read_bytes())["content"]
    content["spaces"]["a"]["path"] = "../../secret"
    path.write_bytes(checkpoint_files.seal(content))
    with pytest.raises(CheckpointError, match="leads out"):
        store.restore()


def test_a_later_format_is_refused_rather_than_passed_over(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    save(store, 10, a=1)
    save(store, 20, a=2)
    path = folder(tmp_path) / f"{20:020d}.manifest.json"
    path.write_bytes(checkpoint_files.seal(json.loads(path.read_bytes())["content"] | {"format": 4}))
    with pytest.raises(CheckpointError, match="format 4 is newer"):
        store.restore()


# ---- pruning -----------------------------------------------------------------------------------------------


def test_pruning_keeps_the_last_ones_and_every_file_they_name(root: str) -> None:
    store = open_store(root, keep=2)
    manifest = save(store, 1, a=1, b=1)
    for offset in range(2, 7):
        manifest = save(store, offset, manifest, b=offset)
    store.prune()
    assert store.offsets() == [5, 6]
    assert steps(store, store.restore()) == (6, {"a": 1, "b": 6})
    if "memory" not in root:
        left = files(Path(root.removeprefix("file://")))
        assert sum(name.startswith("spaces/b@") for name in left) == 2
        assert sum(name.startswith("spaces/a@") for name in left) == 1
        assert sum(name.startswith("partition@") for name in left) == 2


def test_damaged_checkpoints_do_not_push_whole_ones_out(tmp_path: Path) -> None:
    store = open_store(tmp_path, keep=1)
    first = save(store, 10, a=1)
    for offset in (20, 30):
        tear(folder(tmp_path) / save(store, offset, first, a=offset).spaces["a"].path)
    store.prune()
    assert steps(store, store.restore()) == (10, {"a": 1})


def test_unnamed_files_go_after_a_day_and_no_sooner(tmp_path: Path) -> None:
    now = [1_000_000_000.0]
    store = open_store(tmp_path, keep=1, clock=lambda: now[0])
    with failpoints.installed("checkpoint.before-manifest=raise"), pytest.raises(RuntimeError):
        save(store, 10, a=1)
    left_behind = files(tmp_path)
    assert len(left_behind) == 2
    for name in left_behind:
        os.utime(folder(tmp_path) / name, (now[0], now[0]))
    save(store, 20, a=2)
    now[0] += DAY - 1
    store.prune()
    assert left_behind <= files(tmp_path)
    now[0] += 2
    store.prune()
    assert not left_behind & files(tmp_path)
    assert steps(store, store.restore()) == (20, {"a": 2})


def test_an_orphan_written_again_is_young_again(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with failpoints.installed("checkpoint.before-manifest=raise"), pytest.raises(RuntimeError):
        save(store, 10, a=1)
    (orphan,) = folder(tmp_path).glob("spaces/*")
    os.utime(orphan, (0, 0))
    save(store, 10, a=1)
    assert orphan.stat().st_mtime > 0


class Beside:
    """Runs an owner's work at the moment when a reader reads a file for the first time."""

    def __init__(
        self, store: CheckpointStore, monkeypatch: pytest.MonkeyPatch, work: Callable[[], None]
    ) -> None:
        self._work: Callable[[], None] | None = work
        inner = store._folder.files.digest

        def digest(name: str, size: int) -> tuple[str, int]:
            if self._work is not None:
                work, self._work = self._work, None
                work()
            return inner(name, size)

        monkeypatch.setattr(store._folder.files, "digest", digest)


def test_a_slow_reader_falls_forward_when_its_checkpoint_is_pruned(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, reader = open_store(root, keep=1), open_store(root)
    save(owner, 10, a=1)

    def go_on() -> None:
        save(owner, 20, a=2)
        owner.prune()

    Beside(reader, monkeypatch, go_on)
    restored = reader.restore()
    assert steps(reader, restored) == (20, {"a": 2})
    assert restored is not None
    assert restored.notes == ()


def test_an_owner_that_writes_while_another_prunes_keeps_its_files(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, pruner = open_store(root), open_store(root, keep=1)
    first = save(owner, 10, a=1)
    save(owner, 20, first, b=1)
    save(owner, 30, b=3)
    inner = pruner._folder.files.delete

    def delete(names: Any, between: Any) -> None:
        save(owner, 40, first, b=4)
        monkeypatch.setattr(pruner._folder.files, "delete", inner)
        inner(names, between)

    monkeypatch.setattr(pruner._folder.files, "delete", delete)
    pruner.prune()
    assert steps(owner, owner.restore()) == (40, {"a": 1, "b": 4})


# ---- a process that is killed ------------------------------------------------------------------------------

WRITER = """
import sys
from tests_checkpoint import open_store, save
store = open_store(sys.argv[1], keep=2)
restored = store.restore()
manifest = restored.manifest if restored else None
for offset in (40, 50):
    manifest = save(store, offset, manifest, b=offset, c=offset)
    store.prune()
"""


def run_writer(root: Path, specification: str) -> int:
    loader = (
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('tests_checkpoint', {__file__!r})\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "sys.modules['tests_checkpoint'] = module\n"
        "spec.loader.exec_module(module)\n"
    )
    environment = os.environ | {failpoints.VARIABLE: specification, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, "-c", loader + WRITER, str(root)], env=environment).returncode


@pytest.mark.parametrize(
    ("failpoint", "hit", "expected"),
    [
        ("checkpoint.between-space-files", 1, 30),
        ("checkpoint.between-space-files", 3, 40),
        ("checkpoint.before-manifest", 1, 30),
        ("checkpoint.before-manifest", 2, 40),
        ("checkpoint.after-manifest", 1, 40),
        ("checkpoint.after-manifest", 2, 50),
        ("checkpoint.during-restore", 1, 30),
        ("checkpoint.during-prune", 1, 40),
        ("checkpoint.during-prune", 2, 40),
        ("checkpoint.during-prune", 7, 40),
        ("checkpoint.during-prune", 8, 50),
    ],
)
def test_a_kill_leaves_the_checkpoint_before_or_the_new_one(
    tmp_path: Path, failpoint: str, hit: int, expected: int
) -> None:
    store = open_store(tmp_path)
    manifest = save(store, 10, a=1, b=1, c=1)
    for offset in (20, 30):
        manifest = save(store, offset, manifest, b=offset, c=offset)
    assert run_writer(tmp_path, f"{failpoint}=kill@{hit}") == -signal.SIGKILL
    restored = open_store(tmp_path).restore()
    assert steps(store, restored) == (expected, {"a": 1, "b": expected, "c": expected})
    assert restored is not None
    assert restored.notes == ()
    assert run_writer(tmp_path, "") == 0
    assert steps(store, open_store(tmp_path).restore()) == (50, {"a": 1, "b": 50, "c": 50})


# ---- a store that refuses ----------------------------------------------------------------------------------


def test_an_unwritable_place_is_an_error_with_place_and_cause(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"cannot write .*/file/root/learner/1/.*Not a directory"):
        save(open_store(tmp_path / "file" / "root"), 1, a=1)


def test_an_unknown_kind_of_store_is_an_error_without_its_password() -> None:
    with pytest.raises(CheckpointError, match=r"nostore://\*\*\*@bucket") as caught:
        open_store("nostore://user:password@bucket/x")
    assert "password@" not in str(caught.value)


class FailingFileSystem(MemoryFileSystem):  # type: ignore[misc, unused-ignore]
    """A store in memory that fails when it is told to."""

    protocol = "failing"
    store: dict[str, Any] = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012
    failing: tuple[str, ...] = ()

    def pipe_file(self, path: str, value: bytes, **options: Any) -> None:
        if "write" in self.failing and path.endswith(self.failing):
            raise OSError(errno.ENOSPC, "No space left on device")
        super().pipe_file(path, value, **options)

    def cat_file(self, path: str, **options: Any) -> Any:
        if "read" in self.failing:
            raise ConnectionError("no route to the store")
        return super().cat_file(path, **options)

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        if "list" in self.failing:
            raise PermissionError("access denied")
        return super().ls(path, detail=detail, **options)


@pytest.fixture
def failing() -> Iterator[type[FailingFileSystem]]:
    fsspec.register_implementation("failing", FailingFileSystem, clobber=True)
    yield FailingFileSystem
    FailingFileSystem.failing = ()
    FailingFileSystem.store.clear()


@pytest.mark.parametrize("what", [".safetensors", ".manifest.json"])
def test_a_full_object_store_keeps_the_checkpoint_before(failing: type[FailingFileSystem], what: str) -> None:
    store = open_store("failing://bucket")
    first = save(store, 10, a=1)
    failing.failing = ("write", what)
    with pytest.raises(CheckpointError, match=r"cannot write failing://bucket/learner/1/.*No space left"):
        save(store, 20, first, a=2)
    failing.failing = ()
    assert steps(store, store.restore()) == (10, {"a": 1})


@pytest.mark.parametrize(("what", "cause"), [("read", "no route to the store"), ("list", "access denied")])
def test_a_store_that_cannot_be_read_is_not_taken_for_damage(
    failing: type[FailingFileSystem], what: str, cause: str
) -> None:
    store = open_store("failing://bucket")
    save(store, 10, a=1)
    failing.failing = (what,)
    with pytest.raises(CheckpointError, match=f"failing://bucket/learner/1/constraints-0.*{cause}"):
        store.restore()


def test_a_full_disk_keeps_the_checkpoint_before_and_leaves_no_litter(small_disk: Path) -> None:
    store = open_store(small_disk)
    first = save(store, 10, a=1)
    before = files(small_disk)
    large = {f"b{number}": space(1, 20_000) for number in range(3)}
    with pytest.raises(CheckpointError, match=r"cannot write .*spaces/b.*(No space left|File too large)"):
        store.save(20, changed=large, unchanged=first.spaces, partition={"read": 20}, last_record=None)
    assert files(small_disk) == before
    assert steps(store, store.restore()) == (10, {"a": 1})
    save(store, 20, first, a=2)
    assert steps(store, store.restore()) == (20, {"a": 2})


# ---- golden ------------------------------------------------------------------------------------------------


def test_the_golden_checkpoint_of_format_1_is_read() -> None:
    store = CheckpointStore(str(GOLDEN), "learner-opml", 1, "kinstream.constraints", 0)
    restored = store.restore()
    assert restored is not None
    manifest = restored.manifest
    assert (manifest.offset, manifest.last_record) == (97, LastRecord(95, 0x00C0FFEE))
    assert (manifest.topic_id, manifest.written_ms) == ("Q29uc3RyYWludHM", 1_700_000_000_500)
    assert restored.partition == {"refused": "[[50, 51]]"}
    assert restored.notes == ()
    assert store.offsets() == [42, 97]
    assert [manifest.spaces[name].label for name in ("digits", "shop/été")] == ["opml, step 2", ""]
    digits, shop = (store.load_space(manifest.spaces[name]) for name in ("digits", "shop/été"))
    np.testing.assert_array_equal(digits.pop("map"), np.array([[0.0, 0.25, 0.5], [0.75, 1.0, 1.25]]))
    np.testing.assert_array_equal(digits.pop("seen"), np.array([True, False]))
    assert digits == {"step": 2, "loss": 0.2, "guard": "clip", "frozen": False}
    np.testing.assert_array_equal(shop.pop("map"), np.eye(2, dtype=np.float32))
    names = shop.pop("names")
    assert isinstance(names, str)
    assert json.loads(names)[199] == "article 199"
    assert shop == {"largest": 2**80, "bound": float("inf")}


def test_the_golden_birth_record_and_marks_are_read() -> None:
    birth = read_birth(str(GOLDEN), "learner-opml", 1)
    assert birth is not None
    assert birth.settings == {"kind": "opml", "gamma": 0.25, "scaler": None}
    assert birth.start_offsets == {0: 7, 1: 0, 2: 12}
    assert birth.output_topics["kinstream.outcomes"].topic_id == "Wm9vVG9waWM"
    parking = Parking(str(GOLDEN), "learner-opml", 1)
    fault = parking.fault("kinstream.constraints", 0)
    assert fault is not None
    assert (fault.offset, fault.count, fault.reason) == (98, 1, "ValueError: golden")
    assert parking.skipped("kinstream.constraints", 1) == {30}
