"""What an evaluation costs beside the kernels that it runs: `kinstream evaluate` on waveform (5,000 rows, d = 21).

Bare is what a script of one's own would run: the builder over the same blocks, `learn`, `transform`, and a
vote of scikit-learn's nearest rows; without curves, counts, and results on disk. Both on one thread, best of several.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.data import arrays
from benchmarks.figures import Figure
from kinstream.evaluation.experiment.data import LabelledRows, of_arrays
from kinstream.evaluation.experiment.feeds import SPACE, Built
from kinstream.evaluation.experiment.plan import Cell, Contender, Measuring, Plan
from kinstream.evaluation.measures.quality import knn
from kinstream.evaluation.runner.cells import Runner
from kinstream.evaluation.runner.store import Store
from kinstream.learners import registry as learners
from kinstream.processors import registry as builders
from kinstream.processors.base.builder import Origin
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.records.values import SampleBlock, Table

KINDS: Final = ("opml", "copml", "lego", "oasis", "soml-tg", "rdml", "pola", "oahu")
BUILDER: Final = "one-pass"
BLOCK: Final = 256
K: Final = 5
#: Share by which the evaluation may take longer.
ALLOWED: Final = 0.3


def figures(quick: bool) -> list[Figure]:
    """Time of a finished cell over that of its kernels, for each kind."""
    found = arrays("waveform")
    if found is None:
        return []
    data = of_arrays("waveform", found["X"], found["y"])
    plan = Plan(
        "overhead",
        tuple(Contender(kind, kind, Built(BUILDER)) for kind in KINDS),
        splits=1,
        measuring=Measuring(("classification",)),
    )
    tries = 3 if quick else 9
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        return [_figure(plan, data, at, store, tries) for at in range(len(KINDS))]


def _figure(plan: Plan, data: LabelledRows, at: int, store: Store, tries: int) -> Figure:
    kind, cell = plan.contenders[at].kind, Cell(0, 0, at)
    # Both once before, so that nothing is compiled or loaded while it is measured.
    store.keep("first", Runner(plan, [data]).run(cell))
    _bare(kind, plan, data)
    bare, ours = [], []
    for _ in range(tries):
        begun = time.perf_counter()
        _bare(kind, plan, data)
        bare.append(time.perf_counter() - begun)
        runner = Runner(plan, [data])
        runner.compile(plan.contenders[at])
        begun = time.perf_counter()
        store.keep(plan.key(data, cell), runner.run(cell))
        ours.append(time.perf_counter() - begun)
    return Figure(
        "evaluation",
        f"{kind} on waveform, time over that of the bare kernels ({1e3 * min(bare):.0f} ms)",
        100.0 * (min(ours) / min(bare) - 1.0),
        "% more",
        at_most=100.0 * ALLOWED,
        facts={"bare_seconds": min(bare), "evaluated_seconds": min(ours)},
    )


def _bare(kind: str, plan: Plan, data: LabelledRows) -> None:
    split = plan.splitter(data, 0)
    X, y, U = data.tables["x"][split.train], data.labels[split.train], data.tables["x"][split.test]
    builder, learner = builders.create(BUILDER, seed=0), learners.create(kind)
    with one_blas_thread():
        for number, start in enumerate(range(0, len(y), BLOCK)):
            part = slice(start, start + BLOCK)
            samples = SampleBlock(SPACE, (Table("x", X[part]),), y[part], time_ms=0)
            for block in builder.process(samples, Origin(offset=number)).blocks:
                learner.learn(block)
        knn(learner.transform(X), y, learner.transform(U), data.labels[split.test], K)
