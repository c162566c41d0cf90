"""Simulated clicks follow their model, and are the same ones for the same seed."""

from __future__ import annotations

import hashlib
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris

from kinstream.producers.labelled.hold_out import is_held_out
from kinstream.producers.labelled.sources import open_source
from kinstream.producers.simulated.click_models import cascade, fair_pairs, position_based
from kinstream.producers.simulated.load import simulated_load, simulator_of
from kinstream.producers.simulated.settings import START_MS, Simulation
from kinstream.producers.simulated.simulator import ClickSimulator
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.values import Click, ClickBlock, ItemBlock
from tests.producers.block_contents import lists_of, plain

ROOT = Path(__file__).parents[2]
X, y = load_iris(return_X_y=True)


def simulator(**settings: Any) -> ClickSimulator:
    return ClickSimulator(X, y, Simulation(**settings))


def lists(**settings: Any) -> list[Click]:
    return list(simulator(**settings).clicks("s"))


def relevant(click: Click) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.array([y[int(i)] == y[int(click.query_item or "")] for i in click.items])


def near(found: float, expected: float, trials: float) -> bool:
    """Within five standard errors of a share: a seed that fails by chance is one in a million."""
    return abs(found - expected) <= 5.0 * math.sqrt(max(expected * (1 - expected), 1e-4) / trials)


# ---- what is shown ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "count"), [(0.5, 5), (0.0, 0), (1.0, 10), (0.34, 3)])
def test_a_list_holds_its_share_of_the_querys_class_and_never_the_query(share: float, count: int) -> None:
    for click in lists(lists=200, relevant=share):
        assert len(set(click.items)) == 10
        assert click.query_item not in click.items
        assert relevant(click).sum() == count


def test_every_item_is_drawn_about_as_often_as_every_other() -> None:
    shown = np.bincount([int(i) for c in lists(lists=6000) for i in c.items], minlength=150)
    expected = 6000 * 10 / 150
    assert np.abs(shown - expected).max() < 6 * np.sqrt(expected)
    asked = np.bincount([int(c.query_item or "") for c in lists(lists=6000)], minlength=150)
    assert np.abs(asked - 40).max() < 6 * np.sqrt(40)


def test_small_classes_are_filled_up_with_others() -> None:
    few = ClickSimulator(np.eye(8), [0, 0, 1, 1, 1, 1, 1, 1], Simulation(lists=60, list_length=6))
    for click in few.clicks("s"):
        same = sum((int(i) < 2) == (int(click.query_item or "") < 2) for i in click.items)
        assert same == (1 if int(click.query_item or "") < 2 else 4)


def test_a_ranking_by_similarity_is_by_euclidean_distance_to_the_query() -> None:
    for click in lists(lists=50, ranking="by-similarity"):
        rows = [int(i) for i in click.items]
        distances = np.linalg.norm(X[rows] - X[int(click.query_item or "")], axis=1)
        assert np.all(np.diff(distances) >= -1e-6)
    ranks = np.concatenate([np.flatnonzero(relevant(c)) for c in lists(lists=2000)])
    assert near(float((ranks == 0).mean()), 0.1, len(ranks))


def test_fair_pairs_swap_neighbours_and_nothing_else() -> None:
    rng = np.random.default_rng(0)
    order = np.arange(9)
    swaps = np.zeros(8)
    for _ in range(8000):
        found = fair_pairs(order, rng)
        moved = np.flatnonzero(found != order)
        assert sorted(found.tolist()) == order.tolist()
        assert np.abs(found - order).max() <= 1
        swaps[moved[::2]] += 1
    assert all(near(share, 0.25, 8000) for share in swaps / 8000)


# ---- what is clicked --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_click_rates_by_rank_are_those_of_the_position_model(bias: float, noise: float) -> None:
    found = lists(lists=4000, bias=bias, noise=noise, seed=3)
    for rank in range(10):
        examined = (rank + 1.0) ** -bias
        for kind, probability in ((True, 1 - noise), (False, noise)):
            at = [c for c in found if relevant(c)[rank] == kind]
            rate = float(np.mean([c.items[rank] in {k.item for k in c.clicks} for c in at]))
            assert near(rate, examined * probability, len(at)), (rank, kind)


@pytest.mark.parametrize("stop", [0.0, 0.5, 1.0])
def test_click_rates_by_rank_are_those_of_the_cascade(stop: float) -> None:
    rng = np.random.default_rng(1)
    kinds = np.array([True, False, True, True, False])
    rates = np.mean([cascade(kinds, 0.2, stop, rng) for _ in range(8000)], axis=0)
    reached = 1.0
    for rate, kind in zip(rates, kinds, strict=True):
        clicks = 0.8 if kind else 0.2
        assert near(float(rate), reached * clicks, 8000)
        reached *= 1 - clicks * stop


def test_a_cascade_that_stops_has_one_click_at_most() -> None:
    assert {len(c.clicks) for c in lists(lists=500, model="cascade", stop=1.0)} <= {0, 1}
    assert max(len(c.clicks) for c in lists(lists=500, model="cascade", stop=0.0)) > 4


def test_without_bias_and_noise_the_clicks_are_what_is_relevant() -> None:
    rng = np.random.default_rng(0)
    kinds = np.array([True, False, False, True])
    assert position_based(kinds, 0.0, 0.0, rng).tolist() == kinds.tolist()
    for click in lists(lists=50, bias=0, noise=0):
        assert [k.item for k in click.clicks] == [
            i for i, r in zip(click.items, relevant(click), strict=True) if r
        ]


