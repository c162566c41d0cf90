"""Recall is sampled by a counter, against the scan under the model of the answer, and never holds up answers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from kinstream.search.spaces.recall import RecallSampler
from kinstream.search.spaces.searcher import Answer, Searcher
from kinstream.streams.records.values import Action
from tests.search.index_service import Agent, control, items, linear, running
from tests.support import processes

until = partial(processes.until, seconds=20.0)
LAZY = {"learner": "opml", "index": "lazy", "options": {"candidates": 1000}}


def catalogue(agent: Agent) -> tuple[Searcher, np.ndarray]:
    X = np.random.default_rng(1).normal(size=(200, 4)).astype(np.float32)
    agent.events.append(items("shop", [str(n) for n in range(200)], X))
    agent.announced.announce("shop", linear(4, 1), 1)
    agent.settle()
    return agent.space("shop").searcher, X


def spoilt(answer: Answer) -> Answer:
    """The same answer with half of the names wrong."""
    names = [
        [*found[: len(found) // 2], *(f"no {n}" for n in range(len(found) - len(found) // 2))]
        for found in answer.names
    ]
    return replace(answer, names=names)


def test_every_third_query_is_measured_under_its_own_model() -> None:
    with running(spaces={"shop": LAZY}) as agent:
        searcher, X = catalogue(agent)
        sampler = RecallSampler(3)
        sampler.start()
        answer = searcher.search(X[:2], 8)
        agent.announced.announce("shop", linear(4, 2), 2)  # another model serves when the sample is measured
        agent.settle()
        for n in range(1, 7):
            sampler.offer(searcher, X[:2], answer)
            until(lambda n=n: sampler.fates["shop", "measured"] == -(-2 * n // 3))  # type: ignore[misc]
        assert sampler.ratio("shop") == 1.0
        for _ in range(3):
            sampler.offer(searcher, X[:2], spoilt(answer))
        until(lambda: sampler.fates["shop", "measured"] == 6)
        assert sampler.ratio("shop") == (4 * 1.0 + 2 * 0.5) / 6
        sampler.stop()


def test_what_it_cannot_keep_up_with_is_dropped_and_a_space_begun_anew_is_left_out() -> None:
    with running(spaces={"shop": LAZY}) as agent:
        searcher, X = catalogue(agent)
        sampler = RecallSampler(1)
        answer = searcher.search(X[:6], 3)
        sampler.offer(searcher, X[:6], answer)  # its thread has not begun: four wait
        assert sampler.fates["shop", "dropped"] == 2
        agent.events.append(control("shop", Action.RESET))
        sampler.start()
        until(lambda: sampler.fates["shop", "outdated"] == 4)
        assert sampler.ratio("shop") is None
        sampler.stop()


def test_an_exact_index_that_answers_wrongly_is_seen() -> None:
    with running(spaces={"shop": {"learner": "opml"}}) as agent:
        searcher, X = catalogue(agent)
        sampler = RecallSampler(1)
        sampler.start()
        answer = searcher.search(X[:1], 4)
        sampler.offer(searcher, X[:1], answer)
        sampler.offer(searcher, X[:1], spoilt(answer))
        until(lambda: sampler.fates["shop", "measured"] == 2)
        assert sampler.ratio("shop") == 0.75
        sampler.stop()


def test_a_sampler_without_queries_waits_for_the_first_and_ends_when_it_is_stopped() -> None:
    sampler = RecallSampler(1)
    sampler.start()
    sampler.stop()
    until(lambda: not sampler._thread.is_alive())
