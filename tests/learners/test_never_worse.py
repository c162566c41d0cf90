"""OAHU by its defaults is not worse than not learning, on the small sets of docs/oahu.md and by its limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.shared_sets import load
from benchmarks.studies.never_worse import ALLOWED, cells, trials

SPLITS = range(200, 210)
#: Of a mean difference: what another processor's rounding may do to single test rows.
SLACK = 0.002
#: Sets, and by how much less it errs after 10,000 triplets, at least.
GAINS = {
    "iris": None,
    "wine": None,
    "glass": None,
    "spect": None,
    "breast": None,
    "pima": None,
    "balance": 0.03,
    "waveform": 0.01,
    "sensorless_2200": 0.1,
}


@pytest.mark.long
@pytest.mark.parametrize("name", GAINS)
def test_it_errs_no_more_than_the_better_unlearned_metric(name: str, data_folder: Path) -> None:
    data = load(name)
    assert data is not None, f"{name}.npz is not in {data_folder}"
    done = [trial for seed in SPLITS for trial in trials(data, seed, (1_000, 10_000), {})]
    few, many = cells(done)
    for cell in (few, many):
        assert cell.difference <= max(cell.error, ALLOWED) + SLACK, cell
        assert cell.utilised == 1.0, cell
    gain = GAINS[name]
    if gain is not None:
        assert many.difference <= -gain, many