def test_people_stay_longer_on_what_is_relevant() -> None:
    stays: dict[bool, list[int]] = {True: [], False: []}
    for click in lists(lists=2000, bias=0, noise=0.3):
        kinds = dict(zip(click.items, relevant(click).tolist(), strict=True))
        time = click.shown_at_ms
        for one in click.clicks:
            assert one.time_ms > time
            assert one.dwell_ms is not None
            time = one.time_ms + one.dwell_ms
            stays[kinds[one.item]].append(one.dwell_ms)
    assert 28_000 < np.median(stays[True]) < 32_000
    assert 4_600 < np.median(stays[False]) < 5_400


# ---- who and when -----------------------------------------------------------------------------------------------


def test_lists_come_at_their_times_in_sessions_of_one_user() -> None:
    found = lists(lists=100, users=7, session_lists=4, spacing_ms=250, start_ms=1000)
    assert [c.shown_at_ms for c in found] == [1000 + 250 * n for n in range(100)]
    assert [c.session for c in found] == [f"session-{n // 4}" for n in range(100)]
    by_session = {c.session: {d.user for d in found if d.session == c.session} for c in found}
    assert all(len(users) == 1 for users in by_session.values())
    assert len({c.user for c in found}) == 7
    assert len({c.list_id for c in found}) == 100


def test_the_query_may_be_its_vector() -> None:
    by_item, by_vector = lists(lists=20, seed=4), lists(lists=20, seed=4, query="vector")
    for one, other in zip(by_item, by_vector, strict=True):
        assert (one.items, one.clicks, other.query_item) == (other.items, other.clicks, None)
        expected = X[int(one.query_item or "")].astype(np.float32)
        assert other.query_vector[0].vectors.tolist() == [expected.tolist()]


# ---- records ----------------------------------------------------------------------------------------------------


def test_the_load_is_the_items_and_then_the_lists() -> None:
    blocks = list(simulated_load(simulator(lists=300), "s", 100).blocks())
    assert [type(b) for b in blocks] == [ItemBlock] * 2 + [ClickBlock] * 3
    items = [b for b in blocks if isinstance(b, ItemBlock)]
    assert [i for b in items for i in b.ids] == [str(n) for n in range(150)]
    assert np.array_equal(np.concatenate([b.tables[0].vectors for b in items]), X.astype(np.float32))
    assert {b.time_ms for b in items} == {START_MS}
    found = [plain(c) for b in blocks if isinstance(b, ClickBlock) for c in lists_of(b)]
    assert found == [plain(c) for c in lists(lists=300)]


def test_held_out_rows_are_neither_items_nor_queries() -> None:
    source = open_source("sklearn:iris")
    made = simulator_of(source, Simulation(lists=300), 0.3, 5)
    streamed = set(map(str, np.flatnonzero(~is_held_out(0.3, 5, 0, 150)).tolist()))
    assert set(made.items().ids) == streamed
    assert {c.query_item for c in made.clicks("s")} <= streamed


def test_several_modalities_and_names_of_ones_own() -> None:
    both = ClickSimulator(
        {"a": X, "b": X[:, :1]},
        [f"k{n}" for n in y],
        Simulation(lists=5, query="vector"),
        [f"i{n}" for n in range(150)],
    )
    assert [(t.name, t.vectors.shape) for t in both.click(0, "s").query_vector] == [
        ("a", (1, 4)),
        ("b", (1, 1)),
    ]
    assert all(i.startswith("i") for i in both.click(0, "s").items)


def test_a_list_depends_on_its_number_alone() -> None:
    made = simulator(lists=50)
    whole = [plain(c) for c in made.clicks("s")]
    assert [plain(c) for c in made.clicks("s", 30, 40)] == whole[30:40]
    assert plain(made.click(49, "s")) == whole[49]
    assert [plain(c) for c in simulator(lists=50, seed=1).clicks("s")] != whole


SCRIPT = """
import hashlib
from kinstream.producers.simulated.load import simulated_load, simulator_of
from kinstream.producers.simulated.settings import Simulation
from kinstream.producers.labelled.sources import open_source
from kinstream.streams.records.codec.codec import encode
settings = Simulation(lists=200, seed=9, fair_pairs=True, ranking="by-similarity")
made = simulator_of(open_source("sklearn:iris"), settings)
print(hashlib.sha256(b"".join(map(encode, simulated_load(made, "s").blocks()))).hexdigest())
"""


def test_the_same_seed_gives_the_same_records_in_every_process() -> None:
    settings = Simulation(lists=200, seed=9, fair_pairs=True, ranking="by-similarity")
    blocks = simulated_load(simulator_of(open_source("sklearn:iris"), settings), "s").blocks()
    here = hashlib.sha256(b"".join(map(encode, blocks))).hexdigest()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == here


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"lists": 0}, "lists"),
        ({"noise": 1.5}, "noise"),
        ({"bias": -1.0}, "bias"),
        ({"bias": float("nan")}, "bias"),
        ({"stop": -0.1}, "stop"),
        ({"relevant": 2.0}, "relevant"),
        ({"ranking": "best"}, "ranking"),
        ({"model": "dbn"}, "model"),
        ({"query": "text"}, "query"),
        ({"start_ms": -1}, "start_ms"),
        ({"list_length": 150}, "too few for lists of 150"),
    ],
)
def test_bad_settings_are_refused_by_name(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        simulator(**settings)


@pytest.mark.parametrize(
    ("features", "ids"), [(X[:100], None), (X[:, 0], None), (X, ["a"] * 150), (X, ["a", "b"])]
)
def test_shapes_that_do_not_go_together_are_refused(features: Any, ids: list[str] | None) -> None:
    with pytest.raises(SettingsError, match="150 labels"):
        ClickSimulator(features, y, ids=ids)
