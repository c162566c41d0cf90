"""Runs one process of an evaluation to its end, and prints how it ended: a program of `test_pool`."""

from __future__ import annotations

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.util import Finalize
from pathlib import Path

from kinstream.evaluation.experiment.data import Data
from kinstream.evaluation.experiment.plan import Plan
from kinstream.evaluation.runner import pool
from tests.evaluation.plans import blobs, plan


def begin(plan_: Plan, data: tuple[Data, ...], folder: str) -> None:
    """As a process of an evaluation begins, with a note of an interpreter that goes on to be torn down."""
    pool._begin(plan_, data)
    # Python 3.13 calls functions of `atexit` before those of `multiprocessing`.
    Finalize(None, Path(folder, "torn-down").write_text, ("yes",), exitpriority=pool._LAST - 1)


def fails(_: int) -> None:
    print("a cell that fails")
    raise ValueError("a cell that fails")


if __name__ == "__main__":
    from tests.evaluation.ending import begin as begin_
    from tests.evaluation.ending import fails as fails_

    arguments = (plan(), (blobs(),), sys.argv[1])
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, begin_, arguments) as running:
        failed = running.submit(fails_, 0).exception()
        (process,) = multiprocessing.active_children()
    process.join(60)
    print(f"{failed!r} and then status {process.exitcode}")
