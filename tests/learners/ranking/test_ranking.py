"""The learner `ranking`: its weights are those of a transcription, and depend on nothing but earlier lists."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kinstream.learners.adapter.learner import Adapter
from kinstream.learners.ranking.learner import Ranking
from kinstream.learners.ranking.remembered import bits_of
from kinstream.learners.registry import create
from kinstream.streams.checkpoints.state_bytes import from_bytes, to_bytes
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.scores import Scores
from kinstream.streams.records.values import ConstraintBlock
from kinstream.streams.signals import ADAPTED, REMEMBERED, SIMILARITY
from tests.learners.ranking.world import World
from tests.learners.transcriptions.remembered import Remembering

HALF = {SIMILARITY: 0.5, "text": 0.5}


def learned(blocks: Any, **settings: Any) -> Ranking:
    model = Ranking(**settings)
    for block in blocks:
        model.learn(block)
    return model


def bits(model: Any) -> bytes:
    return to_bytes(model.state())


class Transcription:
    """The weights, from the words of docs/adapter.md: one list after the other, in plain numbers."""

    def __init__(self, start: dict[str, float]) -> None:
        self.start = start
        self.w: dict[str, float] = {}
        self.fisher: dict[tuple[str, str], float] = defaultdict(float)
        self.scale: dict[str, float] = {}
        self.deviations: dict[str, list[float]] = {}
        self.queries: Counter[bytes] = Counter()
        self.bounded = 0

    def learn(
        self, query: bytes, signals: dict[str, list[float]], clicked: list[int], e: float, act: list[float]
    ) -> None:
        most = max(abs(share) for share in self.start.values())
        for name, values in signals.items():
            if name not in self.w and not all(map(math.isnan, values)):
                first = 0.0 if name == SIMILARITY else self.start.get(name, 0.0)
                first += self.start.get(SIMILARITY, 0.0) if name == ADAPTED else 0.0
                self.w[name] = first / most
        names = sorted(self.w)
        z = {name: self._centred(name, signals.get(name, [])) for name in names}
        n = len(next(iter(signals.values())))
        z = {name: values or [0.0] * n for name, values in z.items()}
        self.queries[query] += 1
        worth = min(1.0, 3.0 / len(clicked)) / self.queries[query]
        raw = [(r + 1.0) ** -e * math.exp(sum(self.w[name] * z[name][r] for name in names)) for r in range(n)]
        p = [one / sum(raw) for one in raw]
        mean = {name: sum(p[r] * z[name][r] for r in range(n)) for name in names}
        gradient = {
            name: worth * sum(act[r] * (mean[name] - z[name][r]) for r in clicked) / len(clicked)
            for name in names
        }
        acted = sum(act[r] for r in clicked) / len(clicked)
        for a in names:
            for b in names:
                product = sum(p[r] * z[a][r] * z[b][r] for r in range(n)) - mean[a] * mean[b]
                self.fisher[a, b] = self.fisher[a, b] * math.exp(-1 / 3000) + worth * acted * product
        matrix = np.array([[self.fisher[a, b] for b in names] for a in names]) + 3.0 * np.eye(len(names))
        w = np.array([self.w[name] for name in names])
        w -= np.linalg.solve(matrix, [gradient[name] for name in names])
        bound = np.array([{SIMILARITY: 1.0, ADAPTED: 0.2}.get(name, 0.0) for name in names])
        if bound @ w < 0.0:
            way = np.linalg.solve(matrix, bound)
            w -= way * (bound @ w) / (bound @ way)
            self.bounded += 1
        self.w = dict(zip(names, w.tolist(), strict=True))

    def _centred(self, name: str, values: list[float]) -> list[float]:
        known = [value for value in values if not math.isnan(value)]
        if len(known) < 2:
            return [0.0] * len(values)
        mean = sum(known) / len(known)
        deviation = math.sqrt(sum((value - mean) ** 2 for value in known) / len(known))
        if deviation <= 1e-9 * abs(mean):
            return [0.0] * len(values)
        past = self.deviations.setdefault(name, [])
        past.append(deviation)
        before = self.scale.get(name, 0.0)
        scale = before + (deviation - before) * max(1.0 / len(past), 1.0 / 300.0)
        if len(past) >= 15:
            middle = sorted(past[-15:])[7]
            if middle > 3.0 * scale or 3.0 * middle < scale:
                scale = middle
        self.scale[name] = scale
        return [0.0 if math.isnan(value) else min(max((value - mean) / scale, -8.0), 8.0) for value in values]


@pytest.mark.parametrize(("missing", "acts"), [(0.0, False), (0.3, False), (0.0, True)])
def test_the_weights_are_those_of_a_transcription(missing: float, acts: bool) -> None:
    world = World(120, missing=missing, acts=acts)
    model = learned(world.blocks(cut=7), start=HALF, dtype="float64", remember=1_000)
    written, adapter, heavy = (
        {known: Transcription(HALF) for known in (False, True)},
        Adapter(dtype="float64"),
        0,
    )
    memory = Remembering()
    for row, block in enumerate(world.blocks(cut=1)):
        lists = block.lists
        assert lists is not None and lists.scores is not None and lists.names is not None and len(lists) == 1
        rows = block.tables[0].vectors.astype(np.float64)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        q, x = rows[lists.query[0]], rows[lists.item]
        moved = q if adapter.dimension is None else q @ adapter.W
        signals = {SIMILARITY: x @ q, ADAPTED: x @ moved / np.linalg.norm(moved)}
        signals |= dict(zip(lists.scores.names, lists.scores.values.T.astype(np.float64), strict=True))
        clicked = np.flatnonzero(lists.clicked).tolist()
        act = (np.ones(len(lists.item)) if lists.worth is None else lists.worth).tolist()
        heavy += int(sum(one > 1.0 for one in act))
        named = {name: one.tolist() for name, one in signals.items()}
        query, names = bits_of(q[None])[0], lists.names.tolist()
        said, known = memory.says(query, names)
        written[False].learn(q.tobytes(), named, clicked, lists.exponent, act)
        if known:
            # Each list counts in full.
            written[True].learn(str(row).encode(), named | {REMEMBERED: said}, clicked, lists.exponent, act)
        memory.add(query, names, clicked, int(lists.actor[0]), act)
        adapter.learn(block)
    parts = model._parts
    for known, found in ((False, parts.weights.learned), (True, parts.known.learned)):
        # Sums of what is remembered are float32.
        own, precise = written[known], 1e-5 if known else 1e-7
        assert found.names == tuple(sorted(own.w)) and (REMEMBERED in found.names) == known
        assert np.allclose(found.weights, [own.w[name] for name in found.names], rtol=0, atol=precise)
        assert np.allclose(found.units, [own.scale[name] for name in found.names], rtol=precise)
    found = parts.known.learned
    assert np.abs(found.weights - np.array([0.0, 1.0, 0.0, 0.0, 1.0])).max() > 0.1
    assert 0 < sum(own.bounded for own in written.values()) < 240
    assert acts == (heavy > 20)


def test_blocks_may_be_cut_between_any_lists_and_a_killed_learner_goes_on() -> None:
    world = World(90, missing=0.2)
    whole = bits(learned(world.blocks(cut=90), start=HALF, remember=1_000))
    for cut in (1, 7, 16):
        assert bits(learned(world.blocks(cut=cut), start=HALF, remember=1_000)) == whole
    model = Ranking(start=HALF, remember=1_000)
    for block in world.blocks(cut=7):
        again = Ranking(start=HALF, remember=1_000)
        again.restore(from_bytes(bits(model)))
        again.learn(block)
        model = again
    assert bits(model) == whole


def test_the_map_is_that_of_the_adapter() -> None:
    world = World(80)
    adapter = Adapter()
    for block in world.blocks():
        adapter.learn(block.without_lists())
    model = learned(world.blocks())
    assert np.array_equal(model.W, adapter.W)
    state = model.state()
    assert all(np.array_equal(state[name], value) for name, value in adapter.state().items())


def test_weights_depend_on_earlier_lists_only() -> None:
    """A list's own clicks change neither its signals nor what it is compared by, but what comes after it."""
    blocks = [*World(60).blocks(cut=1)]
    model = learned(blocks[:-1], start=HALF)
    before, sums = model.learned_blend, np.array(model.state()["ranking.sums"])
    last = blocks[-1]
    assert last.lists is not None
    other = learned(blocks[:-1], start=HALF)
    turned = ~last.lists.clicked if last.lists.clicked.all() else np.roll(last.lists.clicked, 1)
    other.learn(replace(last, lists=replace(last.lists, clicked=turned)))
    model.learn(last)
    assert not np.array_equal(model.learned_blend.weights, before.weights)
    # The scales follow what was shown, whoever clicks.
    assert np.array_equal(other.learned_blend.units, model.learned_blend.units)
    assert (np.array(model.state()["ranking.sums"])[0] > sums[0]).all()


