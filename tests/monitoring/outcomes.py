"""Outcomes for the tests of the metrics agent."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from kinstream.streams.records.held_out import LEARNED, METRICS, UNLEARNED, HeldOut, HeldOutSums
from kinstream.streams.records.values import Counts, Outcome


def outcome(space: str = "s", seen: int = 1, mistakes: int = 0, utilised: int = 0, **more: Any) -> Outcome:
    """An outcome of one block, every constraint of which was scored unless `scored` says otherwise."""
    scored = more.pop("scored", seen)
    loss = more.pop("loss", 0.0)
    counts = Counts(seen=seen, scored=scored, mistakes=mistakes, utilised=utilised, loss_sum=loss)
    values = {"learner": "opml", "generation": 1, "epoch": 0, "step": seen, "time_ms": 1_000, **more}
    return Outcome(space=space, emitter="one-pass", emitter_generation=1, counts=counts, **values)


def found(events: int, learned: float, best: float, *, judged: int = 4) -> HeldOut:
    """A model that stands at these mistake rates of the learned metric and of the best un-learned one, "cosine"."""

    def sums(number: float) -> HeldOutSums:
        losses = dict.fromkeys(METRICS, 0.9 * number) | {LEARNED: learned * number, "cosine": best * number}
        squares = dict.fromkeys(UNLEARNED, ((learned - best) ** 2 + 0.01) * number)
        return HeldOutSums(number, number, losses, squares)

    return HeldOut(sums(judged), events, sums(float(events)), judged)


@st.composite
def counts(draw: st.DrawFn, rows: int = 6) -> Counts:
    """Counts that a learner could have reported of one block."""
    seen = draw(st.integers(0, rows))
    scored = draw(st.integers(0, seen))
    split = draw(st.integers(0, seen - scored))
    return Counts(
        seen=seen,
        scored=scored,
        mistakes=draw(st.integers(0, scored)),
        utilised=draw(st.integers(0, seen)),
        clipped=draw(st.integers(0, rows)),
        rejected=draw(st.integers(0, rows)),
        degenerate=draw(st.integers(0, rows)),
        ignored=draw(st.integers(0, rows)),
        loss_sum=draw(st.floats(0, 100)),
        split_scored=split,
        split_mistakes=draw(st.integers(0, split)),
    )


def outcomes(spaces: str = "abcdef", learners: str = "xy") -> st.SearchStrategy[Outcome]:
    """Outcomes over a few spaces, learners and epochs, with rules and weights."""
    return st.builds(
        Outcome,
        space=st.sampled_from([*spaces, "other"]),
        learner=st.sampled_from(learners),
        generation=st.integers(1, 2),
        epoch=st.integers(0, 2),
        emitter=st.just("one-pass"),
        emitter_generation=st.just(1),
        step=st.integers(0, 100),
        counts=counts(),
        time_ms=st.integers(0, 10_000),
        by_rule=st.dictionaries(st.sampled_from(["r", "q", "other"]), counts(), max_size=2),
        weights=st.dictionaries(st.sampled_from(["e1", "e2"]), st.floats(0, 1), max_size=2),
    )
