"""What is taken back after its list was stated waits for the next block, in the order of the log, and is bounded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kinstream.gate.lists.list_id import Keys
from kinstream.gate.lists.plain_id import plain_id
from kinstream.processors.base.builder import Origin
from kinstream.processors.base.id_table import name_hashes
from kinstream.processors.clicks import retractions
from kinstream.processors.clicks.clicks import EVICTED, RETRACTED, Clicks
from kinstream.processors.clicks.retractions import EVERY_LIST, list_hashes
from kinstream.streams.checkpoints.state_bytes import from_bytes, to_bytes
from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.codec.codec import decode, encode
from kinstream.streams.records.values import ConstraintBlock, Feedback
from tests.processors.bounds import clicks
from tests.processors.click_samples import items, shown, with_items
from tests.processors.test_click_scores import made
from tests.processors.test_clicks import restored


def builder(**settings: Any) -> Clicks:
    return with_items(clicks(**settings))


def back(list_id: str, item: str | None, **more: Any) -> Feedback:
    return Feedback("shop", list_id, item, None, 1.0, 5, "", **{"retract": True} | more)


def pair(list_id: str, item: str) -> list[int]:
    of = EVERY_LIST if not list_id else int(list_hashes([list_id])[0])
    return [of, int(name_hashes([item])[0])]


def stated(one: Clicks, number: int) -> ConstraintBlock:
    (block,) = made(one, shown(f"later-{number}", "i1 i2 i3", [("i2", number)], at=number), number)
    return block


def sent(block: ConstraintBlock) -> Any:
    return None if block.retracted is None else block.retracted.tolist()


def test_it_waits_for_the_next_block_and_goes_once() -> None:
    one = builder()
    for offset, (list_id, item) in enumerate([("a", "i1"), ("b", "i2"), ("a", "i1")]):
        assert made(one, back(list_id, item), offset) == []
    block = stated(one, 1)
    assert sent(block) == [pair("a", "i1"), pair("b", "i2")]
    assert sent(stated(one, 2)) is None
    assert one.counts()[RETRACTED] == 3
    assert sent(decode(encode(block), ConstraintBlock)) == sent(block)  # type: ignore[arg-type]


def test_each_list_of_a_block_has_the_hash_of_its_id() -> None:
    block = stated(builder(), 1)
    assert block.lists is not None and block.lists.ids is not None
    assert block.lists.ids.tolist() == list_hashes(["later-1"]).tolist()


def test_every_spelling_of_an_id_has_the_same_hash() -> None:
    name = plain_id(Keys("a secret of a deployment"), "shop", ("i1",), time_ms=5, nonce=b"nonce.")
    assert (
        list_hashes([name, name + "=", name[:9] + " " + name[9:]]).tolist()
        == 3 * list_hashes([name]).tolist()
    )


def test_removed_items_go_for_every_list() -> None:
    one = builder()
    one.process(items(["i9"], gone=["i4", "i5"]), Origin(0))
    assert sent(stated(one, 1)) == [pair("", "i4"), pair("", "i5")]


def test_it_continues_from_any_state() -> None:
    one = builder()
    made(one, back("a", "i1"), 0)
    again = restored(one, rules=["click-list"])
    assert to_bytes(again.state()) == to_bytes(one.state())
    assert again.counts() == one.counts()
    assert [encode(stated(again, n)) for n in (1, 2)] == [encode(stated(one, n)) for n in (1, 2)]
    assert from_bytes(to_bytes(again.state())).keys() == one.state().keys()


def test_a_state_without_any_is_what_it_was() -> None:
    assert not [name for name in builder().state() if "retracted" in name]


def test_many_go_with_several_blocks_which_stay_small() -> None:
    one = builder(max_bytes=1_024)
    for n in range(5):
        made(one, back("a", f"i{n}"), n)
    blocks = [stated(one, n) for n in range(4)]
    assert [len(sent(block) or ()) for block in blocks] == [2, 2, 1, 0]
    assert max(len(encode(block)) for block in blocks) <= 1_024
    assert [name for block in blocks for _, name in sent(block) or ()] == [
        pair("a", f"i{n}")[1] for n in range(5)
    ]


def test_too_many_are_dropped_and_counted_the_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retractions, "MOST", 3)
    one = builder()
    for n in range(5):
        made(one, back("a", f"i{n}"), n)
    assert sent(stated(one, 1)) == [pair("a", f"i{n}") for n in (2, 3, 4)]
    assert (one.counts()[RETRACTED], one.counts()[EVICTED]) == (5, 2)


@pytest.mark.parametrize("record", [back("a", None), back("a", "i1", retract=False)])
def test_other_feedback_is_refused_and_leaves_the_state(record: Feedback) -> None:
    one = builder()
    before = to_bytes(one.state())
    with pytest.raises(BadRecord) as caught:
        one.process(record, Origin(1))
    assert caught.value.reason is Reason.BAD_SHAPE
    assert to_bytes(one.state()) == before


def test_hashes_of_ids_are_above_nothing() -> None:
    assert (list_hashes([f"l{n}" for n in range(1_000)]) > np.uint64(0)).all()
