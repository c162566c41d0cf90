"""The recipes of docs/sources.md, walked: settings, records and what is printed of them."""

from __future__ import annotations

import json
import struct
import tomllib
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
from click.testing import CliRunner

from kinstream.cli.main import cli
from kinstream.producers.sources.agent import source_spec
from kinstream.streams.settings import load
from tests.docs.pages import ROOT, blocks
from tests.sources.rows import numbered
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent

PAGE = ROOT / "docs" / "sources.md"


def _recipes() -> dict[str, dict[str, str]]:
    """The blocks of each source on the page, by language."""
    found: dict[str, dict[str, str]] = {}
    current: dict[str, str] = {}
    for block in blocks(PAGE, "toml", "jsonl", "avsc", "text"):
        if block.language == "toml":
            (name,) = tomllib.loads(block.text)["sources"]
            current = found.setdefault(name, {})
        current[block.language] = block.text
    return found


RECIPES = _recipes()


def _settings(name: str, folder: Path) -> Path:
    file = folder / "kinstream.toml"
    file.write_text(RECIPES[name]["toml"].replace("rating.avsc", str(folder / "rating.avsc")))
    if "avsc" in RECIPES[name]:
        (folder / "rating.avsc").write_text(RECIPES[name]["avsc"])
    return file


def _try(name: str, folder: Path, records: Path, *more: str) -> str:
    command = ["--config", str(_settings(name, folder)), "produce", "clicks", str(records)]
    command += ["--space", "shop", "--source", name, "--try", *more]
    return CliRunner().invoke(cli, command, catch_exceptions=False).output


@pytest.mark.parametrize("name", ["clicks", "ubi"])
def test_a_recipe_prints_what_the_page_says(name: str, tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    records.write_text(RECIPES[name]["jsonl"])
    assert _try(name, tmp_path, records) == RECIPES[name]["text"]


def test_programs_get_whole_events(tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    records.write_text(RECIPES["clicks"]["jsonl"])
    found = json.loads(_try("clicks", tmp_path, records, "--json"))
    assert found["rows"] == found["fit"] + found["left_out"] + len(found["refused"])
    lines = RECIPES["clicks"]["text"].splitlines()
    shown = [line.split(": ") for line in lines if line.startswith("row ") and "refused" not in line]
    assert [[one["place"], one["event"]["record"]] for one in found["events"]] == shown


def _run(name: str, folder: Path, records: list[tuple[bytes | None, bytes | None]]) -> tuple[Any, Agent]:
    """The rows that a source of the page makes of (key, value) records, and its agent."""
    settings = load(_settings(name, folder))
    log = MemoryLog(partitions=1)
    for key, value in records:
        log.append(settings.sources[name].topic, key, value, partition=0)
    agent = Agent(source_spec(settings, name), settings, log, folder / "checkpoints")
    agent.run()
    rows, _ = numbered(log.read("kinstream.events", 0, 0))
    return [row for some in rows.values() for _, row in sorted(some.items())], agent


def test_a_catalogue_of_lists_and_base64_and_deletions(tmp_path: Path) -> None:
    values = RECIPES["catalogue"]["jsonl"].splitlines()
    records = [(f"sku-{n}".encode(), value.encode()) for n, value in enumerate(values)]
    rows, agent = _run("catalogue", tmp_path, [*records, (b"sku-0", None)])
    assert rows == [("sku-0", [0.25, -0.5, 0.125]), ("sku-1", [0.25, -0.5, 0.125]), ("sku-0", None)]
    assert not agent.runners[0].machine.dead


def test_changes_of_a_database_become_items_and_deletions(tmp_path: Path) -> None:
    created, deleted = RECIPES["products"]["jsonl"].splitlines()
    key = b'{"schema": {}, "payload": {"sku": "sku-1"}}'
    rows, agent = _run("products", tmp_path, [(key, created.encode()), (key, deleted.encode()), (key, None)])
    assert rows == [("sku-1", [0.25, -0.5, 0.125]), ("sku-1", None)]
    assert agent.runners[0].machine.counts["not_followed"] == 1 and not agent.runners[0].machine.dead


RATINGS = [
    {"genre": "noir", "rated_at": 1_777_636_800_000, "film": {"id": 7, "embedding": [0.5, 0.25]}},
    {"genre": "western", "rated_at": 1_777_636_801_000, "film": {"id": 8, "embedding": [0.125, 1.0]}},
]


def _framed(schema: Any, body: Any, number: int) -> bytes:
    out = BytesIO()
    out.write(struct.pack(">BI", 0, number))
    fastavro.schemaless_writer(out, schema, body)
    return out.getvalue()


def test_avro_in_confluents_framing(tmp_path: Path) -> None:
    schema = fastavro.parse_schema(json.loads(RECIPES["ratings"]["avsc"]))
    records: list[tuple[bytes | None, bytes | None]] = [(None, _framed(schema, one, 7)) for one in RATINGS]
    rows, agent = _run("ratings", tmp_path, [*records, (None, _framed(schema, RATINGS[0], 8))])
    assert rows == [("noir", [0.5, 0.25]), ("western", [0.125, 1.0])]
    assert agent.runners[0].machine.dead == {"unknown-schema": 1}


def test_every_source_of_the_page_is_valid_and_has_an_agent(tmp_path: Path) -> None:
    assert RECIPES.keys() == {"shop", "purchases", "clicks", "catalogue", "products", "ratings", "ubi"}
    for name in RECIPES:
        settings = load(_settings(name, tmp_path))
        assert source_spec(settings, name).input_topic(settings) == settings.sources[name].topic


def test_records_that_when_does_not_want_are_left_out(tmp_path: Path) -> None:
    wanted = {"event": {"type": "purchase"}, "item": {"id": 1}, "bought_with": [{"id": 2}, {"id": 3}]}
    other = {**wanted, "event": {"type": "view"}}
    rows, agent = _run("purchases", tmp_path, [(None, json.dumps(one).encode()) for one in (wanted, other)])
    assert [row[:3] for row in rows] == [("1", "2", True), ("1", "3", True)]
    assert agent.runners[0].machine.counts["not_followed"] == 1


def test_lists_that_no_adapter_can_learn_are_counted(tmp_path: Path) -> None:
    (tmp_path / "kinstream.toml").write_text(
        """
[sources.shop]
topic = "shop.lists"
kind = "clicks"
space = "shop"
[sources.shop.fields]
items = "items"
clicks = "clicked"
query_vector = "vector"
query_item = "seed"
"""
    )
    given = {"items": ["a", "b"], "clicked": ["b"]}
    rows: list[dict[str, Any]] = [given | {"vector": [0.5, 1.0]}, given | {"seed": "c"}, given, given]
    records = tmp_path / "lists.jsonl"
    records.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["--config", str(tmp_path / "kinstream.toml"), "produce", "clicks", str(records)]
    command += ["--space", "shop", "--source", "shop", "--try"]
    told = CliRunner().invoke(cli, command)
    assert told.exit_code == 0
    assert told.output.splitlines()[-2:] == [
        "4 rows: 4 fit, 0 left out, 0 refused",
        "lists without query_vector and query_item, of which an adapter learns nothing: 2",
    ]
    assert json.loads(CliRunner().invoke(cli, [*command, "--json"]).output)["without_query"] == 2
