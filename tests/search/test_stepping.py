"""An index that follows every step of its learner: right at each, whatever comes twice, late or not at all."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from kinstream.learners.updates import Before, UpdateOrigin
from kinstream.search.service.answers import Answering
from kinstream.search.service.metrics import ServiceMetrics
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import ConstraintBlock, Kind, ModelUpdate, Table
from tests.learners.published_unit import create
from tests.search.index_service import Agent, Truth, items, running

D = 5


def block(rng: np.random.Generator) -> ConstraintBlock:
    vectors = rng.normal(size=(12, D)).astype(np.float32)
    index = rng.permutation(12).reshape(6, 2).astype(np.int32)
    signs = rng.choice(np.array([-1, 1], np.int8), 6)
    far = ((vectors[index[:, 0]] - vectors[index[:, 1]]) ** 2).sum(axis=1)
    return ConstraintBlock(
        "shop",
        Kind.PAIR,
        (Table("x", vectors),),
        index,
        signs,
        ("r",),
        np.zeros(6, np.uint8),
        np.zeros(6, bool),
        np.ones(6, np.float32),
        1,
        targets=(far * np.where(signs > 0, 0.5, 2.0)).astype(np.float32),
    )


class Learning:
    """A learner that learns block by block and says what each has changed."""

    def __init__(self, agent: Agent, **settings: Any) -> None:
        self.agent, self.step = agent, 0
        self.learner: Any = create("lego", **settings)

    def announce(self) -> None:
        self.agent.announced.announce("shop", deepcopy(self.learner), self.step)

    def learn(self, rng: np.random.Generator) -> list[ModelUpdate]:
        one, before = block(rng), Before(self.learner)
        outcomes = self.learner.learn(one)
        base, self.step = self.step, self.step + outcomes.counts().seen
        origin = UpdateOrigin("shop", "opml", 1, 0, "constraints", 0, self.step, base, self.step, 1)
        self.agent.announced.learners["shop", 1, 0, self.step] = deepcopy(self.learner)
        return before.updates(origin, one, outcomes)

    def reached(self) -> bool:
        return self.agent.space("shop").searcher.glance().model.step == self.step


@pytest.mark.parametrize("scaler", ["none", "zscore", "unit"])
def test_every_step_is_followed_in_place(scaler: str) -> None:
    rng, truth = np.random.default_rng(9), Truth()
    space = {
        "learner": "opml",
        "index": "lazy",
        "updates": True,
        "options": {"candidates": 1000},
    }
    with running(spaces={"shop": space}) as agent:
        answering = Answering(agent.service, ServiceMetrics(agent.service))
        learning = Learning(agent, scaler=scaler, warm_up=10)
        X = (rng.normal(size=(40, D)) + 3.0).astype(np.float32)
        truth.items.update((str(n), row) for n, row in enumerate(X))
        truth.note(agent.events.append(items("shop", list(truth.items), X)))
        for _ in range(4):
            learning.learn(rng)  # the scaler settles
        learning.announce()
        agent.wait(learning.reached, "the announced model serves")
        counts = agent.space("shop").searcher.counts
        for step in range(12):
            records = learning.learn(rng)
            for record in rng.permutation(np.array([*records, *records], object)):
                agent.indexes.updates.give(record)
            agent.wait(learning.reached, f"step {step} serves")
            Q = (rng.normal(size=(3, D)) + 3.0).astype(np.float32)
            body = json.dumps({"vectors": Q.tolist(), "k": 6}).encode()
            answer = json.loads(answering.search(body))
            assert answer["model"]["step"] == learning.step
            truth.check(answer, Q, 6, agent.announced.learners)
            mapped = json.loads(answering.map(json.dumps({"vectors": Q.tolist()}).encode()))
            assert np.allclose(mapped["vectors"], learning.learner.transform(Q), rtol=1e-4, atol=1e-4)
        assert counts["stepped"] > 0

        # A record that is lost: the next announced model makes up for it.
        learning.learn(rng)
        for record in learning.learn(rng):
            agent.indexes.updates.give(record)
        assert not learning.reached()
        learning.announce()
        agent.wait(learning.reached, "the announced model serves")
        Q = X[:2]
        answer = json.loads(answering.search(json.dumps({"vectors": Q.tolist(), "k": 6}).encode()))
        truth.check(answer, Q, 6, agent.announced.learners)


def test_updates_are_refused_for_an_index_that_cannot_be_moved() -> None:
    with pytest.raises(SettingsError, match="updates are for the index lazy"):
        Agent(spaces={"shop": {"learner": "opml", "updates": True}})
