"""Features that drift: when that is noticed, and that a learner of members then begins anew."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from kinstream.learners.drift import FIRST, WINDOW, Drift
from kinstream.learners.registry import create
from kinstream.testing.blocks import block
from kinstream.testing.learners import digest
from tests.learners.test_following import SETS, changed, error, learn, of_labels

Rows = NDArray[np.float32]
D = 6
#: Triplets of vectors that come once.
EACH = 3


def rows(m: int, seed: int, scale: float = 1.0) -> Rows:
    return np.asarray(scale * np.random.default_rng(seed).normal(size=(EACH * m, D)), np.float32)


def noticed(drift: Drift, X: Rows, events: NDArray[np.int32] | None = None) -> int | None:
    """The number of the triplet at which a renewal is due; None for none."""
    index = np.arange(len(X), dtype=np.int32).reshape(-1, EACH)
    found = drift.until(X, index, events, 0)
    return found if drift.due else None


def begun() -> Drift:
    drift = Drift()
    assert noticed(drift, rows(WINDOW + FIRST, 0)) is None
    return drift


def test_the_same_features_never_drift() -> None:
    assert noticed(begun(), rows(5000, 1)) is None


@pytest.mark.parametrize("scale", [0.1, 0.5, 2.0, 100.0])
def test_another_scale_is_noticed_after_two_windows_that_differ(scale: float) -> None:
    found = noticed(begun(), rows(1000, 1, scale))
    # The first of them may have begun with features as before.
    assert found is not None and WINDOW < EACH * found <= 3 * WINDOW + EACH


def test_a_few_vectors_of_other_features_are_no_drift() -> None:
    drift = begun()
    for seed in range(20):
        assert noticed(drift, np.concatenate([rows(4, seed, 1000.0), rows(150, 50 + seed)])) is None


def test_a_renewal_compares_with_the_new_features() -> None:
    drift = begun()
    assert noticed(drift, rows(1000, 1, 5.0)) is not None
    drift.renew()
    assert noticed(drift, rows(3000, 2, 5.0)) is None and drift.renewals == 1
    assert noticed(drift, rows(1000, 3)) is not None


def test_it_is_due_between_two_events() -> None:
    events = np.repeat(np.arange(1, 101, dtype=np.int32), 10)
    found = noticed(begun(), rows(1000, 1, 5.0), events)
    assert found is not None and found % 10 == 0


def test_a_value_that_hardly_ever_varied_and_outliers_are_no_drift() -> None:
    draw, drift = np.random.default_rng(0), Drift()

    def part(m: int, faint: float) -> Rows:
        X = rows(m, int(draw.integers(1000)))
        # Every hundredth vector has some value where all others have none.
        X[:, 0] = faint * (draw.random(len(X)) < 0.01)
        X[draw.random(len(X)) < 0.002, 1] *= 1000.0
        return X

    assert noticed(drift, part(WINDOW, 0.001)) is None
    assert noticed(drift, part(4000, 1.0)) is None


def test_pieces_and_a_restored_state_give_the_same() -> None:
    X = np.concatenate([rows(600, 0), rows(100, 1), rows(500, 2, 3.0)])
    whole, first = Drift(), Drift()
    wanted = noticed(whole, X)
    assert wanted is not None
    cut = EACH * 760
    assert noticed(first, X[:cut]) is None
    again = Drift()
    again.restore(first.state())
    assert noticed(again, X[cut:]) == wanted - cut // EACH
    assert digest(again.state()) == digest(whole.state())


def test_a_mixture_begins_anew_and_pieces_of_the_log_end_in_the_same_bits() -> None:
    draw = np.random.default_rng(3)
    X = np.concatenate([rows(700, 4), rows(500, 5) @ draw.normal(size=(D, D)).astype(np.float32)])
    index = np.arange(len(X)).reshape(-1, EACH)
    one, two, restored = (cast(Any, create("mixture")) for _ in range(3))
    counts = one.learn(block(X, index)).counts()
    for start in range(0, len(index), 77):
        two.learn(block(X, index[start : start + 77]))
    assert counts.seen == len(index) == one.accepted
    assert one.renewals == two.renewals == 1
    assert digest(one.state()) == digest(two.state())
    restored.restore(one.state())
    assert restored.renewals == 1 and digest(restored.state()) == digest(one.state())


@pytest.mark.long
@pytest.mark.parametrize("way", ["permuted", "rotated"])
def test_features_that_change_are_learned_as_by_a_new_learner(way: str) -> None:
    """5-NN errors of 2,000 triplets after the change; means of three halves."""
    for name, load in SETS.items():
        errors = []
        for seed in range(3):
            draw = np.random.default_rng(seed)
            X, y = load(return_X_y=True)
            order = draw.permutation(len(y))
            X, y, half = X[order], y[order], len(y) // 2
            Z = changed(X, way, draw)
            old, new = (cast(Any, create("mixture")) for _ in range(2))
            learn(old, of_labels(X[:half], y[:half], 3000, seed))
            for learner in (old, new):
                learn(learner, of_labels(Z[:half], y[:half], 2000, seed + 10))
            assert (old.renewals, new.renewals) == (1, 0)
            errors.append([error(learner, Z, y, half) for learner in (old, new)])
        before, fresh = np.mean(errors, axis=0)
        chance = np.sqrt(fresh * (1.0 - fresh) / (3 * (len(y) - half)))
        assert before <= 1.1 * fresh + 0.01 + chance, f"{name}: {before:.3f}, {fresh:.3f}"
