"""Clocks of clients and producers: whatever one of them says, the lists of all others keep their clicks and close."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from typing import Any

import pytest

from kinstream.producers.sources.values.partition_time import QUERIES
from kinstream.streams.agents.machine import Machine
from kinstream.streams.checkpoints.state_bytes import from_bytes
from tests.golden.test_sources import GOLDEN
from tests.sources.rows import rows_of_event
from tests.sources.shop import machine, message
from tests.sources.test_ubi import START, _event, _query

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
NUMBER = 300
SOURCE: dict[str, Any] = {"topic": "ubi", "preset": "ubi", "space": "shop"}
#: Kafka time and record.
Log = list[tuple[int, dict[str, Any]]]


def _honest() -> Log:
    """A query every ten seconds and one click in each list, up to 29 minutes later; then queries that end windows."""
    rng = random.Random(1)
    log: Log = []
    for number in range(NUMBER):
        name, at = f"q-{number}", START + number * 10 * SECOND
        clicked = at + rng.randint(SECOND, 29 * MINUTE)
        log += [(at, _query(name, ["1", "2"], at)), (clicked, _event("click", name, "2", clicked))]
    end = START + NUMBER * 10 * SECOND + 2 * HOUR
    log += [(end + n, _query(f"end-{n}", ["1"], end + n)) for n in range(QUERIES)]
    return sorted(log, key=lambda one: one[0])


def _run(log: Log, *, appended: bool = True) -> tuple[dict[str, dict[str, Any]], Machine]:
    """The closed lists by id, each with the number of the record that closed it, and the machine."""
    agent = machine(SOURCE)
    found: dict[str, dict[str, Any]] = {}
    for offset, (log_ms, record) in enumerate(log):
        one = message(record, offset, time_ms=log_ms)._replace(appended=appended)
        for output in [*agent.step(one), *agent.flush()]:
            for row in rows_of_event(output.value) if output.topic == "kinstream.events" else ():
                assert row["list_id"] not in found
                found[row["list_id"]] = {**row, "closed_at": log_ms}
    return found, agent


def _with(made: Callable[[int], tuple[int, dict[str, Any]]], *times: int) -> Log:
    """The honest log with records of a faulty client, at these times of its own."""
    return sorted([*_honest(), *map(made, times)], key=lambda one: one[0])


MIDST = START + NUMBER * 5 * SECOND


def _ahead(record: dict[str, Any]) -> Log:
    """A record whose Kafka time is right, in the midst of the honest log."""
    return _with(lambda at: (at, record), MIDST)


#: A client whose clock is wrong sends one record: its own time is data.
FAULTS: dict[str, Log] = {
    "page view without a query, 13 h": _ahead(
        {"action_name": "page_view", "client_id": "f", "timestamp": MIDST + 13 * HOUR}
    ),
    "page view of a query, 13 h": _ahead(_event("page_view", "q-1", None, MIDST + 13 * HOUR)),
    "impression, 1 h": _ahead(_event("impression", "f", "1", MIDST + HOUR)),
    "impression, 23.9 h": _ahead(_event("impression", "f", "1", MIDST + int(23.9 * HOUR))),
    "impression, 4 min": _ahead(_event("impression", "f", "1", MIDST + 4 * MINUTE)),
    "click without a list, 20 h": _ahead(_event("click", "f", "1", MIDST + 20 * HOUR)),
    "query, 23.9 h": _ahead(_query("f", ["1"], MIDST + int(23.9 * HOUR))),
    "query, 4 min": _ahead(_query("f", ["1"], MIDST + 4 * MINUTE)),
    "query, 2 h behind": _ahead(_query("f", ["1"], MIDST - 2 * HOUR)),
    "query, in 1970": _ahead(_query("f", ["1"], 0)),
    "query in microseconds of a far year": _ahead({**_query("f", ["1"], 0), "timestamp": 10**14 - 1}),
}


@pytest.mark.parametrize("appended", [True, False])
@pytest.mark.parametrize("name", FAULTS)
def test_a_clients_clock_changes_nothing_for_others(name: str, appended: bool) -> None:
    right, _ = _run(_honest(), appended=appended)
    found, agent = _run(FAULTS[name], appended=appended)
    clicked = {f"q-{n}" for n in range(NUMBER)}
    assert clicked <= right.keys()
    for list_id in clicked:
        assert len(found[list_id]["clicks"]) == 1
        # Where producers stamp records, one more query may bring the time forward by its part.
        late = abs(found[list_id]["closed_at"] - right[list_id]["closed_at"])
        assert late <= (0 if appended else 10 * SECOND), list_id
    # At most the record of that client, with a reason.
    assert agent.dead.total() <= 1 and set(agent.dead) <= {"ahead-of-log", "bad-shape"}


@pytest.mark.parametrize("ahead", [HOUR, 13 * HOUR, 200 * HOUR, -200 * HOUR])
@pytest.mark.parametrize("queries", [1, 5])
def test_a_producer_that_stamps_its_records_wrongly_closes_no_lists_of_others(
    ahead: int, queries: int
) -> None:
    wrong = MIDST + ahead
    made: Log = [(wrong, _query(f"f-{n}", ["1"], wrong)) for n in range(queries)]
    made += [(wrong, _event("impression", f"f-{n % queries}", f"i-{n}", wrong)) for n in range(60)]
    log = _honest()
    at = next(n for n, (log_ms, _) in enumerate(log) if log_ms >= MIDST)
    found, agent = _run([*log[:at], *made, *log[at:]], appended=False)
    assert all(len(found[f"q-{n}"]["clicks"]) == 1 for n in range(NUMBER))
    assert not agent.dead


def test_one_producer_in_four_whose_clock_is_wrong_costs_only_its_own_lists() -> None:
    log = [
        (log_ms + HOUR, {**record, "timestamp": log_ms + HOUR})
        if int(record["query_id"].rpartition("-")[2]) % 4 == 0 and "end" not in record["query_id"]
        else (log_ms, record)
        for log_ms, record in _honest()
    ]
    found, agent = _run(log, appended=False)
    assert all(len(found[f"q-{n}"]["clicks"]) == 1 for n in range(NUMBER) if n % 4)
    assert not agent.dead


def test_the_time_recovers_after_a_brokers_clock_was_far_ahead() -> None:
    log = [(at + 200 * HOUR if 100 <= n < 106 else at, one) for n, (at, one) in enumerate(_honest())]
    found, agent = _run(log)
    # What was open meanwhile may lose clicks, to dead letters; nothing does that came after it.
    before = {record["query_id"] for _, record in log[:106]}
    assert all(len(found[f"q-{n}"]["clicks"]) == 1 for n in range(NUMBER) if f"q-{n}" not in before)
    assert all(f"q-{n}" in found for n in range(NUMBER))
    lost = sum(not found[f"q-{n}"]["clicks"] for n in range(NUMBER))
    assert agent.dead == ({"unknown-list": lost} if lost else {})


def test_a_list_ahead_of_others_waits_alone() -> None:
    ahead = START + 4 * MINUTE
    found, _ = _run(
        [
            (START, _query("ahead", ["1"], ahead)),
            (START + SECOND, _query("other", ["1"], START + SECOND)),
            (START + 31 * MINUTE, _query("late", ["1"], START + 31 * MINUTE)),
        ]
    )
    assert found.keys() == {"other"}


def test_a_clock_that_is_behind_keeps_its_own_clicks() -> None:
    at = START - 3 * HOUR
    found, agent = _run(
        [
            (START, _query("behind", ["1", "2"], at)),
            (START + MINUTE, _query("other", ["1"], START + MINUTE)),
            (START + 20 * MINUTE, _event("click", "behind", "2", at + 20 * MINUTE)),
            (START + 31 * MINUTE, _query("late", ["1"], START + 31 * MINUTE)),
        ]
    )
    assert found["behind"]["clicks"] == [("2", at + 20 * MINUTE)] and not agent.dead


@pytest.mark.parametrize("behind", [0, MINUTE, HOUR, 13 * HOUR])
@pytest.mark.parametrize("first", ["query", "impression"])
def test_a_list_whose_clock_is_behind_keeps_the_clicks_of_others(first: str, behind: int) -> None:
    times = [START + n * 10 * SECOND for n in range(100)]
    shown = _query if first == "query" else lambda name, _, at: _event("impression", name, "2", at)
    log: Log = [(at, shown(f"q-{n}", ["1", "2"], at - behind)) for n, at in enumerate(times)]
    log += [
        (at + 20 * MINUTE, _event("click", f"q-{n}", "2", at + 20 * MINUTE)) for n, at in enumerate(times)
    ]
    log = sorted(log, key=lambda one: one[0])
    found, agent = _run([*log, (START + HOUR, _query("end", ["1"], START + HOUR))])
    assert all(len(found[f"q-{n}"]["clicks"]) == 1 for n in range(100)) and not agent.dead


def test_a_log_that_is_written_at_once_has_the_windows_of_its_records() -> None:
    now = START + 1_000 * HOUR
    records = [_query("q", ["1", "2"], START), _event("click", "q", "1", START + 20 * MINUTE)]
    records += [_event("click", "q", "2", START + 40 * MINUTE)]
    end = now + 2 * HOUR
    found, agent = _run([(now, one) for one in records] + [(end, _query("end", ["1"], end))])
    assert found["q"]["clicks"] == [("1", START + 20 * MINUTE)] and agent.dead == {"unknown-list": 1}


def test_a_state_brings_back_the_time_of_the_log() -> None:
    log = _honest()
    for at in (1, 50, 333, len(log) - 1):
        agent = machine(SOURCE)
        outputs: list[Any] = []
        for offset, (log_ms, record) in enumerate(log):
            if offset == at:
                state = agent.partition_state()
                agent = machine(SOURCE)
                agent.restore(at, None, state, ())
            one = message(record, offset, time_ms=log_ms)._replace(appended=False)
            outputs += [*agent.step(one), *agent.flush()]
        rows = [row["list_id"] for one in outputs for row in rows_of_event(one.value)]
        assert rows == list(_run(log, appended=False)[0])


def test_what_the_first_version_held_back_is_continued_whatever_its_clients_said() -> None:
    # It has one open list with a click.
    state = dict(from_bytes(base64.b64decode(GOLDEN[1]["ubi"]["state"])))
    # One client had moved the time of all lists by a day.
    state["mapper.watermark"] = START + 24 * HOUR
    agent = machine(SOURCE)
    agent.inherit(state, {})
    agent.next_offset = 2
    at = START + 10 * MINUTE
    assert not [*agent.step(message(_event("click", "q-1", "1", at), 2, time_ms=at)), *agent.flush()]
    end = _query("end", ["1"], START + 31 * MINUTE)
    outputs = [*agent.step(message(end, 3, time_ms=START + 31 * MINUTE)), *agent.flush()]
    (row,) = [row for one in outputs for row in rows_of_event(one.value)]
    assert row["list_id"] == "q-1" and [item for item, _ in row["clicks"]] == ["2", "1"]


LISTS: dict[str, Any] = {
    "topic": "lists",
    "kind": "clicks",
    "space": "shop",
    "fields": {"items": "items", "clicks": "clicks", "clicked_at": "at", "time": "time"},
}
ITEMS: dict[str, Any] = {
    "topic": "items",
    "kind": "items",
    "space": "shop",
    "fields": {"id": "id", "vector": "vector", "time": "time"},
}
SAMPLES = {**ITEMS, "kind": "samples", "fields": {"vector": "vector", "label": "id", "time": "time"}}
RELATIONS = {**ITEMS, "kind": "relations", "fields": {"left": "id", "right": "other", "time": "time"}}
RECORD = {"items": ["1", "2"], "clicks": ["2"], "id": "1", "other": "2", "vector": [1.0]}


@pytest.mark.parametrize("source", [LISTS, ITEMS, SAMPLES, RELATIONS])
@pytest.mark.parametrize("form", [lambda at: at, lambda at: str(at)])
def test_every_time_in_a_record_is_bounded_by_its_kafka_record(
    source: dict[str, Any], form: Callable[[int], Any]
) -> None:
    limit = START + 5 * MINUTE
    for at, clicked, fits in (
        (limit, limit, True),
        (limit + 1, limit, False),
        (START, limit + 1, source is not LISTS),
        (START - 1000 * HOUR, START, True),
    ):
        agent = machine(source)
        agent.step(message({**RECORD, "time": form(at), "at": [form(clicked)]}, time_ms=START))
        assert agent.dead == ({} if fits else {"ahead-of-log": 1})
        assert len(agent.flush()) == fits


def test_a_log_that_stamps_no_times_bounds_none() -> None:
    for log_ms in (-1, 0, START // 1000):
        agent = machine(LISTS)
        agent.step(message({**RECORD, "time": START, "at": [START]}, time_ms=log_ms))
        assert len(agent.flush()) == 1 and not agent.dead
