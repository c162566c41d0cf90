"""What each part of OAHU's default is worth: its error with one thing changed at a time.

Sets, splits, triplets and the vote are those of `benchmarks.studies.never_worse`; so is the first row, the better of
Euclidean and of cosine distance on each set. Finished trials are kept in a file, and a run that was stopped goes on.

Example: python -m benchmarks.studies.oahu_ablation --sets iris wine glass
"""

from __future__ import annotations

import argparse
import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any, Final

from benchmarks.shared_sets import NAMES
from benchmarks.studies.never_worse import RESULTS, Cell, cells, run, trials_file
from kinstream.streams.compute.blas_threads import one_blas_thread

SETS: Final = (
    "iris",
    "wine",
    "glass",
    "breast",
    "pima",
    "balance",
    "waveform",
    "sensorless_2200",
    "mfeat",
    "leaves100",
)
#: Row of the table to what it changes.
CHANGES: Final[dict[str, dict[str, Any]]] = {
    "**default**": {},
    "no pull": {"pull": 0.0},
    "same weight for all learned metrics": {"beta": 0.9999999},
    "gradients by weight, as published": {"gradient": "hedge"},
    "no weight by rank": {"temperature": 1e9},
    "no lift": {"lift": 0.0},
    "random beginning, as published": {"initial": "uniform"},
    "five hidden layers": {"layers": 5},
    "anchors Euclid and cosine": {"anchors": ["euclidean", "cosine"]},
    "anchor lifted cosine": {"anchors": ["lifted"]},
    "share .4": {"share": 0.4},
    "share .5": {"share": 0.5},
    "share 1, no anchors": {"share": 1.0},
    "share 0, anchors alone": {"share": 1e-9},
    "published": {"variant": "published"},
    "published, with anchors Euclid and cosine, share .3": {
        "variant": "published",
        "anchors": ["euclidean", "cosine"],
        "share": 0.3,
    },
}


def measured(asked: Namespace, settings: dict[str, Any]) -> dict[str, Cell]:
    """The cell of every set, by its name."""
    done = run(
        Namespace(
            settings=json.dumps(settings),
            triplets=[asked.triplets],
            output=trials_file(asked.folder, settings),
            sets=asked.sets,
            splits=asked.splits,
            first_seed=asked.first_seed,
            inner=False,
        )
    )
    return {cell.name: cell for cell in cells(done)} if done else {}


def main() -> None:
    """Measure what is missing, and print the table, a row as soon as it is known."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=NAMES, metavar="SET")
    parser.add_argument("--triplets", type=int, default=10_000)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=300)
    parser.add_argument("--folder", type=Path, default=RESULTS, help="where finished trials are kept")
    asked = parser.parse_args()
    with one_blas_thread():
        rows = {name: measured(asked, settings) for name, settings in list(CHANGES.items())[:1]}
        first = rows["**default**"]
        if not first:
            sys.exit("none of the sets is there; set KINSTREAM_DATA to their folder")
        print("| | " + " | ".join(first) + " |\n|---" + "|---" * len(first) + "|")
        _tell("better of Euclid and cosine", [min(cell.euclidean, cell.cosine) for cell in first.values()])
        _tell("**default**", [cell.learner for cell in first.values()])
        for name, settings in list(CHANGES.items())[1:]:
            found = measured(asked, settings)
            _tell(name, [found[data].learner for data in first])


def _tell(name: str, errors: list[float]) -> None:
    print(
        f"| {name} | " + " | ".join(f"{error:.3f}".removeprefix("0") for error in errors) + " |", flush=True
    )


if __name__ == "__main__":
    main()
