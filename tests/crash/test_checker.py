"""The checker itself: a log that keeps its promises passes, and each way of breaking them is found."""

from __future__ import annotations

import numpy as np
import pytest

from tests.crash.checker import Broken, Event, Record, chains, digest, one_pass


def _record(at: int, offset: int, part: int = 0, previous: str | None = None, value: bytes = b"") -> Record:
    headers = {
        "kinstream-emitter": b"one-pass",
        "kinstream-generation": b"1",
        "kinstream-epoch": b"0",
        "kinstream-origin": f"kinstream.events/0/{offset}/{part}".encode(),
    }
    if previous is not None:
        headers["kinstream-previous"] = previous.encode()
    return Record("kinstream.constraints", 0, at, b"toys", value or f"{offset}/{part}".encode(), headers)


FIRST = _record(0, 4)
SECOND = _record(1, 6, 0, "1/0/4/0")
THIRD = _record(2, 6, 1, "1/0/6/0")


def test_what_is_written_again_is_left_out() -> None:
    clean, again = chains([FIRST, SECOND, THIRD]), chains([FIRST, SECOND, FIRST, SECOND, THIRD, THIRD])
    assert again.duplicates == {"one-pass": 3}
    (key,) = clean.taken
    assert digest(clean.taken[key], True) == digest(again.taken[key], True)
    assert len(clean.taken[key]) == 3


@pytest.mark.parametrize(
    ("records", "told"),
    [
        ([SECOND], "and not None"),
        ([FIRST, THIRD], "and not Position"),
        ([FIRST, THIRD, SECOND], "and not Position"),
        ([FIRST, SECOND, _record(9, 5, 0, "1/0/4/0")], "comes late"),
        ([FIRST, SECOND, _record(9, 6, 0, "1/0/4/0", b"other")], "not what was written"),
        ([FIRST, _record(9, 6)], "follows None"),
    ],
    ids=["no beginning", "a hole", "out of order", "a late one", "another value", "a second beginning"],
)
def test_a_broken_chain_is_found(records: list[Record], told: str) -> None:
    with pytest.raises(Broken, match=told):
        chains(records)


def test_digests_see_values_and_identities() -> None:
    (key,) = chains([FIRST, SECOND]).taken
    moved = _record(1, 7, 0, "1/0/4/0", b"6/0")
    one, other = chains([FIRST, SECOND]).taken[key], chains([FIRST, moved]).taken[key]
    assert digest(one, False) == digest(other, False)
    assert digest(one, True) != digest(other, True)


def test_the_one_pass_rule_by_hand() -> None:
    labels: list[int | str] = ["a", "a", "b", "a", "b", "b", "c", "c"]
    events = [Event(0, 0, 0, 0, 5, 0), Event(0, 1, 1, 5, 3, 0)]
    found = list(one_pass(labels, events, None))
    assert [pairs for _, pairs, _ in found] == [[(0, 1)], []]
    assert [triplets for _, _, triplets in found] == [[(3, 1, 2), (4, 2, 3)], [(5, 4, 3), (7, 6, 5)]]
    drawn = list(one_pass(labels, events, lambda event: [0] * event.rows))
    assert [triplets for _, _, triplets in drawn] == [[(3, 1, 2), (4, 2, 3)], [(5, 4, 3), (7, 6, 3)]]
    assert np.array(found[0][2]).shape == (2, 3)
