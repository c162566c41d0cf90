"""Whole lists are judged as docs/learning.md says, by an oracle in plain Python."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kinstream.learners.adapter.learner import Adapter
from kinstream.learners.held_out.evidence import Evidence
from kinstream.learners.held_out.judge import Judge
from kinstream.learners.held_out.sums import KEEP, KEEP_LISTS
from kinstream.learners.registry import create
from kinstream.processors.base.builder import Origin
from kinstream.producers.simulated.searchers import Searchers, Searches, catalogue, click_blocks, searches
from kinstream.streams.checkpoints.state_bytes import from_bytes, to_bytes
from kinstream.streams.records.codec.codec import decode_constraints, encode
from kinstream.streams.records.held_out import LEARNED, LEAST_QUERIES, METRICS
from kinstream.streams.records.values import ClickBlock, ConstraintBlock, ItemBlock
from tests.processors.bounds import clicks

D = 6
Rows = NDArray[np.float32]


def world(n: int = 80, queries: int = 60, seed: int = 1) -> tuple[Rows, Rows]:
    draw = np.random.default_rng(seed)
    items = draw.normal(size=(n, D))
    asked = items[:queries] + 0.6 * draw.normal(size=(queries, D))
    return asked.astype(np.float32), items.astype(np.float32)


def logged(
    found: Searches, queries: Rows, items: Rows, rule: str = "click-list", **settings: Any
) -> list[ConstraintBlock]:
    builder = clicks(rules=(rule,), **settings)
    made: list[ConstraintBlock] = []
    events: list[ItemBlock | ClickBlock] = [
        *catalogue("s", items),
        *click_blocks("s", found, queries, 20),
    ]
    for offset, event in enumerate(events):
        newest = event.time_ms if isinstance(event, ItemBlock) else int(event.click_ms.max(initial=0))
        made += builder.process(event, Origin(offset=offset, append_ms=newest)).blocks
    return made


def log_of(people: Searchers = Searchers(noise=0.1), lists: int = 300, seed: int = 0, **settings: Any) -> Any:  # noqa: B008
    queries, items = world()
    found = searches(queries, items, np.arange(len(queries)), people, lists, seed)
    return found, logged(found, queries, items, **settings)


class Oracle:
    """Few items, so that the sample holds all that were shown."""

    def __init__(self, found: Searches, queries: Rows, items: Rows, share: float) -> None:
        self.found, self.queries, self.items = found, queries.astype(np.float64), items.astype(np.float64)
        self.judge = Judge(share, "s")
        self.seen: set[int] = set()
        self.times: dict[tuple[str, int], int] = {}
        self.shown: set[int] = set()
        self.losses: list[tuple[float, float, float]] = []

    def count(self, kind: str, key: int) -> int:
        self.times[kind, key] = self.times.get((kind, key), 0) + 1
        return self.times[kind, key]

    def lost(self, i: int, order: NDArray[Any], weights: dict[int, float]) -> float:
        """`order` (n,): the less, the nearer."""
        candidates = set(self.found.items[i].tolist()) | self.shown
        gained = 0.0
        for item, weight in weights.items():
            rank = 1 + sum(order[other] <= order[item] for other in candidates if other != item)
            gained += weight * (1.0 / math.log2(1.0 + rank) if rank <= 10 else 0.0)
        return 1.0 - gained / sum(weights.values())

    def take(self, lists: range, held: set[int], similarity: Any) -> None:
        for i in lists:
            clicked = np.flatnonzero(self.found.clicked[i]).tolist()
            query = int(self.found.query[i])
            if not clicked:
                continue
            new = query not in self.seen
            self.seen.add(query)
            if not new and query not in held:
                continue
            times = self.count("query", query) * self.count(
                "user", int(self.found.poisoner[i]) if self.found.poisoner[i] >= 0 else -2 - i
            )
            weights = {}
            for place in clicked:
                item = int(self.found.items[i][place])
                weights[item] = min(1.0, 8 / self.count("item", item)) * math.sqrt(place + 1)
            q = self.queries[query]
            learned = self.lost(i, -similarity(q), weights)
            euclidean = self.lost(i, ((self.items - q) ** 2).sum(axis=1), weights)
            self.losses.append(
                (learned, euclidean, sum(weights.values()) / len(clicked) / math.sqrt(20) / times)
            )
        for i in lists:
            if self.found.clicked[i].any():
                self.shown |= set(self.found.items[i].tolist())


def test_lists_are_judged_as_the_page_says() -> None:
    people = Searchers(noise=0.1, poisoned=0.2, poisoners=3)
    queries, items = world()
    found, blocks = log_of(people)
    # The first 20 of 40 queries are held out: whichever the hash chooses.
    judge, learner, held = Judge(0.3, "s"), Adapter(rank=2), set()
    for query in range(len(queries)):
        one = replace(blocks[0], tables=(replace(blocks[0].tables[0], vectors=queries[query : query + 1]),))
        if judge._choice.vectors(one, np.zeros(1, np.int32))[0]:
            held.add(query)
    assert 5 < len(held) < 40
    oracle = Oracle(found, queries, items, 0.3)
    learner.learn(blocks[0].take(slice(0, 0)))
    report, first = None, 0
    for block in blocks:
        assert block.lists is not None
        until = first + 20
        oracle.take(
            range(first, until), held, lambda q: learner.similarities(q[None].astype(np.float32), items)[0]
        )
        first = until
        judge, report = judge.after(learner, block, judge.rows(block))
        learner.learn(block.without_lists().take(~judge.rows(block)))
    assert first == len(found) and report is not None
    losses = np.array(oracle.losses)
    assert (report.events, report.queries) == (len(losses), len(oracle.seen))
    weights = losses[:, 2] * KEEP_LISTS ** np.arange(len(losses) - 1, -1, -1)
    assert report.window.weight == pytest.approx(weights.sum(), rel=1e-9)
    assert report.window.rate(LEARNED) == pytest.approx(np.average(losses[:, 0], weights=weights), abs=0.01)
    assert report.window.rate("euclidean") == pytest.approx(
        np.average(losses[:, 1], weights=weights), abs=0.01
    )


def test_an_account_with_a_thousand_lists_counts_as_few_people_do() -> None:
    _, clean = log_of()
    bought = Searchers(noise=0.1, poisoned=0.6, poisoners=2)
    _, poisoned = log_of(bought)
    weights = []
    for blocks in (clean, poisoned):
        judge, learner = Judge(0.5, "s"), Adapter(rank=2)
        learner.learn(blocks[0].take(slice(0, 0)))
        report = None
        for block in blocks:
            judge, found = judge.after(learner, block, judge.rows(block))
            report = found or report
        assert report is not None
        weights.append(report.window.weight / report.events)
    assert weights[1] < 0.7 * weights[0]


@pytest.mark.parametrize(("rule", "kind"), [("click-list", "adapter"), ("click-skip-above", "opml")])
def test_a_judge_of_lists_survives_a_checkpoint_and_goes_on_with_the_same_bits(rule: str, kind: str) -> None:
    _, blocks = log_of(rule=rule)
    learner = create(kind)
    judge = again = Judge(0.1, "s")
    learner.learn(blocks[0].take(slice(0, 0)))
    for block in (decoded(block) for block in blocks):
        before = to_bytes(judge.state())
        one, first = judge.after(learner, block, judge.rows(block))
        assert to_bytes(judge.state()) == before, "a judge is not changed by a block that may not be learned"
        fresh = Judge(0.1, "s")
        fresh.restore(from_bytes(to_bytes(again.state())))
        judge, (again, second) = one, fresh.after(learner, block, fresh.rows(block))
        assert first == second
        assert to_bytes(judge.state()) == to_bytes(again.state())
        learner.learn(block.without_lists().take(~judge.rows(block)))
    assert judge._of_lists.events > 40


def decoded(block: ConstraintBlock) -> ConstraintBlock:
    found = decode_constraints(encode(block))
    assert isinstance(found, ConstraintBlock)
    return found


def test_what_is_learned_does_not_depend_on_the_lists_that_come_along() -> None:
    _, blocks = log_of()
    for block in blocks:
        alone = block.without_lists()
        assert alone.lists is None and len(alone.tables[0].vectors) < len(block.tables[0].vectors)
        np.testing.assert_array_equal(
            alone.tables[0].vectors[alone.index], block.tables[0].vectors[block.index]
        )
        assert block.take(slice(0, 1)).lists is None


def test_every_list_that_was_clicked_comes_along_even_if_it_states_nothing() -> None:
    found, blocks = log_of(rule="click-skip-above")
    sent = sum(len(block.lists) for block in blocks if block.lists is not None)
    assert sent == found.clicked.any(axis=1).sum()
    assert sent > sum(len(set(block.events.tolist())) for block in blocks if block.events is not None)


def test_lists_that_do_not_fit_are_cut_into_blocks_that_do() -> None:
    found, blocks = log_of(max_bytes=4096)
    assert all(len(encode(block)) <= 4096 for block in blocks)
    sent = sum(len(block.lists) for block in blocks if block.lists is not None)
    assert sent == found.clicked.any(axis=1).sum()
    tight = logged(found, *world(), max_bytes=1024)
    assert all(len(encode(block)) <= 1024 for block in tight)
    assert sum(int((block.signs > 0).sum()) for block in tight) == sum(
        int((b.signs > 0).sum()) for b in blocks
    )


def test_fewer_than_two_hundred_queries_say_nothing() -> None:
    _, blocks = log_of()
    judge, learner = Judge(0.1, "s"), Adapter(rank=2)
    learner.learn(blocks[0].take(slice(0, 0)))
    report = None
    for block in blocks:
        judge, found = judge.after(learner, block, judge.rows(block))
        report = found or report
    assert report is not None and report.queries is not None
    assert (report.least, report.seen, report.enough) == (LEAST_QUERIES, report.queries, False)
    assert report.difference is None and not report.worse
    assert replace(report, queries=LEAST_QUERIES, events=500).difference is not None


def test_labels_say_nothing_once_there_are_lists() -> None:
    _, blocks = log_of()
    judge, learner = Judge(0.4, "s"), Adapter(rank=2)
    labels = [block.without_lists() for block in blocks]
    learner.learn(labels[0].take(slice(0, 0)))
    judge, _ = judge.after(learner, labels[0], judge.rows(labels[0]))
    judge, found = judge.after(learner, blocks[1], judge.rows(blocks[1]))
    assert found is not None and found.queries is not None
    judge, after = judge.after(learner, labels[2], judge.rows(labels[2]))
    assert after is None


# ---- evidence -------------------------------------------------------------------------------------------------------


def alarms(learned: float, best: float, keep: float, events: int, seed: int) -> int | None:
    """The event at which a model with these rates of mistakes is found to be worse; None if it never is."""
    draw = np.random.default_rng(seed)
    losses = (draw.random((events, len(METRICS))) < [learned, *[best] * (len(METRICS) - 1)]).astype(float)
    evidence = Evidence.none()
    for i in range(0, events, 20):
        evidence = evidence.after(losses[i : i + 20], np.ones(20), keep)
        if evidence.log_e >= math.log(20.0):
            return i
    return None


def test_looking_after_every_event_raises_no_false_alarm() -> None:
    found = [alarms(0.3, 0.3, KEEP, 2_000, seed) for seed in range(10)]
    assert sum(at is not None for at in found) <= 1


def test_a_model_that_is_worse_is_found_out_soon_and_one_that_turns_bad_as_well() -> None:
    found = [alarms(0.5, 0.3, KEEP, 3_000, seed) for seed in range(5)]
    assert all(at is not None and at < 800 for at in found)
    evidence, keep = Evidence.none(), KEEP
    good = np.tile([0.0, *[1.0] * (len(METRICS) - 1)], (1_000, 1))
    evidence = evidence.after(good, np.ones(1_000), keep)
    assert evidence.log_e < 0.0
    evidence = evidence.after(1.0 - good[:1_000], np.ones(1_000), keep)
    assert evidence.log_e > math.log(20.0)
