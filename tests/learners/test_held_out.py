"""The held-out share of a stream, against an oracle that was written from its description (docs/building.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kinstream.learners.agent import count
from kinstream.learners.base.learner import Outcomes
from kinstream.learners.held_out.choice import HeldOutShare
from kinstream.learners.held_out.judge import Judge
from kinstream.learners.registry import create, is_baseline, own_names
from kinstream.streams.checkpoints.state_bytes import from_bytes, to_bytes
from kinstream.streams.errors import BadRecord
from kinstream.streams.records.held_out import LEARNED, METRICS, UNLEARNED, HeldOut, HeldOutSums
from kinstream.streams.records.values import ConstraintBlock, Counts, Kind, Table

D = 3
MASK = 2**64 - 1


def block(
    kind: Kind, seed: int, rows: int = 40, *, events: bool = False, space: str = "s", modalities: int = 1
) -> ConstraintBlock:
    rng = np.random.default_rng(seed)
    arity = 2 if kind is Kind.PAIR else 3
    n = rows + 2
    tables = tuple(
        Table(f"m{i}" if modalities > 1 else "x", (rng.normal(size=(n, D)) * (10, 1, 0.1)).astype(np.float32))
        for i in range(modalities)
    )
    index = rng.integers(0, n, (rows, arity)).astype(np.int32)
    numbers = None
    if events:
        numbers = np.sort(rng.integers(0, rows // 3, rows)).astype(np.int32)
        # A list has one query.
        index[:, 0] = index[np.searchsorted(numbers, numbers), 0]
    signs = rng.choice([-1, 1], rows).astype(np.int8) if kind is Kind.PAIR else np.zeros(rows, np.int8)
    flags = np.zeros(rows, np.bool_)
    rule = (np.arange(rows) % 2).astype(np.uint8)
    return ConstraintBlock(
        space,
        kind,
        tables,
        index,
        signs,
        ("a", "b"),
        rule,
        flags,
        np.ones(rows, np.float32),
        0,
        events=numbers,
    )


# ---- the oracle -----------------------------------------------------------------------------------------------------


def mixed(words: Iterable[int]) -> int:
    words = list(words)
    h = len(words)
    for word in words:
        h = ((h ^ word) * 0x9E3779B97F4A7C15) & MASK
        h ^= h >> 29
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        h = ((h ^ (h >> 33)) * factor) & MASK
    return h ^ (h >> 33)


def is_chosen(vector: NDArray[np.float32], share: float, space: str) -> bool:
    values = [0.0 if v == 0 else float(v) for v in vector]
    own = mixed(np.array(values, "<f4").view("<u4").tolist())
    key = np.frombuffer(blake2b(space.encode(), digest_size=8).digest(), "<u4").tolist()
    return mixed([*key, own & 0xFFFFFFFF, own >> 32]) < share * 2.0**64


class Oracle:
    """One constraint at a time, in plain Python."""

    def __init__(self, share: float) -> None:
        self.share = share
        self.first: dict[bytes, NDArray[Any]] = {}
        self.losses: list[dict[str, float]] = []
        self.latest: dict[int, tuple[Any, Any]] = {}
        #: Number of the event, sign, vectors: constraints without a verdict.
        self.waiting: list[tuple[tuple[int, int], int, Any]] = []
        self.blocks = 0

    def take(self, made: ConstraintBlock, learned: Callable[[Any, Any], float]) -> list[bool]:
        vectors = np.concatenate([t.vectors for t in made.tables], axis=1).astype(np.float64)
        for row in made.index:
            for n in row:
                if len(self.first) < 256:
                    self.first.setdefault((vectors[n] + 0.0).tobytes(), vectors[n])
        known = np.array(list(self.first.values()))
        mean, least = known.mean(axis=0), known.min(axis=0)
        deviation, reach = known.std(axis=0, ddof=1), known.max(axis=0) - least

        def distance(metric: str, x: Any, y: Any) -> float:
            if metric == LEARNED:
                return learned(x, y)
            if metric.startswith("zscore"):
                x, y = (x - mean) / deviation, (y - mean) / deviation
            if metric == "minmax":
                x, y = (x - least) / reach, (y - least) / reach
            if metric.endswith("cosine"):
                return 1.0 - float(x @ y) / math.sqrt(float(x @ x) * float(y @ y))
            return float(((x - y) ** 2).sum())

        held: list[bool] = []
        fresh = []
        before: int | None = None
        self.blocks += 1
        for t, row in enumerate(made.index):
            number = -1 - t if made.events is None else int(made.events[t])
            if number != before:
                out = is_chosen(made.tables[0].vectors[row[0]], self.share, made.space)
                before = number
            held.append(out)
            if out and number != 0:
                fresh.append(((self.blocks, number), int(made.signs[t]), vectors[row]))
        kinds = {len(points) for _, _, points in (*self.waiting, *fresh)}
        if len(kinds) > 1:
            # Another kind of constraint than those that wait.
            self.judge(distance)
            self.waiting = fresh
            return held
        self.waiting += fresh
        if fresh and len(self.waiting) >= min(64, 1 + len(self.losses) // 8):
            self.judge(distance)
        return held

    def judge(self, distance: Callable[[str, Any, Any], float]) -> None:
        losses: dict[tuple[int, int], list[dict[str, float]]] = {}
        for number, sign, points in self.waiting:
            verdicts = losses.setdefault(number, [])
            if len(points) == 3:
                a, p, n = points
                verdicts.append({m: float(not distance(m, a, p) < distance(m, a, n)) for m in METRICS})
                continue
            pair = (points[0], points[1])
            if -sign not in self.latest:
                self.latest[sign] = pair
                continue
            both = {sign: pair, -sign: self.latest.pop(-sign)}
            verdicts.append({m: float(not distance(m, *both[1]) < distance(m, *both[-1])) for m in METRICS})
        for verdicts in losses.values():
            if verdicts:
                self.losses.append({m: sum(v[m] for v in verdicts) / len(verdicts) for m in METRICS})
        self.waiting = []

    def sums(self, keep: float) -> HeldOutSums:
        weights = [keep ** (len(self.losses) - 1 - i) for i in range(len(self.losses))]
        pairs = list(zip(weights, self.losses, strict=True))
        return HeldOutSums(
            sum(weights),
            sum(w * w for w in weights),
            {m: sum(w * loss[m] for w, loss in pairs) for m in METRICS},
            {m: sum(w * (loss[LEARNED] - loss[m]) ** 2 for w, loss in pairs) for m in UNLEARNED},
        )


def same(found: HeldOutSums, wanted: HeldOutSums) -> None:
    assert (found.weight, found.squared_weight) == pytest.approx((wanted.weight, wanted.squared_weight))
    assert dict(found.losses) == pytest.approx(dict(wanted.losses))
    assert dict(found.squares) == pytest.approx(dict(wanted.squares))


CASES = [
    (Kind.TRIPLET, False, 1, "opml"),
    (Kind.TRIPLET, True, 1, "opml"),
    (Kind.TRIPLET, True, 2, "omdml"),
    (Kind.PAIR, False, 1, "lego"),
    (Kind.PAIR, True, 1, "lego"),
    (Kind.TRIPLET, True, 1, "lego"),
]


@pytest.mark.parametrize(("kind", "events", "modalities", "learner"), CASES)
def test_verdicts_and_sums_are_those_of_the_description(
    kind: Kind, events: bool, modalities: int, learner: str
) -> None:
    model: Any = create(learner)
    judge, oracle = Judge(0.3, "s"), Oracle(0.3)

    def distance(x: Any, y: Any) -> float:
        parts: list[Any] = [
            {f"m{i}": part[None].astype(np.float32) for i, part in enumerate(np.split(v, modalities))}
            for v in (x, y)
        ]
        if modalities == 1:
            parts = [p["m0"] for p in parts]
        return float(model.distance(*parts)[0])

    events_so_far = 0
    for seed in range(25):
        made = block(kind, seed, events=events, modalities=modalities)
        held = judge.rows(made)
        judge, report = judge.after(model, made, held)
        assert held.tolist() == oracle.take(made, distance)
        if report is not None:
            assert report.block.weight == len(oracle.losses) - events_so_far
            assert report.judged == report.block.weight
            assert report.events == len(oracle.losses)
            same(report.window, oracle.sums(1.0 - 1.0 / 500.0))
            events_so_far = len(oracle.losses)
        model.learn(made.take(~held))
    state = judge.state()
    assert events_so_far > 60
    assert len(oracle.losses) == events_so_far
    wanted = oracle.sums(1.0)
    assert np.asarray(state["total.losses"]).tolist() == pytest.approx(list(wanted.losses.values()))
    assert np.asarray(state["total.squares"]).tolist() == pytest.approx(list(wanted.squares.values()))
    assert np.asarray(state["total.weights"]).tolist() == [len(oracle.losses)] * 2


def test_constraints_that_wait_get_their_verdicts_before_those_of_another_kind_wait() -> None:
    model, judge, oracle = create("lego"), Judge(0.3, "s"), Oracle(0.3)
    distance = lambda x, y: float(model.distance(*(v[None].astype(np.float32) for v in (x, y)))[0])  # noqa: E731
    for seed, kind in enumerate((Kind.TRIPLET, Kind.PAIR, Kind.PAIR, Kind.TRIPLET, Kind.PAIR) * 5):
        made = block(kind, seed, 10)
        judge, report = judge.after(model, made, judge.rows(made))
        oracle.take(made, distance)
        if report is not None:
            same(report.window, oracle.sums(1.0 - 1.0 / 500.0))
            assert report.events == len(oracle.losses)
    assert len(oracle.losses) > 40


def test_the_account_survives_a_checkpoint_and_goes_on_with_the_same_bits() -> None:
    for kind, learner in ((Kind.TRIPLET, "opml"), (Kind.PAIR, "lego")):
        model = create(learner)
        judge = again = Judge(0.3, "s")
        for seed in range(20):
            made = block(kind, seed, 12)
            held = judge.rows(made)
            judge, first = judge.after(model, made, held)
            fresh = Judge(0.3, "s")
            fresh.restore(from_bytes(to_bytes(again.state())))
            again, second = fresh.after(model, made, fresh.rows(made))
            assert first == second
            assert to_bytes(judge.state()) == to_bytes(again.state())
            model.learn(made.take(~held))


def test_the_state_of_an_earlier_version_is_taken_over_without_evidence() -> None:
    model, judge = create("opml"), Judge(0.3, "s")
    for seed in range(8):
        made = block(Kind.TRIPLET, seed)
        judge, _ = judge.after(model, made, judge.rows(made))
    older = {name: value for name, value in judge.state().items() if name not in ("against", "events")}
    again = Judge(0.3, "s")
    again.restore(from_bytes(to_bytes(older)))
    made = block(Kind.TRIPLET, 8, 300)
    (_, mine), (_, theirs) = (one.after(model, made, one.rows(made)) for one in (judge, again))
    assert mine is not None and theirs is not None
    assert (mine.events, mine.window, mine.block) == (theirs.events, theirs.window, theirs.block)


def test_pairs_that_share_a_partner_are_one_comparison() -> None:
    made = block(Kind.PAIR, 0, 30)
    model, judge = create("lego"), Judge(0.999, "s")
    signs = np.array([1] + [-1] * 29, np.int8)
    held = np.ones(30, np.bool_)
    judge, first = judge.after(model, replace(made, signs=signs), held)
    judge, last = judge.after(model, replace(made, signs=signs), held)
    told = last or first
    assert told is not None and told.events <= 2


def test_an_account_is_not_changed_by_a_block_that_is_not_learned_in_the_end() -> None:
    judge, model = Judge(0.3, "s"), create("opml")
    for seed in range(5):
        made = block(Kind.TRIPLET, seed)
        before = to_bytes(judge.state())
        after, _ = judge.after(model, made, judge.rows(made))
        assert to_bytes(judge.state()) == before != to_bytes(after.state())
        judge = after
    with pytest.raises(BadRecord):
        judge.after(model, block(Kind.TRIPLET, 1, modalities=2), np.ones(40, np.bool_))


# ---- which events ---------------------------------------------------------------------------------------------------


def test_the_share_is_what_was_asked_for_and_spaces_choose_independently() -> None:
    rng = np.random.default_rng(0)
    n = 20_000
    made = replace(
        block(Kind.PAIR, 0, 2),
        tables=(Table("x", rng.normal(size=(n, 5)).astype(np.float32)),),
        index=np.stack([np.arange(n), np.arange(n)], 1).astype(np.int32),
    )
    one, other = (HeldOutShare(0.02, space).rows(made) for space in ("one", "other"))
    for found in (one, other):
        assert abs(found.sum() - 400) < 4 * math.sqrt(400)
    assert abs((one & other).sum() - 8) < 4 * math.sqrt(8)
    assert (HeldOutShare(0.1, "one").rows(made) & one).sum() == one.sum(), (
        "a larger share holds the same events, and more"
    )


def test_the_same_vector_is_chosen_wherever_it_stands_and_as_a_negative_zero() -> None:
    made = block(Kind.TRIPLET, 1, 60)
    made.tables[0].vectors[::3, 1] = 0.0
    choice = HeldOutShare(0.4, "s")
    found = choice.rows(made)
    assert 0 < found.sum() < 60
    order = np.random.default_rng(2).permutation(60)
    turned = np.argsort(np.random.default_rng(3).permutation(len(made.tables[0].vectors)))
    moved = replace(
        made,
        tables=(Table("x", made.tables[0].vectors[np.argsort(turned)] * np.float32(1.0)),),
        index=turned[made.index[order]].astype(np.int32),
    )
    assert (choice.rows(moved) == found[order]).all()
    negative = replace(
        made, tables=(Table("x", np.where(made.tables[0].vectors == 0, -0.0, made.tables[0].vectors)),)
    )
    assert (choice.rows(negative) == found).all()


def test_an_event_is_held_out_as_a_whole_by_its_first_anchor() -> None:
    made = block(Kind.TRIPLET, 4, 60, events=True)
    rows = HeldOutShare(0.4, "s").rows(made)
    assert made.events is not None and 0 < rows.sum() < 60
    for number in set(made.events.tolist()):
        assert len(set(rows[made.events == number].tolist())) == 1


# ---- what follows ---------------------------------------------------------------------------------------------------


def standing(learned: float, best: float, spread: float, events: int = 400) -> HeldOut:
    """A window of equal weights with these mistake rates, and this deviation of the difference."""
    losses = dict.fromkeys(METRICS, 0.9 * events) | {LEARNED: learned * events, "cosine": best * events}
    square = (learned - best) ** 2 + spread**2
    return HeldOut(
        HeldOutSums(), events, HeldOutSums(events, events, losses, dict.fromkeys(UNLEARNED, square * events))
    )


def test_the_interval_is_that_of_a_mean_and_wide_enough_for_the_choice_among_five() -> None:
    found = standing(0.4, 0.3, 0.5)
    assert found.best == "cosine" and found.difference is not None
    assert found.difference.value == pytest.approx(0.1)
    error = 2.5758293 * 0.5 / math.sqrt(399)
    assert (found.difference.low, found.difference.high) == pytest.approx((0.1 - error, 0.1 + error))
    assert found.worse and not standing(0.36, 0.3, 0.5).worse and not standing(0.3, 0.3, 0.0).worse


def test_fewer_than_fifty_events_say_nothing() -> None:
    few, enough = standing(1.0, 0.0, 0.0, 49), standing(1.0, 0.0, 0.0, 50)
    assert few.difference is None and not few.worse and enough.worse


def test_constraints_of_a_block_add_up() -> None:
    made = block(Kind.TRIPLET, 5)
    held = HeldOutShare(0.3, "s").rows(made)
    total, by_rule = count(made.take(~held), Outcomes.blank(int((~held).sum())), made.rule[held])
    assert total.held_out == held.sum() > 0
    assert total.seen + total.rejected + total.ignored + total.held_out == len(made)
    assert sum(by_rule.values(), Counts()) == total
    assert by_rule["a"].held_out == held[::2].sum()


@pytest.mark.parametrize("kind", own_names())
def test_every_learner_refuses_what_does_not_fit_although_no_row_is_left_to_learn(kind: str) -> None:
    learner = create(kind, **({"base": "opml"} if kind == "fusion" else {}))
    made = block(learner.form, 1)
    for _ in range(2):
        before = to_bytes(learner.state())
        assert len(learner.learn(made.take(slice(0, 0)))) == 0
        assert to_bytes(learner.state()) == before
        learner.learn(made)
    wide = replace(made, tables=(Table("x", np.ones((42, D + 1), np.float32)),))
    with pytest.raises(BadRecord):
        learner.learn(wide.take(slice(0, 0)))


def test_baselines_are_known_by_their_kind() -> None:
    assert {kind for kind in own_names() if is_baseline(kind)} == {
        "euclidean", "itml", "lmnn", "mahalanobis", "rca",
    }  # fmt: skip
