"""A generation goes on only in the surroundings in which it began."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from kinstream.streams.agents.generations.birth import (
    Birth,
    BirthFacts,
    TopicIdentity,
    as_content,
    compare,
    from_content,
    read_birth,
    settings_digest,
    write_birth,
)
from kinstream.streams.agents.generations.open_generation import open_generation
from kinstream.streams.checkpoints.names import seal
from kinstream.streams.errors import CheckpointError, GenerationMismatch
from tests.streams.growing_system import GrowingSystem

SETTINGS = {"kind": "opml", "gamma": 0.1, "guard": {"name": "clip", "bounds": (0, 1)}}


def birth(**changes: Any) -> Birth:
    record = Birth(
        application="learner-opml",
        generation=2,
        settings_digest=settings_digest(SETTINGS),
        settings=SETTINGS,
        start_offsets={partition: partition * 10 for partition in range(12)},
        cluster_id="cluster-a",
        input_topic="kinstream.constraints",
        input_topic_id="id-in",
        input_partitions=12,
        output_topics={"kinstream.outcomes": TopicIdentity("id-out", 3)},
        created_ms=1,
    )
    return dataclasses.replace(record, **changes)


def view(record: Birth, **changes: Any) -> BirthFacts:
    fields = {field.name: getattr(record, field.name) for field in dataclasses.fields(BirthFacts)}
    return BirthFacts(**(fields | changes))


@pytest.fixture(params=["local", "file-url", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {"local": str(tmp_path), "file-url": tmp_path.as_uri(), "memory": f"memory://{uuid4()}"}[
        request.param
    ]


def test_it_is_written_once_and_read_back(root: str) -> None:
    assert read_birth(root, "learner-opml", 2) is None
    assert write_birth(root, birth())
    assert not write_birth(root, birth(cluster_id="cluster-b"))
    read = read_birth(root, "learner-opml", 2)
    assert read is not None
    assert read.cluster_id == "cluster-a"
    assert dict(read.start_offsets) == dict(birth().start_offsets)
    assert read.output_topics == birth().output_topics
    compare(read, view(birth()))


def test_of_many_that_write_at_once_one_wins(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        wins = list(pool.map(lambda n: write_birth(str(tmp_path), birth(created_ms=n)), range(16)))
    read = read_birth(str(tmp_path), "learner-opml", 2)
    assert wins.count(True) == 1
    assert read is not None
    assert read.created_ms == wins.index(True)
    assert [path.name for path in (tmp_path / "learner-opml" / "2").iterdir()] == ["birth.json"]


def test_any_damage_is_found(tmp_path: Path) -> None:
    write_birth(str(tmp_path), birth())
    path = tmp_path / "learner-opml" / "2" / "birth.json"
    whole = path.read_bytes()
    for data in (b"", whole[:-30], whole.replace(b"cluster-a", b"cluster-b"), b"[]", b"{}"):
        path.write_bytes(data)
        with pytest.raises(CheckpointError, match=r"birth\.json"):
            read_birth(str(tmp_path), "learner-opml", 2)


def test_a_record_of_another_generation_is_refused(tmp_path: Path) -> None:
    write_birth(str(tmp_path), birth())
    (tmp_path / "learner-opml" / "2").rename(tmp_path / "learner-opml" / "3")
    with pytest.raises(CheckpointError, match="belongs to learner-opml generation 2"):
        read_birth(str(tmp_path), "learner-opml", 3)


def test_settings_that_are_no_json_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="JSON"):
        write_birth(str(tmp_path), birth(settings={"f": object()}))


def other_settings(**changes: object) -> dict[str, Any]:
    settings = SETTINGS | changes
    return {"settings": settings, "settings_digest": settings_digest(settings)}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"cluster_id": "cluster-b"}, "another cluster: it began on cluster-a, this is cluster-b"),
        ({"input_topic": "other"}, "another input topic: it began on kinstream.constraints, this is other"),
        (
            {"input_topic_id": "id-new"},
            "input topic kinstream.constraints was re-created: its id was id-in and is id-new",
        ),
        ({"input_partitions": 24}, "input topic kinstream.constraints had 12 partitions and has 24"),
        (
            {"output_topics": {"kinstream.outcomes": TopicIdentity("id-2", 3)}},
            "output topic kinstream.outcomes was re-created: its id was id-out and is id-2",
        ),
        (
            {"output_topics": {"kinstream.outcomes": TopicIdentity("id-out", 4)}},
            "output topic kinstream.outcomes had 3 partitions and has 4",
        ),
        ({"output_topics": {}}, "output topic kinstream.outcomes is gone"),
        (other_settings(gamma=0.2), "setting learners.opml.gamma: was 0.1, is 0.2"),
        (
            other_settings(guard={"name": "raw", "bounds": (0, 1)}),
            'setting learners.opml.guard.name: was "clip", is "raw"',
        ),
        (other_settings(margin=1), "setting learners.opml.margin: was not set, is 1"),
        (other_settings(arguments={"t": 1}), "setting learners.opml.t: was not set, is 1"),
        (
            other_settings(algorithm="opml/9"),
            "the algorithm, whose version comes with Kinstream: was not set",
        ),
        (other_settings(max_spaces=9), "setting spaces.max_per_partition: was not set, is 9"),
        ({"settings_digest": "f00d"}, "settings that have no readable form"),
    ],
)
def test_each_difference_is_named_with_what_resolves_it(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(GenerationMismatch) as caught:
        compare(birth(), view(birth(), **changes), "kinstream worker learner opml")
    message = str(caught.value)
    assert f"- {told}" in message
    assert message.count("\n  - ") == 1
    assert "learner-opml generation 2" in message
    assert "kinstream worker learner opml --new-generation --from-start" in message
    assert "kinstream up --new-generation" in message


def test_an_empty_table_is_no_difference_of_its_own() -> None:
    empty, one = {"kind": "opml", "arguments": {}}, {"kind": "opml", "arguments": {"gamma": 0.1}}
    for before, now, told in ((empty, one, "was not set, is 0.1"), (one, empty, "was 0.1, is not set")):
        with pytest.raises(GenerationMismatch) as caught:
            compare(
                birth(settings=before, settings_digest=settings_digest(before)),
                view(birth(), settings=now, settings_digest=settings_digest(now)),
            )
        assert str(caught.value).splitlines()[1] == f"  - setting learners.opml.gamma: {told}"
        assert str(caught.value).count("\n  - ") == 1


def test_added_partitions_and_recreated_topics_are_told_what_keeps_the_counts() -> None:
    with pytest.raises(GenerationMismatch, match="`kinstream topics repartition --partitions 24`"):
        compare(birth(), view(birth(), input_partitions=24))
    with pytest.raises(GenerationMismatch, match=r"docs/operations.md, 'A topic was re-created'"):
        compare(birth(), view(birth(), input_topic_id="other"))


def test_all_differences_are_named_at_once() -> None:
    with pytest.raises(GenerationMismatch) as caught:
        compare(
            birth(), view(birth(), cluster_id="b", input_partitions=1, **other_settings(gamma=1, kind="x"))
        )
    assert str(caught.value).count("\n  - ") == 4


def test_brokers_without_topic_ids_are_no_difference() -> None:
    compare(birth(), view(birth(), input_topic_id=None))
    compare(birth(input_topic_id=None), view(birth()))


def promoted(record: Birth) -> dict[str, Any]:
    """The record as versions that had `models promote` wrote it."""
    origin = {"state": "digest", "learned_from": {"0": 0}, "inherited": [], "taken_over": []}
    return {**as_content(record), "format": 2, "promotion": origin}


def test_a_later_format_and_a_promoted_generation_are_refused() -> None:
    with pytest.raises(CheckpointError, match="here: format 4 is newer than 3"):
        from_content({**as_content(birth()), "format": 4}, "here")
    with pytest.raises(
        CheckpointError, match=r"here: .* `models promote`, .* a second learner and let the gate"
    ):
        from_content(promoted(birth()), "here")


def test_after_a_promoted_generation_another_one_begins_at_the_start_of_the_log(
    system: GrowingSystem,
) -> None:
    spec = system.learners[0]
    (file,) = (system.root / spec.application).glob("1/birth.json")
    record = read_birth(str(system.root), spec.application, 1)
    assert record is not None
    file.write_bytes(seal(promoted(record)))
    with pytest.raises(
        CheckpointError, match="was removed: begin another one with --new-generation --from-start"
    ):
        open_generation(spec, system.settings, system.asked)
    made = open_generation(spec, system.settings, system.asked, new=True, from_start=True)
    assert made.number == 2 and set(made.birth.start_offsets.values()) == {0}
