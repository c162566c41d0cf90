"""The gate's key is changed while lists are shown: no list is lost, and nothing but the keys changes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kinstream.gate.agent import gate_spec
from kinstream.gate.lists import randomisation
from kinstream.gate.lists.list_id import Keys, keys_of, read
from kinstream.gate.values import Fate
from kinstream.search.drafts.drafts import drafts_of
from kinstream.search.drafts.randomising import randomising_of
from kinstream.streams.agents.generations.birth import settings_digest
from kinstream.streams.agents.letter import redrive
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.gate import UNADAPTED
from kinstream.streams.records.values import Click, ItemClick
from kinstream.streams.settings import Settings, load
from tests.docs.pages import ROOT, blocks
from tests.gate.gates import MODEL, drafted, gate_of
from tests.support.crashes import letters
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent

OLD, NEW = "the old secret of the tests", "the new secret of the tests"
LEFT, RIGHT = ["a", "b", "c"], ["d", "e", "f"]


def config(**keys: str) -> Settings:
    plain: dict[str, Any] = {
        "gate": {"docs": {"min_learned": 0, "min_sessions": 1_000, "per_item": 0, "burst_minutes": 0}},
        "randomise": {"other": {"kind": "fairpairs"}},
        **keys,
    }
    return Settings(**plain)


BEFORE = config(gate_key=OLD)
BOTH = config(gate_key=NEW, gate_key_retiring=OLD)
AFTER = config(gate_key=NEW)
NEXT = iter(range(10**6))


def show(log: MemoryLog, service: Settings, number: int = 1) -> None:
    """A service drafts lists, and users click what the candidate alone shows."""
    for _ in range(number):
        drafts = drafts_of(service, "docs")
        drafts._now_ms = lambda: 0
        shown = drafts.shown((UNADAPTED, LEFT), (MODEL, RIGHT), 3)
        places = tuple(range(len(shown.items)))
        (first, *_) = [item for item in shown.items if item in RIGHT]
        clicked = (ItemClick(first, 5),)
        record = Click("docs", shown.list_id, shown.items, places, clicked, 5, None, f"u{next(NEXT)}")
        log.append("kinstream.events", b"docs", encode(record))


def test_ids_are_made_with_one_key_and_read_with_the_one_that_retires_as_well() -> None:
    for settings, signs in ((BEFORE, OLD), (BOTH, NEW), (AFTER, NEW)):
        shown = drafts_of(settings, "docs").shown((UNADAPTED, LEFT), (MODEL, RIGHT), 3)
        assert (read(Keys(OLD), "docs", shown.list_id) is None) == (signs != OLD)
        assert (read(keys_of(BOTH), "docs", shown.list_id)) is not None
        swapped = randomising_of(settings, "other")
        assert swapped is not None
        list_id = swapped.shown(UNADAPTED, LEFT, 3).list_id
        assert (randomisation.read(Keys(OLD), "other", list_id) is None) == (signs != OLD)
        assert randomisation.read(keys_of(BOTH), "other", list_id) is not None
        # Which queries are drafted is for the key that signs to say.
        assert keys_of(settings).seed == Keys(signs).seed
    assert read(keys_of(AFTER), "docs", drafted(1, keys=Keys(OLD))) is None


def test_a_key_is_no_part_of_what_makes_a_generation() -> None:
    digests = {settings_digest(gate_spec(one).shaping) for one in (BEFORE, BOTH, AFTER)}
    assert len(digests) == 1


@pytest.mark.parametrize("crashed", [False, True])
def test_the_recipe_of_the_page_loses_no_list(
    crashed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commands are run; after each step the processes that it names have the settings of that moment."""
    (recipe,) = [
        b.text for b in blocks(ROOT / "docs" / "gate.md", "sh") if b.before == "<!-- recipe: rotation -->"
    ]
    steps = [step.splitlines()[1:] for step in recipe.split("# ")[1:]]
    assert len(steps) == 3
    (tmp_path / "kinstream.toml").write_text(
        "[gate.docs]\nmin_learned = 0\nmin_sessions = 1000\nper_item = 0\nburst_minutes = 0\n"
    )
    monkeypatch.setenv("KINSTREAM_GATE_KEY", OLD)
    monkeypatch.delenv("KINSTREAM_GATE_KEY_RETIRING", raising=False)
    taken: list[str] = []

    def settings_after(lines: list[str]) -> Settings:
        script = "\n".join([*lines, "env -0 | grep -z ^KINSTREAM_GATE_KEY"])
        found = subprocess.run(["bash", "-c", script], capture_output=True, check=True).stdout.decode()
        for name in ("KINSTREAM_GATE_KEY", "KINSTREAM_GATE_KEY_RETIRING"):
            monkeypatch.delenv(name, raising=False)
        for entry in found.split("\0")[:-1]:
            monkeypatch.setenv(*entry.split("=", 1))
        taken.append(os.environ["KINSTREAM_GATE_KEY"])
        return load(tmp_path / "kinstream.toml")

    log = MemoryLog(partitions=1)
    old = settings_after([])
    show(log, old, 10)
    agent = Agent(gate_spec(old), old, log, tmp_path / "store")
    agent.run()
    show(log, old, 10)
    if crashed:
        # Applied, and lost with the process: the last checkpoint does not hold them.
        agent.step(0)
    both = settings_after(steps[0])
    agent = Agent(gate_spec(both), both, log, tmp_path / "store")
    show(log, old, 10)
    services = settings_after(steps[1])
    show(log, services, 10)
    agent.run()
    last = settings_after(steps[2])
    show(log, services, 10)
    agent = Agent(gate_spec(last), last, log, tmp_path / "store")
    agent.run()
    gate = gate_of(agent)
    assert (gate.evidence.wins, gate.impressions, gate.fates[Fate.FORGED]) == (50, 50, 0)
    assert taken[0] == OLD and taken[1] == taken[2] == taken[3] != OLD
    # A list of the old key is not accepted any more.
    show(log, old)
    agent.run()
    assert (gate.evidence.wins, gate.fates[Fate.FORGED]) == (50, 1)


