"""Learners as estimators of scikit-learn: its own checks, and that the product's path ends in the same bits."""

from __future__ import annotations

import doctest
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

import kinstream.learners.sklearn
from kinstream.learners import registry
from kinstream.learners.sklearn import CONSTRAINTS, SPACE, MetricLearner
from kinstream.processors import registry as builders
from kinstream.streams.records.codec.codec import decode, encode
from kinstream.streams.records.values import Counts, Outcome, SampleBlock, Table
from tests.docs.pages import ROOT
from tests.replay.system import EVENTS, System

#: Checks of scikit-learn that the estimator does not pass, and why; docs/sklearn.md says that there are none.
EXCEPTIONS: dict[str, str] = {}
ROWS = 120
Data = tuple[NDArray[np.float64], NDArray[np.int64]]


def quick(kind: str) -> dict[str, Any]:
    """Settings with which a learner is past its warm-up, and a batch learner fits, within a hundred constraints."""
    wanted = {"warm_up": 8, "buffer": 40, "refit_every": 40}
    found: dict[str, Any] = {name: value for name, value in wanted.items() if registry.has(kind, name)}
    return found | ({"settings": {"gamma": 0.01}} if kind == "fusion" else {})


def model(kind: str, **more: Any) -> MetricLearner:
    if kind in SLOW:
        pytest.importorskip("metric_learn")
    return MetricLearner(kind, learner_settings=quick(kind), **more)


@pytest.fixture
def data() -> Data:
    draw = np.random.default_rng(5)
    y = draw.integers(0, 3, ROWS)
    return draw.normal(size=(ROWS, 6)) + 3.0 * (y[:, None] == np.arange(6)), y


# ---- scikit-learn's own checks ----------------------------------------------------------------------------------


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [
        MetricLearner(),
        MetricLearner("oahu"),
        MetricLearner(
            "omdml",
            constraints="random-triplets",
            passes=2,
            learner_settings={"scaler": "zscore", "warm_up": 8},
        ),
        MetricLearner(
            "rdml", constraints="random-pairs", learner_settings={"scaler": "unit", "dtype": "float32"}
        ),
    ],
    expected_failed_checks=lambda estimator: EXCEPTIONS,
)
def test_the_checks_of_scikit_learn(estimator: MetricLearner, check: Any) -> None:
    check(estimator)


#: Each check of theirs is a fit of a batch learner, seconds in all.
SLOW = ("itml", "lmnn")


@pytest.mark.long
@pytest.mark.parametrize("kind", registry.names())
@pytest.mark.filterwarnings("ignore")
def test_every_learner_passes_the_checks_of_scikit_learn(kind: str) -> None:
    results = check_estimator(model(kind), expected_failed_checks=EXCEPTIONS, on_skip=None)
    assert len(results) > 50
    assert {result["status"] for result in results} <= {"passed", "skipped"}


# ---- every learner ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", registry.names())
def test_every_learner_fits_transforms_and_scores(kind: str, data: Data) -> None:
    X, y = data
    made = model(kind).fit(X[:90], y[:90])
    # Every row but the first of each class; a learner of triplets has no use for a pair before the second class.
    assert 85 <= made.n_constraints_ <= 87
    assert made.utilisation_ > 0 or kind == "euclidean"
    assert 0.0 <= made.mistake_rate_ < 0.5
    Z = made.transform(X[90:])
    assert Z.shape == (30, made._n_features_out) and np.isfinite(Z).all()
    assert Z.dtype == ("float32" if kind in ("adapter", "mixture", "oahu", "ranking") else "float64")
    assert made.score(X[90:], y[90:]) > 0.6


@pytest.mark.parametrize("kind", registry.names())
def test_every_learner_gives_the_shares_of_its_vote(kind: str, data: Data) -> None:
    X, y = data
    names = np.array(["b", "a", "c"])[y]
    made = model(kind, n_neighbors=7).fit(X[:90], names[:90])
    shares = made.predict_proba(X[90:])
    assert shares.shape == (30, 3) and shares.dtype == np.float64
    assert (shares >= 0).all() and np.allclose(shares.sum(axis=1), 1.0)
    assert np.array_equal(made.classes_[shares.argmax(axis=1)], made.predict(X[90:]))
    assert made.score(X[90:], names[90:]) > 0.6


@pytest.mark.parametrize("kind", ["opml", "oahu"])
def test_a_class_without_a_row_in_the_gallery_has_no_share(kind: str, data: Data) -> None:
    X, y = data
    made = model(kind, gallery=20).partial_fit(X, y, classes=[0, 1, 2, 9])
    made.partial_fit(X[y == 1], y[y == 1])
    shares = made.predict_proba(X)
    assert shares.shape == (len(X), 4) and (shares[:, 1] == 1.0).all()
    assert (np.delete(shares, 1, axis=1) == 0.0).all()


