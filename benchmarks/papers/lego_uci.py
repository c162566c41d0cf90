"""LEGO against POLA and ITML-Online on UCI sets, section 5 of the LEGO paper.

Protocol. Rows are cut into random halves, 10 times; columns are z-scored by the training half. LEGO, POLA and
ITML-Online learn the same 10,000 random pairs, with the 5th and 95th percentile of squared distances as targets. Step
sizes are chosen with 1,000 constraints, by cross-validation of three folds within the half. 5 neighbours vote. ITML,
the offline learner that LEGO should approach, is metric-learn's, if that package is installed.

Differences from the paper. The paper prints its errors as bars without numbers, so only its statements about them can
be compared. It states neither k nor the scaling. It tunes a step size of POLA, which has none: here that is a cap of
the step. Its five sets are those of the ITML paper, probably wine, ionosphere, balance, iris and soybean. ITML-Online's
step rule is ours. Training times are those of compiled code, and their ratio depends on the machine; the paper's are
those of MATLAB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from benchmarks.papers.opml_table_2 import DRAWN, TUNING, lego
from benchmarks.papers.shared.baselines import batch, euclidean
from benchmarks.papers.shared.comparison import Statement
from benchmarks.papers.shared.data_folder import DataFolder, Missing
from benchmarks.papers.shared.feeds import DrawnPairs
from benchmarks.papers.shared.protocol import Protocol
from benchmarks.papers.shared.published import Printed
from benchmarks.papers.shared.published_tables import LEGO_SPEED_OVER_POLA
from kinstream.evaluation.experiment.data import LabelledRows
from kinstream.evaluation.experiment.plan import Contender, GridChoice, Measuring, Plan, grid
from kinstream.evaluation.experiment.splits import Scaling

SPLITS: Final = 10
QUICK_SPLITS: Final = 3
SETS: Final = ("wine", "balance", "iris", "ionosphere", "soybean")


def _sets(folder: DataFolder, quick: bool) -> list[LabelledRows | Missing]:
    return [folder.load(name) for name in SETS]


def _plan(rows: Sequence[LabelledRows], quick: bool) -> Plan:
    aimed = DrawnPairs(DRAWN, targets=True)
    etas = tuple(10.0**power for power in range(-4, 2))
    offline = [one for one in batch() if one.name == "itml"]
    return Plan(
        "lego-uci",
        (
            euclidean(),
            *offline,
            lego(),
            Contender("pola", "pola", aimed, grid=({}, {"cap": 1e-2}, {"cap": 1e-3}, {"cap": 1e-4})),
            Contender("itml-online", "itml-online", aimed, {"targets": "block"}, grid({"eta": etas})),
        ),
        splits=QUICK_SPLITS if quick else SPLITS,
        scaling=Scaling("zscore", "train"),
        choice=GridChoice("error", folds=3, limit=TUNING),
        measuring=Measuring(("classification",)),
    )


def _said(result: Mapping[str, Any], times: Sequence[Mapping[str, Any]]) -> list[Statement]:
    means = {(s["data"], s["metric"]): s["mean"] for s in result["summary"] if s["measure"] == "error"}
    sets = [data["name"] for data in result["data"]]
    found = []
    for other in [m["name"] for m in result["metrics"] if m["name"] != "lego"]:
        fewer = sum(means[name, "lego"] < means[name, other] for name in sets)
        stated = "close to it" if other == "itml" else "fewer errors"
        found.append(
            Statement(f"sets on which LEGO errs less than {other}", f"{fewer} of {len(sets)}", stated)
        )
    seconds = {(t["data"], t["split"], t["metric"]): t["seconds_learning"] for t in times}
    ratios = [
        seconds[data, split, "pola"] / seconds[data, split, "lego"]
        for data, split, metric in seconds
        if metric == "lego"
    ]
    found.append(
        Statement(
            "time of POLA over that of LEGO, mean over sets and halves",
            f"{np.mean(ratios):.3g}",
            f"{LEGO_SPEED_OVER_POLA}",
        )
    )
    return found


PROTOCOL: Final = Protocol(
    name="lego-uci",
    title="LEGO paper, section 5: error on UCI sets, and time against POLA",
    sets=_sets,
    plan=_plan,
    cut=f"{QUICK_SPLITS} halves instead of {SPLITS}",
    printed=(Printed("LEGO paper, section 5", "error", {}),),
    extra=_said,
)
