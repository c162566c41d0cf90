"""`kinstream dead-letters`: from a refused record to one that counts, by hand and from a script."""

from __future__ import annotations

import base64
import json
import time

import pytest

from kinstream.cli.commands.dead_letters import _since
from kinstream.cli.system import overview
from kinstream.streams.agents.letter import dead_letter
from kinstream.streams.errors import Reason, SettingsError
from kinstream.streams.kafka import cluster, reader
from kinstream.streams.records.message import Message
from kinstream.streams.records.values import Action
from kinstream.streams.topics import partition_of
from tests.cli.system import EVENTS, LETTERS, System


def refuse(system: System) -> None:
    """Four samples of a paused space, and one record that is rubbish."""
    system.samples("a", 2)
    system.control("a", Action.PAUSE)
    system.samples("a", 4, load="more")
    system.control("a", Action.RESUME)
    system.log.append(EVENTS, b"a", b"\x00rubbish \x80")
    system.run()


def test_the_list_names_every_letter_once(system: System) -> None:
    refuse(system)
    for letter in system.letters()[:2]:
        system.log.append(LETTERS, letter.key, letter.value, letter.headers, letter.partition)  # type: ignore[arg-type]
    result = system.cli("dead-letters", "list", "--json")
    found = json.loads(result.stdout)
    assert [x["reason"] for x in found] == ["space-paused"] * 4 + ["undecodable"]
    assert found[0]["consumer"] == "one-pass"
    assert found[0]["refused"] == f"{EVENTS}/{partition_of('a', 2)}/3"
    assert "2 letters occur more than once" in result.stderr
    lines = system.cli("dead-letters", "list", "--reason", "space-paused", "--limit", "3").stdout.splitlines()
    assert len(lines) == 4
    assert system.cli("dead-letters", "list", "--space", "b").stdout.splitlines()[1:] == []


def test_status_says_how_many_there_are_of_late(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "Cluster", cluster.Cluster)
    monkeypatch.setattr(overview, "ends", reader.ends)
    system.samples("a", 2)
    system.run()
    assert "dead letters" not in system.cli("status").stdout
    refuse(system)
    assert "\n5 dead letters in the last hour: kinstream dead-letters list" in system.cli("status").stdout
    assert json.loads(system.cli("status", "--json").stdout)["refused"] == 5
    times = sorted(letter.timestamp_ms for letter in system.letters())
    asked = cluster.Cluster(system.settings.kafka)
    late = sum(time >= times[2] for time in times)
    assert overview._refused(asked, LETTERS, times[2] / 1000) == late
    assert overview._refused(asked, LETTERS, times[-1] / 1000 + 1) == 0


def test_a_record_of_another_system_is_of_no_space(system: System) -> None:
    with (system.folder / "kinstream.toml").open("a") as file:
        file.write('[sources.orders]\ntopic = "shop.orders"\nkind = "items"\nspace = "shop"\n')
        file.write('fields = { id = "id", vector = "vector" }\n')
    refused = Message("shop.orders", 0, 7, 1, b"order-1", b"{}", (), 6)
    letter = dead_letter(refused, "orders", Reason.BAD_SHAPE, "id: is missing", None, LETTERS)
    system.log.append(LETTERS, letter.key, letter.value, letter.headers, 0)
    (line,) = system.cli("dead-letters", "list").stdout.splitlines()[1:]
    assert "shop.orders/0/7" in line and "order-1" not in line


