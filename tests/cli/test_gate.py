"""`kinstream gate`: the running evidence, and orders that the gate obeys."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from kinstream.gate.agent import gate_spec
from kinstream.gate.metrics import GateCollector
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.codec.codec import decode_event, encode
from kinstream.streams.records.gate import UNADAPTED, GateOrder, Order, Version
from kinstream.streams.records.values import ItemBlock, Table
from tests.cli.system import EVENTS, TOML, System, connect
from tests.gate.gates import MODEL, SECRET, click, drafted
from tests.support.memory_system import MemorySystem

KEY = f'gate_key = "{SECRET}"\n'
GATE = "\n[gate.docs]\nmin_learned = 0\nper_item = 0\n"


class Gated(System):
    """A gate of one space instead of builders and learners."""

    def __init__(self, folder: Path) -> None:
        MemorySystem.__init__(
            self, folder / "checkpoints", gate={"docs": {"min_learned": 0, "per_item": 0}}, gate_key=SECRET
        )
        self.folder = folder
        (folder / "kinstream.toml").write_text(KEY + TOML.format(root=self.root) + GATE, encoding="utf-8")
        self.agents = [self.begin(gate_spec(self.settings))]

    def play(self, first: int, wins: int, losses: int) -> None:
        for n in range(wins + losses):
            record = click(drafted(first + n), 1 if n < wins else 0, user=f"u{n}")
            self.log.append(EVENTS, b"docs", encode(record))
        self.run()


@pytest.fixture
def gated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gated:
    found = Gated(tmp_path)
    connect(found.log, monkeypatch)
    return found


def test_status_shows_the_running_evidence(gated: Gated) -> None:
    assert json.loads(gated.cli("gate", "status", "--json").stdout) == []
    gated.play(0, wins=6, losses=2)
    found = json.loads(gated.cli("gate", "status", "docs", "--json").stdout)
    assert len(found) == 1
    one = found[0]
    assert (one["space"], one["serving"], one["challenger"]) == ("docs", "un-adapted", str(MODEL))
    assert (one["lists"], one["wins"], one["losses"], one["share"]) == (8, 6, 2, 0.75)
    assert one["low"] < 0.75 < one["high"]
    assert one["fates"]["won"] == 6
    assert [d["verdict"] for d in one["decisions"]] == ["challenge"]
    text = gated.cli("gate", "status").stdout
    assert "6:2" in text
    assert f"docs: challenge: un-adapted serves, {MODEL} challenges" in text


def test_status_shows_what_users_are_shown(gated: Gated) -> None:
    items = tuple(f"i{n}" for n in range(20))
    table = Table("x", np.eye(20, dtype=np.float32))
    gated.log.append(EVENTS, b"docs", encode(ItemBlock("docs", items, (table,), 0)))
    gated.play(0, wins=3, losses=1)
    gated.log.append(EVENTS, b"docs", encode(click("ranked by the shop", 2)))
    gated.run()
    (one,) = json.loads(gated.cli("gate", "status", "docs", "--json").stdout)
    shown = one["exposure"]
    # Five lists of the same ten of twenty items; all items came with the first record.
    assert (shown["coverage"], shown["gini"], shown["new_share"]) == (0.5, 0.5, 1.0)
    assert (shown["lists"]["drafted"], shown["lists"]["ranked"]) == (4, 1)
    assert (shown["catalogue"], shown["followed"]) == (20, 1.0)
    assert shown["impressions"][:11] == [5] * 10 + [0] and shown["clicks"][:3] == [1, 3, 1]
    samples = GateCollector(gated.agents[0].spec.collectors[0]._board).collect()
    gauges = {s.name: s.value for family in samples for s in family.samples if len(s.labels) == 1}
    assert gauges["kinstream_exposure_coverage_ratio"] == shown["coverage"]
    assert gauges["kinstream_exposure_gini"] == shown["gini"]
    text = gated.cli("gate", "status").stdout.splitlines()
    (row,) = [line for line in text if "4 drafted" in line]
    assert row.split() == ["docs", "0.500", "0.500", "1.000", "1", "1", "ranked,", "4", "drafted"]


def test_orders_are_written_to_events_and_obeyed(gated: Gated) -> None:
    gated.play(0, wins=2, losses=0)
    for arguments, wanted in (
        (("promote", "docs", "--yes", "--note", "anna"), (Order.PROMOTE, None, "anna")),
        (("pin", "docs", "un-adapted", "--yes"), (Order.PIN, UNADAPTED, "")),
        (("pin", "docs", "1.0.7", "--yes"), (Order.PIN, Version(1, 0, 7), "")),
        (("rollback", "docs", "--yes"), (Order.ROLLBACK, None, "")),
        (("resume", "docs"), (Order.RESUME, None, "")),
    ):
        result = gated.cli("gate", *arguments)
        assert result.exit_code == 0, result.output
        last = max(
            (m for p in range(2) for m in gated.log.read(EVENTS, p, 0) if m.key == b"docs"),
            key=lambda message: message.offset,
        )
        assert f"offset {last.offset}" in result.stdout
        order = decode_event(last.value)
        assert isinstance(order, GateOrder)
        assert (order.order, order.version, order.note) == wanted
    gated.run()
    told = json.loads(gated.cli("gate", "pin", "docs", "1.0.7", "--yes", "--json").stdout)
    assert (told["order"], told["space"], told["model"]) == ("pin", "docs", "1.0.7")
    assert told["offset"] == last.offset + 1 and told["topic"] == EVENTS
    one = json.loads(gated.cli("gate", "status", "--json").stdout)[0]
    assert [d["verdict"] for d in one["decisions"]] == [
        "challenge",
        "promote",
        "pin",
        "pin",
        "rollback",
        "resume",
    ]
    assert (one["serving"], one["pinned"]) == ("un-adapted", False)


def test_what_was_left_out_is_listed_by_reason_user_item_and_time_and_sent_again(gated: Gated) -> None:
    for n in range(13):
        gated.log.append(EVENTS, b"docs", encode(click(drafted(n), 1, user="eve", address="farm")))
    for n in range(20, 28):
        gated.log.append(EVENTS, b"docs", encode(click(drafted(n), 0, user=f"u{n}", address="farm")))
    gated.run()

    def listed(*arguments: str) -> list[str]:
        found = json.loads(gated.cli("dead-letters", "list", *arguments, "--json").stdout)
        return [one["reason"] for one in found]

    assert listed() == ["burst-user"] * 4 + ["burst-address"]
    assert listed("--reason", "burst-*", "--of", "user=eve") == ["burst-user"] * 4
    assert listed("--of", "item=i0") == ["burst-address"] and listed("--of", "item=i7") == []
    assert listed("--of", "address=farm", "--of", "session=s") == []
    assert listed("--since", "2099-01-01") == []
    assert "user 'eve'" in gated.cli("dead-letters", "list", "--of", "user=eve").stdout
    for text in ("sent 4", "0 to send"):
        result = gated.cli("dead-letters", "redrive", "--of", "user=eve", "--yes")
        assert text in result.stdout, result.output
        gated.run()
    (one,) = json.loads(gated.cli("gate", "status", "--json").stdout)
    assert (one["wins"], one["losses"], one["lists"]) == (13, 7, 20)
    assert (one["fates"]["burst_user"], one["fates"]["burst_address"]) == (4, 1)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("promote", "shop", "--yes"), r"no \[gate.shop\]; spaces with a gate: docs"),
        (("status", "shop"), r"no \[gate.shop\]"),
        (("pin", "docs", "newest", "--yes"), "'newest' is not a model"),
        (("pin", "docs", "1.2", "--yes"), "GENERATION.EPOCH.STEP"),
        (("rollback", "docs", "--yes", "--note", "x" * 401), "at most 400"),
        (("promote", "docs"), "--yes"),
    ],
)
def test_what_cannot_be_ordered_is_refused_before_anything_is_written(
    gated: Gated, arguments: tuple[str, ...], text: str
) -> None:
    result = gated.cli("gate", *arguments)
    assert isinstance(result.exception, SettingsError)
    with pytest.raises(SettingsError, match=text):
        raise result.exception
    assert not any(gated.log.read(EVENTS, p, 0) for p in range(2))


def test_the_key_is_not_shown_and_not_taken_from_the_command_line(gated: Gated) -> None:
    gated.play(0, wins=2, losses=0)
    assert SECRET not in gated.cli("gate", "status", "--json").output
    result = gated.cli("--set", "gate_key=another secret of the tests", "gate", "status")
    with pytest.raises(SettingsError, match="KINSTREAM_GATE_KEY in the environment"):
        raise result.exception or AssertionError
