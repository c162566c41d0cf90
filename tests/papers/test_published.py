"""The printed figures are whole, and agree with what the papers count from them."""

from __future__ import annotations

import pytest

from benchmarks.papers.shared.published import Reported, table
from benchmarks.papers.shared.published_tables import (
    OAHU_TABLE_3,
    OMDML_TABLE_2,
    OPML_TABLE_2,
    OPML_TABLE_4,
)

#: The last row of Table II of the OPML paper: how often OPML wins, ties and loses.
WIN_TIE_LOSS = {
    "euclidean": (6, 5, 1),
    "mahalanobis": (7, 4, 1),
    "lmnn": (1, 4, 7),
    "itml": (3, 2, 7),
    "oasis": (9, 1, 2),
    "rdml": (5, 4, 3),
    "pola": (6, 2, 4),
    "lego": (5, 2, 5),
    "soml-tg": (12, 0, 0),
}


@pytest.mark.parametrize("metric", WIN_TIE_LOSS)
def test_marks_add_up_to_the_printed_wins_ties_and_losses(metric: str) -> None:
    marks = [row[metric].mark for row in OPML_TABLE_2.rows.values()]
    assert (marks.count("•"), marks.count(""), marks.count("◦")) == WIN_TIE_LOSS[metric]


@pytest.mark.parametrize("printed", [OPML_TABLE_2, OPML_TABLE_4, *OAHU_TABLE_3])
def test_every_set_has_every_metric_with_a_deviation(printed: object) -> None:
    assert hasattr(printed, "rows")
    for row in printed.rows.values():
        assert tuple(row) == printed.metrics  # type: ignore[attr-defined]
        assert all(figure.std is not None and 0.0 <= figure.mean <= 1.0 for figure in row.values())


def test_shapes_are_those_of_the_papers() -> None:
    assert len(OPML_TABLE_2.rows) == 12 and len(OPML_TABLE_2.metrics) == 11
    assert len(OPML_TABLE_4.rows) == 9
    assert [len(printed.rows) for printed in OAHU_TABLE_3] == [3, 3, 3]
    assert len(OMDML_TABLE_2.rows) == 4 and len(OMDML_TABLE_2.metrics) == 14


def test_squared_distances_side_by_side_are_their_sum() -> None:
    """Of squared Euclidean distances C and U are one metric, so a slip of the transcription would show."""
    for row in OMDML_TABLE_2.rows.values():
        assert row["euclidean-c"] == row["euclidean-u"]


def test_oahu_is_printed_as_better_than_every_other_method() -> None:
    for printed, marks in zip(OAHU_TABLE_3, (True, False, False), strict=True):
        for row in printed.rows.values():
            assert {figure.mark for name, figure in row.items() if name != "oahu-published"} == {
                "•" if marks else ""
            }


def test_a_line_without_a_cell_and_a_cell_without_a_figure_are_refused() -> None:
    assert table("x", "error", ("a", "b"), "iris | 0.1±0.02 • | -").rows == {
        "iris": {"a": Reported(0.1, 0.02, "•")}
    }
    with pytest.raises(ValueError, match="iris: 1 cells for 2 metrics"):
        table("x", "error", ("a", "b"), "iris | 0.1")
    with pytest.raises(ValueError, match="'about 3' is not a figure"):
        table("x", "error", ("a",), "iris | about 3")
