"""The adapter against the formulas of its docstring in plain loops, its export, and what it does on data."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kinstream.learners.adapter.learner import Adapter
from kinstream.learners.models.export import encode, export
from kinstream.learners.models.onnx import encode_onnx
from kinstream.streams.errors import BadRecord, SettingsError
from kinstream.streams.records.values import ModelVersion
from kinstream.testing.blocks import block

Matrix = NDArray[np.float64]
VERSION = ModelVersion("s", "a", "adapter/2", 1, 0, 9, "t", 0, 7, "file:///m", "0" * 64, 0)


class Plain:
    """The adapter list by list, vector by vector, in float64."""

    def __init__(self, d: int, rank: int, memory: int, pull: float, *, unit: bool) -> None:
        self.size, self.pull, self.unit, self.rank = memory, pull, unit, rank
        self.items: list[dict[str, Any]] = []
        self.lists: list[dict[str, Any]] = []
        self.k, self.usual = 0, 0.0
        #: Lists that count as learned before.
        self.before = 0
        #: What W is before anything is learned.
        self.first = np.eye(d)
        self.parts = [np.zeros((d, d))]
        if rank:
            draw = np.random.Generator(np.random.Philox(key=[0, d]))
            U = 2.0 / np.sqrt(d) * draw.standard_normal((d, rank))
            self.parts = [U, np.zeros((d, rank))]
        self.mean = [one.copy() for one in self.parts]
        self.m = [np.zeros_like(one) for one in self.parts]
        self.v = [np.zeros_like(one) for one in self.parts]

    def similarity(self, parts: list[Matrix], q: Matrix, x: Matrix) -> float:
        W = self.first + (parts[0] @ parts[1].T if self.rank else parts[0])
        return float(q @ W @ x)

    def triplet(self, q: Matrix, near: Matrix, far: Matrix, weight: float) -> None:
        vectors = [one / np.linalg.norm(one) if self.unit else one for one in (q, near, far)]
        self.pair(vectors[0], vectors[1], weight, similar=True)
        self.pair(vectors[0], vectors[2], weight, similar=False)

    def pair(self, q: Matrix, x: Matrix, weight: float, *, similar: bool) -> None:
        known = any(np.array_equal(one["x"], x) for one in self.items)
        new_list = not self.lists or not np.array_equal(self.lists[-1]["q"], q)
        links = sum(len(one["clicks"]) for one in self.lists)
        full = similar and ((new_list and len(self.lists) == 16) or links == 64)
        replaced = not known and len(self.items) == self.size
        if full or (replaced and any(c is self.items[0] for one in self.lists for c, _ in one["clicks"])):
            self.learn()
            new_list = True
        if not known:
            if len(self.items) == self.size:
                self.items.pop(0)
            self.items.append({"x": x, "pulls": 0})
        if not similar:
            return
        if new_list:
            self.lists.append({"q": q, "clicks": []})
        item = next(one for one in self.items if np.array_equal(one["x"], x))
        if not any(found is item for found, _ in self.lists[-1]["clicks"]):
            item["pulls"] += 1
            self.lists[-1]["clicks"].append((item, weight * min(1.0, 8 / item["pulls"])))

    def learn(self) -> None:
        """A step of Adam on a gradient that is found one list at a time."""
        total = [np.zeros_like(one) for one in self.parts]
        scale = np.sqrt(np.mean([one["x"] @ one["x"] for one in self.items]))
        for one in self.lists:
            q = one["q"] / np.linalg.norm(one["q"])
            clicked = [item for item, _ in one["clicks"]]
            for item, weight in one["clicks"]:
                others = [c for c in self.items if c is item or not any(c is other for other in clicked)]
                logits = np.array([self.similarity(self.parts, q, c["x"] / scale) / 0.03 for c in others])
                p = np.exp(logits - logits.max())
                p /= p.sum()
                for c, share in zip(others, p, strict=True):
                    rate = (share - (c is item)) * weight / len(clicked) / len(self.lists) / 0.03
                    rate *= min(1.0, 3 / len(clicked))
                    outer = rate * np.outer(q, c["x"] / scale)
                    if self.rank:
                        total[0] += outer @ self.parts[1]
                        total[1] += outer.T @ self.parts[0]
                    else:
                        total[0] += outer
        self.k += 1
        k = self.k
        length = np.sqrt(sum(float(np.sum(one**2)) for one in total))
        self.usual += (length - self.usual) / min(k, 100)
        tiny = 0.5 * self.usual / np.sqrt(sum(one.size for one in total))
        step = 0.1 / np.sqrt(len(total[0])) if self.rank else 0.7 / len(total[0])
        n = 16 * k + self.before
        step *= min(1.0, n / 480) / np.sqrt(1.0 + n / 300)
        for i, part in enumerate(self.parts):
            g = total[i] + self.pull * part
            self.m[i] = 0.9 * self.m[i] + 0.1 * g
            self.v[i] = 0.999 * self.v[i] + 0.001 * g * g
            first, second = self.m[i] / (1.0 - 0.9**k), np.sqrt(self.v[i] / (1.0 - 0.999**k))
            self.parts[i] = part - step * first / (second + tiny)
            self.mean[i] = self.mean[i] + (self.parts[i] - self.mean[i]) * 4 / (k + 3)
        self.lists = []


def world(seed: int, d: int, n: int) -> tuple[Matrix, Matrix]:
    """Queries and items; each query is its item with two features exchanged, and some noise."""
    draw = np.random.default_rng(seed)
    items = draw.normal(size=(n, d)) * draw.uniform(0.5, 2.0, size=(n, 1))
    queries = items[:, [1, 0, *range(2, d)]] + 0.3 * draw.normal(size=(n, d))
    return tuple(one.astype(np.float32).astype(np.float64) for one in (queries, items))  # type: ignore[return-value]


def shown(seed: int, n: int, lists: int) -> list[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
    """Lists (query, clicked, others) over n items, the query's own among the clicked ones; some items are popular."""
    draw, found = np.random.default_rng(seed), []
    for _ in range(lists):
        q = int(draw.integers(n))
        others = [i for i in draw.choice(n, 6, replace=False).tolist() if i != q]
        clicks = int(draw.integers(1, 5))
        more = [0] if draw.random() < 0.3 and q != 0 and 0 not in others else []
        found.append((q, np.array([q, *more, *others[: clicks - 1]]), np.array(others[clicks - 1 :])))
    return found


