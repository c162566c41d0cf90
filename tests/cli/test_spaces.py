"""`kinstream spaces`: what the checkpoints know, and control records that land where the builders look."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kinstream.streams.errors import SettingsError
from kinstream.streams.records.codec.codec import decode
from kinstream.streams.records.values import Action, Control, Declaration
from kinstream.streams.topics import partition_of
from tests.cli.system import EVENTS, System


def listed(system: System) -> dict[str, Any]:
    result = system.cli("spaces", "list", "--json")
    assert result.exit_code == 0, result.output
    return {space["space"]: space for space in json.loads(result.stdout)}


def newest(system: System, space: str) -> Control:
    message = system.log.read(EVENTS, partition_of(space, 2), 0)[-1]
    assert message.key == space.encode()
    record = decode(message.value, Control)
    assert isinstance(record, Control)
    return record


def test_before_the_first_start_there_is_nothing_to_list(system: System) -> None:
    assert listed(system) == {}


def test_the_list_says_epoch_status_and_every_learners_step(system: System) -> None:
    system.samples("a")
    system.control("b", Action.CREATE, Declaration((("x", 4),), "integer", "unit"))
    system.control("c", Action.CREATE)
    system.samples("c", 2)
    system.control("c", Action.PAUSE)
    system.control("gone", Action.CREATE)
    system.control("gone", Action.DELETE)
    system.run()
    found = listed(system)
    assert {name: space["status"] for name, space in found.items()} == {
        "a": "active",
        "b": "active",
        "c": "paused",
        "gone": "deleted",
    }
    a = found["a"]
    assert a["epoch"] == 0
    assert a["learners"]["opml"]["step"] > 0
    assert a["learners"]["copml"]["step"] >= a["learners"]["opml"]["step"]
    assert found["b"]["declaration"] == {"modalities": {"x": 4}, "labels": "integer", "scaler": "unit"}
    assert found["b"]["partition"] == partition_of("b", 2)
    text = system.cli("spaces", "list").stdout
    assert [line.split()[0] for line in text.splitlines()] == ["SPACE", "a", "b", "c", "gone"]


def test_a_learner_that_has_not_reached_the_epoch_is_marked(system: System) -> None:
    system.samples("a")
    system.run()
    system.control("a", Action.RESET)
    system.agents[0].run()
    space = listed(system)["a"]
    assert space["epoch"] == 6
    assert space["learners"]["opml"]["epoch"] == 0
    assert "(epoch 0)" in system.cli("spaces", "list").stdout


def test_a_created_space_is_declared_on_its_own_partition(system: System) -> None:
    result = system.cli(
        "spaces", "create", "new", "--dimension", "4", "--labels", "string", "--scaler", "zscore"
    )
    assert result.exit_code == 0, result.output
    assert newest(system, "new").declaration == Declaration((("x", 4),), "string", "zscore")
    assert f"partition {partition_of('new', 2)}, offset 0" in result.stdout
    system.run()
    assert listed(system)["new"]["epoch"] == 0


def test_modalities_are_declared_by_name(system: System) -> None:
    arguments = ("--modality", "image:512", "--modality", "text:384")
    assert system.cli("spaces", "create", "shop", *arguments).exit_code == 0
    declared = newest(system, "shop").declaration
    assert declared is not None
    assert declared.modalities == (("image", 512), ("text", 384))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "either --dimension or --modality"),
        (("--dimension", "4", "--modality", "x:4"), "either --dimension or --modality"),
        (("--modality", "x"), "NAME:DIMENSION"),
        (("--modality", "x:0"), "a dimension is 1 to"),
        (("--modality", "x:1", "--modality", "x:2"), "each name once"),
        (("--dimension", "4", "--scaler", "loud"), "--scaler must be one of none, zscore, unit, minmax"),
        (("--dimension", "99999999"), "a dimension is 1 to"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(
    system: System, arguments: tuple[str, ...], said: str
) -> None:
    result = system.cli("spaces", "create", "new", *arguments)
    assert isinstance(result.exception, SettingsError)
    assert said in str(result.exception)
    assert not system.log.entries


def test_what_the_builders_would_refuse_is_not_sent_unless_forced(system: System) -> None:
    system.samples("a")
    system.run()
    before = system.log.end(EVENTS, partition_of("a", 2)), system.log.end(EVENTS, partition_of("nobody", 2))
    for arguments, said in (
        (("create", "a", "--dimension", "4"), "space 'a' exists (epoch 0, active)"),
        (("reset", "nobody"), "names a space 'nobody'"),
        (("pause", "nobody"), "names a space 'nobody'"),
        (("delete", "nobody", "--yes"), "names a space 'nobody'"),
        (("create", "x" * 300, "--dimension", "4"), "1 to 200 printable characters"),
    ):
        result = system.cli("spaces", *arguments)
        assert isinstance(result.exception, SettingsError), arguments
        assert said in str(result.exception)
    after = system.log.end(EVENTS, partition_of("a", 2)), system.log.end(EVENTS, partition_of("nobody", 2))
    assert after == before


def test_a_deletion_asks_and_says_what_remains(system: System) -> None:
    system.samples("a")
    system.run()
    end = system.log.end(EVENTS, partition_of("a", 2))
    assert system.cli("spaces", "delete", "a", input="n\n").exit_code == 1
    assert system.log.end(EVENTS, partition_of("a", 2)) == end
    result = system.cli("spaces", "delete", "a", input="y\n")
    assert result.exit_code == 0, result.output
    assert newest(system, "a").action is Action.DELETE
    for place in ("kinstream.events (30 days)", str(system.root), "exported"):
        assert place in result.stdout
    system.run()
    assert listed(system)["a"]["status"] == "deleted"
    assert system.cli("spaces", "reset", "a").exit_code == 1
    assert system.cli("spaces", "create", "a", "--dimension", "4").exit_code == 0


def test_a_reset_asks_as_a_deletion_does(system: System) -> None:
    system.samples("a")
    system.run()
    partition = partition_of("a", 2)
    end = system.log.end(EVENTS, partition)
    asked = system.cli("spaces", "reset", "a", input="n\n")
    assert asked.exit_code == 1 and "Reset space 'a'" in asked.output
    assert system.log.end(EVENTS, partition) == end
    for answer in ({"input": "y\n"}, {}):
        yes = () if answer else ("--yes",)
        result = system.cli("spaces", "reset", "a", *yes, **answer)
        assert result.exit_code == 0, result.output
        assert newest(system, "a").action is Action.RESET
        end += 1
        assert system.log.end(EVENTS, partition) == end


@pytest.mark.parametrize("command", ["reset", "delete"])
def test_where_no_terminal_is_there_to_ask_at_the_answer_must_be_given(system: System, command: str) -> None:
    system.samples("a")
    system.run()
    end = system.log.end(EVENTS, partition_of("a", 2))
    result = system.cli("spaces", command, "a")
    assert isinstance(result.exception, SettingsError) and result.exception.exit_status == 2
    assert "add --yes" in str(result.exception)
    assert system.log.end(EVENTS, partition_of("a", 2)) == end


def test_a_space_is_paused_and_resumed(system: System) -> None:
    system.samples("a")
    system.run()
    result = system.cli("spaces", "pause", "a")
    assert "redrive --reason space-paused" in result.stdout
    system.run()
    assert listed(system)["a"]["status"] == "paused"
    assert system.cli("spaces", "resume", "a").exit_code == 0
    system.run()
    assert listed(system)["a"]["status"] == "active"


def test_programs_are_told_where_a_control_record_lies(system: System) -> None:
    partition = partition_of("a", 2)
    for offset, command in enumerate(("create", "pause", "resume", "reset", "delete")):
        more = {"create": ("--dimension", "4"), "reset": ("--yes",), "delete": ("--yes",)}.get(command, ())
        found = json.loads(system.cli("spaces", command, "a", *more, "--json").stdout)
        place = {"topic": EVENTS, "partition": partition, "offset": offset}
        epoch = {} if command in ("pause", "resume") else {"epoch": offset}
        assert found == {"action": command, "space": "a"} | place | epoch
        system.run()
    assert listed(system)["a"]["epoch"] == offset
