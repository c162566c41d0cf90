"""Every figure of the gate that needs no broker.

Two corpora: the synthetic one of `benchmarks.studies.clicked_embeddings` ("loud"), and the Python documentation. A run
that has ended is kept in a file, and a command that goes on measures the rest; `--minutes` stops it early.

Examples:
  python -m benchmarks.studies.gate --first-seed 50000
  python -m benchmarks.studies.gate --parts served --cases good --corpora documents --minutes 5
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from benchmarks.studies.gate.corpora import NAMES
from benchmarks.studies.gate.runs import PARTS, Kept, asked, measured, table

RESULTS: Final = Path(__file__).parents[2] / "results"


def main() -> None:
    """Measure what is missing, and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--corpora", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--cases", nargs="+", metavar="CASE", help="[default: all]")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--runs", type=int, help="of each case. [default: 20 to 400]")
    parser.add_argument("--options", default="{}", help="of the gate in the part `served`, as JSON")
    parser.add_argument(
        "--corpus", type=Path, default=RESULTS / "documentation.npz", help="made where missing"
    )
    parser.add_argument("--results", type=Path, default=RESULTS / "gate.jsonl", help="runs that have ended")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no run after so long")
    parser.add_argument("--processes", type=int, default=2)
    a = parser.parse_args()
    runs = list(asked(a.parts, a.corpora, a.cases, a.first_seed, a.runs, a.options))
    kept = Kept(a.results, a.corpus, measured)
    kept.measure(runs, a.processes, 60 * a.minutes)
    ended = [run for run in runs if run in kept.found]
    for part in a.parts:
        print("\n" + table(part, [run for run in ended if run.part == part], kept))
    if len(ended) < len(runs):
        print(f"\n{len(runs) - len(ended)} of {len(runs)} runs are missing")


if __name__ == "__main__":
    main()
