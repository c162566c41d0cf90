"""One space: what is served while items and models change."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest

from kinstream.search.index.engines import IndexPlan
from kinstream.search.models.model import Model
from kinstream.search.service.answers import Answering
from kinstream.search.service.metrics import ServiceMetrics
from kinstream.search.spaces.catalogue import Changed, Put
from kinstream.search.spaces.errors import NotReady
from kinstream.search.spaces.read_write_lock import SharedLock
from kinstream.search.spaces.searcher import Searcher
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import Action, Table
from tests.search.index_service import SHOP, Agent, Truth, control, items, linear, running


def ask(agent: Agent, Q: Any, k: int = 5, space: str = "shop") -> dict[str, Any]:
    answering = Answering(agent.service, ServiceMetrics(agent.service))
    body = {"space": space, "vectors": np.asarray(Q).tolist(), "k": k}
    answer: dict[str, Any] = json.loads(answering.search(json.dumps(body).encode()))
    return answer


INDEXES = ("exact", "faiss-flat", "faiss-hnsw", "lazy")


@pytest.mark.parametrize("index", INDEXES)
def test_answers_follow_items_and_models(index: str) -> None:
    rng = np.random.default_rng(1)
    truth = Truth()
    # Every item is a candidate here: what is tested is that nothing stale is answered.
    options = {"depth": 64} if index == "faiss-hnsw" else {"candidates": 1000} if index == "lazy" else {}
    space = {"learner": "opml", "index": index, "options": options}
    with running(spaces={"shop": space}) as agent:
        for step in range(1, 7):
            names = [f"item {n}" for n in rng.integers(0, 40, 12)]
            X = rng.normal(size=(12, 6)).astype(np.float32)
            gone = tuple(f"item {n}" for n in rng.integers(0, 40, 3))
            offset = agent.events.append(items("shop", names, X, gone))
            truth.items.update(zip(names, X, strict=True))
            for name in gone:
                truth.items.pop(name, None)
            truth.note(offset)
            Q = rng.normal(size=(4, 6)).astype(np.float32)
            truth.check(ask(agent, Q), Q, 5, agent.announced.learners)
            agent.announced.announce("shop", linear(6, step), step)
            agent.settle()
            answer = ask(agent, Q)
            assert answer["model"]["step"] == step and answer["model"]["learned"]
            truth.check(answer, Q, 5, agent.announced.learners)


def test_a_transform_is_by_the_model_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(5, 4)).astype(np.float32)
    with running(spaces={"shop": {"learner": "opml", "index": "lazy"}}) as agent:
        agent.events.append(items("shop", ["a", "b"], rng.normal(size=(2, 4))))
        agent.announced.announce("shop", linear(4, 1), 1)
        agent.settle()
        searcher = agent.space("shop").searcher
        lock = searcher._lock

        class Late:
            """The next model serves as soon as the lock is given back."""

            @contextmanager
            def read(self) -> Iterator[None]:
                with lock.read():
                    yield
                if searcher._lock is not lock:
                    monkeypatch.setattr(searcher, "_lock", lock)
                    agent.announced.announce("shop", linear(4, 2), 2)
                    agent.settle()

            def write(self) -> Any:
                return lock.write()

        monkeypatch.setattr(searcher, "_lock", Late())
        image = searcher.transform(rows)
        assert (image.standing.model.step, searcher.standing().model.step) == (1, 2)
        mapped = agent.announced.learners["shop", 1, 0, 1].transform(rows)
        np.testing.assert_allclose(image.vectors, mapped, rtol=1e-5, atol=1e-6)


def test_a_reset_empties_the_space_and_its_old_model_serves_no_more() -> None:
    rng = np.random.default_rng(2)
    with running(**SHOP) as agent:
        agent.events.append(items("shop", ["a", "b"], rng.normal(size=(2, 4))))
        agent.announced.announce("shop", linear(4, 1), 10)
        agent.settle()
        epoch = agent.events.append(control("shop", Action.RESET))
        assert ask(agent, [[0.0] * 4])["results"][0]["neighbours"] == []
        agent.events.append(items("shop", ["c"], rng.normal(size=(1, 3))))
        answer = ask(agent, [[0.0] * 3])
        assert [n["id"] for n in answer["results"][0]["neighbours"]] == ["c"]
        assert not answer["model"]["learned"] and answer["catalogue"]["epoch"] == epoch
        agent.announced.announce("shop", linear(3, 2), 5, epoch=epoch)
        agent.settle()
        assert ask(agent, [[0.0] * 3])["model"] == {
            "learner": "opml",
            "generation": 1,
            "epoch": epoch,
            "step": 5,
            "learned": True,
        }


def test_items_that_came_before_an_index_was_wanted_are_in_it() -> None:
    def put(offset: int, *names: str) -> Changed:
        table = Table("x", np.array([[float(len(name))] for name in names], np.float32))
        return Changed("shop", offset, (Put(names, (table,)),))

    searcher = Searcher("shop", IndexPlan("linear"), Model)
    searcher.apply([put(0, "a", "aa")])
    searcher.loaded()
    # Between the end of the log and the first index there is more of it.
    searcher.apply([put(1, "aaa")])
    with pytest.raises(NotReady):
        searcher.search(np.zeros((1, 1), np.float32), 3)
    assert searcher.refresh()
    found = searcher.search(np.zeros((1, 1), np.float32), 3)
    assert found.names == [["a", "aa", "aaa"]] and found.examined.tolist() == [3]


def test_a_model_of_another_dimension_does_not_serve() -> None:
    with running(**SHOP) as agent:
        agent.events.append(items("shop", ["a"], np.ones((1, 4))))
        agent.announced.announce("shop", linear(7, 1), 10)
        agent.settle()
        assert not ask(agent, [[0.0] * 4])["model"]["learned"]


def test_a_space_of_several_modalities() -> None:
    from kinstream.streams.records.values import ItemBlock, Table

    rng = np.random.default_rng(3)
    text, image = rng.normal(size=(5, 2)).astype(np.float32), rng.normal(size=(5, 3)).astype(np.float32)
    with running(**SHOP) as agent:
        tables = (Table("text", text), Table("image", image))
        agent.events.append(ItemBlock("shop", tuple("abcde"), tables, 1))
        answering = Answering(agent.service, ServiceMetrics(agent.service))
        body = {"vectors": {"image": image[1].tolist(), "text": [text[1].tolist()]}, "k": 1}
        answer = json.loads(answering.search(json.dumps(body).encode()))
        assert answer["results"][0]["neighbours"] == [{"id": "b", "squared_distance": 0.0}]


def test_a_linear_index_for_a_learner_that_is_none_is_refused_at_the_start() -> None:
    from kinstream.search.service.service import Service
    from kinstream.streams.settings import Settings

    found: Settings = Settings.model_validate(
        {
            "kafka": {"bootstrap_servers": "nowhere.invalid:9092"},
            "builders": {"one-pass": {"kind": "one-pass"}},
            "learners": {"oahu": {"kind": "oahu", "from": ["one-pass"]}},
            "serve": {"spaces": {"shop": {"learner": "oahu", "index": "lazy"}}},
        }
    )
    with pytest.raises(SettingsError, match=r"serve\.spaces\.shop: index 'lazy' needs a linear map"):
        Service(found)
    wrong = found.model_copy(
        update={"serve": found.serve.model_copy(update={"spaces": {"shop": wrong_options(found)}})}
    )
    with pytest.raises(SettingsError, match=r"serve\.spaces\.shop: .*legs"):
        Service(wrong)


def wrong_options(found: Any) -> Any:
    return found.serve.spaces["shop"].model_copy(update={"index": "exact", "options": {"legs": 3}})


def _caught_up(asked: list[Any], step: int, offset: int, faults: list[BaseException]) -> bool:
    named = asked[-1][0]
    return bool(faults) or (named["model"]["step"] >= step and named["catalogue"]["offset"] >= offset)


def _enough(asked: list[Any], least: int, faults: list[BaseException]) -> bool:
    return len(asked) > least or bool(faults)


@pytest.mark.long
@pytest.mark.parametrize("index", ["exact", "lazy"])
def test_every_answer_is_right_under_the_model_and_catalogue_that_it_names(index: str) -> None:
    """Models and items change at random under concurrent queries."""
    options = {"candidates": 1000} if index == "lazy" else {}
    truth, lock, asked = Truth(), threading.Lock(), []
    faults: list[BaseException] = []
    stop = threading.Event()
    space = {"learner": "opml", "index": index, "options": options}
    with running(spaces={"shop": space}) as agent:
        answering = Answering(agent.service, ServiceMetrics(agent.service))

        def query(seed: int) -> None:
            rng = np.random.default_rng([5, seed])
            try:
                while not stop.is_set():
                    Q = rng.normal(size=(3, 5)).astype(np.float32)
                    k = int(rng.integers(1, 20))
                    body = json.dumps({"vectors": Q.tolist(), "k": k}).encode()
                    answer = json.loads(answering.search(body))
                    with lock:
                        asked.append((answer, Q, k))
            except BaseException as error:
                faults.append(error)

        rng = np.random.default_rng(6)
        X = rng.normal(size=(30, 5)).astype(np.float32)
        truth.items.update((f"item {n}", row) for n, row in enumerate(X))
        truth.note(agent.events.append(items("shop", list(truth.items), X)))
        threads = [threading.Thread(target=query, args=(seed,)) for seed in range(3)]
        for thread in threads:
            thread.start()
        learners = [linear(5, seed) for seed in range(8)]
        newest = 0
        for step in range(1, 150):
            if rng.random() < 0.4:
                agent.announced.announce("shop", learners[step % 8], step)
                newest = step
            blocks = []
            for _ in range(rng.integers(1, 3)):
                names = [f"item {n}" for n in rng.integers(0, 60, 4)]
                gone = tuple(f"item {n}" for n in rng.integers(0, 60, 2))
                some = rng.normal(size=(4, 5)).astype(np.float32)
                blocks.append(items("shop", names, some, gone))
                truth.items.update(zip(names, some, strict=True))
                for name in gone:
                    truth.items.pop(name, None)
            # Noted before it happens: an answer may name it at once.
            truth.note(agent.events._offset + len(blocks) - 1)
            agent.events.append(*blocks)
            agent.wait(partial(_enough, asked, step * 2, faults), "queries go on")
            if step % 5 == 0:
                offset = agent.events._offset - 1
                agent.wait(partial(_caught_up, asked, newest, offset, faults), "answers name the newest")
        agent.settle()
        stop.set()
        for thread in threads:
            thread.join(10)
        assert not faults
        for answer, Q, k in asked:
            truth.check(answer, Q, k, agent.announced.learners)
    named = {(a["model"]["step"], a["catalogue"]["offset"]) for a, _, _ in asked}
    assert len({step for step, _ in named}) > 5 and len({offset for _, offset in named}) > 20


def test_a_writer_is_not_starved_and_readers_share() -> None:
    lock, order = SharedLock(), []
    together = threading.Barrier(2, timeout=10)
    reading, done = threading.Event(), threading.Event()

    def reader() -> None:
        with lock.read():
            together.wait()  # only readers that share get past this
            reading.set()
            done.wait(10)
            order.append("old reader")

    def writer() -> None:
        reading.wait(10)
        with lock.write():
            order.append("writer")

    def late() -> None:
        with lock.read():
            order.append("new reader")

    threads = [threading.Thread(target=job) for job in (reader, reader, writer)]
    for thread in threads:
        thread.start()
    while not lock._waiting:
        assert reading.wait(10)
    last = threading.Thread(target=late)
    last.start()
    done.set()
    for thread in (*threads, last):
        thread.join(10)
    assert order == ["old reader", "old reader", "writer", "new reader"]
