"""What is served while the learned weights are no better, and numbers that no sum may be lost by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from kinstream.learners.ranking.learner import Ranking
from kinstream.learners.ranking.weights import SIGNALS, Weights, Whole
from kinstream.streams.signals import ADAPTED, SIMILARITY
from tests.learners.ranking.test_ranking import HALF, learned
from tests.learners.ranking.world import World


def lists(values: NDArray[Any], clicked: NDArray[Any], names: tuple[str, ...], places: int = 10) -> Whole:
    k = len(values) // places
    starts = np.arange(k + 1, dtype=np.int32) * np.int32(places)
    keys = np.arange(1, k + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return Whole(names, values, starts, clicked, keys, np.zeros(k, np.uint64), 0.5, np.ones(len(values)))


def compared(sums: dict[int, tuple[float, float]]) -> Weights:
    """Weights of two signals after 100 lists; by number of a fixed ranking, how much less it gains: mean, deviation.

    0 is the first ranking, 1 and 2 the first signal upwards and downwards, 3 and 4 the other one.
    """
    weights = Weights(HALF)
    draw = np.random.default_rng(0)
    weights.learn(lists(draw.normal(size=(20, 2)), np.arange(20) % 10 == 3, (SIMILARITY, "text")))
    state = weights.state()
    found = np.array([[100.0] * 5, [100.0] * 5, [50.0] * 5, [50.0] * 5])
    for number, (mean, deviation) in sums.items():
        found[2:, number] = 100.0 * mean, 100.0 * (mean**2 + deviation**2)
    weights.restore(state | {"sums": found})
    return weights


def test_the_learned_weights_serve_once_they_rank_better_than_the_first_ranking_by_a_standard_error() -> None:
    # 100 lists of deviation .2 have a standard error of .02.
    assert compared({0: (0.03, 0.2)}).blend.names == (SIMILARITY, "text")
    assert compared({0: (0.03, 0.2)}).blend.units.all()
    # The first ranking counts in widths, which have no scale.
    assert not compared({0: (0.01, 0.2)}).blend.units.any()
    assert compared({0: (0.01, 0.2)}).blend.weights.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("seed", range(3))
def test_the_first_ranking_counts_in_widths_of_candidates_that_a_list_does_not_show(seed: int) -> None:
    """What the first ranking puts first is clicked, in lists of ten of 200 candidates: nothing ranks better."""
    draw, shown, k = np.random.default_rng(seed), [], 400
    for _ in range(k):
        # Few candidates match the text, so its width among those that are shown is another one.
        values = np.stack([draw.normal(size=200), draw.exponential(size=200) ** 1.5], axis=1)
        half = (values / np.ptp(values, axis=0)).sum(axis=1)
        shown.append(values[np.argsort(-half)[:10]])
    weights = Weights(HALF)
    weights.learn(lists(np.concatenate(shown), np.arange(10 * k) % 10 == 0, (SIMILARITY, "text")))
    assert weights.blend is weights.first
    # By the widths of those that are shown, the first ranking would seem to lose some of them.
    learned, first = weights.learned, weights.first

    def lost(blend: Any) -> int:
        return sum(np.argmax(blend({SIMILARITY: one[:, 0], "text": one[:, 1]})) != 0 for one in shown)

    assert 0 < lost(learned) < lost(first)


@pytest.mark.parametrize(("number", "weight", "name"), [(1, 1.0, SIMILARITY), (4, -1.0, "text")])
def test_one_signal_serves_where_it_ranks_surely_better(number: int, weight: float, name: str) -> None:
    sure, unsure = compared({0: (0.03, 0.2), number: (-0.05, 0.2)}), compared({number: (-0.03, 0.2)})
    assert (sure.blend.names, sure.blend.weights.tolist()) == ((name,), [weight])
    assert unsure.blend.names == (SIMILARITY, "text")


@settings(max_examples=30, deadline=None)
@given(
    arrays.arrays(
        np.float64,
        (40, 3),
        elements=st.sampled_from([0.0, -0.0, 1.0, 7.5, 3e38, -3e38, 1e-45, np.nan, np.inf, -np.inf, 1e-3]),
    ),
    arrays.arrays(np.bool_, 40),
)
def test_no_number_of_a_score_spoils_the_weights(values: NDArray[Any], clicked: NDArray[Any]) -> None:
    weights = Weights({SIMILARITY: 1.0})
    weights.learn(lists(values, clicked, (ADAPTED, SIMILARITY, "text")))
    state = weights.state()
    assert all(
        np.isfinite(np.asarray(state[name])).all() for name in ("weights", "curvature", "scales", "sums")
    )
    assert np.isfinite(weights.blend({ADAPTED: values[:10, 0], "text": values[:10, 2]})).all()


def test_a_guard_that_shortens_a_change_is_counted() -> None:
    draw = np.random.default_rng(0)
    values = draw.normal(size=(3_000, 1))
    # The worst item is clicked in list after list.
    clicked = (values.reshape(300, 10) == values.reshape(300, 10).min(axis=1)[:, None]).reshape(-1)
    weights = Weights({"text": 1.0})
    assert weights.learn(lists(values, clicked, ("text",))).any() == (weights.clipped > 0)
    assert weights.blend.weights[0] < 0.0


def test_what_a_purchase_says_weighs_more_than_what_a_click_says() -> None:
    """In each list the best by text and the worst are clicked; one of them is bought."""

    def text(worth_of_best: float, worth_of_worst: float) -> tuple[float, float]:
        values = np.random.default_rng(0).normal(size=(200, 10))
        best, worst = (values == one(values, axis=1, keepdims=True) for one in (np.max, np.min))
        whole = lists(values.reshape(-1, 1), (best | worst).reshape(-1), ("text",))
        worth = np.where(best, worth_of_best, np.where(worst, worth_of_worst, 1.0)).reshape(-1)
        weights = Weights({"text": 0.0, SIMILARITY: 1.0})
        weights.learn(replace(whole, worth=worth))
        weight, _, less, _ = np.asarray(weights.state()["sums"], np.float64)
        # What text gains upwards, less what it gains downwards.
        return float(weights.learned.weights[0]), float(less[2] / weight[2] - less[1] / weight[1])

    (even, _), (bought, gained), (other, lost) = text(1.0, 1.0), text(5.0, 1.0), text(1.0, 5.0)
    assert other < -0.3 < even < 0.3 < bought
    assert lost < -0.1 < 0.1 < gained


def test_many_lists_of_one_query_or_user_count_little() -> None:
    """A user who clicks in 50 lists what stands last by text turns it by less than 50 users do."""
    blocks = [*World(150).blocks(cut=1)]

    def text(actor: int) -> float:
        model = learned(blocks[:100], start=HALF)
        for number, block in enumerate(blocks[100:]):
            assert block.lists is not None and block.lists.scores is not None
            values = block.lists.scores.values[:, block.lists.scores.names.index("text")]
            clicked = values == values.min()
            who = np.array([actor or 1_000 + number], np.uint64)
            model.learn(replace(block, lists=replace(block.lists, clicked=clicked, actor=who)))
        found = model.learned_blend
        return float(found.weights[found.names.index("text")])

    usual = learned(blocks[:100], start=HALF).learned_blend
    before = float(usual.weights[usual.names.index("text")])
    one, many = text(5), text(0)
    assert before - one < 0.5 * (before - many)


def test_signals_beyond_the_limit_play_no_part() -> None:
    names = tuple(sorted((ADAPTED, SIMILARITY, *(f"s{k:02}" for k in range(SIGNALS)))))
    values = np.random.default_rng(0).normal(size=(100, len(names)))
    weights = Weights({SIMILARITY: 1.0})
    weights.learn(lists(values, np.arange(100) % 10 == 2, names))
    assert len(weights.names) == SIGNALS
    assert Ranking().blend.names == (SIMILARITY,)