def test_measures_of_probabilities_score_it(data: Data) -> None:
    scores = cross_val_score(model("opml"), *data, cv=3, scoring="roc_auc_ovr")
    assert (scores > 0.8).all()


@pytest.mark.parametrize("kind", registry.names())
def test_a_clone_and_a_pickled_copy_end_in_the_same_bits(kind: str, data: Data) -> None:
    X, y = data
    made = model(kind, passes=2).fit(X[:90], y[:90])
    cloned = clone(made)
    assert not hasattr(cloned, "learner_") and cloned.get_params() == made.get_params()
    assert np.array_equal(cloned.fit(X[:90], y[:90]).transform(X), made.transform(X))
    copy = pickle.loads(pickle.dumps(made))
    copy.partial_fit(X[90:], y[90:])
    made.partial_fit(X[90:], y[90:])
    assert np.array_equal(copy.transform(X), made.transform(X))
    assert np.array_equal(copy.predict(X), made.predict(X)) and copy.counts_ == made.counts_
    assert np.array_equal(made.fit(X[:90], y[:90]).transform(X), cloned.transform(X))


@pytest.mark.parametrize("kind", registry.names())
def test_pieces_of_whole_blocks_end_in_the_bits_of_one_call(kind: str, data: Data) -> None:
    X, y = data
    whole = model(kind, block_rows=20).fit(X, y)
    pieces, odd = clone(whole), clone(whole)
    for start, stop in ((0, 20), (20, 80), (80, 120)):
        pieces.partial_fit(X[start:stop], y[start:stop])
    assert np.array_equal(pieces.transform(X), whole.transform(X))
    assert np.array_equal(pieces.predict(X), whole.predict(X)) and pieces.counts_ == whole.counts_
    # Other blocks make as many constraints, with other negatives.
    for start, stop in ((0, 33), (33, 34), (34, 120)):
        odd.partial_fit(X[start:stop], y[start:stop])
    assert odd.counts_.seen == whole.counts_.seen


@pytest.mark.parametrize("constraints", ["random-triplets", "adjacent-pairs", "random-pairs"])
def test_pieces_of_any_size_make_the_same_constraints(data: Data, constraints: str) -> None:
    X, y = data
    whole = MetricLearner("rdml", constraints).fit(X, y)
    pieces = MetricLearner("rdml", constraints, block_rows=7)
    for start, stop in ((0, 33), (33, 34), (34, 120)):
        pieces.partial_fit(X[start:stop], y[start:stop])
    assert pieces.counts_.seen == whole.counts_.seen and pieces.counts_.mistakes == whole.counts_.mistakes
    assert np.allclose(pieces.transform(X), whole.transform(X))


# ---- the product's own path -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "constraints"),
    [
        ("opml", "one-pass"),
        ("copml", "one-pass"),
        ("oahu", "one-pass"),
        ("omdml", "random-triplets"),
        ("lego", "random-pairs"),
        ("rdml", "adjacent-pairs"),
    ],
)
def test_the_estimator_ends_in_the_bits_of_the_agents(
    tmp_path: Path, data: Data, kind: str, constraints: str
) -> None:
    X, y = data
    made = model(kind, constraints=constraints, block_rows=50, passes=2).fit(X, y)
    blocks = [
        SampleBlock(SPACE, (Table("x", X[at : at + 50].astype(np.float32)),), y[at : at + 50], time_ms=0)
        for _ in range(2)
        for at in range(0, ROWS, 50)
    ]
    # An estimator holds nothing out.
    learner = {"kind": kind, "from": [constraints], "held_out": 0.0, **quick(kind)}
    system = System(tmp_path, builders={constraints: {"kind": constraints}}, learners={"it": learner})
    for block in blocks:
        system.log.append(EVENTS, SPACE.encode(), encode(block))
    system.run()
    spaces = [runner.machine.find(SPACE) for runner in system.learners["it"].runners.values()]
    (learned,) = [space.core.state() for space in spaces if space is not None and space.core is not None]
    own = made.learner_.state()
    assert learned.keys() == own.keys()
    for name, value in learned.items():
        assert np.array_equal(np.asarray(value), np.asarray(own[name])), name
    outcomes = [
        decode(message.value, Outcome)
        for partition in range(system.log.partitions)
        for message in system.log.read("kinstream.outcomes", partition, 0)
    ]
    assert sum((one.counts for one in outcomes if isinstance(one, Outcome)), Counts()) == made.counts_


