"""Numbers that float32 cannot tell apart are refused with a sentence, or shifted before."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from kinstream.evaluation.experiment.data import of_arrays
from kinstream.learners.sklearn import MetricLearner
from kinstream.producers.files.numbers import Where, numbers
from kinstream.producers.labelled.array_source import from_arrays
from kinstream.producers.sources.values.convert import vector
from kinstream.search.service.refusals import Refused
from kinstream.search.service.requests import checked
from kinstream.streams.errors import BadRecord, SettingsError, SourceError
from kinstream.streams.records.codec.codec import decode_event
from kinstream.streams.records.foreign.narrowing import lost, shift

#: Half a day of seconds, milliseconds and nanoseconds.
TIMES = [1_764_370_000.0 + 43_200.0 * k / 40.0 for k in range(40)]
UNITS = [1.0, 1e3, 1e9]


def table(unit: float, n: int = 40) -> NDArray[np.float64]:
    return np.column_stack([np.random.default_rng(0).normal(size=n), unit * np.array(TIMES[:n])])


@pytest.mark.parametrize("unit", UNITS)
def test_times_are_refused_wherever_numbers_come_in(unit: float) -> None:
    X, y = table(unit), np.arange(40) % 2
    sentence = "float32, which holds 7 digits. Subtract a constant first"
    with pytest.raises(SourceError, match=sentence):
        numbers(pa.array(X[:, 1]), Where("a.csv", "time"))
    with pytest.raises(SourceError, match=rf"a.npz: x\[1\]: .*{sentence}"):
        from_arrays({"x": X}, y, identity="a", place="a.npz")
    with pytest.raises(SettingsError, match=f"a: column 1 of x: .*{sentence}"):
        of_arrays("a", {"x": X}, y)  # type: ignore[dict-item]
    with pytest.raises(BadRecord, match=f"features: number 1: .*{sentence}"):
        vector([0.5, float(X[1, 1])], "features")
    with pytest.raises(Refused, match=rf"{sentence}|above 1e\+15"):
        checked(X[-1:].tolist(), 2, "vectors", 10, "the space")
    for rows in (1, 40):
        event: dict[str, Any] = {"kind": "samples", "space": "s", "vectors": X[-rows:].tolist()}
        with pytest.raises(BadRecord, match=f"number 1 of a row: .*{sentence}"):
            decode_event(json.dumps(event | {"labels": y[:rows].tolist(), "time_ms": 0}).encode())


@pytest.mark.parametrize(
    "values",
    [
        # Times of years differ by more than rounding.
        1.7e9 + 3e7 * np.random.default_rng(1).random(50),
        # Amounts, and whole numbers that are exact.
        1e9 * np.random.default_rng(2).random(50),
        np.full(50, 1.7e9),
        2.0**31 + 256.0 * np.arange(50),
        np.random.default_rng(3).normal(size=50),
        np.array([123_456_789.5]),
        np.array([2.4e9]),
        np.array([np.nan, np.inf, 1e300]),
    ],
)
def test_what_float32_holds_well_enough_passes(values: NDArray[np.float64]) -> None:
    assert lost(values[:, None]) is None


def test_the_estimator_shifts_what_would_be_lost() -> None:
    draw = np.random.default_rng(4)
    y = draw.integers(0, 2, 400)
    X = np.column_stack(
        [draw.normal(size=(400, 3)), 1_764_370_000.0 + 40.0 * y + 8.0 * draw.normal(size=400)]
    )
    model = MetricLearner("mixture").fit(X[:200], y[:200])
    assert model.shift_[:3].tolist() == [0.0] * 3 and model.shift_[3] == np.median(X[:200, 3])
    assert model.score(X[200:], y[200:]) > 0.95
    once, later = MetricLearner("mixture"), MetricLearner("mixture")
    once.partial_fit(X[:200], y[:200])
    later.partial_fit(X[:100], y[:100]).partial_fit(X[100:200], y[100:200])
    assert later.shift_[3] == np.median(X[:100, 3])
    assert later.score(X[200:], y[200:]) > 0.9


def test_rounding_errors_are_no_differences() -> None:
    X = np.where(np.arange(40)[:, None] % 2, 0.3, 0.1 + 0.2)
    assert not shift(X).any()
