"""One metric over all modalities is that of their vectors side by side; several are what they are alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kinstream.learners.kernels.several_modalities.fusion import leader
from kinstream.learners.oahu.learner import OAHU
from kinstream.learners.several_modalities import fusion
from kinstream.learners.several_modalities.fusion import HOWS
from kinstream.learners.warm_up import warm_up
from kinstream.streams.errors import BadRecord, SettingsError
from kinstream.streams.records.values import PREFIX_RULE, ConstraintBlock, Kind, Table
from kinstream.streams.settings import load
from kinstream.testing.blocks import rows_of, singles
from kinstream.testing.learners import digest
from tests.learners.multi import NAMES, features, multi_blocks, tables
from tests.learners.published_unit import Fusion, create

SIZES = st.lists(st.sampled_from([1, 2, 3, 17, 64]), min_size=1, max_size=3)
SCALES = st.sampled_from([1e-4, 1.0, 1e3])


def side_by_side(message: ConstraintBlock) -> ConstraintBlock:
    vectors = np.concatenate([table.vectors for table in message.tables], axis=1)
    return replace(message, tables=(Table("x", vectors),))


def only(message: ConstraintBlock, place: int) -> ConstraintBlock:
    return replace(message, tables=(message.tables[place],))


@given(SIZES, SCALES, st.integers(0, 99))
@settings(max_examples=15, deadline=None)
def test_euclidean_distance_is_the_same_concatenated_and_added(
    sizes: list[int], scale: float, seed: int
) -> None:
    both = [Fusion("euclidean", how) for how in ("concatenate", "uniform")]
    message = multi_blocks(seed, sizes, 1, 30, scale)[0]
    one, other = (learner.learn(message) for learner in both)
    X = features(message)
    Y = {name: table[::-1] for name, table in X.items()}
    distances = [learner.distance(X, Y) for learner in both]
    np.testing.assert_allclose(distances[0], distances[1], rtol=1e-12)
    np.testing.assert_array_equal(both[0].transform(X), both[1].transform(X))
    x = np.concatenate(list(X.values()), axis=1)[message.index].astype(np.float64)
    near, far = (np.sum((x[:, 0] - x[:, k]) ** 2, axis=1) for k in (1, 2))
    clear = np.abs(near - far) > 1e-9 * (near + far)
    np.testing.assert_array_equal(one.mistake[clear], (near >= far)[clear])
    np.testing.assert_array_equal(other.mistake[clear], (near >= far)[clear])


@pytest.mark.parametrize("base", ["opml", "euclidean"])
def test_one_metric_of_all_is_the_base_on_vectors_side_by_side(base: str) -> None:
    fused, alone = Fusion(base), create(base)
    for message in multi_blocks(1, (3, 4, 2)):
        one, other = fused.learn(message), alone.learn(side_by_side(message))
        assert all(
            np.array_equal(getattr(one, n), getattr(other, n))
            for n in ("mistake", "utilised", "loss", "clipped")
        )
    assert digest(fused.learners[""].state()) == digest(alone.state())
    X = features(message)
    np.testing.assert_array_equal(
        fused.transform(X), alone.transform(np.concatenate(list(X.values()), axis=1))
    )
    assert fused.weights == {}


@pytest.mark.parametrize("how", ["uniform", "best"])
def test_metrics_of_single_modalities_are_what_they_are_alone(how: str) -> None:
    fused = Fusion("opml", how, settings={"gamma": 0.01, "kernel": "sequential"})
    alone = [create("opml", gamma=0.01, kernel="sequential") for _ in range(3)]
    state: dict[str, Any] = {}
    for message in multi_blocks(1, (3, 4, 2)):
        outcomes = fused.learn(message)
        found = [learner.learn(only(message, place)) for place, learner in enumerate(alone)]
        np.testing.assert_array_equal(outcomes.utilised, np.any([o.utilised for o in found], axis=0))
        np.testing.assert_allclose(outcomes.loss, np.mean([o.loss for o in found], axis=0))
        state = fused.state()
    for place, learner in enumerate(alone):
        mine = {n[2:]: value for n, value in state.items() if n.startswith(f"{place}.")}
        assert digest(mine) == digest(learner.state())


def test_the_mistake_of_added_distances_is_that_before_each_step() -> None:
    fused = Fusion("opml", "uniform", settings={"gamma": 0.05})
    wrong = 0
    for single in [one for message in multi_blocks(1, (3, 4, 2)) for one in singles(message)]:
        x, near, far = ({n: t[[row]] for n, t in features(single).items()} for row in single.index[0])
        margin = float((fused.distance(x, far) - fused.distance(x, near))[0])
        outcomes = fused.learn(single)
        assert abs(margin) < 1e-12 or outcomes.mistake[0] == (margin <= 0.0)
        wrong += int(outcomes.mistake[0])
    assert 0 < wrong < 80
    assert fused.weights == {name: 1.0 / 3.0 for name in NAMES}


def test_similarities_are_added() -> None:
    fused = Fusion("oasis", "uniform", settings={"aggressiveness": 0.5})
    metrics = [create("oasis", aggressiveness=0.5) for _ in range(2)]
    for single in [one for message in multi_blocks(1, (3, 4)) for one in singles(message)]:
        x, near, _ = ({n: t[[row]] for n, t in features(single).items()} for row in single.index[0])
        margin = 0.0
        for (name, table), metric in zip(features(single).items(), metrics, strict=True):
            anchor, others = table[single.index[0, [0, 0]]], table[single.index[0, 1:]]
            similar, other = metric.similarity(anchor, others)  # type: ignore[attr-defined]
            margin += float(similar - other)
            metric.learn(only(single, NAMES.index(name)))
        outcomes = fused.learn(single)
        assert abs(margin) < 1e-12 or outcomes.mistake[0] == (margin <= 0.0)
    wanted = sum(
        metric.similarity(x[name], near[name])[0]  # type: ignore[attr-defined]
        for name, metric in zip(NAMES, metrics, strict=False)
    )
    assert fused.similarity(x, near)[0] == pytest.approx(wanted)


def margin_of(metric: Any, points: NDArray[Any]) -> float:
    """By how much a metric ranks a triplet (3, d) right, asked for what it offers to others."""
    anchors, others = points[[0, 0]], points[1:]
    if isinstance(metric, OAHU):
        near, far = (
            sum(w * float(np.linalg.norm(e[0] - e[s])) for w, e in zip(votes, embedded, strict=True))
            for votes, embedded in [
                (list(metric.weights.values()), metric._begun(points.shape[1]).embed(points))
            ]
            for s in (1, 2)
        )
        return far - near
    if hasattr(metric, "similarity"):
        near, far = (float(value) for value in metric.similarity(anchors, others))
        return near - far
    near, far = (float(value) for value in metric.distance(anchors, others))
    return far - near


class OneByOne:
    """Added metrics that learn one triplet after the other, each asked for its distances before."""

    def __init__(self, base: str, count: int, settings: dict[str, Any]) -> None:
        self.metrics: list[Any] = [create(base, **settings) for _ in range(count)]

    def learn(self, message: ConstraintBlock) -> list[dict[str, Any]]:
        return [self._one(single) for single in singles(message)]

    def _one(self, single: ConstraintBlock) -> dict[str, Any]:
        margin, found = 0.0, []
        for place, metric in enumerate(self.metrics):
            alone = only(single, place)
            points = alone.tables[0].vectors[alone.index[0]]
            # The statistics of a scaler's warm-up take a triplet in before it is scored.
            scaling = not metric._scaler.ready
            with np.errstate(all="ignore"):
                before = margin_of(metric, points)
            found.append(metric.learn(alone))
            margin += margin_of(metric, points) if scaling else before
        rejected = all(one.rejected[0] for one in found)
        mistake = -1 if np.isnan(margin) or rejected else int(margin <= 0.0)
        return {
            "mistake": mistake,
            "margin": margin,
            "utilised": any(one.utilised[0] for one in found),
            "clipped": any(one.clipped[0] for one in found),
            "rejected": rejected,
            "degenerate": all(one.degenerate[0] for one in found),
            "loss": np.mean([one.loss[0] for one in found]),
        }


def as_one_by_one(
    base: str,
    settings: dict[str, Any],
    messages: list[ConstraintBlock],
    slack: float,
    bits: bool,
    before: list[ConstraintBlock] | None = None,
) -> tuple[int, int]:
    """Compare whole blocks with single triplets; returns how many of them were right, and how many wrong.

    What comes before is learned as whole blocks by both.
    """
    count = len(messages[0].tables)
    fused, reference = Fusion(base, "uniform", settings=settings), OneByOne(base, count, settings)
    right, wrong = 0, 0
    for message in before or []:
        fused.learn(message)
        for place, metric in enumerate(reference.metrics):
            metric.learn(only(message, place))
    for message in messages:
        outcomes, wanted = fused.learn(message), reference.learn(message)
        margins = np.array([one["margin"] for one in wanted])
        np.testing.assert_allclose(outcomes.margin, margins, rtol=slack, atol=slack * np.abs(margins).max())
        for t, one in enumerate(wanted):
            if abs(margins[t]) > slack * np.abs(margins).max():
                assert outcomes.mistake[t] == one["mistake"]
                right += one["mistake"] == 0
                wrong += one["mistake"] == 1
            elif not outcomes.rejected[t]:
                assert outcomes.mistake[t] == (outcomes.margin[t] <= 0.0)
        for name in ("utilised", "clipped", "rejected", "degenerate"):
            np.testing.assert_array_equal(getattr(outcomes, name), [one[name] for one in wanted], name)
        losses = np.array([one["loss"] for one in wanted])
        if bits:
            np.testing.assert_array_equal(outcomes.loss, losses)
        else:
            np.testing.assert_allclose(outcomes.loss, losses, rtol=1e-6, atol=1e-9 * losses.max(initial=0.0))
    for place, metric in enumerate(reference.metrics):
        mine, others = fused.learners[NAMES[place]].state(), metric.state()
        # A mean for the reader, added up block by block.
        assert mine.pop("step_sum", 0.0) == pytest.approx(others.pop("step_sum", 0.0))
        if bits:
            assert digest(mine) == digest(others)
            continue
        assert set(mine) == set(others)
        for name, value in others.items():
            size = float(np.abs(np.asarray(value)).max(initial=0.0))
            np.testing.assert_allclose(
                np.asarray(mine[name]), np.asarray(value), rtol=0, atol=1e-9 * size, err_msg=name
            )
    return right, wrong


ADDED: list[tuple[str, dict[str, Any]]] = [
    ("opml", {"gamma": 0.05}),
    ("opml", {"gamma": 0.2, "guard": "normalise"}),
    ("copml", {"gamma2": 0.05}),
    ("oasis", {"aggressiveness": 0.5}),
    ("lego", {"eta": 0.05, "warm_up": 20}),
    ("lego", {"eta": 0.05, "y_similar": 1.0, "y_dissimilar": 4.0, "scaler": "zscore", "warm_up": 20}),
    ("itml-online", {"eta": 0.05, "y_similar": 1.0, "y_dissimilar": 4.0}),
    ("kernel-lego", {"warm_up": 20, "budget": 30}),
    ("pola", {}),
    ("pola", {"scaler": "unit"}),
    ("rdml", {}),
    ("rdml", {"psd": "exact"}),
    ("soml-tg", {"eta": 0.05}),
    ("soml-da", {"scaler": "minmax", "warm_up": 30}),
    ("sors", {}),
    ("adasors", {}),
    ("mdml", {}),
    ("euclidean", {"y_similar": 1.0, "y_dissimilar": 4.0}),
    ("euclidean", {"scaler": "zscore", "warm_up": 30}),
    ("mahalanobis", {"buffer": 30, "refit_every": 40, "warm_up": 20}),
]


@pytest.mark.parametrize(
    ("base", "settings"), ADDED, ids=[f"{base}-{'-'.join(map(str, s.values()))}" for base, s in ADDED]
)
@pytest.mark.parametrize("sizes", [(5, 3), (2, 4, 1)])
def test_whole_blocks_of_added_metrics_are_triplets_one_by_one(
    base: str, settings: dict[str, Any], sizes: tuple[int, ...]
) -> None:
    if getattr(create(base, **settings), "kernel", "") == "auto":
        settings = settings | {"kernel": "sequential"}
    right, wrong = as_one_by_one(base, settings, multi_blocks(11, sizes), 1e-9, True)
    assert right > 20 and wrong > 5


@pytest.mark.parametrize(
    ("base", "settings"),
    [
        ("opml", {"gamma": 0.01}),
        ("oasis", {"aggressiveness": 0.5}),
        ("lego", {"eta": 0.001, "y_similar": 2.0, "y_dissimilar": 9.0}),
        ("itml-online", {"eta": 0.001, "y_similar": 2.0, "y_dissimilar": 9.0}),
    ],
)
def test_blocked_ways_of_added_metrics_are_triplets_one_by_one_to_rounding(
    base: str, settings: dict[str, Any]
) -> None:
    messages = multi_blocks(12, (12, 9), m=100)
    right, wrong = as_one_by_one(base, settings | {"kernel": "blocked"}, messages, 1e-9, False)
    assert right > 100 and wrong > 20


def test_added_votes_of_networks_are_triplets_one_by_one_to_rounding() -> None:
    """Of un-learned metrics beside the learned ones, once the mean length of vectors is known."""
    settings = {"layers": 2, "hidden": 8, "eta": 0.05, "dtype": "float64"}
    for variant in ("published", "anchored"):
        before = multi_blocks(14, (5, 3), 1, 200)
        right, wrong = as_one_by_one(
            "oahu", settings | {"variant": variant}, multi_blocks(13, (5, 3)), 1e-7, False, before
        )
        assert right > 20 and wrong > 5


def test_a_metric_that_rejects_a_step_still_has_its_say() -> None:
    """A raw step of 2 is none where |x - x-|^2 is 0.8, for then I + 2 (a a' - b b') is not positive definite."""
    refused = np.array([[0.0, 0.0], [0.1, 0.0], [0.0, np.sqrt(0.8)]])
    settings = {"gamma": 2.0, "guard": "raw", "kernel": "sequential"}
    index = np.array([[0, 1, 2]])
    assert create("opml", **settings).learn(tables([refused], index)).rejected.tolist() == [True]
    for far, mistake in ((0.3, 0), (0.95, 1)):
        learned = np.array([[0.0, 0.0], [far, 0.0], [0.0, 0.1]])
        message = tables([refused, learned], index)
        as_one_by_one("opml", settings, [message], 1e-9, True)
        outcomes = Fusion("opml", "uniform", settings=settings).learn(message)
        assert not outcomes.rejected[0] and outcomes.utilised[0] and outcomes.mistake[0] == mistake
        assert outcomes.margin[0] == pytest.approx(0.79 + 0.01 - far**2, rel=1e-6)
    both = Fusion("opml", "uniform", settings=settings).learn(tables([refused, refused], index))
    assert both.rejected[0] and both.mistake[0] == -1 and not both.utilised[0]


def test_a_metric_that_cannot_measure_leaves_the_mistake_open() -> None:
    huge = np.array([[3e38], [-3e38], [-3e38]])
    fine = np.array([[0.0], [1.0], [2.0]])
    settings = {"dtype": "float32", "kernel": "sequential"}
    outcomes = Fusion("opml", "uniform", settings=settings).learn(tables([huge, fine], np.array([[0, 1, 2]])))
    assert not outcomes.rejected[0] and outcomes.mistake[0] == -1 and np.isnan(outcomes.margin[0])


def test_an_added_tie_is_a_mistake() -> None:
    left, right = np.array([[0.0], [1.0], [2.0]]), np.array([[0.0], [2.0], [1.0]])
    outcomes = Fusion("euclidean", "uniform").learn(tables([left, right], np.array([[0, 1, 2]])))
    assert outcomes.margin[0] == 0.0 and outcomes.mistake[0] == 1


@pytest.mark.parametrize("how", HOWS)
def test_margins_say_what_mistakes_do(how: str) -> None:
    for base, arguments in ADDED:
        fused = Fusion(base, how, settings=arguments)
        for message in multi_blocks(3, (4, 2), 2):
            outcomes = fused.learn(message)
            scored = outcomes.mistake >= 0
            assert scored.any()
            np.testing.assert_array_equal(outcomes.mistake[scored], outcomes.margin[scored] <= 0.0)


def by_hand(mistakes: NDArray[Any], memory: int) -> list[int]:
    """Who leads before each constraint."""
    wrong, seen, chosen = np.zeros(len(mistakes)), 0.0, []
    for column in mistakes.T:
        chosen.append(int(np.argmin(wrong)) if seen else 0)
        keep = 1.0 - 1.0 / memory
        wrong, seen = keep * wrong + column, keep * seen + 1.0
    return chosen


def test_the_best_modality_speaks() -> None:
    fused = Fusion("opml", "best", memory=10)
    alone = [create("opml") for _ in range(3)]
    heard, mistakes = [], []
    for message in multi_blocks(7, (2, 3, 1)):
        mistakes.append([learner.learn(only(message, place)).mistake for place, learner in enumerate(alone)])
        heard.append(fused.learn(message).mistake)
    all_mistakes = np.concatenate([np.array(one) for one in mistakes], axis=1)
    chosen = by_hand(all_mistakes, 10)
    assert len(set(chosen)) > 1
    wanted = all_mistakes[chosen, np.arange(all_mistakes.shape[1])]
    np.testing.assert_array_equal(np.concatenate(heard), wanted)


def test_the_best_modality_changes_with_the_stream() -> None:
    right, wrong = np.array([[0.0], [1.0], [2.0]]), np.array([[0.0], [2.0], [1.0]])
    index = np.tile([0, 1, 2], (50, 1))
    fused = Fusion("euclidean", "best", memory=20)
    assert fused.learn(tables([wrong, right], index)).mistake.sum() == 1
    assert fused.weights == {"shape": 0.0, "colour": 1.0}
    X = {"shape": np.ones((2, 1)), "colour": np.full((2, 1), 7.0)}
    assert fused.transform(X).tolist() == [[7.0], [7.0]]
    outcomes = fused.learn(tables([right, wrong], index))
    assert outcomes.mistake[0] == 1 and outcomes.mistake[-1] == 0
    assert list(fused.learners) == ["shape"]


def test_the_leader_is_the_first_of_equals_and_has_been_seen() -> None:
    assert leader(np.array([1.0, 1.0]), np.array([4.0, 4.0])) == 0
    assert leader(np.array([0.0, 1.0]), np.array([0.0, 4.0])) == 1
    assert leader(np.zeros(2), np.zeros(2)) == 0


@pytest.mark.parametrize("how", HOWS)
def test_pairs_go_to_learners_of_pairs(how: str) -> None:
    message = replace(
        multi_blocks(1, (3, 2))[0], kind=Kind.PAIR, index=multi_blocks(1, (3, 2))[0].index[:, :2].copy()
    )
    signs = np.where(np.arange(len(message)) % 2, 1, -1).astype(np.int8)
    fused = Fusion("euclidean", how, settings={"y_similar": 0.1, "y_dissimilar": 2.0})
    outcomes = fused.learn(replace(message, signs=signs))
    assert outcomes.counts().seen == len(message)
    assert (outcomes.mistake == -1).all() == (how == "uniform")
    rules = replace(message, signs=np.ones(len(message), np.int8), rules=(PREFIX_RULE,))
    assert Fusion("copml", how).learn(rules).utilised.any()
    other = Fusion("copml", how).learn(replace(rules, rules=("clicks",)))
    assert other.ignored.all() and not other.utilised.any()


@pytest.mark.parametrize("how", HOWS)
def test_one_bad_modality_rejects_the_row_for_all(how: str) -> None:
    fused = Fusion("opml", how)
    message = multi_blocks(1, (3, 2))[0]
    fused.learn(message)
    before = digest(fused.state())
    spoiled = np.full_like(message.tables[1].vectors, np.inf)
    outcomes = fused.learn(replace(message, tables=(message.tables[0], Table("colour", spoiled))))
    assert outcomes.rejected.all() and digest(fused.state()) == before


@pytest.mark.parametrize("how", HOWS)
def test_what_does_not_fit_is_refused(how: str) -> None:
    fused = Fusion("opml", how)
    message = multi_blocks(1, (3, 2))[0]
    fused.learn(message)
    before = digest(fused.state())
    for wrong in (message.tables[:1], (message.tables[0], Table("text", message.tables[1].vectors))):
        with pytest.raises(BadRecord):
            fused.learn(replace(message, tables=wrong))
    with pytest.raises(BadRecord, match="does not learn from pairs"):
        fused.learn(replace(message, kind=Kind.PAIR))
    assert digest(fused.state()) == before
    with pytest.raises(ValueError):
        fused.transform({"shape": np.zeros((2, 3))})
    with pytest.raises(ValueError):
        fused.transform(np.zeros((2, 3)))


@pytest.mark.parametrize("how", HOWS)
def test_before_the_first_block_the_metric_is_that_of_the_base(how: str) -> None:
    X = {"shape": np.array([[1.0, 2.0]]), "colour": np.array([[3.0]])}
    assert Fusion("opml", how).transform(X).tolist() == [[1.0, 2.0] if how == "best" else [1.0, 2.0, 3.0]]
    assert not Fusion("pola", how).distance(X, {name: -table for name, table in X.items()}).any()
    assert Fusion("opml", how).weights == {}


@pytest.mark.parametrize(("base", "sizes"), [("opml", (4,)), ("pola", (4,)), ("oasis", (4,))])
def test_added_distances_of_one_modality_are_the_base(base: str, sizes: tuple[int, ...]) -> None:
    fused, alone = Fusion(base, "uniform"), create(base)
    for message in multi_blocks(1, sizes):
        one, other = fused.learn(message), alone.learn(message)
        for name in ("mistake", "loss", "utilised", "rejected", "degenerate"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert digest(fused.learners["shape"].state()) == digest(alone.state())


def test_pairs_go_to_added_metrics_as_whole_blocks() -> None:
    message = multi_blocks(1, (3, 2))[0]
    pairs = replace(
        message,
        kind=Kind.PAIR,
        index=message.index[:, :2].copy(),
        signs=np.where(np.arange(len(message)) % 2, 1, -1).astype(np.int8),
    )
    fused, alone = Fusion("pola", "uniform"), [create("pola") for _ in range(2)]
    calls: list[int] = []
    fused.learn(
        replace(pairs, **{n: getattr(pairs, n)[:1] for n in ("index", "signs", "rule", "derived", "weights")})
    )
    alone_first = [rows_of(only(pairs, place), slice(0, 1)) for place in range(2)]
    for learner, first in zip(alone, alone_first, strict=True):
        learner.learn(first)
    for metric in fused.learners.values():
        learn = metric.learn

        def told(block: ConstraintBlock, learn: Any = learn) -> Any:
            calls.append(len(block))
            return learn(block)

        metric.learn = told  # type: ignore[method-assign]
    outcomes = fused.learn(pairs)
    assert calls == [len(pairs)] * 2
    found = [learner.learn(only(pairs, place)) for place, learner in enumerate(alone)]
    np.testing.assert_array_equal(outcomes.utilised, found[0].utilised | found[1].utilised)
    np.testing.assert_array_equal(outcomes.loss, (found[0].loss + found[1].loss) / 2.0)
    assert (outcomes.mistake == -1).all() and outcomes.utilised.any()


def test_settings_are_those_of_the_base() -> None:
    fused = Fusion("opml", "uniform", settings={"gamma": 0.5, "dtype": "float32"}, scaler="minmax")
    assert fused.algorithm == "fusion-uniform-opml-6/1"
    assert fused.accepts == {Kind.TRIPLET} and fused.form is Kind.TRIPLET
    message = multi_blocks(1, (3, 2))[0]
    fused.learn(message)
    assert fused.transform(features(message)).dtype == np.float32
    assert {learner.scaler for learner in fused.learners.values()} == {"minmax"}  # type: ignore[attr-defined]
    assert fused.scale(features(message)).shape == (44, 5)


def test_the_settings_are_a_table_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "kinstream.toml"
    file.write_text(
        '[builders.one-pass]\nkind = "one-pass"\n'
        '[learners.all]\nkind = "fusion"\nfrom = ["one-pass"]\nbase = "opml"\nhow = "best"\n'
        "[learners.all.settings]\ngamma = 0.25\n"
    )
    section = load(file).learners["all"]
    fused = create(section.kind, **section.arguments())
    assert isinstance(fused, fusion.Fusion)
    assert fused.settings == {"gamma": 0.25, "unit": "published"} and fused.how == "best"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"base": "omlp"}, "base must be one of"),
        ({"base": "omdml"}, "omdml is one of several"),
        ({"base": "fusion"}, "fusion is one of several"),
        ({"how": "worst"}, "how must be one of"),
        ({"memory": 1}, "memory must be"),
        ({"settings": {"gama": 1.0}}, "opml has no setting gama"),
        ({"settings": {"gamma": -1.0}}, "gamma must be"),
        ({"settings": "gamma"}, "settings must be a table"),
        ({"scaler": "robust"}, "scaler must be"),
    ],
)
def test_hyper_parameters_are_refused_by_name(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        Fusion(**arguments)


def test_warm_up_compiles_the_base() -> None:
    from kinstream.learners.kernels.one_modality import opml

    warm_up("fusion", {"base": "copml"})
    kernel: Any = opml.pairs
    assert kernel.signatures