def permuted(block: ConstraintBlock, seed: int) -> ConstraintBlock:
    """The same block with the rows of its table in another order."""
    lists, vectors = block.lists, block.tables[0].vectors
    assert lists is not None
    order = np.random.default_rng(seed).permutation(len(vectors))
    new = np.argsort(order).astype(np.int32)
    tables = (replace(block.tables[0], vectors=np.ascontiguousarray(vectors[order])),)
    return replace(
        block,
        tables=tables,
        index=new[block.index],
        lists=replace(lists, query=new[lists.query], item=new[lists.item]),
    )


def test_the_order_of_the_rows_of_a_table_changes_nothing() -> None:
    world = World(60)
    turned = learned((permuted(block, i) for i, block in enumerate(world.blocks())), start=HALF)
    assert bits(turned) == bits(learned(world.blocks(), start=HALF))


def test_other_names_of_scores_in_their_order_change_nothing() -> None:
    def renamed(block: ConstraintBlock) -> ConstraintBlock:
        assert block.lists is not None and block.lists.scores is not None
        scores = Scores(("bm25", "zeal"), block.lists.scores.values)
        return replace(block, lists=replace(block.lists, scores=scores))

    world = World(60)
    first = learned(world.blocks(), start={SIMILARITY: 1.0}).learned_blend
    second = learned(map(renamed, world.blocks()), start={SIMILARITY: 1.0}).learned_blend
    place = [second.names.index(name) for name in (ADAPTED, SIMILARITY, "bm25", "zeal")]
    wanted = [first.names.index(name) for name in (ADAPTED, SIMILARITY, "age", "text")]
    assert np.allclose(second.weights[place], first.weights[wanted], rtol=0, atol=1e-12)


