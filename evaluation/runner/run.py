"""A whole experiment: finished cells are reused, the others are run, and all of them become one result."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from kinstream.evaluation.experiment.data import Data
from kinstream.evaluation.experiment.plan import Plan
from kinstream.evaluation.runner.cells import Done
from kinstream.evaluation.runner.pool import run_all
from kinstream.evaluation.runner.recommendation import important
from kinstream.evaluation.runner.store import Store, canonical
from kinstream.evaluation.runner.summary import summarise
from kinstream.streams.checkpoints.store import versions
from kinstream.streams.errors import SettingsError

FORMAT: Final = 1
RESULT: Final = "result.json"
TIMES: Final = "timings.json"

#: Called with the number of finished cells and of all cells.
Progress = Callable[[int, int], None]


def evaluate(
    plan: Plan,
    data: Sequence[Data],
    folder: Path,
    *,
    jobs: int = 1,
    progress: Progress = lambda done, all_: None,
) -> dict[str, Any]:
    """Run an experiment and write `result.json` and `timings.json` into its folder.

    An experiment that is run again in the same folder reuses every cell whose data, settings and measures are the same.
    The result has the same bytes for any number of processes, interrupted or not.

    Parameters
    ----------
    data : of different names.
    jobs : processes.

    Returns
    -------
    The result as JSON; see docs/evaluating.md.

    Raises
    ------
    SettingsError : the folder cannot be used, or a metric and a data set do not fit.
    """
    names = [one.name for one in data]
    if not data or len(set(names)) < len(names):
        raise SettingsError(f"data sets need different names, and there must be one: {', '.join(names)}")
    if jobs < 1:
        raise SettingsError(f"jobs must be at least 1, not {jobs}")
    store = Store(folder)
    cells = plan.cells(data)
    keys = {cell: plan.key(data[cell.data], cell) for cell in cells}
    finished = {cell: done for cell in cells if (done := store.find(keys[cell])) is not None}
    progress(len(finished), len(cells))
    missing = [cell for cell in cells if cell not in finished]
    if missing:
        # Closed at once if an error stops this loop: processes end before their queue does.
        with closing(run_all(plan, data, missing, jobs)) as running:
            for cell, done in running:
                # Read back from disk, so that reused and new cells are the same.
                store.keep(keys[cell], _read(done))
                finished[cell] = _read(done)
                progress(len(finished), len(cells))
    result: dict[str, Any] = {
        "format": FORMAT,
        "versions": versions(),
        "plan": plan.describe(),
        "metrics": [
            {
                "name": contender.name,
                "role": "unlearned" if contender.unlearned else "learner",
                "family": contender.family,
                "kind": contender.kind,
                "builder": contender.feed.name,
                "grid": [dict(point) for point in contender.grid],
            }
            for contender in plan.contenders
        ],
        "data": [one.describe() for one in data],
        "cells": [finished[cell].result for cell in cells],
    }
    features = {one.name: getattr(one, "names", ()) for one in data}
    result["importance"] = important(result["cells"], [one.name for one in plan.contenders], features)
    result = json.loads(json.dumps(result)) | summarise(result)
    store.write(RESULT, canonical(result))
    store.write(TIMES, canonical([finished[cell].times for cell in cells]))
    loaded: dict[str, Any] = json.loads(canonical(result))
    return loaded


def _read(done: Done) -> Done:
    return Done(json.loads(json.dumps(done.result)), json.loads(json.dumps(done.times)))
