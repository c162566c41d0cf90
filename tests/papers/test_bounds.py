"""Table II of the OPML paper: no learner errs more than the published mean and two deviations. Being better passes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.papers.opml_table_2 import BOUNDED
from benchmarks.papers.registry import protocol
from benchmarks.papers.shared.data_folder import DataFolder
from benchmarks.papers.shared.protocol import run

pytestmark = pytest.mark.long

#: Halves of each set; waveform, the large one, varies little.
HALVES = {"iris": 6, "wine": 6, "glass": 6, "balance": 3, "breast": 3, "pima": 3, "waveform": 1}


@pytest.mark.parametrize("name", HALVES)
def test_no_error_is_above_table_ii(name: str, data_folder: Path, tmp_path: Path) -> None:
    # The quick form has no batch learners, and leaves waveform out otherwise.
    alone = replace(protocol("opml-table-2"), sets=lambda folder, quick: [folder.load(name)])
    found = run(alone, DataFolder(data_folder), tmp_path, quick=True, splits=HALVES[name])
    assert {line.metric for line in found.held} == set(BOUNDED)
    assert not found.exceptions


def test_a_cold_start_is_overcome(data_folder: Path, tmp_path: Path) -> None:
    """Table IV's order: OPML errs less than Euclidean distance, and COPML no more than OPML but by chance."""
    found = run(protocol("opml-table-4"), DataFolder(data_folder), tmp_path, quick=True)
    means = {(line.data, line.metric): line.mean for line in found.lines}
    for data in {line.data for line in found.lines}:
        assert means[data, "opml"] < means[data, "euclidean"] - 0.05
        assert means[data, "copml"] <= means[data, "opml"] + 0.005
