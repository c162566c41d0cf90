"""The judge of whole lists against the truth, in small spaces; see benchmarks.studies.judged_lists."""

from __future__ import annotations

import pytest

from benchmarks.real_embeddings.corpora import made_up
from benchmarks.studies.judged_lists import Found, space
from kinstream.streams.compute.blas_threads import one_blas_thread

pytestmark = pytest.mark.long

NAMES = ("default", "rank 64, step 1", "opml", "random")
#: How much of four directions queries lack: with much of it, learners help, and with little, most of them do harm.
#: Where much is to be gained from below the list and many click at random, good models look bad: see docs/learning.md.
SPACES = [(1.6, name, "2 % wrong") for name in NAMES] + [
    (0.7, name, people) for name in NAMES for people in ("2 % wrong", "15 % wrong", "poisoned")
]


def looks(missing: float, name: str, people: str) -> list[Found]:
    with one_blas_thread():
        return list(space(made_up(1, missing), name, people, (1_000, 3_000), 1))


def test_the_sign_is_right_and_never_significantly_wrong() -> None:
    found = [one for some in SPACES for one in looks(*some)]
    told = [one for one in found if one.judged is not None and abs(one.truth) > 0.02]
    assert len(told) > 15
    assert {one.truth > 0.0 for one in told} == {True, False}
    assert sum(one.right for one in told) >= 0.95 * len(told), [one for one in told if not one.right]
    assert not [one for one in told if one.significantly_wrong]
    shown = [one for one in found if one.shown and abs(one.truth) > 0.01]
    assert len(shown) > 15
    assert sum(one.right for one in shown) >= 0.95 * len(shown), [one for one in shown if not one.right]
