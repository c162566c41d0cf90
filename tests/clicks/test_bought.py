"""Bought clicks: a fifth of the lists, in bursts from one address, do not move an adapter behind a cap of addresses."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.adapter.learner import Adapter
from kinstream.processors.base.builder import Origin
from kinstream.processors.clicks.clicks import Clicks
from kinstream.streams.records.values import Click, ItemBlock, ItemClick, Table

HOUR = 3_600_000
ITEMS, D, SHOWN = 120, 16, 10
RNG = np.random.default_rng(7)
X: NDArray[np.float32] = RNG.normal(size=(ITEMS, D)).astype(np.float32)
X /= np.linalg.norm(X, axis=1, keepdims=True)
#: What has to be learned: queries look for items through a map.
TURN = np.linalg.qr(np.eye(D) + 0.5 * RNG.normal(size=(D, D)))[0]
NAMES = tuple(f"i{n}" for n in range(ITEMS))


def asked(draw: np.random.Generator) -> tuple[NDArray[np.float32], int]:
    target = int(draw.integers(ITEMS))
    query = TURN @ X[target] + 0.1 * draw.normal(size=D)
    return (query / np.linalg.norm(query)).astype(np.float32), target


def learned(poisoned: bool, cap: int) -> Adapter:
    """An adapter after ten hours of 100 honest lists each, with a burst of 25 others in each hour if `poisoned`."""
    draw, bad = np.random.default_rng(1), np.random.default_rng(2)
    builder, adapter = Clicks(["click-list"], max_clicks_per_address=cap), Adapter()
    builder.process(ItemBlock("shop", NAMES, (Table("x", X),), 0), Origin(0))
    for n in range(1_000):
        hour, minute = divmod(n, 100)
        at = hour * HOUR + minute * 30_000
        query, target = asked(draw)
        items = [int(i) for i in draw.permutation(ITEMS)[:SHOWN] if i != target]
        items.insert(int(draw.integers(len(items))), target)
        _show(builder, adapter, n, query, items, target, at, f"home {n % 40}")
        for k in range(25 if poisoned and minute == 50 else 0):
            # Who pays wants what is the least like the query.
            query, _ = asked(bad)
            wanted = [int(i) for i in np.argsort(X @ TURN.T @ query)[:3]]
            rest = [int(i) for i in bad.permutation(ITEMS) if i not in wanted][: SHOWN - 1]
            _show(
                builder,
                adapter,
                10_000 + 25 * n + k,
                query,
                [*rest, wanted[k % 3]],
                wanted[k % 3],
                at,
                "farm",
            )
    return adapter


def _show(
    builder: Clicks,
    adapter: Adapter,
    number: int,
    query: NDArray[np.float32],
    items: list[int],
    clicked: int,
    at: int,
    address: str,
) -> None:
    click = Click(
        "shop",
        f"l{number}",
        tuple(NAMES[i] for i in items),
        tuple(range(len(items))),
        (ItemClick(NAMES[clicked], at),),
        at,
        f"s{number}",
        f"u{number}",
        query_vector=(Table("x", query[None]),),
        address=address,
    )
    for block in builder.process(click, Origin(number + 1, at)).blocks:
        adapter.learn(block)


def quality(adapter: Adapter) -> float:
    """Mean reciprocal rank of what new queries look for."""
    draw, found = np.random.default_rng(3), []
    for _ in range(400):
        query, target = asked(draw)
        scores = X @ (adapter.W.T @ query)
        found.append(1.0 / (1 + int((scores > scores[target]).sum())))
    return float(np.mean(found))


def test_bursts_from_one_address_do_not_move_an_adapter() -> None:
    clean, capped, open_ = (quality(learned(*one)) for one in ((False, 10), (True, 10), (True, 0)))
    assert abs(capped - clean) < 0.02
    assert open_ < clean - 0.05
