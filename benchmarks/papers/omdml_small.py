"""Mean average precision of retrieval over several modalities, Table 2 of the OMDML paper.

Protocol. A quarter of the rows, at most 500, are queries, searched among all others; every feature is scaled to [0, 1]
by the others. Learners get 12,000 random triplets of the others. B is the best modality alone, C all modalities side by
side as one vector, U the sum of the distances of all modalities, each learned separately. Settings are chosen by mean
average precision on 30 % of the training rows, left out once. The rank of LOMDML is 50, or the number of features of a
modality if that is less.

Differences from the paper.

- **The data differ.** The paper's sets of images are not available. They are replaced by mfeat (2,000 digits, 6
  modalities), msrc_v1 (210 images, 5 modalities) and leaves100 (1,600 leaves, 3 modalities). Only the order of the
  methods can be compared, not the figures.
- The paper cuts each set to 10 classes of 50 images and uses all pairs of one class with one negative each, about
  10,000 triplets; here all rows are used, and triplets are drawn.
- B is the modality with the fewest mistakes over the stream, not that with the best precision on a validation set.
- RCA is fitted once, to 12,000 triplets, which connect the rows of a class; LMNN to 3,000 one-pass triplets, with 100
  steps. If a modality has more features than there are rows, RCA has no fit and remains Euclidean distance.
- OASIS is measured as a distance, by the positive semi-definite part of its matrix.
- The paper does not state the gallery; here it is all training rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Final

from benchmarks.papers.shared.baselines import WARM_UP
from benchmarks.papers.shared.comparison import Statement
from benchmarks.papers.shared.data_folder import DataFolder, Missing
from benchmarks.papers.shared.feeds import DrawnTriplets
from benchmarks.papers.shared.protocol import Protocol
from benchmarks.papers.shared.published_tables import OMDML_TABLE_2
from kinstream.evaluation.experiment.data import LabelledRows
from kinstream.evaluation.experiment.feeds import Built, Feed
from kinstream.evaluation.experiment.plan import SIDE_BY_SIDE, Contender, GridChoice, Measuring, Plan, grid
from kinstream.evaluation.experiment.splits import RandomHalves, Scaling

SPLITS: Final = 5
QUICK_SPLITS: Final = 2
TRIPLETS: Final = 12_000
QUICK_TRIPLETS: Final = 3_000
#: Triplets that LMNN is fitted to.
LMNN_TRIPLETS: Final = 3_000
#: Triplets beyond those of a fit: for the warm-up, and because a fit waits for a triplet with a loss.
_MORE: Final = 4 * WARM_UP + 244
QUERIES: Final = 500
RANK: Final = 50
SETS: Final = ("mfeat", "msrc_v1", "leaves100")
#: Shown beside all of ours.
PAPER: Final = ("corel",)


def three_ways(
    base: str, feed: Feed, settings: Mapping[str, Any], steps: Sequence[Mapping[str, Any]] = ({},)
) -> list[Contender]:
    """A learner of one modality as B, C and U."""
    plain = base == "euclidean"
    points = tuple({**settings, **step} for step in steps)
    over = tuple({"settings": point} for point in points)
    return [
        Contender(f"{base}-b", "fusion", feed, {"base": base, "how": "best"}, over, plain),
        Contender(f"{base}-c", base, feed, {}, points, plain, SIDE_BY_SIDE),
        Contender(f"{base}-u", "fusion", feed, {"base": base, "how": "uniform"}, over, plain),
    ]


def contenders(quick: bool) -> list[Contender]:
    """All rows of the table; LMNN where metric-learn is installed, and not in the quick form."""
    m = QUICK_TRIPLETS if quick else TRIPLETS
    feed, longer = DrawnTriplets(m), DrawnTriplets(m + _MORE)
    once: dict[str, Any] = {"refit_every": 0, "warm_up": WARM_UP}
    found = three_ways("euclidean", feed, {}) + three_ways("rca", longer, once | {"buffer": m})
    if not quick and find_spec("metric_learn") is not None:
        fitted = Built("one-pass", {"prefix_pairs": False}, limit=LMNN_TRIPLETS + _MORE, passes=1_000)
        found += three_ways("lmnn", fitted, once | {"buffer": LMNN_TRIPLETS, "max_iter": 100})
    found += three_ways("oasis", feed, {}, grid({"aggressiveness": (1e-3, 1e-2, 1e-1)}))
    margins = (1.0,) if quick else (0.1, 1.0)
    return [
        *found,
        Contender(
            "omdml",
            "omdml",
            feed,
            {"beta": 0.99},
            grid({"aggressiveness": (1e-3, 1e-2, 1e-1), "margin": margins}),
        ),
        Contender(
            "lomdml",
            "lomdml",
            feed,
            {"rank": RANK, "beta": 0.99},
            grid({"eta": (1e-4, 1e-3, 1e-2), "margin": margins}),
        ),
    ]


def _sets(folder: DataFolder, quick: bool) -> list[LabelledRows | Missing]:
    return [folder.load(name) for name in SETS]


def _plan(rows: Sequence[LabelledRows], quick: bool) -> Plan:
    return Plan(
        "omdml-small",
        tuple(contenders(quick)),
        splits=QUICK_SPLITS if quick else SPLITS,
        splitter=RandomHalves(test_share=0.25, most_test=QUERIES),
        scaling=Scaling("minmax", "train"),
        choice=GridChoice("map"),
        measuring=Measuring(("retrieval",), ranks=(1, 5, 10, 20, 50), gallery="train"),
    )


def _said(result: Mapping[str, Any], times: Sequence[Mapping[str, Any]]) -> list[Statement]:
    """The order that the paper finds on all of its sets."""
    means = {(s["data"], s["metric"]): s["mean"] for s in result["summary"] if s["measure"] == "map"}
    sets = [data["name"] for data in result["data"]]
    learners = [m["name"] for m in result["metrics"]]
    others = [name for name in learners if name not in ("omdml", "lomdml")]
    found = []
    for name in ("omdml", "lomdml"):
        above = sum(means[data, name] > max(means[data, other] for other in others) for data in sets)
        found.append(
            Statement(f"sets on which {name} is above every baseline", f"{above} of {len(sets)}", "4 of 4")
        )
    above = sum(means[data, "lomdml"] > means[data, "omdml"] for data in sets)
    found.append(Statement("sets on which lomdml is above omdml", f"{above} of {len(sets)}", "4 of 4"))
    return found


PROTOCOL: Final = Protocol(
    name="omdml-small",
    title="OMDML paper, Table 2: mean average precision over several modalities (other data)",
    sets=_sets,
    plan=_plan,
    cut=f"{QUICK_SPLITS} splits instead of {SPLITS}; {QUICK_TRIPLETS:,} triplets instead of {TRIPLETS:,}; no LMNN; "
    "one margin",
    printed=(OMDML_TABLE_2,),
    other=dict.fromkeys(SETS, PAPER),
    extra=_said,
)