def test_lists_of_a_key_that_the_gate_does_not_know_yet_are_kept_and_count_once(tmp_path: Path) -> None:
    """The services have the new key first, and the gate crashes with the old one."""
    log = MemoryLog(partitions=1)
    agent = Agent(gate_spec(BEFORE), BEFORE, log, tmp_path)
    show(log, BEFORE, 5)
    agent.run()
    show(log, AFTER, 5)
    agent.run()
    # Sent again with the old keys: refused again, and kept again.
    for letter in log.read("kinstream.dead-letters", 0, 0):
        again = redrive(letter)
        log.append("kinstream.events", again.key, again.value, again.headers, again.partition)
    agent.run()
    assert (gate_of(agent).evidence.wins, gate_of(agent).fates[Fate.FORGED]) == (5, 10)
    show(log, AFTER, 5)
    agent.step(0)
    assert {reason for _, _, reason, _ in letters(log)} == {b"forged-list"}
    agent = Agent(gate_spec(BOTH), BOTH, log, tmp_path)
    agent.run()
    for _ in range(2):
        for letter in log.read("kinstream.dead-letters", 0, 0):
            again = redrive(letter)
            log.append("kinstream.events", again.key, again.value, again.headers, again.partition)
    agent.run()
    assert (gate_of(agent).evidence.wins, gate_of(agent).impressions) == (15, 15)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"gate_key": NEW, "gate_key_retiring": "short"}, "at least 16 characters"),
        ({"gate_key": NEW, "gate_key_retiring": NEW}, "the same key"),
        ({"gate_key_retiring": OLD}, "needs a key"),
    ],
)
def test_a_key_that_retires_has_a_successor(keys: dict[str, str], text: str) -> None:
    with pytest.raises(ValueError, match=text) as error:
        config(**keys)
    assert not any(key in str(error.value) for key in (OLD, NEW))


def test_the_key_that_retires_comes_from_the_environment_or_a_file_and_no_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "old").write_text(OLD + "\n")
    monkeypatch.setenv("KINSTREAM_GATE_KEY", NEW)
    monkeypatch.setenv("KINSTREAM_GATE_KEY_RETIRING_FILE", str(tmp_path / "old"))
    found = load()
    assert found.gate_key_retiring.get_secret_value() == OLD
    assert OLD not in repr(found)
    with pytest.raises(SettingsError, match="KINSTREAM_GATE_KEY_RETIRING"):
        load(overrides={"gate_key_retiring": OLD})
    monkeypatch.setenv("KINSTREAM_GATE_KEY_RETIRING_FILE", str(tmp_path / "gone"))
    with pytest.raises(SettingsError, match=r"KINSTREAM_GATE_KEY_RETIRING_FILE: .*gone: No such file"):
        load()
