"""Cells in parallel processes. Which process runs which cell decides nothing."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from replay.evaluation.cells import Done, Runner
from replay.evaluation.data import Data
from replay.evaluation.plan import Cell, Plan

_runner: Runner | None = None


def run_all(
    plan: Plan, data: Sequence[Data], cells: Sequence[Cell], jobs: int
) -> Generator[tuple[Cell, Done], None, None]:
    """Every cell with what came of it, in the order in which they end.

    Parameters
    ----------
    jobs : processes; 1 works in this one.

    Raises
    ------
    KinstreamError : of the first cell that fails; the others are given up.
    """
    if jobs == 1 or len(cells) == 1:
        runner = Runner(plan, data)
        for cell in cells:
            yield cell, runner.run(cell)
        return
    # A fresh interpreter for each: threads of this one's libraries are not inherited.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(cells)), context, _begin, (plan, tuple(data))) as pool:
        try:
            waiting = {pool.submit(_run, cell): cell for cell in cells}
            for future in as_completed(waiting):
                yield waiting[future], future.result()
        except BaseException:
            # Else leaving the block would wait for every cell that was handed in.
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _begin(plan: Plan, data: Sequence[Data]) -> None:
    global _runner
    # Ctrl-C ends the parent, which then ends these.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _runner = Runner(plan, data)


def _run(cell: Cell) -> Done:
    if _runner is None:
        raise RuntimeError("the process was not set up")
    return _runner.run(cell)
