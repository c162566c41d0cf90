"""The blend of signals: its bits, what a missing value does, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from kinstream.learners.ranking.blend import Blend
from kinstream.streams.signals import ADAPTED, SIMILARITY

NAMES = (SIMILARITY, ADAPTED, "age", "text")


@st.composite
def cases(draw: st.DrawFn) -> tuple[Blend, dict[str, Any]]:
    n = draw(st.integers(1, 12))
    numbers = st.floats(-1e6, 1e6, width=32) | st.sampled_from([np.nan, np.inf, 1e300, 0.0, -0.0])
    signals = {name: draw(arrays.arrays(np.float64, n, elements=numbers)) for name in NAMES}
    weights = draw(arrays.arrays(np.float64, len(NAMES), elements=st.floats(-10, 10)))
    scales = draw(arrays.arrays(np.float64, len(NAMES), elements=st.sampled_from([0.0, 0.3, 7.0])))
    return Blend(NAMES, weights, scales), signals


@settings(max_examples=200, deadline=None)
@given(cases(), st.randoms(use_true_random=False))
def test_neither_the_order_of_candidates_nor_that_of_names_changes_a_bit(
    case: tuple[Blend, dict[str, Any]], random: Any
) -> None:
    blend, signals = case
    values = blend(signals)
    rows = [*range(len(values))]
    random.shuffle(rows)
    assert blend({name: one[rows] for name, one in signals.items()}).tobytes() == values[rows].tobytes()
    order = [*range(len(NAMES))]
    random.shuffle(order)
    other = Blend(tuple(NAMES[k] for k in order), blend.weights[order], blend.units[order])
    assert other(signals).tobytes() == values.tobytes()


@settings(max_examples=200, deadline=None)
@given(cases())
def test_a_value_is_the_sum_of_its_terms_and_finite(case: tuple[Blend, dict[str, Any]]) -> None:
    blend, signals = case
    values, terms = blend(signals), blend.terms(signals)
    assert np.isfinite(values).all()
    total = np.zeros(len(values))
    for name in sorted(terms):
        total += terms[name]
    assert total.tobytes() == values.tobytes()


@settings(max_examples=200, deadline=None)
@given(cases())
def test_a_missing_value_is_neutral(case: tuple[Blend, dict[str, Any]]) -> None:
    blend, signals = case
    terms = blend.terms(signals)
    for name, one in signals.items():
        assert not terms[name][~np.isfinite(one)].any()
        # A name that is missing for all is as if it had no weight.
        others = {other: value for other, value in signals.items() if other != name}
        weights = np.where(np.array(NAMES) == name, 0.0, blend.weights)
        assert np.array_equal(blend(others), Blend(NAMES, weights, blend.units)(signals))


def test_candidates_are_ranked_by_weighted_shares_of_the_widths() -> None:
    blend = Blend.fixed({SIMILARITY: 0.5, "text": 0.5})
    signals = {SIMILARITY: np.array([0.9, 0.7, 0.5]), "text": np.array([0.0, 10.0, 5.0])}
    scaled = [0.5 * (1.0 + 0.0), 0.5 * (0.5 + 1.0), 0.5 * (0.0 + 0.5)]
    values = blend(signals)
    assert np.allclose(values - values[0], np.array(scaled) - scaled[0])


def test_a_scale_of_its_own_does_not_depend_on_the_candidates() -> None:
    blend = Blend(("text",), np.array([2.0]), np.array([4.0]))
    few, many = blend({"text": np.array([1.0, 3.0])}), blend({"text": np.array([1.0, 3.0, 11.0, 50.0])})
    assert few[1] - few[0] == many[1] - many[0] == 1.0


def test_constants_and_names_of_no_weight_play_no_part() -> None:
    blend = Blend.fixed({SIMILARITY: 1.0})
    assert not blend({SIMILARITY: np.full(3, 0.4), "text": np.arange(3.0)}).any()
    assert blend({}).shape == (0,)
    assert blend({SIMILARITY: np.full(3, np.nan)}).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((("a", "a"), [1.0, 1.0]), "two weights"),
        ((("a",), [1.0, 2.0]), "1 signals"),
        ((("a",), [np.nan]), "finite"),
        ((("a",), [1.0], [-1.0]), "at least 0"),
    ],
)
def test_weights_that_are_none_are_refused(arguments: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Blend(*arguments)


def test_signals_of_unlike_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="one shape"):
        Blend.fixed({SIMILARITY: 1.0})({SIMILARITY: np.zeros(2), "text": np.zeros(3)})
