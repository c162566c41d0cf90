"""Every figure of the gate that needs no broker.

Two corpora: the synthetic one of `benchmarks.studies.clicked_embeddings` ("loud"), and the Python documentation. A run
that has ended is kept in a file, and a command that goes on measures the rest; `--minutes` stops it early.

Examples:
  python -m benchmarks.studies.gate --first-seed 50000
  python -m benchmarks.studies.gate --parts served --cases good --corpora documents --minutes 5
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.studies.gate import comparison, served
from benchmarks.studies.gate.corpora import NAMES
from kinstream.streams.compute.blas_threads import one_blas_thread

RESULTS: Final = Path(__file__).parents[2] / "results"
PARTS: Final = {"comparison": comparison, "served": served}
#: Runs of each case of `served`.
SERVED_RUNS: Final = 20


class Run(NamedTuple):
    """A run by what it depends on; `options` are those of the gate, as JSON."""

    part: str
    corpus: str
    case: str
    seed: int
    options: str = "{}"


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
    asked = list(_asked(a))
    known = _read(a.results)
    a.results.parent.mkdir(parents=True, exist_ok=True)
    _measure([run for run in asked if run not in known], known, a)
    for name in a.parts:
        _print(name, [run for run in asked if run.part == name and run in known], known)
    missing = sum(run not in known for run in asked)
    if missing:
        print(f"\n{missing} of {len(asked)} runs are missing")


def _asked(a: argparse.Namespace) -> Iterator[Run]:
    for part in a.parts:
        for corpus in a.corpora:
            for case, of in PARTS[part].CASES.items():
                if a.cases is None or case in a.cases:
                    runs = a.runs or (of.runs if isinstance(of, comparison.Case) else SERVED_RUNS)
                    options = a.options if part == "served" else "{}"
                    yield from (
                        Run(part, corpus, case, seed, options)
                        for seed in range(a.first_seed, a.first_seed + runs)
                    )


def _measure(runs: Sequence[Run], known: dict[Run, Any], a: argparse.Namespace) -> None:
    begun, left = time.monotonic(), list(reversed(runs))
    with (
        a.results.open("a", encoding="utf-8") as file,
        ProcessPoolExecutor(a.processes, mp_context=get_context("spawn")) as pool,
    ):
        working: dict[Any, Run] = {}
        while True:
            while left and len(working) < a.processes and time.monotonic() - begun < 60 * a.minutes:
                run = left.pop()
                working[pool.submit(_one, run, a.corpus)] = run
            if not working:
                return
            for done in wait(working, return_when=FIRST_COMPLETED).done:
                run = working.pop(done)
                known[run] = done.result()
                file.write(json.dumps([*run, known[run]]) + "\n")
                file.flush()


def _one(run: Run, corpus: Path) -> dict[str, Any]:
    with one_blas_thread():
        return PARTS[run.part].measured(run.corpus, run.case, run.seed, corpus, **json.loads(run.options))


def _read(path: Path) -> dict[Run, Any]:
    if not path.exists():
        return {}
    lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return {Run(*line[:-1]): line[-1] for line in lines}


def _print(name: str, runs: Sequence[Run], known: dict[Run, Any]) -> None:
    part = PARTS[name]
    print(f"\n| {' | '.join(part.HEADER)} |\n|{'---|' * len(part.HEADER)}")
    for corpus, case in dict.fromkeys((run.corpus, run.case) for run in runs):
        found = [known[run] for run in runs if (run.corpus, run.case) == (corpus, case)]
        print(f"| {corpus} | {case} | {' | '.join(part.row(found))} |")


if __name__ == "__main__":
    main()