def test_the_seed_is_the_builders_and_the_learners(data: Data) -> None:
    X, y = data
    one, other = MetricLearner("opml", seed=1).fit(X, y), MetricLearner("opml", seed=2).fit(X, y)
    assert not np.array_equal(one.transform(X), other.transform(X))
    built = MetricLearner("opml", seed=1, builder_settings={"seed": 2}).fit(X, y)
    assert np.array_equal(built.transform(X), other.transform(X))
    official: dict[str, Any] = {"builder_settings": {"negatives": "official"}}
    first = MetricLearner("oahu", seed=1, **official).fit(X, y)
    second = MetricLearner("oahu", seed=2, **official).fit(X, y)
    named = MetricLearner("oahu", seed=1, learner_settings={"seed": 2}, **official).fit(X, y)
    assert not np.array_equal(first.transform(X), second.transform(X))
    assert np.array_equal(named.transform(X), second.transform(X))


def test_one_pass_pairs_that_a_learner_cannot_use_are_counted_as_the_agent_counts_them() -> None:
    X, y = np.eye(5), [0, 0, 0, 1, 0]
    opml, copml = MetricLearner("opml").fit(X, y), MetricLearner("copml").fit(X, y)
    assert (opml.counts_.seen, opml.counts_.ignored) == (1, 2)
    assert (copml.counts_.seen, copml.counts_.ignored) == (3, 0)
    assert np.isnan(MetricLearner().partial_fit(X, [0] * 5).mistake_rate_)


# ---- in company -------------------------------------------------------------------------------------------------


def test_a_search_over_a_pipeline_before_a_vote_of_neighbours() -> None:
    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    steps = [("scale", StandardScaler()), ("metric", MetricLearner("opml")), ("vote", KNeighborsClassifier())]
    grid = [
        {"metric__learner": ["opml", "rdml"], "vote__n_neighbors": [1, 5]},
        {"metric__learner_settings": [{"gamma": 1e-4}, {"gamma": 1e-2}], "metric__passes": [3]},
    ]
    found = GridSearchCV(Pipeline(steps), grid, cv=3, error_score="raise").fit(X[order], y[order])
    assert len(found.cv_results_["params"]) == 6
    assert found.best_score_ > 0.93
    assert found.score(X, y) > 0.93


def test_without_arguments_it_takes_features_as_they_are() -> None:
    """Wine: columns from 1 to 1,680, and a fifth of the rows or more are wrong on them as they are."""
    X, y = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    a, b = order[:120], order[120:]
    assert KNeighborsClassifier(5).fit(X[a], y[a]).score(X[b], y[b]) < 0.75
    assert MetricLearner(passes=5).fit(X[a], y[a]).score(X[b], y[b]) > 0.87
    assert MetricLearner().learner == "mixture"


def test_names_go_in_and_out(data: Data) -> None:
    X, y = data
    made = MetricLearner().fit(X, y)
    assert list(made.get_feature_names_out()) == [f"metriclearner{k}" for k in range(6)]
    with pytest.raises(ValueError, match="6 features"):
        made.transform(X[:, :5])


@pytest.mark.parametrize("kind", ["opml", "oahu"])
def test_labels_may_be_words(data: Data, kind: str) -> None:
    X, y = data
    names = np.array(["pear", "fig", "apple"])
    # One voter has no ties, which go to the smaller label.
    by_number = model(kind, n_neighbors=1).fit(X, y)
    by_word = model(kind, n_neighbors=1).fit(X, names[y].astype(object))
    assert by_word.classes_.tolist() == ["apple", "fig", "pear"]
    assert np.array_equal(by_word.transform(X), by_number.transform(X))
    assert np.array_equal(by_word.predict(X), names[by_number.predict(X)])
    assert by_word.score(X, names[y]) > 0.95


def test_the_learners_own_vote_is_asked_where_it_has_one(data: Data) -> None:
    X, y = data
    oahu: Any = model("oahu").fit(X, y)
    near = X.astype(np.float32)
    assert np.array_equal(oahu.predict(X[:40]), oahu.learner_.classify(near, y, near[:40], 5))
    opml = model("opml").fit(X, y)
    vote = KNeighborsClassifier(5).fit(opml.transform(X), y)
    assert np.array_equal(opml.predict(X[:40]), vote.predict(opml.transform(X[:40])))


def test_what_is_kept_to_vote_is_a_copy(data: Data) -> None:
    X, y = data[0].astype(np.float32), data[1]
    made = MetricLearner(n_neighbors=1).fit(X, y)
    asked = X.copy()
    X[:] = 0.0
    assert np.array_equal(made.predict(asked), y)


def test_only_the_latest_rows_vote_where_that_is_wanted(data: Data) -> None:
    X, y = data
    few = MetricLearner(gallery=30, n_neighbors=3)
    for start in range(0, ROWS, 25):
        few.partial_fit(X[start : start + 25], y[start : start + 25])
    assert sum(len(piece) for piece, _ in few._kept) < 60
    vote = KNeighborsClassifier(3).fit(few.transform(X[-30:]), y[-30:])
    assert np.array_equal(few.predict(X), vote.predict(few.transform(X)))
    assert few.set_params(n_neighbors=1000).predict(X).shape == (ROWS,)


