"""Events in which nothing, or only a late constraint, changes the model: learned and judged as by two plain passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kinstream.learners.base.learner import Learner
from kinstream.streams.records.values import ConstraintBlock, Kind
from kinstream.testing.blocks import block, rows_of
from kinstream.testing.learner_events import LEARNED, alone, borders
from tests.learners.multi import tables
from tests.learners.published_unit import create

#: Constraints of an event; those of 20 do not fit into what kernels measure or keep at once.
SIZES = (9, 9, 1, 20, 9, 2, 9)
TARGETS: dict[str, Any] = {"y_similar": 1.0, "y_dissimilar": 8.0}
#: Learners whose steps all have a closed hinge somewhere, in each way to learn.
CASES: list[tuple[str, dict[str, Any], Kind]] = [
    *(("opml", {"gamma": 0.01, "kernel": k}, Kind.TRIPLET) for k in ("sequential", "blocked")),
    *(("oasis", {"aggressiveness": 0.01, "kernel": k}, Kind.TRIPLET) for k in ("sequential", "blocked")),
    ("soml-tg", {"eta": 0.001}, Kind.TRIPLET),
    ("soml-tg", {"eta": 0.001, "always_shrink": True}, Kind.TRIPLET),
    *(
        ("lego", {"eta": 0.01, "kernel": k} | TARGETS, kind)
        for k in ("sequential", "blocked")
        for kind in (Kind.TRIPLET, Kind.PAIR)
    ),
    ("itml-online", {"kernel": "sequential"} | TARGETS, Kind.TRIPLET),
    ("pola", {}, Kind.TRIPLET),
    ("pola", {"cap": 0.001}, Kind.PAIR),
    ("omdml", {"margin": 1.0}, Kind.TRIPLET),
    ("omdml", {"margin": 1.0, "psd_every": 3}, Kind.TRIPLET),
    ("lomdml", {"rank": 4, "margin": 0.5}, Kind.TRIPLET),
    ("omks", {"kernels": ["linear", "rbf"], "bandwidth": 4.0, "budget": 25}, Kind.TRIPLET),
]
IDS = [f"{kind}-{number}-{form}" for number, (kind, _, form) in enumerate(CASES)]


def stream(seed: int, d: int, form: Kind, several: bool) -> ConstraintBlock:
    """Result lists, most items of which lie opposite to their query: those that lie at the clicked item come late."""
    draw = np.random.default_rng(seed)
    sizes = np.resize(SIZES, 40)
    tables_of, index, at = [], [], 0
    for number, size in enumerate(sizes):
        query = draw.normal(size=d) * np.sqrt(20.0 / d)
        clicked = query + 0.05 * draw.normal(size=d)
        others = -query + 0.3 * draw.normal(size=(size, d))
        if number % 5 == 1:
            others[size // 2 :] = clicked + 0.2 * draw.normal(size=(size - size // 2, d))
        if number % 5 == 2:
            others[-1] = clicked + 0.2 * draw.normal(size=d)
        if number % 5 == 3:
            others[size // 2] = clicked
        if number % 5 == 4:
            others = clicked + 0.2 * draw.normal(size=(size, d))
        tables_of.append(np.vstack([query, clicked, others]))
        index += [(at, at + 1, at + 2 + n) for n in range(size)]
        at += size + 2
    X, rows = np.vstack(tables_of), np.array(index, np.int32)
    events = np.repeat(np.arange(1, len(sizes) + 1, dtype=np.int32), sizes)
    if several:
        return replace(tables([X[:, : d // 2], X[:, d // 2 :]], rows), events=events)
    if form is Kind.TRIPLET:
        return replace(block(X, rows), events=events)
    # The last pair of an event is that of query and clicked item.
    signs, pairs = np.full(len(rows), -1), rows[:, [0, 2]].copy()
    last = np.append(np.flatnonzero(np.diff(events)), len(events) - 1)
    signs[last], pairs[last, 1] = 1, rows[last, 1]
    return replace(block(X, pairs, Kind.PAIR, "test", signs), events=events)


def made(kind: str, settings: dict[str, Any], dtype: str, state: Any = None) -> Learner:
    learner = create(kind, **settings, dtype=dtype)
    if state is not None:
        learner.restore(state)
    return learner


def same_bits(one: Learner, other: Learner) -> None:
    found, wanted = one.state(), other.state()
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert np.asarray(found[name]).tobytes() == np.asarray(value).tobytes(), name


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("kind", "settings", "form"), CASES, ids=IDS)
def test_learned_and_judged_as_by_two_passes(
    kind: str, settings: dict[str, Any], form: Kind, dtype: str
) -> None:
    """One pass judges each constraint by a copy from before its event, the other learns them all without events."""
    several = kind in ("omdml", "lomdml", "omks")
    learner, plain = made(kind, settings, dtype), made(kind, settings, dtype)
    before = made(kind, settings, dtype)
    first_changes: list[int] = []
    for seed in range(2):
        message = stream(seed, 12, form, several)
        found, learned = learner.learn(message), plain.learn(alone(message))
        for name in LEARNED:
            np.testing.assert_array_equal(getattr(found, name), getattr(learned, name), err_msg=name)
        same_bits(learner, plain)
        mistake, margin = np.empty(len(message), np.int8), np.empty(len(message))
        for rows in borders(message):
            state = before.state()
            for t in range(rows.start, rows.stop):
                single = made(kind, settings, dtype, state).learn(rows_of(alone(message), slice(t, t + 1)))
                mistake[t], margin[t] = single.mistake[0], single.margin[0]
            changed = before.learn(message.take(rows)).utilised
            if len(changed) > 2:
                first_changes.append(int(np.argmax(changed)) if changed.any() else -1)
        _same_verdicts(found.mistake, found.margin, mistake, margin, dtype)
    if kind != "omks":
        found_changes = np.array(first_changes)
        assert (found_changes == -1).any(), "an event changes nothing"
        assert (found_changes == 0).any(), "an event changes the model with its first constraint"
        assert (found_changes > 2).any(), "an event changes the model with a late constraint only"


def _same_verdicts(
    mistake: NDArray[Any], margin: NDArray[Any], wanted: NDArray[Any], wanted_margin: NDArray[Any], dtype: str
) -> None:
    tolerance = 1e-9 if dtype == "float64" else 1e-3
    np.testing.assert_allclose(margin, wanted_margin, rtol=0, atol=tolerance * 100, equal_nan=True)
    # A difference of rounding decides where vectors are all but equal.
    sure = np.isnan(wanted_margin) | (np.abs(wanted_margin) > tolerance * 100) | (wanted_margin == 0.0)
    np.testing.assert_array_equal(mistake[sure], wanted[sure])
