"""A model that many threads share gives each of them what one thread gets, whatever learned it."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kinstream.search.models.loader import anywhere, settle
from kinstream.search.models.model import UNLEARNED, Model, Name
from kinstream.streams.records.values import ModelVersion
from kinstream.testing.learners import Case
from tests.learners.cases import all_cases

VERSION = ModelVersion("a", "mine", "opml/1", 2, 5, 10, "t", 0, 42, "place", "digest", 1_000)
THREADS = 4
#: One case of each kind will do: what threads share does not depend on the data. Those with caches have all of theirs.
CACHING = ("oasis", "sors", "adasors", "omks", "fusion", "kernel-lego")


def chosen() -> list[Case]:
    found: dict[str, Case] = {}
    for case in all_cases():
        kind = case.name.split(":")[0]
        found.setdefault(case.name if kind in CACHING else kind, case)
    return list(found.values())


def features(learner: Any, n: int) -> Any:
    draw = np.random.default_rng(n)
    modalities = getattr(learner, "modalities", ())
    if modalities:
        return {name: draw.normal(size=(n, d)) for name, d in modalities}
    return draw.normal(size=(n, learner.dimension))


@pytest.mark.parametrize("case", chosen(), ids=lambda case: case.name)
def test_threads_share_a_model(case: Case) -> None:
    learner: Any = case.make()
    for block in case.blocks:
        learner.learn(block)
    restored: Any = case.make()
    restored.restore(learner.state())
    settle(restored)
    model = Model(VERSION, restored)
    tables = [features(learner, n) for n in (5, 9, 17, 33)]
    wanted = [(learner.transform(X), learner.distance(X, X)) for X in tables]
    assert model.dimension == (sum(d for _, d in model.modalities) if model.modalities else learner.dimension)
    pairs = list(zip(tables, wanted, strict=True))
    differ: list[str] = []
    together = threading.Barrier(THREADS)

    def use(number: int) -> None:
        together.wait(30.0)
        for _ in range(5):
            for k in range(len(tables)):
                X, (mapped, apart) = pairs[(k + number) % len(tables)]
                try:
                    np.testing.assert_array_equal(model.transform(X), mapped)
                    np.testing.assert_array_equal(model.distance(X, X), apart)
                except AssertionError as error:
                    differ.append(str(error))

    threads = [threading.Thread(target=use, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert not any(thread.is_alive() for thread in threads)
    assert differ == []


def test_names_order_versions_and_say_what_they_are() -> None:
    names = [UNLEARNED, Name(1, 0, 0), Name(1, 0, 7), Name(1, 3, 0), Name(2, 0, 1)]
    assert sorted(names[::-1]) == names
    assert str(Name(2, 5, 10)) == "2.5.10"
    model = Model(VERSION)
    assert repr(model) == "Model(a/mine 2.5.10, un-learned)"
    assert repr(Model()) == "Model(un-learned)"
    with pytest.raises(AttributeError):
        model.version = replace(VERSION, step=11)  # type: ignore[misc]


def test_whole_numbers_become_floating_point_and_the_callers_array_stays_his() -> None:
    X: Any = np.arange(6).reshape(2, 3)
    mapped = Model().transform(X)
    assert mapped.dtype == np.float64 and (mapped == X).all()
    narrow = X.astype(np.float32)
    mapped = Model().transform(narrow)
    mapped[:] = 9
    assert mapped.dtype == np.float32 and narrow[0, 1] == 1


def test_what_was_learned_on_a_gpu_is_used_without_one() -> None:
    given = {
        "path": "torch",
        "device": "cuda",
        "layers": 3,
        "members": {"oahu": {"device": "cuda", "hidden": 8}, "path": {"kind": "opml"}},
    }
    assert anywhere(given) == {
        "path": "compiled",
        "device": "cpu",
        "layers": 3,
        "members": {"oahu": {"device": "cpu", "hidden": 8}, "path": {"kind": "opml"}},
    }
