"""Writes a report: the page and the charts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kinstream.evaluation.report.charts import charts
from kinstream.evaluation.report.page import Picture, page
from kinstream.evaluation.report.results import Results
from kinstream.evaluation.report.style import png, styled, svg
from kinstream.streams.errors import SettingsError

PAGE: Final = "report.html"
FIGURES: Final = "figures"
#: File names of charts in this or an earlier report: number of the data set, its name, the kind of chart.
_CHART: Final = re.compile(r"[0-9]{2,}-[a-z0-9-]+\.png")


def write(result: Mapping[str, Any], folder: Path, times: Sequence[Mapping[str, Any]]) -> list[Path]:
    """See `kinstream.evaluation.report.write_report`."""
    results = Results(result, times)
    figures = folder / FIGURES
    try:
        figures.mkdir(parents=True, exist_ok=True)
        for old in figures.iterdir():
            if _CHART.fullmatch(old.name):
                old.unlink()
        written = []
        pictures: dict[str, list[Picture]] = {}
        with styled():
            for number, data in enumerate(results.data_names, 1):
                for chart in charts(results, data):
                    path = figures / f"{number:02}-{_plain(data)}-{chart.kind}-{chart.part + 1}.png"
                    figure = chart.draw()
                    path.write_bytes(png(figure))
                    written.append(path)
                    pictures.setdefault(data, []).append(Picture(chart.kind, chart.alt, svg(figure)))
        path = folder / PAGE
        path.write_text(page(results, pictures), encoding="utf-8", newline="\n")
    except OSError as error:
        raise SettingsError(f"the report cannot be written to {folder}: {error}") from error
    return [path, *written]


def _plain(name: str) -> str:
    """A name as part of a file name. The number before it distinguishes names that become equal."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "data"
