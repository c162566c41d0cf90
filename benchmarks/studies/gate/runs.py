"""The runs of the study: which there are, measuring them in processes, and the file of those that have ended."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.studies.gate import comparison, served
from kinstream.gate.values import Options
from kinstream.streams.compute.blas_threads import one_blas_thread

PARTS: Final = {"comparison": comparison, "served": served}
#: Runs of each case of `served`.
SERVED_RUNS: Final = 20


class Run(NamedTuple):
    """A run by what it depends on; `options` are all those of the gate, as JSON, for a part that has any."""

    part: str
    corpus: str
    case: str
    seed: int
    options: str = "{}"


class Kept:
    """The results of runs, in a file of JSON lines.

    Parameters
    ----------
    path : of the file.
    corpus : NPZ of the documentation; made where it is not there.
    measured : the result of a run on this corpus; a function of a module, since other processes call it.
    """

    def __init__(self, path: Path, corpus: Path, measured: Callable[[Run, Path], dict[str, Any]]) -> None:
        self._path, self._corpus, self._measured = path, corpus, measured
        self.found: dict[Run, dict[str, Any]] = {}
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                *run, result = json.loads(line)
                self.found[Run(*run)] = result

    def measure(self, runs: Sequence[Run], processes: int, seconds: float) -> None:
        """Measure those that are missing; begin none after so many seconds."""
        left = [run for run in reversed(runs) if run not in self.found]
        if not left:
            return
        begun = time.monotonic()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with (
            self._path.open("a", encoding="utf-8") as file,
            ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool,
        ):
            working: dict[Future[dict[str, Any]], Run] = {}
            while True:
                while left and len(working) < processes and time.monotonic() - begun < seconds:
                    run = left.pop()
                    working[pool.submit(self._measured, run, self._corpus)] = run
                if not working:
                    return
                for done in wait(working, return_when=FIRST_COMPLETED).done:
                    run = working.pop(done)
                    self.found[run] = done.result()
                    file.write(json.dumps([*run, self.found[run]]) + "\n")
                    file.flush()


def measured(run: Run, corpus: Path) -> dict[str, Any]:
    """The result of a run."""
    with one_blas_thread():
        if run.part == "comparison":
            return comparison.measured(run.corpus, run.case, run.seed, corpus)
        return served.measured(run.corpus, run.case, run.seed, corpus, **json.loads(run.options))


def asked(
    parts: Sequence[str],
    corpora: Sequence[str],
    cases: Sequence[str] | None,
    first_seed: int,
    number: int | None,
    options: str,
) -> Iterator[Run]:
    """The runs of these parts, corpora and cases (None: all), `number` of each case (None: as the table has them)."""
    # With the defaults: when they change, nothing of an earlier run counts.
    whole = json.dumps(asdict(Options(**json.loads(options))))
    for part in parts:
        for corpus in corpora:
            for case, of in PARTS[part].CASES.items():
                if cases is None or case in cases:
                    several = number or (of.runs if isinstance(of, comparison.Case) else SERVED_RUNS)
                    for seed in range(first_seed, first_seed + several):
                        yield Run(part, corpus, case, seed, whole if part == "served" else "{}")


def table(part: str, runs: Sequence[Run], kept: Kept) -> str:
    """A row for each corpus and case."""
    of = PARTS[part]
    lines = [f"| {' | '.join(of.HEADER)} |", f"|{'---|' * len(of.HEADER)}"]
    for corpus, case in dict.fromkeys((run.corpus, run.case) for run in runs):
        found = [kept.found[run] for run in runs if (run.corpus, run.case) == (corpus, case)]
        lines.append(f"| {corpus} | {case} | {' | '.join(of.row(found))} |")
    return "\n".join(lines)
