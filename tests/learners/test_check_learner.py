"""The checks for others' learners pass a sound learner, and name what is wrong with one that is not."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kinstream.learners.base.learner import Outcomes, State
from kinstream.learners.forms.triplet_rule import TripletRule
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import ConstraintBlock
from kinstream.testing import check_learner, triplet_blocks
from tests.docs.pages import ROOT


class Weights(TripletRule):
    algorithm = "weights/1"

    def begin(self, d: int) -> NDArray[Any]:
        return np.ones(d)

    def map_of(self, parameters: NDArray[Any]) -> NDArray[Any]:
        return np.diag(np.sqrt(parameters))

    def step(self, parameters: NDArray[Any], near: NDArray[Any], far: NDArray[Any]) -> NDArray[Any] | None:
        return np.asarray(np.maximum(parameters + 0.01 * (far**2 - near**2), 0.0))


class Drawing(Weights):
    """Its steps are random."""

    def step(self, parameters: NDArray[Any], near: NDArray[Any], far: NDArray[Any]) -> NDArray[Any] | None:
        return parameters * np.random.uniform(0.9, 1.1)


class Forgetful(Weights):
    """Its steps shrink with their number, which is not in its state."""

    steps = 0

    def step(self, parameters: NDArray[Any], near: NDArray[Any], far: NDArray[Any]) -> NDArray[Any] | None:
        self.steps += 1
        return np.asarray(np.maximum(parameters + 0.01 / self.steps * (far**2 - near**2), 0.0))


class Silent(Weights):
    """It reports no step."""

    def learn(self, block: ConstraintBlock) -> Outcomes:
        outcomes = super().learn(block)
        outcomes.utilised[:] = False
        return outcomes


class Sharing(Weights):
    """Its state is its own array, not a copy."""

    def state(self) -> State:
        state = super().state()
        return {**state, "parameters": self._parameters} if "parameters" in state else state


class Ahead(Weights):
    """It does not know which constraints share an event, and judges each after it has learned the one before."""

    def learn(self, block: ConstraintBlock) -> Outcomes:
        return super().learn(replace(block, events=None))


def test_a_sound_learner_passes() -> None:
    check_learner(Weights)


@pytest.mark.parametrize(
    ("learner", "check"),
    [
        (Drawing, "ends_the_same_twice"),
        (Forgetful, "continues_from_every_message"),
        (Silent, "changes_only_what_it_says"),
        (Sharing, "gives_copies_of_its_state"),
        (Ahead, "judges_events_before_it_learns_them"),
    ],
)
def test_a_fault_is_noticed_by_the_check_that_is_for_it(learner: type[Weights], check: str) -> None:
    with pytest.raises(Exception) as caught:
        check_learner(learner, elsewhere=False)
    assert caught.value.__notes__ == [f"in the check {check}"]


def test_no_test_runner_is_imported_and_python_without_assertions_is_refused() -> None:
    script = "import sys, kinstream.testing; print('pytest' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT / "src", capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
    script = "from kinstream import OPML; from kinstream.testing import check_learner; check_learner(OPML)"
    found = subprocess.run(
        [sys.executable, "-O", "-c", script], cwd=ROOT / "src", capture_output=True, text=True, check=False
    )
    assert found.returncode == 1 and "which -O disables" in found.stderr


# ---- the base of a learner of one's own -------------------------------------------------------------------------


def test_a_rule_learns_what_matters_and_the_step_is_the_one_that_is_given() -> None:
    draw = np.random.default_rng(3)
    x, other = draw.normal(size=(2, 300, 2))
    model = Weights()
    model.learn_triplets(x[:1], x[:1] + np.array([0.1, 5.0]), other[:1])
    far = x[0] - other[0]
    wanted = np.maximum(1.0 + 0.01 * (far**2 - np.array([0.1, 5.0]) ** 2), 0.0)
    np.testing.assert_allclose(model.parameters, wanted, rtol=1e-12)
    model.learn_triplets(x, x + draw.normal(size=x.shape) * (0.1, 2.0), other)
    assert model.parameters[0] > 1.0 > model.parameters[1]


def test_a_step_that_is_not_finite_or_of_another_shape_is_rejected() -> None:
    class Wrong(Weights):
        def step(
            self, parameters: NDArray[Any], near: NDArray[Any], far: NDArray[Any]
        ) -> NDArray[Any] | None:
            return np.full(len(parameters), np.inf) if near[0] > 0 else np.ones(len(parameters) + 1)

    model = Wrong()
    outcomes = model.learn(triplet_blocks(1, 5)[0])
    assert outcomes.rejected.sum() > 10 and not outcomes.utilised.any()
    assert (model.parameters == 1.0).all()


def test_a_rule_has_no_parameters_before_its_first_block_and_takes_no_foreign_state() -> None:
    with pytest.raises(ValueError, match="learn from a block first"):
        _ = Weights().parameters
    model = Weights()
    model.learn(triplet_blocks(1, 5)[0])
    state = model.state()
    narrow = {**state, "parameters": np.ones(5, np.float32)}
    with pytest.raises(SettingsError, match="float32, not float64"):
        Weights().restore(narrow)