# ---- what comes in pieces ---------------------------------------------------------------------------------------


def test_classes_may_come_later_unless_they_were_named(data: Data) -> None:
    X, y = data
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    grown = MetricLearner().partial_fit(X[:10], y[:10])
    assert grown.classes_.tolist() == [0] and set(grown.predict(X)) == {0}
    assert grown.partial_fit(X[10:], y[10:]).classes_.tolist() == [0, 1, 2]
    named = MetricLearner().partial_fit(X[:10], y[:10], classes=[0, 1])
    assert named.classes_.tolist() == [0, 1]
    named.partial_fit(X[:10], y[:10], classes=[1, 0])
    with pytest.raises(ValueError, match="not those of the first call"):
        named.partial_fit(X, y, classes=[0, 1, 2])
    with pytest.raises(ValueError, match=r"not in classes: \[2\]"):
        named.partial_fit(X, y)
    with pytest.raises(ValueError, match="labels of type"):
        grown.partial_fit(X, y.astype(str))
    assert named.fit(X, y).classes_.tolist() == [0, 1, 2]


def test_rows_of_which_no_constraint_comes_are_told() -> None:
    with pytest.warns(UserWarning, match="2 rows gave no constraint"):
        made = MetricLearner("oahu").fit(np.eye(2), [0, 1])
    assert made.counts_ == Counts() and np.isnan(made.utilisation_)
    assert made.predict(np.eye(2)).tolist() == [0, 0]


# ---- refusals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"learner": "omlp"}, "no learner is called 'omlp'"),
        ({"learner": "opml", "learner_settings": {"gama": 1.0}}, "opml has no setting gama"),
        ({"learner": "opml", "learner_settings": {"gamma": -1.0}}, "gamma"),
        ({"builder_settings": {"per_sample": 2}}, "one-pass has no setting per_sample"),
        ({"constraints": "clicks"}, "constraints must be one of adjacent-pairs, one-pass"),
        ({"constraints": "adjacent-pairs"}, "mixture learns from triplets, and adjacent-pairs makes pairs"),
        ({"seed": -1}, "seed"),
        ({"passes": 0}, "passes must be a whole number of at least 1, not 0"),
        ({"block_rows": 2.5}, "block_rows must be"),
        ({"gallery": 0}, "gallery must be"),
    ],
)
def test_settings_are_refused_when_it_is_fitted(settings: dict[str, Any], said: str, data: Data) -> None:
    made = MetricLearner(**settings)
    with pytest.raises(ValueError, match=said):
        made.fit(*data)
    with pytest.raises(NotFittedError):
        made.transform(data[0])


def test_rows_are_refused(data: Data) -> None:
    X, y = data
    made = MetricLearner()
    with pytest.raises(ValueError, match=r"two classes at least, and y has one class: 'a'"):
        made.fit(X, ["a"] * ROWS)
    with pytest.raises(ValueError, match="NaN"):
        made.fit(np.where(X > 1, np.nan, X), y)
    with (
        pytest.raises(ValueError, match=r"infinity or a value too large for dtype\('float32'\)"),
        np.errstate(all="ignore"),
    ):
        made.fit(X * 1e40, y)
    with pytest.raises(ValueError, match="do not fit into 524288 bytes"):
        made.fit(np.zeros((4, 60_000)), [0, 0, 1, 1])
    with pytest.raises(NotFittedError):
        made.predict(X)
    assert made.partial_fit(X, y).n_features_in_ == 6
    with pytest.raises(ValueError, match="do not fit"):
        made.fit(np.zeros((4, 60_000)), [0, 0, 1, 1])
    with pytest.raises(NotFittedError):
        made.predict(np.zeros((1, 60_000)))
    assert made.partial_fit(X, y).n_constraints_ == MetricLearner().fit(X, y).n_constraints_
    with pytest.raises(ValueError, match="n_neighbors must be"):
        made.set_params(n_neighbors=0).predict(X)


# ---- the rest ---------------------------------------------------------------------------------------------------


def test_every_builder_of_labelled_rows_is_there() -> None:
    followers = {kind for kind in builders.names() if SampleBlock in builders.create(kind).follows}
    # Of a closure, rows need names.
    assert set(CONSTRAINTS) == followers - {"closure"}


def test_the_example_is_right() -> None:
    assert doctest.testmod(kinstream.learners.sklearn).failed == 0
    assert doctest.testmod(kinstream.learners.sklearn).attempted > 5


def test_nothing_else_loads_it() -> None:
    script = (
        "import sys, kinstream.cli.main, kinstream.learners.agent, kinstream.replay.log.run; "
        "sys.exit('kinstream.learners.sklearn' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=dict(os.environ), check=False)
    assert run.returncode == 0
