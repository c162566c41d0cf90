"""Three faults at one record without progress park the partition; a skip sets it free, and never too late."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from kinstream.streams.agents.generations.parking import Parking
from kinstream.streams.checkpoints.store import CheckpointStore
from kinstream.streams.errors import CheckpointError

TOPIC = "kinstream.events"


@pytest.fixture(params=["local", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path) if request.param == "local" else f"memory://{uuid4()}"


def park(root: str, offset: int = 5) -> Parking:
    parking = Parking(root, "builder", 1)
    for _ in range(3):
        parking.record_fault(TOPIC, 0, offset, "ValueError: poison")
    return parking


def test_the_third_fault_parks_the_partition_for_every_process(root: str) -> None:
    parking = Parking(root, "builder", 1)
    assert parking.parked_offset(TOPIC, 0) is None
    assert [parking.record_fault(TOPIC, 0, 5, "ValueError") for _ in range(2)] == [1, 2]
    assert parking.parked_offset(TOPIC, 0) is None
    assert parking.record_fault(TOPIC, 0, 5, "ValueError") == 3
    other = Parking(root, "builder", 1)
    assert other.parked_offset(TOPIC, 0) == 5
    assert other.parked_offset(TOPIC, 1) is None
    assert Parking(root, "builder", 2).parked_offset(TOPIC, 0) is None
    fault = other.fault(TOPIC, 0)
    assert fault is not None
    assert (fault.count, fault.reason) == (3, "ValueError")


def test_progress_and_another_offset_begin_the_count_again(root: str) -> None:
    parking = Parking(root, "builder", 1)
    parking.record_fault(TOPIC, 0, 5, "x")
    assert parking.record_fault(TOPIC, 0, 6, "x") == 1
    assert parking.record_fault(TOPIC, 0, 6, "x") == 2
    parking.clear_faults(TOPIC, 0)
    parking.clear_faults(TOPIC, 0)
    assert parking.record_fault(TOPIC, 0, 6, "x") == 1


def test_a_skip_sets_the_partition_free_and_stays(root: str) -> None:
    parking = park(root)
    parking.skip(TOPIC, 0, 5)
    parking.skip(TOPIC, 0, 5)
    parking.skip(TOPIC, 0, 9)
    assert parking.parked_offset(TOPIC, 0) is None
    assert Parking(root, "builder", 1).skipped(TOPIC, 0) == {5, 9}
    assert parking.skipped(TOPIC, 1) == frozenset()


def test_a_skip_of_another_record_leaves_it_parked(root: str) -> None:
    parking = park(root)
    parking.skip(TOPIC, 0, 6)
    assert parking.parked_offset(TOPIC, 0) == 5


def test_a_skip_behind_a_checkpoint_is_refused(root: str) -> None:
    store = CheckpointStore(root, "builder", 1, TOPIC, 0)
    store.save(6, changed={}, unchanged={}, partition={}, last_record=None)
    parking = park(root)
    with pytest.raises(CheckpointError, match="offset 5 cannot be skipped: the checkpoint at offset 6"):
        parking.skip(TOPIC, 0, 5)
    assert parking.parked_offset(TOPIC, 0) == 5
    parking.skip(TOPIC, 0, 6)
    assert parking.skipped(TOPIC, 0) == {6}


def test_a_damaged_fault_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    parking = park(str(tmp_path))
    path = tmp_path / "builder" / "1" / f"{TOPIC}-0.fault.json"
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(CheckpointError, match=r"kinstream\.events-0\.fault\.json"):
        parking.parked_offset(TOPIC, 0)


def ended(root: str, covered: int, crashed: bool = False) -> bool:
    """Whether the next run notes each record, after one that was killed or has crashed."""
    return Parking(root, "builder", 1).take_over(TOPIC, 0, covered, crashed=crashed)


def test_a_record_in_which_three_processes_are_killed_is_skipped_wherever_it_stands(root: str) -> None:
    parking = Parking(root, "builder", 1)
    # The first end says nothing, and the second that there was no progress.
    assert [ended(root, 3), ended(root, 3)] == [False, True]
    for _ in range(3):
        assert parking.skipped(TOPIC, 0) == frozenset()
        for offset in (3, 4, 5):
            parking.enter(TOPIC, 0, offset)
        assert ended(root, 3)
    assert parking.skipped(TOPIC, 0) == {5}
    assert parking.parked_offset(TOPIC, 0) is None and parking.fault(TOPIC, 0) is None


def test_a_record_in_which_three_processes_crash_parks_the_partition(root: str) -> None:
    parking = Parking(root, "builder", 1)
    assert ended(root, 3, crashed=True)
    for _ in range(3):
        assert parking.parked_offset(TOPIC, 0) is None
        for offset in (3, 4, 5):
            parking.enter(TOPIC, 0, offset)
        assert ended(root, 3, crashed=True)
    assert parking.parked_offset(TOPIC, 0) == 5 and parking.skipped(TOPIC, 0) == frozenset()


def test_ends_between_records_and_with_progress_blame_none(root: str) -> None:
    parking = Parking(root, "builder", 1)
    covered = 0
    for turn in range(12):
        ended(root, covered)
        parking.enter(TOPIC, 0, covered + 1)
        if turn % 2:
            parking.leave(TOPIC, 0)
        else:
            covered += 2
            assert parking.passed(TOPIC, 0, covered)
            # A note that was left behind the checkpoint says nothing.
            parking.enter(TOPIC, 0, covered - 1)
    assert parking.skipped(TOPIC, 0) == frozenset() and parking.fault(TOPIC, 0) is None


def test_a_checkpoint_before_the_record_leaves_its_count(root: str) -> None:
    parking = Parking(root, "builder", 1)
    parking.record_fault(TOPIC, 0, 5, "x")
    assert [parking.passed(TOPIC, 0, at) for at in (4, 5)] == [False, False]
    assert parking.record_fault(TOPIC, 0, 5, "x") == 2
    assert parking.passed(TOPIC, 0, 6) and parking.fault(TOPIC, 0) is None
