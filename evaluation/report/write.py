"""Writes the page of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kinstream.evaluation.report.charts import charts
from kinstream.evaluation.report.page import Picture, page
from kinstream.evaluation.report.results import Results
from kinstream.evaluation.report.style import styled, svg
from kinstream.streams.errors import SettingsError

PAGE: Final = "report.html"


def write(result: Mapping[str, Any], folder: Path, times: Sequence[Mapping[str, Any]]) -> Path:
    """See `kinstream.evaluation.report.write_report`."""
    results = Results(result, times)
    with styled():
        pictures = {
            data: [Picture(chart.kind, chart.alt, svg(chart.draw())) for chart in charts(results, data)]
            for data in results.data_names
        }
    path = folder / PAGE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(page(results, pictures), encoding="utf-8", newline="\n")
    except OSError as error:
        raise SettingsError(f"the report cannot be written to {folder}: {error}") from error
    return path