@pytest.mark.parametrize("product", ["cosine", "dot"])
@pytest.mark.parametrize(("rank", "memory"), [(3, 512), (0, 512), (3, 24)])
def test_steps_are_those_of_the_formulas(rank: int, memory: int, product: str) -> None:
    d, n = 6, 60
    Q, X = world(1, d, n)
    model = Adapter(rank, memory=memory, product=product, dtype="float64")
    plain = Plain(d, rank, memory, 0.012, unit=product == "cosine")
    draw = np.random.default_rng(2)
    for number, (q, clicked, others) in enumerate(shown(3, n, 200)):
        triplets = [(q, n + c, n + o) for c in clicked for o in others]
        weight = float(np.float32(draw.uniform(0.5, 2.0)))
        made = block(np.concatenate([Q, X]), np.array(triplets))
        rows = len(triplets)
        model.learn(replace(made, events=np.ones(rows, np.int32), weights=np.full(rows, weight, np.float32)))
        for a, p, o in triplets:
            plain.triplet(Q[a], X[p - n], X[o - n], weight)
        assert model.state()["steps"] == plain.k, number
    assert plain.k > 11
    first = model.factors if rank else (model.W - np.eye(d),)
    for found, wanted in zip(first, plain.mean, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-8)


def fed(seed: int = 4, d: int = 12, passes: int = 1, **settings: Any) -> tuple[Adapter, Matrix, Matrix]:
    Q, X = world(seed, d, 1500)
    model = Adapter(**settings)
    for rows in np.array_split(np.tile(np.arange(1000), passes), 9 * passes):
        model.learn_pairs(Q[rows], X[rows])
    return model, Q[1000:], X[1000:]


@pytest.mark.parametrize("settings", [{"rank": 4}, {"rank": 0}, {"rank": 4, "product": "dot"}], ids=str)
def test_queries_that_were_never_learned_find_their_items(settings: dict[str, Any]) -> None:
    model, Q, X = fed(passes=3, **settings)
    if settings.get("product") != "dot":
        X = X / np.linalg.norm(X, axis=1, keepdims=True)

    def first(mapped: NDArray[Any]) -> float:
        return float(np.mean((mapped @ X.T).argmax(axis=1) == np.arange(len(X))))

    U = model.factors
    mapped = Q @ U[0] if settings["rank"] == 0 else Q + (Q @ U[0]) @ U[1].T
    assert first(mapped) > first(Q) + 0.05


@pytest.mark.parametrize("form", ["npz", "safetensors", "onnx"])
@pytest.mark.parametrize("rank", [4, 0])
def test_an_export_holds_the_query_map(rank: int, form: str) -> None:
    model, Q, X = fed(rank=rank)
    q = Q.astype(np.float32)
    if form == "onnx":
        runtime = pytest.importorskip("onnxruntime")
        session = runtime.InferenceSession(encode_onnx(model, {}))
        (mapped,) = session.run(None, {"x": q})
    else:
        found = export(model, VERSION, {})
        if form == "npz":
            file = np.load(io.BytesIO(encode(found, form)))
            arrays, metadata = {n: file[n] for n in file.files}, json.loads(str(file["metadata"]))
        else:
            from safetensors.numpy import load

            arrays, metadata = load(encode(found, form)), found.metadata
        assert metadata["product"] == "cosine"
        assert metadata["query_map"] == ("q + (q @ U) @ V.T" if rank else "q @ W")
        names = {"U", "V"} if rank else {"W"}
        assert set(arrays) - {"metadata"} == names and all(arrays[n].dtype == np.float32 for n in names)
        mapped = eval(metadata["query_map"], {"q": q, **arrays})
    assert mapped.shape == q.shape
    # In the order of the learner's own similarity.
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    length = np.linalg.norm(q, axis=1)
    own = model.similarities(Q, X)
    np.testing.assert_allclose(mapped @ unit.T / length[:, None], own, rtol=1e-4, atol=1e-5)


