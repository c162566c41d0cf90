"""Writes `records-v1`: one record of every kind, which every later version must read.

A file that is there is never written again.

python -m tests.golden.write_records
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.gate import UNADAPTED, GateDecision, GateOrder, Order, Verdict, Version
from kinstream.streams.records.held_out import METRICS, UNLEARNED, HeldOut, HeldOutSums, ShownLists
from kinstream.streams.records.lists.feedback import Feedback
from kinstream.streams.records.scores import Scores
from kinstream.streams.records.values import (
    Action,
    Click,
    ClickBlock,
    ConstraintBlock,
    Control,
    Counts,
    Declaration,
    ItemBlock,
    ItemClick,
    Kind,
    LoadPosition,
    ModelUpdate,
    ModelVersion,
    Outcome,
    Record,
    Relation,
    RelationBlock,
    SampleBlock,
    Table,
)
from kinstream.streams.records.vectors import ItemMap, VectorBlock

FOLDER = Path(__file__).with_name("records-v1")


def _table(rows: int, columns: int, name: str = "x") -> Table:
    return Table(name, (np.arange(rows * columns) / 4 - 1).reshape(rows, columns).astype(np.float32))


def _constraints(kind: Kind) -> ConstraintBlock:
    arity = 2 if kind is Kind.PAIR else 3
    index = np.array([[0, 1, 2], [1, 2, 3]], np.int32)[:, :arity]
    return ConstraintBlock(
        "digits",
        kind,
        (_table(4, 3), _table(4, 2, "colour")),
        index,
        np.array([1, -1], np.int8) if kind is Kind.PAIR else np.zeros(2, np.int8),
        ("one-pass", "closure"),
        np.array([0, 1], np.uint8),
        np.array([False, True]),
        np.array([1.0, 0.5], np.float32),
        1_700_000_000_000,
        42,
        np.array([0.25, 4.0], np.float32) if kind is Kind.PAIR else None,
    )


def _lists() -> ShownLists:
    return ShownLists(
        np.array([0, 3], np.int32),
        np.array([0, 2, 3], np.int32),
        np.array([1, 2, 1], np.int32),
        np.array([False, True, True]),
        np.array([17, 0], np.uint64),
        0.5,
    )


def _scores(rows: int) -> Scores:
    values = (np.arange(2 * rows) / 4 - 1).reshape(rows, 2).astype(np.float32)
    values[0, 1] = np.nan
    return Scores(("age_days", "bm25"), values)


def _clicks(load: LoadPosition) -> ClickBlock:
    def whole(*numbers: int) -> NDArray[np.int32]:
        return np.array(numbers, np.int32)

    return ClickBlock(
        space="shop",
        ids=("i1", "i2", "i3"),
        list_ids=("list-1", "list-2"),
        actors=("s", "u"),
        session=whole(0, -1),
        user=whole(1, 1),
        query=whole(2, -1),
        query_row=whole(-1, 0),
        query_vectors=(_table(1, 3),),
        shown_at_ms=np.array([8, 9], np.int64),
        starts=whole(0, 2, 3),
        item=whole(0, 1, 1),
        position=whole(0, 1, 0),
        clicked=whole(1),
        click_ms=np.array([10], np.int64),
        dwell_ms=np.array([-1], np.int64),
        load=load,
    )


def _update(**narrow: Any) -> ModelUpdate:
    U, V = np.arange(6.0).reshape(3, 2) / 4, np.arange(6.0).reshape(2, 3) - 2
    first = ModelUpdate("digits", "lego", 2, 42, "c", 1, 7, 90, 99, True, 1, 2, 3, 3, 1, 2**32 - 1, U, V, 5)
    return replace(first, **narrow)


COUNTS = Counts(10, 9, 3, 4, 1, 2, 1, 5, 2.5)


def _outcome() -> Outcome:
    weights = {"hue": 0.25}
    return Outcome(
        "digits", "opml", 2, 42, "one-pass", 1, 99, COUNTS, 5, {"one-pass": COUNTS}, weights, "pair"
    )


def _sums(weight: float) -> HeldOutSums:
    losses = {name: weight / (2 + n) for n, name in enumerate(METRICS)}
    return HeldOutSums(weight, weight / 2, losses, {name: weight / 8 for name in UNLEARNED})


def records() -> dict[str, Record]:
    """The records, by file name."""
    load = LoadPosition("load-1", 7)
    split = replace(COUNTS, scored=6, mistakes=2, split_scored=3, split_mistakes=1)
    return {
        "samples": SampleBlock("digits", (_table(2, 3),), np.array([3, -5]), 1_700_000_000_000, None, load),
        "samples-text": SampleBlock("digits", (_table(2, 3),), ("a", "b"), 0, ("i1", "i2")),
        "items": ItemBlock("shop", ("i1", "i2"), (_table(2, 3), _table(2, 2, "colour")), 5, ("i0",), load),
        "click": Click(
            "shop",
            "list-1",
            ("i1", "i2"),
            (0, 1),
            (ItemClick("i2", 9, 1200),),
            8,
            "s",
            "u",
            "q",
            (_table(1, 3),),
            load,
        ),
        "relation": Relation("shop", "i1", "i2", False, 5, "somebody", load),
        "clicks": _clicks(load),
        "relations": RelationBlock(
            "shop",
            ("i1", "i2", "i3"),
            np.array([0, 1], np.int32),
            np.array([1, 2], np.int32),
            np.array([True, False]),
            np.array([5, 6], np.int64),
            ("somebody",),
            np.array([0, -1], np.int32),
            load,
        ),
        "control": Control("shop", Action.RESET, 5, Declaration((("x", 3),), "string", "zscore"), 17),
        "pairs": _constraints(Kind.PAIR),
        "triplets": _constraints(Kind.TRIPLET),
        "pairs-events": replace(
            _constraints(Kind.PAIR), events=np.array([0, 1], np.int32), earlier=Kind.TRIPLET
        ),
        "triplets-events": replace(_constraints(Kind.TRIPLET), events=np.array([1, 1], np.int32)),
        "pairs-lists": replace(_constraints(Kind.PAIR), lists=_lists()),
        "triplets-lists": replace(_constraints(Kind.TRIPLET), lists=_lists()),
        "outcome-split": replace(
            _outcome(), counts=split, by_rule={"closure-triplet": split, "one-pass": COUNTS}
        ),
        "outcome": _outcome(),
        "outcome-held-out": replace(
            _outcome(),
            counts=replace(split, held_out=3),
            by_rule={"closure-triplet": split, "one-pass": replace(COUNTS, held_out=3)},
            held_out=HeldOut(_sums(2.0), 60, _sums(50.0), 2),
        ),
        "outcome-lists": replace(
            _outcome(), held_out=HeldOut(_sums(2.0), 60, _sums(50.0), 5, queries=57, against=-0.75)
        ),
        "model": ModelVersion(
            "digits", "opml", "opml/1", 2, 42, 99, "c", 1, 7, "file:///m", "ab" * 32, 5, True
        ),
        "click-address": Click("shop", "list-1", ("i1",), (0,), (), 8, "s", "u", address="9c1d0a5be2f7"),
        "clicks-address": replace(
            _clicks(load), actors=("s", "u", "9c1d0a5be2f7"), address=np.array([2, -1], np.int32)
        ),
        "click-scores": Click(
            "shop",
            "list-1",
            ("i1", "i2"),
            (0, 1),
            (ItemClick("i2", 9, 1200, "purchase"), ItemClick("i1", 9)),
            8,
            scores=_scores(2),
        ),
        "clicks-scores": replace(
            _clicks(load), scores=_scores(3), kinds=("purchase",), action=np.array([0], np.int32)
        ),
        "pairs-scores": replace(
            _constraints(Kind.PAIR), lists=replace(_lists(), scores=_scores(3)), scores=_scores(2)
        ),
        "click-weight": Click(
            "shop",
            "list-1",
            ("i1", "i2"),
            (0, 1),
            (ItemClick("i2", 9, None, None, 0.5), ItemClick("i1", 9)),
            8,
        ),
        "clicks-weight": replace(_clicks(load), weight=np.array([2.5], np.float32)),
        "feedback": Feedback("shop", "list-1", "i2", "purchase", 2.5, 1_700_000_000_000, "k-1"),
        "feedback-outcome": Feedback("shop", "list-1", None, None, 0.25, 9, retract=True),
        "pairs-worth": replace(
            _constraints(Kind.PAIR), lists=replace(_lists(), worth=np.array([1.0, 5.0, 0.25], np.float32))
        ),
        "pairs-names": replace(
            _constraints(Kind.PAIR),
            lists=replace(_lists(), names=np.array([2**64 - 1, 3, 2**64 - 1], np.uint64)),
        ),
        "pairs-retracted": replace(
            _constraints(Kind.PAIR),
            lists=replace(_lists(), ids=np.array([2**64 - 1, 1], np.uint64)),
            retracted=np.array([[0, 3], [2**64 - 1, 5]], np.uint64),
        ),
        "feedback-late": Feedback(
            "shop", "ki3.AAAA", "i1", "cited", 1.0, 5, "k", True, LoadPosition("source/feedback/1/0", 7)
        ),
        "gate-order": GateOrder("shop", Order.PIN, 5, Version(2, 17, 900), "by the shop's team"),
        "gate-decision": GateDecision(
            space="shop",
            verdict=Verdict.PROMOTE,
            reason="it wins more often",
            generation=1,
            epoch=17,
            number=3,
            topic="kinstream.events",
            partition=2,
            offset=99,
            time_ms=5,
            serving=Version(2, 17, 900),
            before=UNADAPTED,
            challenger=None,
            pinned=True,
            impressions=1200,
            wins=90,
            losses=50,
            ties=3,
            log_e_for=3.75,
            log_e_against=0.5,
            checks={"distinct_items_serving": 812.5},
        ),
        "gate-decision-floor": GateDecision(
            space="shop",
            verdict=Verdict.RETIRE,
            reason="it loses more often",
            generation=1,
            epoch=17,
            number=4,
            topic="kinstream.events",
            partition=2,
            offset=120,
            time_ms=6,
            serving=UNADAPTED,
            before=UNADAPTED,
            floor=Version(2, 17, 950),
        ),
        "item-map": ItemMap(
            space="shop",
            learner="adapter",
            model=Version(2, 17, 900),
            sha256="ab" * 32,
            product="cosine",
            dimension=3,
            rank=2,
            first=1,
            item=np.array([[0.5, -1.0, 2.0]], np.float32),
            query=np.array([[1.0, 0.0, 0.25]], np.float32),
            time_ms=5,
            version=99,
            epoch=17,
        ),
        "item-map-alone": ItemMap(
            "shop",
            "oasis",
            Version(1, 0, 3),
            "",
            "dot",
            2,
            2,
            0,
            np.eye(2, dtype=np.float32),
            np.empty((0, 2), np.float32),
            5,
        ),
        "vectors": VectorBlock(
            "shop", 99, ("i1", "i2"), _table(2, 3).vectors, ("i0",), 1_700_000_000_000, None, 17
        ),
        "vectors-complete": VectorBlock("shop", 99, (), np.empty((0, 2), np.float32), (), 5, 2, 17),
        "update": _update(),
        "update-narrow": _update(U=np.full((3, 2), 0.5, np.float32), V=np.ones((2, 3), np.float32)),
        "update-broken": _update(
            whole=False, part=0, parts=1, rank=0, first=0, check=0, U=np.empty((3, 0)), V=np.empty((0, 3))
        ),
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, record in records().items():
        if not (FOLDER / f"{name}.avro").exists():
            (FOLDER / f"{name}.avro").write_bytes(encode(record))