def test_show_gives_the_record_or_its_bytes(system: System) -> None:
    refuse(system)
    places = [f"{m.partition}/{m.offset}" for m in system.letters()]
    shown = system.cli("dead-letters", "show", places[0]).stdout
    for text in ("kinstream-dead-reason: space-paused", "SampleBlock", "float32 8 x 4", "load_id=more"):
        assert text in shown
    shown = system.cli("dead-letters", "show", places[-1]).stdout
    assert "cannot be decoded" in shown
    assert "00 72 75 62 62 69 73 68" in shown
    letter = system.letters()[-1]
    found = json.loads(system.cli("dead-letters", "show", places[-1], "--json").stdout)
    assert (found["partition"], found["offset"]) == (letter.partition, letter.offset)
    assert base64.b64decode(found["value_base64"]) == letter.value
    reason = (dict(letter.headers)["kinstream-dead-reason"] or b"").decode()
    assert found["headers"]["kinstream-dead-reason"] == reason
    for place in ("0/999", "9/0", "here"):
        assert isinstance(system.cli("dead-letters", "show", place).exception, SettingsError)


def test_a_redrive_says_what_it_sends_and_a_second_one_sends_nothing(system: System) -> None:
    refuse(system)
    end = system.log.end(EVENTS, partition_of("a", 2))
    result = system.cli("dead-letters", "redrive", "--reason", "space-paused", "--dry-run")
    assert "4 to send" in result.stdout
    told = json.loads(
        system.cli("dead-letters", "redrive", "--reason", "space-paused", "--dry-run", "--json").stdout
    )
    assert told["sent"] == 0 and {one["reason"] for one in told["letters"]} == {"space-paused"}
    assert len(told["letters"]) == 4
    assert system.cli("dead-letters", "redrive", "--reason", "space-paused", input="n\n").exit_code == 1
    assert system.log.end(EVENTS, partition_of("a", 2)) == end
    result = system.cli("dead-letters", "redrive", "--reason", "space-paused", input="y\n")
    assert "sent 4" in result.stdout, result.output
    assert system.log.end(EVENTS, partition_of("a", 2)) == end + 4
    system.run()
    assert system.agents[0].runners[partition_of("a", 2)].machine.counts["redriven"] == 4
    result = system.cli("dead-letters", "redrive", "--reason", "space-paused", "--yes")
    assert "left out 4: applied already" in result.stdout
    assert "0 to send" in result.stdout
    assert system.log.end(EVENTS, partition_of("a", 2)) == end + 4


def test_a_redrive_repeated_before_the_next_checkpoint_is_sent_again_and_counts_once(system: System) -> None:
    refuse(system)
    for _ in range(2):
        assert system.cli("dead-letters", "redrive", "--reason", "space-paused", "--yes").exit_code == 0
    system.run()
    counts = system.agents[0].runners[partition_of("a", 2)].machine.counts
    assert (counts["redriven"], counts["redrives_ignored"], counts["applied"]) == (4, 4, 6)


def test_single_letters_are_named_by_their_place(system: System) -> None:
    refuse(system)
    places = [f"{m.partition}/{m.offset}" for m in system.letters()]
    result = system.cli("dead-letters", "redrive", places[1], places[3], "0/999", "--yes")
    assert "sent 2" in result.stdout, result.output
    told = json.loads(system.cli("dead-letters", "redrive", places[1], "--yes", "--json").stdout)
    assert told["sent"] == 1 and told["letters"][0]["letter"] == places[1]
    assert "1 of those named do not exist" in result.stderr


@pytest.mark.parametrize("arguments", [(), ("--all", "--reason", "empty"), ("--all", "0/1"), ("nowhere",)])
def test_a_redrive_wants_to_be_told_which(system: System, arguments: tuple[str, ...]) -> None:
    refuse(system)
    assert isinstance(system.cli("dead-letters", "redrive", *arguments).exception, SettingsError)


def test_times_are_ages_or_moments_in_utc() -> None:
    assert _since(None) is None
    assert _since("1970-01-01T00:00:01") == 1_000
    assert _since("1970-01-01T01:00:01+01:00") == 1_000
    ago = _since("2h")
    assert ago is not None
    assert abs(time.time() * 1000 - 7_200_000 - ago) < 60_000
    with pytest.raises(SettingsError, match="--since 'soon'"):
        _since("soon")
