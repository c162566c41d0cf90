"""User Behavior Insights: one topic of queries and events gives the lists of our own click log of the same data."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinstream.processors.agent import builder_spec
from kinstream.producers.loads.click_rows import click_block
from kinstream.producers.sources import packing, ubi_lists
from kinstream.producers.sources.agent import source_spec
from kinstream.streams.agents.machine import Machine
from kinstream.streams.errors import BadRecord
from kinstream.streams.records.codec.codec import decode_constraints, encode
from kinstream.streams.records.values import Click, ItemBlock, ItemClick, LoadPosition, Table
from kinstream.streams.settings import Settings
from tests.sources.rows import numbered, rows_of_event
from tests.sources.shop import machine, message
from tests.support.crashes import disturbed
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent, settings

START = 1_777_636_800_000
MINUTE = 60_000
SOURCE: dict[str, Any] = {
    "topic": "ubi",
    "preset": "ubi",
    "space": "shop",
    "fields": {"query_vector": "query_attributes.embedding"},
}
RULES = ["click-skip-above", "co-click"]
BUILDERS: dict[str, Any] = {"clicks": {"kind": "clicks", "rules": RULES, "co_click_support": 1}}
ITEMS = 60


def _query(name: str, hits: list[str], at: int, **more: Any) -> dict[str, Any]:
    return {
        "application": "shop",
        "query_id": name,
        "client_id": f"c-{name}",
        "user_query": "shoes",
        "timestamp": _iso(at),
        "query_response_id": f"r-{name}",
        "query_response_hit_ids": hits,
        **more,
    }


def _event(action: str, name: str, item: str | None, at: int, ordinal: int = 1) -> dict[str, Any]:
    attributes: dict[str, Any] = {"position": {"ordinal": ordinal}}
    if item is not None:
        attributes["object"] = {"object_id": item, "object_id_field": "sku"}
    return {
        "action_name": action,
        "query_id": name,
        "client_id": f"c-{name}",
        "session_id": f"s-{name[:1]}",
        "timestamp": _iso(at),
        "event_attributes": attributes,
    }


def _iso(at: int) -> str:
    found = datetime.fromtimestamp(at / 1000, UTC)
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _log(lists: int, seed: int) -> tuple[list[dict[str, Any]], list[Click]]:
    """A topic of queries and events in the order of their times, and the lists that it stands for."""
    rng = random.Random(seed)
    records: list[tuple[int, int, dict[str, Any]]] = []
    wanted = []
    for number in range(lists):
        name, at = f"q-{number}", START + number * 7_000
        hits = [f"item-{n}" for n in rng.sample(range(ITEMS), 8)]
        embedding = [rng.random() for _ in range(4)]
        records.append((at, 0, _query(name, hits, at, query_attributes={"embedding": embedding})))
        clicks = []
        for click in range(rng.randint(0, 3)):
            place, when = rng.randrange(8), at + 1_000 + click * 40_000
            clicks.append(ItemClick(hits[place], when))
            records.append((when, 1, _event("click", name, hits[place], when, place + 1)))
        records.append((at + 500, 1, _event("impression", name, None, at + 500)))
        vector = (Table("x", np.array([embedding], np.float32)),)
        session = "s-q" if clicks else None
        wanted.append(
            Click(
                "shop",
                name,
                tuple(hits),
                tuple(range(8)),
                tuple(clicks),
                at,
                session,
                f"c-{name}",
                None,
                vector,
            )
        )
    end = START + lists * 7_000 + 31 * MINUTE
    records.append((end, 2, _event("impression", "q-0", None, end)))
    return [record for _, _, record in sorted(records, key=lambda one: one[:2])], wanted


def _time(record: dict[str, Any]) -> int:
    return int(datetime.fromisoformat(record["timestamp"]).timestamp() * 1000)


def _append(log: MemoryLog, record: dict[str, Any], partition: int) -> None:
    key, value = record["query_id"].encode(), json.dumps(record).encode()
    log.append("ubi", key, value, partition=partition, time_ms=_time(record))


def _catalogue() -> bytes:
    rng = np.random.default_rng(1)
    names = tuple(f"item-{n}" for n in range(ITEMS))
    return encode(
        ItemBlock("shop", names, (Table("x", rng.normal(size=(ITEMS, 4)).astype(np.float32)),), START)
    )


def _constraints(config: Settings, log: MemoryLog, root: Path) -> tuple[Any, list[Any]]:
    """The state of the click builder over a log, and the rows of its constraints."""
    agent = Agent(builder_spec(config, "clicks"), config, log, root)
    agent.run()
    rows = []
    for message_ in log.read("kinstream.constraints", 0, 0):
        block = decode_constraints(message_.value)
        for row, weight in zip(block.index, block.weights, strict=True):  # type: ignore[union-attr]
            vectors = [block.tables[0].vectors[place].tobytes() for place in row]  # type: ignore[union-attr]
            rows.append((block.kind, vectors, float(weight)))  # type: ignore[union-attr]
    return agent.states()["shop"], rows


@pytest.mark.parametrize("seed", range(3))
def test_both_ways_give_the_same_constraints_bit_for_bit(seed: int, tmp_path: Path) -> None:
    config = settings(builders=BUILDERS, learners={}, sources={"ubi": SOURCE})
    records, wanted = _log(150, seed)
    theirs, ours = (MemoryLog(partitions=1, start_ms=START + 100 * MINUTE) for _ in range(2))
    for log in (theirs, ours):
        log.append("kinstream.events", b"shop", _catalogue(), partition=0)
    for record in records:
        _append(theirs, record, 0)
    source = Agent(source_spec(config, "ubi"), config, theirs, tmp_path / "ubi")
    for partition in source.runners:
        while source.step(partition, 64):
            pass
    source.sink.confirm()
    assert not source.runners[0].machine.dead
    # Our own click log: the same lists in the same order, in blocks as large as the source's.
    at = 0
    for number, made in enumerate(theirs.read("kinstream.events", 0, 1)):
        rows = len(rows_of_event(made.value))
        block = click_block(wanted[at : at + rows], "shop", 0, LoadPosition("clicks", number))
        ours.append("kinstream.events", b"shop", encode(block), partition=0)
        at += rows
    assert at == len(wanted)
    state, rows_ = _constraints(config, theirs, tmp_path / "a")
    other, others = _constraints(config, ours, tmp_path / "b")
    assert rows_ == others and len(rows_) > 100
    assert state.keys() == other.keys()
    for name in state:
        assert np.array_equal(np.asarray(state[name]), np.asarray(other[name])), name


@pytest.mark.parametrize("seed", range(4))
def test_crashes_lose_and_repeat_no_list(seed: int, tmp_path: Path) -> None:
    config = settings(builders=BUILDERS, learners={}, sources={"ubi": SOURCE})
    log = MemoryLog(partitions=2)
    records, wanted = _log(300, seed)
    for record in records:
        partition = int(record["query_id"].partition("-")[2]) % 2
        _append(log, record, partition)
    # Each partition needs a record that ends its windows.
    end = _event("impression", "q-1", None, START + 100 * MINUTE)
    _append(log, end, 1)
    _, crashes = disturbed(source_spec(config, "ubi"), config, log, tmp_path, random.Random(seed))
    assert crashes
    rows, _ = numbered(m for p in range(2) for m in log.read("kinstream.events", p, 0))
    found = {row["list_id"]: row for some in rows.values() for row in some.values()}
    assert {name: [item for item, _ in row["clicks"]] for name, row in found.items()} == {
        one.list_id: [click.item for click in one.clicks] for one in wanted
    }


def _closed(agent: Machine, record: Any, offset: int, log_ms: int | None = None) -> list[Any]:
    """The lists that a record closes; its Kafka record has the time that it says, unless another is given."""
    at = _time(record) if log_ms is None else log_ms
    outputs = [*agent.step(message(record, offset, time_ms=at)), *agent.flush()]
    return [row for one in outputs if one.topic == "kinstream.events" for row in rows_of_event(one.value)]


def _machine(**changes: Any) -> Machine:
    return machine({**SOURCE, "fields": {}, **changes})


def test_a_list_takes_clicks_until_its_window_ends_and_is_complete_after_it() -> None:
    agent = _machine(window_minutes=5)
    assert not _closed(agent, _query("q", ["1", "2"], START), 0)
    assert not _closed(agent, _event("click", "q", "2", START + 5 * MINUTE), 1)
    assert not _closed(agent, _event("view", "q", None, START + 5 * MINUTE), 2)
    (row,) = _closed(agent, _query("r", ["3"], START + 5 * MINUTE + 1), 3)
    assert row["list_id"] == "q" and row["clicks"] == [("2", START + 5 * MINUTE)]
    _closed(agent, _event("click", "q", "1", START + 6 * MINUTE), 4)
    assert agent.dead == {"unknown-list": 1}


def test_what_does_not_join_is_refused_and_changes_nothing() -> None:
    agent = _machine()
    _closed(agent, _query("q", ["1", "2"], START), 0)
    before = {
        name: str(value) for name, value in agent.partition_state().items() if name.startswith("mapper.")
    }
    for number, (record, reason) in enumerate(
        [
            (_event("click", "unheard-of", "1", START + 1), "unknown-list"),
            (_event("click", "q", "9", START + 1), "unknown-item"),
            (_event("click", "q", None, START + 1), "bad-shape"),
            ({**_event("click", "q", "1", START), "timestamp": "soon"}, "bad-shape"),
            (_query("s", ["1"], START + 5 * MINUTE + 1), "ahead-of-log"),
            (_event("click", "q", "1", START + 5 * MINUTE + 1), "ahead-of-log"),
            (_event("impression", "q", "3", START + 5 * MINUTE + 1), "ahead-of-log"),
            (_event("impression", "q", "3", START, ordinal=-1), "bad-shape"),
            (_query("s", ["x" * 200] * 2 + [f"{n:04096}" for n in range(40)], START), "too-large"),
            ({"neither": 1}, "bad-shape"),
        ],
        1,
    ):
        dead = agent.dead[reason]
        assert not _closed(agent, record, number, log_ms=START)
        assert agent.dead[reason] == dead + 1, record
    after = {
        name: str(value) for name, value in agent.partition_state().items() if name.startswith("mapper.")
    }
    assert after == before


def test_what_is_sent_twice_counts_once() -> None:
    agent = _machine()
    for number, record in enumerate(
        [_query("q", ["1", "2"], START), _event("click", "q", "2", START + 1)] * 2
    ):
        assert not _closed(agent, record, number)
    (row,) = _closed(agent, _query("r", [], START + 40 * MINUTE), 4)
    assert row["clicks"] == [("2", START + 1)] and row["session"] == "s-q" and row["user"] == "c-q"
    assert agent.counts["fate.list-repeated"] == agent.counts["fate.click-repeated"] == 1
    assert agent.counts["fate.list-empty"] == agent.counts["fate.list-closed"] == 1


def test_too_many_open_lists_close_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ubi_lists, "MAX_OPEN", 2)
    agent = _machine()
    assert not _closed(agent, _query("a", ["1"], START), 0)
    assert not _closed(agent, _query("b", ["1"], START), 1)
    assert [row["list_id"] for row in _closed(agent, _query("c", ["1"], START), 2)] == ["a"]
    assert agent.counts["fate.list-closed-early"] == 1


def test_open_lists_take_a_limited_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ubi_lists, "MAX_BYTES", 200_000)
    agent = _machine(space="", fields={"space": "client_id", "query_vector": "v"})
    # Spaces without end, and vectors: what is kept open is bounded by the bytes of all.
    for number in range(60):
        _closed(agent, _query(f"{number}", ["1"], START, v=[0.5] * 2_500), number)
    assert agent.counts["fate.list-closed-early"] == 60 - 19
    for number in range(200):
        _closed(agent, _event("impression", f"{50}", f"{number:0100}", START), 60 + number)
    assert agent.counts["fate.list-closed-early"] > 60 - 19
    assert len(str(agent.partition_state()["mapper.open_lists"])) < 400_000


@pytest.mark.parametrize("first", ["hits", "vector", "both"])
def test_a_list_that_is_too_large_with_its_vector_takes_no_other_along(first: str) -> None:
    agent = _machine(fields={"query_vector": "v"})
    hits, vector = {"hits": [f"{n:020}" for n in range(1_500)]}, {"v": [0.5] * 100_000}
    large = [_query("large", hits["hits"], START, **vector)]
    if first != "both":
        parts = [_query("large", hits["hits"], START), _query("large", ["1"], START, **vector)]
        large = parts if first == "hits" else parts[::-1]
    records = [_query("a", ["1"], START), *large, _query("b", ["1"], START)]
    for number, record in enumerate(records):
        assert not _closed(agent, record, number)
    assert agent.dead == {"too-large": 1}
    rows = _closed(agent, _query("end", ["1"], START + 40 * MINUTE), len(records))
    assert [row["list_id"] for row in rows] == ["a", *["large"] * (first != "both"), "b"]


def test_a_space_too_many_is_refused_before_others_wait_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (ubi_lists, packing):
        monkeypatch.setattr(module, "MAX_SPACES", 2)
    agent = _machine(space="", fields={"space": "client_id"})
    many = [_query(name, ["1"], START) for name in ("a", "b", "c")]
    for number, record in enumerate([many, many[:1], many[1], many[2], _query("d", ["1"], START)]):
        assert not _closed(agent, record, number, log_ms=START)
    # The array with three, and the two above two.
    assert agent.dead == {"space-limit": 3}
    rows = _closed(agent, _query("e", ["2"], START + 40 * MINUTE, client_id="c-a"), 5)
    assert [row["list_id"] for row in rows] == ["a", "b"] and agent.dead == {"space-limit": 3}
    other = _machine(space="", fields={"space": "client_id"})
    other.restore(6, None, agent.partition_state(), ())
    for one in (agent, other):
        assert not _closed(one, _query("d", ["1"], START), 6)
        assert one.dead["space-limit"] == 4


def test_a_state_brings_open_lists_back() -> None:
    agent, other = _machine(), _machine()
    _closed(agent, _query("q", ["1", "2"], START), 0)
    _closed(agent, _event("click", "q", "2", START + 1), 1)
    other.restore(2, None, agent.partition_state(), ())
    end = _query("r", ["1"], START + 40 * MINUTE)
    assert _closed(agent, end, 2) == _closed(other, end, 2) != []
    assert agent.partition_state().keys() == other.partition_state().keys()
    assert all(
        str(other.partition_state()[name]) == str(value) for name, value in agent.partition_state().items()
    )


def test_a_new_generation_goes_on_with_the_open_lists() -> None:
    agent, other = _machine(), _machine(window_minutes=5)
    _closed(agent, _query("q", ["1", "2"], START), 0)
    other.inherit(agent.partition_state(), {})
    other.next_offset = 1
    assert not _closed(other, _event("click", "q", "2", START + 1), 1)
    (row,) = _closed(other, _query("r", ["1"], START + 6 * MINUTE), 2)
    assert (row["list_id"], row["clicks"]) == ("q", [("2", START + 1)])


def test_a_refusal_is_raised_before_the_state_changes() -> None:
    mapping: Any = _machine()
    with pytest.raises(BadRecord, match="neither a query with its hits nor an event"):
        mapping._mapping.events(message({"query_id": "q"}))
