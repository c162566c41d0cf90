"""How long the protocol of Table II takes: eight small sets, every learner of the table, 20 splits, all processes.

Settings are chosen in each split anew, so that an online learner runs many times; metric-learn's LMNN and ITML are
fitted once for each split, to the same rows.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.figures import Figure
from benchmarks.papers.registry import protocol
from benchmarks.papers.shared.data_folder import VARIABLE, DataFolder
from benchmarks.papers.shared.protocol import prepare
from kinstream.evaluation.runner.run import TIMES, evaluate
from kinstream.streams.errors import SettingsError

SETS: Final = ("iris", "wine", "glass", "balance", "breast", "pima", "waveform", "spect")
SPLITS: Final = 20


def figures(quick: bool) -> list[Figure]:
    """Minutes of the whole, and seconds that one split of a set takes in each learner alone."""
    try:
        folder = DataFolder(Path(os.environ.get(VARIABLE, "../shared/data")))
        ready = prepare(protocol("opml-table-2"), folder, splits=2 if quick else SPLITS)
    except SettingsError:
        return []
    rows = tuple(one for one in ready.rows if one.name in SETS)
    with tempfile.TemporaryDirectory() as results:
        begun = time.perf_counter()
        evaluate(ready.plan, rows, Path(results), jobs=os.cpu_count() or 1)
        minutes = (time.perf_counter() - begun) / 60.0
        times = json.loads((Path(results) / TIMES).read_text(encoding="utf-8"))
    whole = f"Table II, {len(rows)} sets, {len(ready.plan.contenders)} metrics, {ready.plan.splits} splits"
    found = [Figure("evaluation", whole, minutes, "min")]
    for contender in ready.plan.contenders:
        own = [t["seconds_learning"] for t in times if t["metric"] == contender.name]
        label = f"{contender.name}, learning of one split with the chosen settings, mean over sets"
        found.append(Figure("evaluation", label, 1e3 * sum(own) / len(own), "ms"))
    return found
