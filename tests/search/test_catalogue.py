"""Catalogues follow the log by the rules of the builders."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from confluent_kafka import KafkaError

from kinstream.processors.agent import builder_spec
from kinstream.processors.base.id_table import hashes
from kinstream.search.index.items import Items, features, side_by_side, sizes_of
from kinstream.search.spaces.catalogue import SAMPLES, Begin, CatalogueReader, Changed, Drop, Put
from kinstream.search.spaces.feed import EventsFeed
from kinstream.streams.agents.machine import Place, RecordsMissed
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.message import Message
from kinstream.streams.records.values import (
    Action,
    Control,
    Declaration,
    Event,
    ItemBlock,
    LoadPosition,
    SampleBlock,
    Table,
)
from kinstream.streams.settings import Settings

TOPIC = "kinstream.events"


def block(names: str, value: float = 1.0, d: int = 2, **more: object) -> ItemBlock:
    X = np.full((len(names), d), value, np.float32)
    return ItemBlock("shop", tuple(names), (Table("x", X),) if names else (), 1, **more)  # type: ignore[arg-type]


class Log:
    def __init__(self, sources: dict[str, str] | None = None, **more: str) -> None:
        self.reader = CatalogueReader(TOPIC, 0, 1, sources or {"shop": "items"}, **more)
        self.messages: list[Message] = []

    def message(self, record: Event | bytes, key: str | None = None) -> Message:
        value = record if isinstance(record, bytes) else encode(record)
        name = key if key is not None else "shop" if isinstance(record, bytes) else record.space
        offset = len(self.messages)
        made = Message(TOPIC, 0, offset, 1, name.encode(), value, (), offset - 1)
        self.messages.append(made)
        return made

    def put(self, record: Event | bytes, key: str | None = None) -> tuple[object, ...]:
        found = self.reader.step(self.message(record, key))
        return () if found is None else found.changes


def test_items_and_tombstones_in_the_order_of_the_log() -> None:
    log = Log()
    begin, put = log.put(block("ab"))
    assert begin == Begin(0) and isinstance(put, Put) and put.names == ("a", "b")
    put, drop = log.put(block("c", tombstones=("a",)))
    assert isinstance(put, Put) and drop == Drop(("a",))
    assert log.put(block("", tombstones=("b",))) == (Drop(("b",)),)


def test_control_records_begin_the_space_anew() -> None:
    log = Log()
    log.put(block("ab"))
    assert log.put(Control("shop", Action.RESET, 1)) == (Begin(1),)
    (put,) = log.put(block("a", d=3))  # another dimension: the space is another one
    assert isinstance(put, Put)
    assert log.put(Control("shop", Action.DELETE, 1)) == (Begin(3, deleted=True),)
    assert log.put(block("a")) == ()
    assert log.reader.refused() == {"space-deleted": 1}
    assert log.put(Control("shop", Action.CREATE, 1)) == (Begin(5),)


def test_what_cannot_be_used_is_counted_and_stops_nothing() -> None:
    log = Log()
    log.put(block("ab"))
    rows = np.array([[1.0, np.nan], [2.0, 2.0]], np.float32)
    (put,) = log.put(ItemBlock("shop", ("c", "d"), (Table("x", rows),), 1))
    assert isinstance(put, Put) and put.names == ("d",)
    assert log.put(b"no record") == ()
    assert log.put(block("e", d=3)) == ()
    assert log.put(block("e"), key="") == ()
    assert log.put(ItemBlock("other", ("e",), (Table("x", rows[1:]),), 1), key="shop") == ()
    log.put(Control("shop", Action.PAUSE, 1))
    assert log.put(block("e")) == ()
    log.put(Control("shop", Action.RESUME, 1))
    assert len(log.put(block("e"))) == 1
    counted = log.reader.refused()
    assert counted == {
        "not-finite": 1,
        "undecodable": 1,
        "wrong-dimension": 1,
        "wrong-key": 1,
        "space-paused": 1,
    }
    assert log.reader.passed_over == 1  # the one without a key is of no space that is served
    assert log.reader.next_offset == len(log.messages)


def test_a_load_that_is_sent_again_counts_once() -> None:
    log = Log()
    assert len(log.put(block("a", load=LoadPosition("load", 3)))) == 2
    assert log.put(block("a", load=LoadPosition("load", 3))) == ()
    assert log.reader.counts()["duplicates"] == 1


def test_a_declaration_holds() -> None:
    log = Log()
    log.put(Control("shop", Action.CREATE, 1, Declaration((("x", 3),))))
    assert log.put(block("a")) == ()
    assert log.reader.refused() == {"wrong-dimension": 1}
    assert len(log.put(block("a", d=3))) == 1


def test_samples_with_ids_may_be_the_catalogue() -> None:
    X = np.ones((2, 2), np.float32)
    log = Log({"shop": SAMPLES})
    labelled = SampleBlock("shop", (Table("x", X),), np.zeros(2, np.int64), 1, ("a", "b"))
    put = log.put(labelled)[-1]
    assert isinstance(put, Put) and put.names == ("a", "b")
    assert log.put(block("c", tombstones=("a",))) == (Drop(("a",)),)
    assert Log().put(labelled) == ()


def test_other_spaces_are_not_looked_into() -> None:
    log = Log()
    assert log.put(b"no record", key="other") == ()
    assert log.reader.passed_over == 1 and log.reader.refused() == {}


def test_records_that_the_client_dropped_are_asked_for_again() -> None:
    log = Log()
    log.put(block("a"))
    for key in ("shop", "other"):
        ahead = Message(TOPIC, 0, 5, 1, key.encode(), encode(block("b")), (), 4)
        with pytest.raises(RecordsMissed):
            log.reader.step(ahead)
    after_markers = Message(TOPIC, 0, 5, 1, b"shop", encode(block("b")), (), 0)
    assert log.reader.step(after_markers) is not None


@pytest.mark.parametrize("seed", range(5))
def test_it_holds_what_a_builder_of_the_same_log_holds(seed: int) -> None:
    rng = np.random.default_rng([19, seed])
    settings = Settings.model_validate({"builders": {"clicks": {"kind": "clicks"}}})
    place = Place("clicks", 1, TOPIC, 0, 1, "constraints", 1, "letters")
    builder = builder_spec(settings, "clicks").make_machine(place, lambda space: {})
    log = Log()
    held: dict[str, np.ndarray] = {}
    for _ in range(120):
        names = "".join(rng.choice(list("abcdefgh"), rng.integers(0, 4)))
        gone = tuple(rng.choice(list("abcdefgh"), rng.integers(0 if names else 1, 3)))
        items = block(names, float(rng.normal()), 2 + (rng.random() < 0.1), tombstones=gone)
        record: Event = items
        if rng.random() < 0.15:
            action = rng.choice(["create", "reset", "delete", "pause", "resume"])
            record = Control("shop", Action(str(action)), 1)
        elif names and rng.random() < 0.2:
            items.tables[0].vectors[0] = np.nan
        message = log.message(record)
        builder.step(message)
        found = log.reader.step(message)
        apply(held, found)
        space = builder.find("shop")
        catalogue = getattr(space and space.core, "_catalogue", None)
        keys, vectors = (
            catalogue.rows() if catalogue is not None and len(catalogue) else ([], [np.empty((0, 2))])
        )
        known = {
            tuple(key): row.tolist() for key, row in zip(np.asarray(keys).tolist(), vectors[0], strict=True)
        }
        mine = {tuple(hashes([name])[0].tolist()): row.tolist() for name, row in held.items()}
        assert known == mine


def apply(held: dict[str, np.ndarray], found: Changed | None) -> None:
    for change in () if found is None else found.changes:
        match change:
            case Begin():
                held.clear()
            case Put(names=names, tables=tables):
                held.update(zip(names, tables[0].vectors, strict=True))
            case Drop(names=names):
                for name in names:
                    held.pop(name, None)


def test_slots_are_used_again_and_hold_the_last_vectors() -> None:
    items = Items()
    items.declare((("x", 2),))
    slots, counted = items.put(["a", "b", "a"], np.arange(6, dtype=np.float32).reshape(3, 2))
    assert slots.tolist() == [0, 1] and counted.tolist() == [2, 1]
    assert items.rows(slots).tolist() == [[4, 5], [2, 3]]
    assert items.drop(["a", "zz"]).tolist() == [0] and "a" not in items and items.names[0] is None
    assert items.rows(np.array([0])).tolist() == [[0, 0]]
    more = [f"n{i}" for i in range(5000)]
    slots, _ = items.put(more, np.ones((5000, 2), np.float32))
    assert slots[0] == 0 and len(items) == 5001 and items.slots().tolist() == list(range(5001))


def test_modalities_lie_side_by_side() -> None:
    text, image = Table("text", np.ones((1, 2), np.float32)), Table("image", np.full((1, 3), 2, np.float32))
    order = sizes_of((text, image))
    rows = side_by_side((image, text), order)
    assert rows.tolist() == [[1, 1, 2, 2, 2]]
    split = features(rows, order)
    assert isinstance(split, dict) and split["image"].tolist() == [[2, 2, 2]]


def test_the_end_of_a_log_that_holds_no_more_records_is_the_position_of_its_reader() -> None:
    feed = EventsFeed(Settings(), {"shop": "items"}, lambda space, changed: None)
    feed._begin(1, {0: (0, 7)})
    feed.readers[0].step(Message(feed._topic, 0, 3, 1, b"other", b"", (), -1))
    end = SimpleNamespace(
        error=lambda: KafkaError(KafkaError._PARTITION_EOF), partition=lambda: 0, offset=lambda: 7
    )
    feed._answer(None, end)
    # What the log loses before it, markers of transactions, is no loss.
    assert feed.readers[0].next_offset == 7
    assert feed.caught_up
