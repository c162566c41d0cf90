"""All checks of learners, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from kinstream.learners.base.learner import Learner
from kinstream.streams.records.values import ConstraintBlock, Kind
from kinstream.testing.blocks import SCALER_STATE, TARGETS_STATE, pair_blocks, triplet_blocks
from kinstream.testing.learner_events import EVENT_CHECKS
from kinstream.testing.learners import CHECKS, Case, digest, ends_elsewhere, run
from kinstream.testing.refusals import runs_assertions

#: Every check, for your own test runner: each takes a `Case`.
LEARNER_CHECKS: Final[tuple[Callable[[Case], Any], ...]] = (*CHECKS, *EVENT_CHECKS)


def check_learner(
    make: Callable[[], Learner],
    blocks: Sequence[ConstraintBlock] | None = None,
    *,
    tolerance: float = 1e-9,
    watching: frozenset[str] = SCALER_STATE | TARGETS_STATE,
    elsewhere: bool = True,
) -> None:
    """Run every check on a learner.

    Parameters
    ----------
    make : new learner; a function, a class, or a `functools.partial` of one that can be imported.
    blocks : messages to learn from, in order, each of at least 21 constraints; without them triplets or pairs of two
        noisy classes with 7 features, by the kind of constraint that the learner accepts.
    tolerance : of entries of the state, relative to the largest, between two groupings of the same constraints.
    watching : names of state entries that follow the input even if nothing is learned, such as statistics.
    elsewhere : whether to compare with other processes under other hash seeds too, which takes seconds.

    Raises
    ------
    AssertionError
        A check failed; its note names the check.
    RuntimeError
        Python runs with -O, which disables assertions.

    Examples
    --------
    >>> from kinstream import OPML
    >>> from kinstream.testing import check_learner
    >>> check_learner(OPML, elsewhere=False)
    """
    runs_assertions()
    if blocks is None:
        blocks = triplet_blocks(1, 7) if make().form is Kind.TRIPLET else pair_blocks(1, 7)
    case = Case("learner", make, blocks, tolerance, watching | SCALER_STATE)
    for check in LEARNER_CHECKS:
        try:
            check(case)
        except Exception as error:
            error.add_note(f"in the check {check.__name__}")
            raise
    if elsewhere:
        here = digest(run(case).state())
        with TemporaryDirectory() as folder:
            for found in ends_elsewhere([case], Path(folder)):
                assert found[case.name] == here, "another process ends in another state"
