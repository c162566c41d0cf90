"""Cells in parallel processes. Results do not depend on which process runs which cell."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from itertools import islice
from multiprocessing.connection import wait as wait_for_handles
from multiprocessing.util import Finalize
from typing import Any, Final

from kinstream.evaluation.experiment.data import Data
from kinstream.evaluation.experiment.plan import Cell, Plan
from kinstream.evaluation.runner.cells import Done, Runner

_runner: Runner | None = None
#: Longest time until an interruption is noticed, in seconds.
_LOOK_S: Final = 0.2
#: Priority of the exit handler: after the others, so that queued data is sent first.
_LAST: Final = -1_000


def run_all(
    plan: Plan, data: Sequence[Data], cells: Sequence[Cell], jobs: int
) -> Generator[tuple[Cell, Done], None, None]:
    """Every cell with its result, in the order in which they finish.

    Parameters
    ----------
    jobs : processes; 1 works in this one.

    Raises
    ------
    KinstreamError : of the first cell that fails; the others are cancelled.
    """
    if jobs == 1 or len(cells) == 1:
        runner = Runner(plan, data)
        for cell in cells:
            yield cell, runner.run(cell)
        return
    # A new interpreter for each: threads of this one's libraries are not inherited.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(cells)), context, _begin, (plan, tuple(data))) as pool:
        left = iter(cells)
        running: dict[Future[Done], Cell] = {}
        try:
            while True:
                # Few are submitted at a time, so that an interruption waits for few. It is handled between two waits,
                # because inside one it would leave locks held that the pool needs.
                with _interruptions_held():
                    for cell in islice(left, 2 * jobs - len(running)):
                        running[pool.submit(_run, cell)] = cell
                    if not running:
                        return
                    ended = wait(running, _LOOK_S, FIRST_COMPLETED).done
                for future in ended:
                    yield running.pop(future), future.result()
        except BaseException:
            # Otherwise leaving the block would wait for every submitted cell.
            with _interruptions_held():
                pool.shutdown(wait=False, cancel_futures=True)
            raise


@contextmanager
def _interruptions_held() -> Iterator[None]:
    """Delay Ctrl-C to the end of the block: a pool interrupted in a call may never answer again."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[Any, ...]] = []
    usual = signal.signal(signal.SIGINT, lambda *call: came.append(call))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if came and callable(usual):
        usual(*came[0])


def _begin(plan: Plan, data: Sequence[Data]) -> None:
    global _runner
    # Ctrl-C ends the parent, which then ends these; they also end with it in any other case.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(multiprocessing.parent_process(),), daemon=True).start()
    # Nothing is left to tear down, and an interpreter that ends beside a thread of its own, or of a library, may abort.
    Finalize(None, _leave, exitpriority=_LAST)
    _runner = Runner(plan, data)


def _leave() -> None:
    if sys.exc_info()[0] is not None:
        # The error is printed as usual.
        return
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _end_with(parent: Any) -> None:
    wait_for_handles([parent.sentinel])
    os._exit(1)


def _run(cell: Cell) -> Done:
    if _runner is None:
        raise RuntimeError("the process was not set up")
    return _runner.run(cell)