def test_a_signal_that_is_always_missing_or_constant_changes_nothing() -> None:
    def more(block: ConstraintBlock, value: float) -> ConstraintBlock:
        assert block.lists is not None and block.lists.scores is not None
        scores = block.lists.scores
        values = np.column_stack([scores.values, np.full(len(scores), value, np.float32)])
        return replace(block, lists=replace(block.lists, scores=Scores((*scores.names, "z"), values)))

    world = World(60)
    wanted = learned(world.blocks(), start=HALF)
    missing = learned((more(block, np.nan) for block in world.blocks()), start=HALF)
    assert bits(missing) == bits(wanted)
    constant = learned((more(block, 7.0) for block in world.blocks()), start=HALF).learned_blend
    assert constant.names == wanted.learned_blend.names
    assert np.array_equal(constant.weights, wanted.learned_blend.weights)


def test_a_new_name_begins_at_0_and_learns() -> None:
    world = World(400)
    blocks = [*world.blocks()]
    some = [block for block in world.blocks(names=("text",))]
    model = learned(some[:20], start=HALF)
    assert "age" not in model.learned_blend.names
    for block in blocks[20:]:
        model.learn(block)
    # Old items are wanted less.
    found = dict(zip(model.learned_blend.names, model.learned_blend.weights.tolist(), strict=True))
    assert found["age"] < -0.05


def test_a_tenfold_scale_is_followed_at_once() -> None:
    def changed(block: ConstraintBlock) -> ConstraintBlock:
        assert block.lists is not None and block.lists.scores is not None
        scores = block.lists.scores
        factors = np.where(np.array(scores.names) == "text", 10.0, 1.0).astype(np.float32)
        return replace(
            block, lists=replace(block.lists, scores=Scores(scores.names, scores.values * factors))
        )

    world = World(400)
    blocks = [*world.blocks()]
    usual = learned(blocks, start=HALF).learned_blend
    model = learned([*blocks[:20], *map(changed, blocks[20:])], start=HALF).learned_blend
    at = model.names.index("text")
    assert model.units[at] / usual.units[at] == pytest.approx(10.0, rel=0.2)
    assert model.weights[at] == pytest.approx(usual.weights[at], rel=0.25)


def test_what_is_served_begins_as_what_people_have_and_then_is_what_is_learned() -> None:
    world = World(400)
    model = Ranking(start=HALF)
    assert (model.blend.names, model.weights) == ((SIMILARITY, "text"), HALF)
    for block in world.blocks():
        model.learn(block)
    assert model.blend.names == (ADAPTED, "age", SIMILARITY, "text")
    assert model.weights == dict(
        zip(model.learned_blend.names, model.learned_blend.weights.tolist(), strict=True)
    )
    assert model.start.names == (SIMILARITY, "text")


def test_without_scores_the_signals_are_the_similarities_alone() -> None:
    model = learned(World(80).blocks(names=()))
    assert model.learned_blend.names == (ADAPTED, SIMILARITY)


def test_without_lists_the_map_alone_learns() -> None:
    model = learned(block.without_lists() for block in World(40).blocks())
    assert model.learned_blend.names == ()
    assert model.blend.names == (SIMILARITY,)
    assert model.dimension == 8


def test_the_similarities_are_those_of_the_lists() -> None:
    world = World(80)
    model = learned(world.blocks())
    found = model.signals(world.queries[:3], world.items[:5])
    assert np.allclose(found[SIMILARITY], world.queries[:3] @ world.items[:5].T, atol=1e-6)
    moved = world.queries[:3] @ model.W
    moved /= np.linalg.norm(moved, axis=1, keepdims=True)
    assert np.allclose(found[ADAPTED], moved @ world.items[:5].T, atol=1e-5)


@pytest.mark.parametrize("start", [{}, {"text": 0.0}, {"text": math.nan}, "text", {"text": "x"}])
def test_shares_that_are_none_are_refused(start: Any) -> None:
    with pytest.raises(SettingsError, match="start"):
        create("ranking", start=start)
