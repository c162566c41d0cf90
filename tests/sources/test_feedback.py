"""What the service has shown, joined with feedback: one list each, with what was done with it, whatever repeats."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kinstream.gate.lists.list_id import Keys
from kinstream.gate.lists.plain_id import plain_id
from kinstream.streams.agents.machine import Machine
from kinstream.streams.checkpoints.state_bytes import from_bytes, to_bytes
from kinstream.streams.configuration.sources import SourceSettings
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.codec.codec import decode_event, encode
from kinstream.streams.records.lists.feedback import Feedback
from kinstream.streams.records.scores import Scores
from kinstream.streams.records.values import Click, ClickBlock, ItemClick, Table
from tests.sources.shop import machine, message

SOURCE: dict[str, Any] = {"topic": "kinstream.feedback", "preset": "feedback", "window_minutes": 1}
START, SECOND, MINUTE = 1_777_636_800_000, 1_000, 60_000
KEYS = Keys("a secret of a deployment")
ITEMS = ("a", "b", "c")


def id_at(time_ms: int, nonce: bytes = b"nonce.") -> str:
    return plain_id(KEYS, "docs", ITEMS, time_ms=time_ms, nonce=nonce)


LIST = id_at(START)


def shown(list_id: str = LIST, time_ms: int = START, **more: Any) -> Click:
    vector = (Table("x", np.array([[0.5, -1.0]], np.float32)),)
    return Click("docs", list_id, ITEMS, (0, 1, 2), (), time_ms, "s", "u", None, vector, **more)


def did(
    item: str | None,
    weight: float = 1.0,
    action: str | None = None,
    key: str = "",
    *,
    list_id: str = LIST,
    **more: Any,
) -> Feedback:
    return Feedback("docs", list_id, item, action, weight, more.pop("time_ms", START + SECOND), key, **more)


def run(
    *records: tuple[int, Any], agent: Machine | None = None
) -> tuple[list[Click], dict[str, int], list[str]]:
    """The lists that records at these times make, the fates, and the reasons of what is refused."""
    agent = machine(SOURCE) if agent is None else agent
    lists: list[Click] = []
    refused: list[str] = []
    for log_ms, record in records:
        one = message(encode(record), agent.next_offset, time_ms=log_ms)._replace(
            appended=True, topic="kinstream.feedback"
        )
        for output in [*agent.step(one), *agent.flush()]:
            if output.topic == "kinstream.events":
                lists += lists_of(output.value)
            else:
                refused.append(next(v for n, v in output.headers if n.endswith("reason")).decode())
    fates = {
        name.removeprefix("fate."): count for name, count in agent.counts.items() if count and "fate" in name
    }
    return lists, fates, refused


def lists_of(value: bytes | None) -> list[Click]:
    event = decode_event(value)
    if isinstance(event, Click):
        return [event]
    assert isinstance(event, ClickBlock)
    found = []
    for i, list_id in enumerate(event.list_ids):
        low, high = event.starts[i], event.starts[i + 1]
        clicks = []
        for j, place in enumerate(event.clicked.tolist()):
            if low <= place < high:
                kind = -1 if event.action is None else int(event.action[j])
                weight = None if event.weight is None else float(event.weight[j])
                clicks.append(
                    ItemClick(
                        event.ids[event.item[place]],
                        int(event.click_ms[j]),
                        None,
                        event.kinds[kind] if kind >= 0 else None,
                        weight,
                    )
                )
        items = tuple(event.ids[n] for n in event.item[low:high])
        found.append(
            Click(
                event.space,
                list_id,
                items,
                tuple(event.position[low:high].tolist()),
                tuple(clicks),
                int(event.shown_at_ms[i]),
            )
        )
    return found


def end(after_ms: int = 2 * MINUTE) -> tuple[int, Click]:
    """A later list, whose record moves the time of the log."""
    return START + after_ms, shown(id_at(START + after_ms, b"later."), START + after_ms)


def clicks(one: Click) -> list[tuple[str, str | None, float]]:
    return [(c.item, c.action, 1.0 if c.weight is None else c.weight) for c in one.clicks]


def test_a_list_and_what_was_done_with_it_are_one_event() -> None:
    lists, _, refused = run(
        (START, shown(scores=Scores.of({"bm25": [1.0, 2.0, None]}))),
        (START + SECOND, did("c")),
        (START + 2 * SECOND, did("a", 2.5, "cited")),
        end(),
    )
    (one,) = lists
    assert (one.list_id, one.items, one.session, one.user, one.shown_at_ms) == (LIST, ITEMS, "s", "u", START)
    assert one.clicks == (ItemClick("c", START + SECOND), ItemClick("a", START + SECOND, None, "cited", 2.5))
    assert one.query_vector[0].vectors.tolist() == [[0.5, -1.0]]
    assert one.scores is not None and one.scores.names == ("bm25",)
    assert not refused


def test_a_list_that_nobody_used_is_an_event_without_clicks() -> None:
    lists, _, _ = run((START, shown()), end())
    assert [one.clicks for one in lists] == [()]


def test_what_is_repeated_counts_once() -> None:
    once = [(START, shown()), (START, did("a")), (START, did("a", key="k")), (START, did(None, 0.5))]
    twice = [record for record in once for _ in range(2)]
    first, fates, _ = run(*once, end())
    again, repeated, refused = run(*twice, end())
    assert [clicks(one) for one in first] == [clicks(one) for one in again] == [[("a", None, 0.5)] * 2]
    assert repeated["feedback-joined"] == fates["feedback-joined"] == 3
    assert (repeated["feedback-repeated"], repeated["list-repeated"]) == (3, 1)
    assert not refused


def test_what_is_taken_back_is_gone_and_stays_gone() -> None:
    lists, fates, _ = run(
        (START, shown()),
        (START, did("a")),
        (START, did("b")),
        (START, did("a", retract=True)),
        (START, did("a")),
        (START, did("c", key="2", retract=True)),
        (START, did("c", key="2")),
        end(),
    )
    assert clicks(lists[0]) == [("b", None, 1.0)]
    assert fates["feedback-retracted"] == 2


def test_an_outcome_is_shared_among_what_was_used_less_further_down() -> None:
    lists, _, _ = run(
        (START, shown()), (START, did(None, 0.75)), (START, did("c")), (START, did("a", 2.0)), end()
    )
    assert clicks(lists[0]) == [("c", None, 0.25), ("a", None, 1.0)]


@pytest.mark.parametrize("withdrawn", [False, True])
def test_a_list_that_has_failed_has_no_clicks_unless_that_is_taken_back(withdrawn: bool) -> None:
    back = [(START, did(None, 1.0, retract=True))] * withdrawn
    lists, _, _ = run((START, shown()), (START, did("a")), (START, did(None, 0.0)), *back, end())
    assert clicks(lists[0]) == [("a", None, 1.0)] * withdrawn


def test_of_two_outcomes_the_newer_counts() -> None:
    lists, _, _ = run(
        (START, shown()), (START, did("a")), (START, did(None, 1.0)), (START, did(None, 0.5, key="2")), end()
    )
    assert clicks(lists[0]) == [("a", None, 0.5)]


def test_feedback_waits_for_its_list() -> None:
    lists, fates, refused = run((START, did("b")), (START, did("z")), (START, shown()), end())
    assert [(one.items, clicks(one), one.user) for one in lists] == [(ITEMS, [("b", None, 1.0)], "u")]
    assert fates["feedback-unknown-item"] == 1
    assert not refused


def test_feedback_whose_list_never_comes_is_counted() -> None:
    lists, fates, _ = run((START, did("b")), (START, did("a")), end(), end(5 * MINUTE))
    assert (len(lists), fates["feedback-without-list"]) == (1, 2)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (did("z"), "unknown-item"),
        (did("a", list_id="a list of another shop"), "unknown-list"),
        (did("a", list_id=id_at(START - 2 * MINUTE)), "late-list"),
        (shown(id_at(START - 2 * MINUTE), START - 2 * MINUTE), "late-list"),
        (did("a", time_ms=START + 10 * MINUTE), "ahead-of-log"),
        (Feedback("shop", LIST, "a", None, 1.0, START), "unknown-list"),
        (Click("docs", "l", ("a",), (0,), (ItemClick("a", START),), START), "bad-shape"),
    ],
)
def test_what_cannot_be_joined_is_refused_with_its_reason(record: Any, reason: str) -> None:
    lists, _, refused = run((START, shown()), (START + SECOND, record), (START + SECOND, did("b")), end())
    assert refused == [reason]
    assert [clicks(one) for one in lists] == [[("b", None, 1.0)]]


def test_feedback_after_the_window_is_late() -> None:
    lists, _, refused = run(
        (START, shown()), end(), (START + 2 * MINUTE, did("a", time_ms=START + 2 * MINUTE))
    )
    assert ([clicks(one) for one in lists], refused) == ([[]], ["late-list"])


def late(
    *records: tuple[int, Any], agent: Machine | None = None
) -> tuple[list[Feedback], dict[str, int], list[str]]:
    """As `run`, after a list was shown and its window has ended; the events of actions that are taken back."""
    found: list[Feedback] = []
    agent = machine(SOURCE) if agent is None else agent
    refused: list[str] = []
    for log_ms, record in ((START, shown()), (START, did("b")), end(), *records):
        one = message(encode(record), agent.next_offset, time_ms=log_ms)._replace(appended=True)
        for output in [*agent.step(one), *agent.flush()]:
            if output.topic != "kinstream.events":
                refused.append(next(v for n, v in output.headers if n.endswith("reason")).decode())
            elif isinstance(event := decode_event(output.value), Feedback):
                assert output.key == b"docs"
                found.append(event)
    return found, {name: number for name, number in agent.counts.items() if number}, refused


LATER = START + 10 * MINUTE


def test_an_action_that_is_taken_back_after_the_window_becomes_an_event() -> None:
    given = did("b", key="1", action="cited", time_ms=LATER, retract=True)
    found, fates, refused = late((LATER, given), (LATER, did("b", time_ms=LATER, retract=True)))
    assert [replace(one, load=None) for one in found] == [given, did("b", time_ms=LATER, retract=True)]
    # Each with a number of its own, by which a builder takes it once.
    numbers = [one.load.sequence for one in found if one.load is not None]
    assert len(set(numbers)) == 2 and sorted(numbers) == numbers
    assert (fates["fate.feedback-retracted-late"], fates["fate.feedback-joined"]) == (2, 1)
    assert "fate.feedback-retracted" not in fates and not refused


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (did(None, 0.5, time_ms=LATER, retract=True), "late-list"),
        (did("b", time_ms=LATER), "late-list"),
        (did("b", time_ms=LATER, retract=True, list_id="of another shop"), "unknown-list"),
        (did("b", time_ms=LATER + 10 * MINUTE, retract=True), "ahead-of-log"),
    ],
)
def test_everything_else_after_the_window_is_refused(given: Feedback, reason: str) -> None:
    assert late((LATER, given))[::2] == ([], [reason])


def test_an_action_of_a_list_that_is_still_open_is_taken_back_in_it() -> None:
    lists, fates, refused = run(
        (START, shown()), (START, did("b")), (START + SECOND, did("b", retract=True)), end()
    )
    assert ([clicks(one) for one in lists], refused) == ([[]], [])
    assert fates["feedback-retracted"] == 1 and "feedback-retracted-late" not in fates


def test_the_event_of_a_list_comes_before_what_is_taken_back_of_it() -> None:
    """Both wait for one message: the record that closes the list is the one that takes its action back."""
    agent = machine(SOURCE)
    kinds = []
    for log_ms, record in (
        (START, shown()),
        (START, did("b")),
        (LATER, did("b", time_ms=LATER, retract=True, list_id=id_at(START, b"other."))),
        (LATER, did("b", time_ms=LATER, retract=True)),
    ):
        one = message(encode(record), agent.next_offset, time_ms=log_ms)._replace(appended=True)
        kinds += [type(decode_event(output.value)).__name__ for output in agent.step(one)]
    kinds += [type(decode_event(output.value)).__name__ for output in agent.flush()]
    assert kinds == ["Click", "Feedback", "Feedback"]


def test_a_machine_continues_from_any_state() -> None:
    rng = random.Random(3)
    log: list[tuple[int, Any]] = []
    for number in range(60):
        at = START + number * 5 * SECOND
        name = id_at(at, number.to_bytes(6, "big"))
        log += [(at, shown(name, at))]
        for item in rng.sample(ITEMS, 2):
            one = did(item, rng.choice([1.0, 0.25]), rng.choice([None, "cited"]), list_id=name, time_ms=at)
            log += [(at + rng.randint(0, 50) * SECOND, one)] * rng.choice([1, 1, 2])
    log.sort(key=lambda one: one[0])
    whole, fates, _ = run(*log, end(60 * MINUTE))
    assert len(whole) == 60 and fates["feedback-joined"] > 100
    for cut in (1, 40, 90):
        first = machine(SOURCE)
        before, *_ = run(*log[:cut], agent=first)
        second = machine(SOURCE)
        second.restore(cut, None, from_bytes(to_bytes(first.partition_state())), ())
        after, counted, _ = run(*log[cut:], end(60 * MINUTE), agent=second)
        assert list(map(clicks, [*before, *after])) == list(map(clicks, whole))
        assert counted == fates


def test_every_feedback_has_one_fate() -> None:
    rng = random.Random(5)
    given = Counter[str]()
    log: list[tuple[int, Any]] = []
    for number in range(200):
        at = START + number * SECOND
        name = id_at(at, number.to_bytes(6, "big"))
        if number % 7:
            log.append((at, shown(name, at)))
        for item in rng.choices(["a", "b", "z"], k=3):
            log.append((at, did(item, list_id=name, time_ms=at)))
            given["feedback"] += 1
    lists, fates, refused = run(*log, end(60 * MINUTE), end(120 * MINUTE))
    joined = sum(len(one.clicks) for one in lists)
    assert given["feedback"] == (
        joined + fates["feedback-repeated"] + refused.count("unknown-item") + fates["feedback-without-list"]
    )


@pytest.mark.parametrize(
    "more", [{"kind": "clicks"}, {"space": "docs"}, {"fields": {"items": "i"}}, {"format": "avro"}]
)
def test_its_topic_has_one_form(more: dict[str, Any]) -> None:
    with pytest.raises((SettingsError, ValueError), match=r"preset"):
        SourceSettings(**{**SOURCE, **more})
