"""Error of 5-NN when classes begin one after the other, Table IV of the OPML paper (cold start).

Protocol. Features are z-scored over the whole set. Each class is cut into 10, 5 or 2 blocks, and blocks of different
classes alternate in one stream; its first half is learned in that order, the second half is tested. OPML and COPML
learn the one-pass triplets, COPML also the pairs while one class is known. Settings are chosen within the first half.
The order of rows within classes and the order of classes are drawn again in each of 10 runs.

Differences from the paper. The paper states neither its number of runs nor its settings. Its "2 folds" are read as the
two halves of the stream. Its three sets may be unavailable: `sensorless_2200` is 2,200 of the 58,509 rows of
Sensorless, on which every method errs more; the paper's figures for the whole set are shown beside it and are no limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from benchmarks.papers.shared.baselines import euclidean
from benchmarks.papers.shared.data_folder import DataFolder, Missing
from benchmarks.papers.shared.protocol import Protocol
from benchmarks.papers.shared.published_tables import OPML_TABLE_4
from benchmarks.papers.shared.splitters import ColdStart
from kinstream.evaluation.experiment.data import LabelledRows
from kinstream.evaluation.experiment.feeds import Built
from kinstream.evaluation.experiment.plan import Contender, GridChoice, Measuring, Plan, grid
from kinstream.evaluation.experiment.splits import Scaling

SPLITS: Final = 10
QUICK_SPLITS: Final = 3
BLOCKS: Final = (10, 5, 2)
#: Our name of a set to the paper's name, and whether it is the same set.
SETS: Final = {
    "segment": ("seg", True),
    "eeg": ("eeg", True),
    "sensorless": ("sen", True),
    "sensorless_2200": ("sen", False),
}
STEPS: Final = (1e-4, 1e-3, 1e-2, 1e-1)


def _called(name: str, blocks: int) -> str:
    return f"{name}-{blocks}"


def _sets(folder: DataFolder, quick: bool) -> list[LabelledRows | Missing]:
    found: list[LabelledRows | Missing] = []
    for name in SETS:
        rows = folder.load(name)
        if isinstance(rows, Missing):
            found.append(rows)
        else:
            found += [replace(rows, name=_called(name, blocks)) for blocks in BLOCKS]
    return found


def _plan(rows: Sequence[LabelledRows], quick: bool) -> Plan:
    return Plan(
        "opml-table-4",
        (
            euclidean(),
            Contender("opml", "opml", Built("one-pass"), grid=grid({"gamma": STEPS})),
            Contender(
                "copml", "copml", Built("one-pass"), grid=tuple({"gamma1": g, "gamma2": g} for g in STEPS)
            ),
        ),
        splits=QUICK_SPLITS if quick else SPLITS,
        splitter=ColdStart({_called(name, blocks): blocks for name in SETS for blocks in BLOCKS}),
        scaling=Scaling("zscore", "all"),
        choice=GridChoice("error", folds=3),
        measuring=Measuring(("classification",)),
    )


PROTOCOL: Final = Protocol(
    name="opml-table-4",
    title="OPML paper, Table IV: error of 5-NN after a cold start",
    sets=_sets,
    plan=_plan,
    cut=f"{QUICK_SPLITS} runs instead of {SPLITS}",
    printed=(OPML_TABLE_4,),
    same={_called(n, b): _called(paper, b) for n, (paper, same) in SETS.items() if same for b in BLOCKS},
    other={
        _called(n, b): (_called(paper, b),) for n, (paper, same) in SETS.items() if not same for b in BLOCKS
    },
    bounded=("opml", "copml"),
)
