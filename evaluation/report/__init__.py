"""The report of an evaluation: a page with charts, a summary on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kinstream.streams.extras import importing


def write_report(
    result: Mapping[str, Any],
    folder: Path,
    *,
    times: Sequence[Mapping[str, Any]] = (),
) -> Path:
    """Write `report.html`.

    Parameters
    ----------
    result : the content of `result.json` of `kinstream evaluate`; see docs/evaluating.md.
    folder : is created if it is missing.
    times : the content of `timings.json`; without it the page has no costs.

    Returns
    -------
    The page. The same result and times give the same bytes, with the same versions of the libraries.

    Raises
    ------
    SettingsError : the folder cannot be written to.
    """
    # Charts take a second to import, and the measures of this package are used without them.
    with importing("a report"):
        from kinstream.evaluation.report.write import write

    return write(result, folder, times)
