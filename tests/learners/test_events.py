"""All constraints of an event are judged before any of them is learned: what that shows, and where blocks end in it."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import numpy as np
import pytest

from kinstream.learners import kernels
from kinstream.learners.base.events import Events, ends_of, shared
from kinstream.learners.base.learner import Learner, Outcomes
from kinstream.learners.kernels.spans import spans
from kinstream.learners.warm_up import warm_up
from kinstream.streams.records.values import ConstraintBlock, Kind
from kinstream.testing.blocks import block, rows_of
from tests.learners.multi import tables
from tests.learners.published_unit import create


def lists(seed: int, d: int, count: int, items: int = 10, likeness: float = 0.1) -> ConstraintBlock:
    """Triplets of result lists of which one item was clicked, each list an event.

    Parameters
    ----------
    likeness : correlation of a query with the clicked item; the other items lie by chance.
    """
    draw = np.random.default_rng((seed, d))
    X = draw.normal(size=(count, 1 + items, d))
    X[:, 1] = likeness * X[:, 0] + np.sqrt(1.0 - likeness**2) * X[:, 1]
    rows = np.arange(count * (1 + items)).reshape(count, -1)
    index = np.stack(np.broadcast_arrays(rows[:, :1], rows[:, 1:2], rows[:, 2:]), axis=2).reshape(-1, 3)
    events = np.repeat(np.arange(1, count + 1, dtype=np.int32), items - 1)
    return replace(block(X.reshape(-1, d), index), events=events)


def rate(found: list[Outcomes]) -> float:
    counts = [one.counts() for one in found]
    return sum(one.mistakes for one in counts) / sum(one.scored for one in counts)


def test_a_ranking_that_is_being_destroyed_is_seen() -> None:
    """Lists learned by heart, in many dimensions of which few matter: flattered row by row, and worse than nothing."""
    settings: dict[str, Any] = {"scaler": "zscore", "warm_up": 64}
    blocks = [lists(seed, 64, 60) for seed in range(12)]

    def rates(learner: Learner, *, events: bool) -> float:
        found = [learner.learn(message if events else replace(message, events=None)) for message in blocks]
        return rate(found[2:])

    learned: Any = create("opml", gamma=5e-3, **settings)
    judged = rates(learned, events=True)
    one_by_one = rates(create("opml", gamma=5e-3, **settings), events=False)
    unlearned = rates(create("euclidean", **settings), events=True)
    fresh = lists(99, 64, 400)
    x, near, far = fresh.tables[0].vectors[fresh.index].transpose(1, 0, 2)
    truth = float(np.mean(learned.distance(x, near) >= learned.distance(x, far)))
    assert one_by_one < 0.7 * unlearned, "learned row by row, it looks as if learning helped"
    assert judged > 1.2 * unlearned
    assert truth > 1.2 * unlearned
    assert judged == pytest.approx(truth, abs=0.05)


def test_ends_are_those_of_events_of_several_rows() -> None:
    numbers = np.array([0, 0, 1, 2, 2, 2, 7], np.int32)
    np.testing.assert_array_equal(ends_of(numbers), [2, 0, 0, 6, 0, 0, 0])
    events = Events.of(numbers)
    np.testing.assert_array_equal(events.rows, [1, 4, 5])
    np.testing.assert_array_equal(events.firsts, [0, 3, 3])
    pairs = Events.of(numbers, 2)
    np.testing.assert_array_equal(np.flatnonzero(pairs.ends), [0, 6])
    np.testing.assert_array_equal(pairs.ends[[0, 6]], [4, 12])
    assert len(pairs.found) == 14
    np.testing.assert_array_equal(pairs.rows, events.rows)
    assert ends_of(numbers[:0]).shape == (0,)


def test_events_of_one_row_are_none_to_kernels() -> None:
    assert shared(None, 3) is None
    assert shared(np.array([1, 2, 5], np.int32), 3) is None
    for array in Events.of(None).judged:
        assert len(array) == 0


def test_spans_go_from_the_first_event_to_the_end_of_the_last() -> None:
    ends = ends_of(np.array([1, 1, 1, 2, 3, 3, 4, 5, 5, 5], np.int32))
    ((places, began, several),) = spans(ends, slice(3, 8))
    np.testing.assert_array_equal(places, [4, 5, 6, 7, 8, 9])
    np.testing.assert_array_equal(began, [4, 4, 4, 7, 7, 7])
    np.testing.assert_array_equal(several, [False, True, False, False, True, True])
    parts = [part[0].tolist() for part in spans(ends, slice(3, 8), 8)]
    assert parts == [[4, 5, 6, 7], [8, 9]]
    long = ends_of(np.ones(600, np.int32))
    assert [len(part[0]) for part in spans(long, slice(0, 32), 32)] == [32, 256, 256, 56]


def _wide(seed: int, d: int, kind: Kind, several: bool) -> ConstraintBlock:
    """Triplets or pairs in events of up to 150 rows: some go on behind several blocked steps, or end with one."""
    draw = np.random.default_rng((seed, d))
    sizes = [1, 33, 9, 9, 9, 150, 3, 64, 22]
    events = np.repeat(np.arange(1, len(sizes) + 1, dtype=np.int32), sizes)
    m = len(events)
    X = draw.normal(size=(m, d)) * np.sqrt(2.0 / d)
    index = draw.integers(0, m, (m, 3))
    starts = np.flatnonzero(np.diff(events, prepend=0))
    index[:, :2] = index[starts[events - 1], :2]
    if several:
        return replace(tables([X[:, : d // 2], X[:, d // 2 :]], index), events=events)
    if kind is Kind.TRIPLET:
        return replace(block(X, index), events=events)
    signs = np.where(draw.random(m) < 0.5, 1, -1)
    return replace(block(X, index[:, [0, 2]], Kind.PAIR, "test", signs), events=events)


WIDE: list[tuple[str, dict[str, Any], Kind]] = [
    *(("opml", {"gamma": 0.05, "kernel": k}, Kind.TRIPLET) for k in ("sequential", "blocked")),
    *(("oasis", {"aggressiveness": 0.05, "kernel": k}, Kind.TRIPLET) for k in ("sequential", "blocked")),
    *(
        ("lego", {"eta": 0.1, "kernel": k, "y_similar": 1.0, "y_dissimilar": 4.0}, kind)
        for k in ("sequential", "blocked")
        for kind in (Kind.PAIR, Kind.TRIPLET)
    ),
    ("lomdml", {"eta": 0.1, "rank": 8, "margin": 1.0}, Kind.TRIPLET),
    ("oahu", {"hidden": 10}, Kind.TRIPLET),
    ("oahu", {"hidden": 10, "batch": 7}, Kind.TRIPLET),
    ("omdml", {"margin": 1.0}, Kind.TRIPLET),
    ("omks", {"warm_up": 20, "budget": 30}, Kind.TRIPLET),
]


@pytest.mark.parametrize(
    ("kind", "settings", "form"),
    WIDE,
    ids=[f"{k}-{s.get('kernel', s.get('batch', 'only'))}-{f}s" for k, s, f in WIDE],
)
def test_long_events_are_judged_by_the_model_before_them(
    kind: str, settings: dict[str, Any], form: Kind
) -> None:
    settings = settings | {"dtype": "float64"}
    several = kind in ("lomdml", "omdml", "omks")
    learner, other = create(kind, **settings), create(kind, **settings)
    for seed in range(2):
        message = _wide(seed, 24, form, several)
        assert message.events is not None
        found = learner.learn(message)
        for number in np.unique(message.events):
            rows = np.flatnonzero(message.events == number)
            state = other.state()
            last = create(kind, **settings)
            last.restore(state)
            single = replace(message.take(rows[-1:]), events=None)
            wanted = last.learn(single)
            margin, loss = float(wanted.margin[0]), float(wanted.loss[0])
            at = int(rows[-1])
            assert found.mistake[at] == wanted.mistake[0]
            if form is Kind.TRIPLET:
                assert found.margin[at] == pytest.approx(margin, rel=1e-6, abs=1e-9, nan_ok=True)
            if kind != "lego" or form is Kind.PAIR:
                assert found.loss[at] == pytest.approx(loss, rel=1e-6, abs=1e-9)
            other.learn(message.take(rows))


def test_targets_of_blocks_are_those_before_the_event() -> None:
    """The threshold of a pair follows the latest targets: those of its siblings come after the verdict."""
    draw = np.random.default_rng(3)
    X, index = draw.normal(size=(40, 4)), draw.integers(0, 40, (60, 2))
    signs = np.where(draw.random(60) < 0.5, 1, -1)
    targets = np.where(signs > 0, 2.0, 10.0) * draw.uniform(0.2, 3.0, 60)
    events = np.repeat(np.arange(1, 13, dtype=np.int32), 5)
    message = replace(block(X, index, Kind.PAIR, "test", signs, targets), events=events)
    make: dict[str, Any] = {"eta": 1e-3, "targets": "block"}
    found, other = create("lego", **make).learn(message), create("lego", **make)
    differs = 0
    one_by_one = create("lego", **make).learn(replace(message, events=None))
    for number in range(12):
        state = other.state()
        for t in range(5 * number, 5 * number + 5):
            single = create("lego", **make)
            single.restore(state)
            wanted = single.learn(replace(rows_of(message, slice(t, t + 1)), events=None))
            assert found.mistake[t] == wanted.mistake[0]
            differs += int(one_by_one.mistake[t] != wanted.mistake[0])
        other.learn(rows_of(message, slice(5 * number, 5 * number + 5)))
    assert differs > 0


def _signatures() -> int:
    """How often kernels have been compiled."""
    names = [one.name for one in walk_packages(kernels.__path__, f"{kernels.__name__}.")]
    modules = [import_module(name) for name in names]
    found = {id(f): f for module in modules for f in vars(module).values() if hasattr(f, "signatures")}
    return sum(len(f.signatures) for f in found.values())


@pytest.mark.parametrize("kind", ["opml", "lego", "oahu", "mdml", "pola", "sors", "mixture"])
def test_events_need_no_other_machine_code(kind: str) -> None:
    """What is compiled before a worker takes part is all that a record needs, with events or without."""
    warm_up(kind, {})
    learner = create(kind)
    messages = [lists(seed, 4, 60) for seed in range(3)]
    learner.learn(replace(messages[0], events=None))
    before = _signatures()
    learner.learn(messages[1])
    learner.learn(messages[2])
    assert _signatures() == before