def test_an_item_map_loses_the_least_of_the_similarities() -> None:
    model, Q, X = fed(rank=4, dtype="float64")
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    own, lost = Q @ model.W @ unit.T, []
    for k in (3, 6, 12):
        A, B = model.item_map(k)
        assert A.shape == B.shape == (k, 12)
        np.testing.assert_allclose(A @ A.T, np.eye(k), atol=1e-12)
        lost.append(float(np.mean((Q @ A.T @ (unit @ B.T).T - own) ** 2)))
        other = np.linalg.qr(np.random.default_rng(k).normal(size=(12, k)))[0].T
        assert k == 12 or lost[-1] < np.mean((Q @ other.T @ (unit @ (other @ model.W).T).T - own) ** 2)
    assert lost[0] > lost[1] > lost[2] and lost[2] < 1e-20
    with pytest.raises(ValueError, match="k must be 1 to 12, not 13"):
        model.item_map(13)


def test_one_item_cannot_take_the_map_over() -> None:
    """Half of the lists click one item, whatever was asked: the others are found as without these lists."""
    Q, X = world(5, 12, 1500)
    shares = []
    for poisoned in (False, True):
        model = Adapter(rank=4)
        for n in range(1000):
            model.learn_pairs(Q[n : n + 1], X[n : n + 1])
            if poisoned:
                model.learn_pairs(Q[n - 1 : n] if n else Q[-1:], X[-1:])
        found = model.similarities(Q[1000:1400], X[1000:1400])
        shares.append(float(np.mean(found.argmax(axis=1) == np.arange(400))))
    raw = float(np.mean((Q[1000:1400] @ X[1000:1400].T).argmax(axis=1) == np.arange(400)))
    assert shares[1] > raw + 0.8 * (shares[0] - raw)


def test_lists_of_which_half_is_clicked_say_little() -> None:
    """Every second list has ten clicked items near its query: what the others teach is learned as without these."""
    Q, X = world(8, 12, 1500)
    shares = []
    for poisoned in (False, True):
        model = Adapter()
        for n in range(1000):
            model.learn_pairs(Q[n : n + 1], X[n : n + 1])
            if poisoned:
                wrong = X[np.argsort(-(X[:1000] @ Q[n - 1]))[1:20:2]]
                model.learn_pairs(np.repeat(Q[n - 1 :][:1], len(wrong), axis=0), wrong)
        found = model.similarities(Q[1000:1400], X[1000:1400])
        shares.append(float(np.mean(found.argmax(axis=1) == np.arange(400))))
    unit = (one[1000:1400] / np.linalg.norm(one[1000:1400], axis=1, keepdims=True) for one in (Q, X))
    raw = float(np.mean(np.matmul(next(unit), next(unit).T).argmax(axis=1) == np.arange(400)))
    assert shares[1] > raw + 0.9 * (shares[0] - raw)


def test_settings_and_states_that_do_not_fit_are_refused() -> None:
    for wrong in (
        {"rank": -1},
        {"step": 0.0},
        {"pull": -1.0},
        {"memory": 1},
        {"product": "l2"},
        {"seed": -1},
    ):
        with pytest.raises(SettingsError):
            Adapter(**wrong)
    state = fed(rank=4)[0].state()
    with pytest.raises(SettingsError, match="holds a map of rank 4"):
        Adapter(rank=5).restore(state)
    with pytest.raises(SettingsError, match="rank is 0, but the state to restore holds a map of rank 4"):
        Adapter(rank=0).restore(state)
    with pytest.raises(SettingsError, match="memory is 20"):
        Adapter(rank=4, memory=20).restore(state)
    with pytest.raises(SettingsError, match="rank is 4, but the state to restore holds a full matrix"):
        Adapter(rank=4).restore(fed()[0].state())
    with pytest.raises(BadRecord, match="at most 512 features, not 513"):
        Adapter(rank=0).learn_pairs(np.ones((1, 513)), np.ones((1, 513)))


def test_before_the_first_step_it_is_the_similarity_of_the_embeddings() -> None:
    Q, X = world(6, 8, 20)
    model = Adapter()
    wanted = np.sum(Q * X, axis=1) / np.linalg.norm(Q, axis=1) / np.linalg.norm(X, axis=1)
    np.testing.assert_allclose(model.similarity(Q, X), wanted, rtol=1e-5)
    model.learn_pairs(Q[:3], X[:3])
    np.testing.assert_allclose(model.similarity(Q, X), wanted, rtol=1e-5)


def test_a_rank_that_is_left_out_follows_the_features_or_the_state() -> None:
    for d, shapes in ((512, [(512, 512)]), (513, [(513, 64), (513, 64)])):
        model = Adapter()
        model.learn_pairs(*world(7, d, 4))
        assert [one.shape for one in model.factors] == shapes
    low = fed(rank=4)[0]
    model = Adapter()
    model.restore(low.state())
    for left_out, given in zip(model.factors, low.factors, strict=True):
        np.testing.assert_array_equal(left_out, given)
