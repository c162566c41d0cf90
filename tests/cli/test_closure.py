"""`kinstream closure explain`: the chain of relations, read from a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kinstream.cli.main import cli
from kinstream.processors.agent import builder_spec
from kinstream.processors.closure import item_log, seed_log
from kinstream.streams.agents.generations.birth import Birth, settings_digest, write_birth
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.values import Event
from kinstream.streams.settings import Settings
from tests.processors.closure_samples import SPACE, items, relations
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent

EVENTS = "kinstream.events"
TOML = """
[builders.relations]
kind = "closure"
max_new_pairs = 5

[checkpoints]
url = "{root}"
"""


class Shop:
    """One closure over an in-process log."""

    def __init__(self, folder: Path) -> None:
        root = folder / "checkpoints"
        self.config = folder / "kinstream.toml"
        self.config.write_text(TOML.format(root=root), encoding="utf-8")
        self.log = MemoryLog(partitions=2)
        builders = {"relations": {"kind": "closure", "max_new_pairs": 5}}
        config: dict[str, Any] = {"builders": builders, "checkpoints": {"url": str(root)}}
        settings = Settings(**config)
        spec = builder_spec(settings, "relations")
        topic = settings.topic(spec.input_role)
        digest = settings_digest(spec.shaping)
        birth = Birth(spec.application, 1, digest, spec.shaping, {0: 0, 1: 0}, "c", topic, None, 2, {}, 1)
        write_birth(str(root), birth)
        self.agent = Agent(spec, settings, self.log, root)

    def send(self, *events: Event) -> None:
        for event in events:
            self.log.append(EVENTS, event.space.encode(), encode(event))
        self.agent.run()

    def explain(self, *arguments: str) -> Result:
        return CliRunner().invoke(cli, ["--config", str(self.config), "closure", "explain", *arguments])


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    # So small that a few relations fill some.
    monkeypatch.setattr(seed_log, "SEGMENT", 3)
    monkeypatch.setattr(item_log, "SEGMENT", 4)
    found = Shop(tmp_path)
    found.send(
        items(range(8)),
        relations([(0, 1, True, "ann"), (1, 2, True, None), (2, 3, False, "bob"), (4, 5, True, None)]),
        relations([(3, 6, True, "cem")], time_ms=9000),
    )
    return found


def test_it_tells_the_chain_with_its_provenance(shop: Shop) -> None:
    result = shop.explain(SPACE, "item 0", "item 6")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "item 0 and item 6 are dissimilar, by 4 relations:",
        "  item 0 ~ item 1   relation, offset 1 row 0, source ann, 1970-01-01T00:00:00Z",
        "  item 1 ~ item 2   relation, offset 1 row 1, 1970-01-01T00:00:00Z",
        "  item 2 # item 3   relation, offset 1 row 2, source bob, 1970-01-01T00:00:00Z",
        "  item 3 ~ item 6   relation, offset 2 row 0, source cem, 1970-01-01T00:00:09Z",
    ]


def test_json_says_the_same(shop: Shop) -> None:
    found = json.loads(shop.explain(SPACE, "item 2", "item 0", "--json").stdout)
    assert (found["relation"], found["offset"]) == ("similar", 3)
    assert [(link["left"], link["right"]) for link in found["chain"]] == [
        ("item 2", "item 1"),
        ("item 1", "item 0"),
    ]


def test_an_erased_link_has_no_name(shop: Shop) -> None:
    shop.send(items([], [1]))
    text = shop.explain(SPACE, "item 0", "item 2").stdout
    assert "item 0 ~ (erased)" in text
    assert "item 1" not in text


def test_items_without_a_relation_end_with_status_one(shop: Shop) -> None:
    result = shop.explain(SPACE, "item 0", "item 4")
    assert result.exit_code == 1
    assert "neither similar nor dissimilar" in result.stdout
    assert json.loads(shop.explain(SPACE, "item 0", "item 4", "--json").stdout)["relation"] == "none"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("nowhere", "item 0", "item 1"),
            "no checkpoint of relations holds a space 'nowhere'; there are toys",
        ),
        ((SPACE, "item 0", "item 99"), "item 'item 99' is in no relation of this space"),
        ((SPACE, "item 0", "item 1", "--builder", "other"), "no closure is called 'other'"),
    ],
)
def test_what_is_not_there_is_said(shop: Shop, arguments: tuple[str, ...], message: str) -> None:
    result = shop.explain(*arguments)
    assert isinstance(result.exception, SettingsError)
    assert message in str(result.exception)


def test_without_a_closure_in_the_settings_it_says_so(shop: Shop) -> None:
    shop.config.write_text("[builders.one]\nkind = 'one-pass'\n", encoding="utf-8")
    result = shop.explain(SPACE, "item 0", "item 1")
    assert "no builder of kind closure" in str(result.exception)
