"""The chain rule: each output once, in order, and a lost one is noticed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinstream.streams.errors import BadRecord
from kinstream.streams.records.identity import Identity, Position, Verdict, judge, read_identity


def chain(number: int) -> list[Identity]:
    positions = [Position(1, 0, offset * 3, part) for offset in range(number) for part in range(2)]
    befores: list[Position | None] = [None, *positions]
    return [Identity("b", p, "t", 0, before) for p, before in zip(positions, befores, strict=False)]


def test_an_identity_survives_its_headers() -> None:
    for identity in chain(3):
        assert read_identity(identity.headers()) == identity


@pytest.mark.parametrize(
    "drop", ["kinstream-emitter", "kinstream-generation", "kinstream-epoch", "kinstream-origin"]
)
def test_headers_without_a_part_are_refused(drop: str) -> None:
    headers = [h for h in chain(1)[1].headers() if h[0] != drop]
    with pytest.raises(BadRecord):
        read_identity(headers)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60))
def test_whatever_is_repeated_each_output_is_taken_once_and_in_order(restarts: list[int]) -> None:
    outputs = chain(5)
    log: list[Identity] = []
    at = 0
    for back in restarts:
        at = max(0, at - back)
        log.extend(outputs[at : at + 4])
        at = min(len(outputs), at + 4)
    mark: Position | None = None
    taken = []
    for identity in log:
        verdict = judge(mark, identity)
        assert verdict in (Verdict.TAKE, Verdict.DUPLICATE)
        if verdict is Verdict.TAKE:
            mark = identity.position
            taken.append(identity)
    assert taken == outputs[: len(taken)]


@given(st.integers(1, 9))
def test_a_lost_output_is_noticed(lost: int) -> None:
    outputs = chain(5)
    mark: Position | None = None
    verdicts = []
    for identity in outputs[:lost] + outputs[lost + 1 :]:
        verdicts.append(judge(mark, identity))
        if verdicts[-1] is Verdict.GAP:
            break
        mark = identity.position
    assert (Verdict.GAP in verdicts) == (lost + 1 < len(outputs))


def test_a_new_epoch_and_a_new_generation_begin_chains_of_their_own() -> None:
    mark = Position(1, 5, 90, 1)
    assert judge(mark, Identity("b", Position(1, 100, 100, 0), "t", 0, None)) is Verdict.TAKE
    assert judge(mark, Identity("b", Position(2, 0, 3, 0), "t", 0, None)) is Verdict.TAKE
    assert (
        judge(Position(2, 0, 3, 0), Identity("b", Position(1, 5, 95, 0), "t", 0, mark)) is Verdict.DUPLICATE
    )
