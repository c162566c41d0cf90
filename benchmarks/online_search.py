"""Search while learning: ways to search under a metric that LEGO is learning, and what a constraint costs an index.

`python -m benchmarks --only online-search`. Every index runs on one thread, whose processor time is measured, and keeps
its items in float32. Times of a query are for the 10 nearest, and so is recall within 10; recall within 100 and 300 is
that of a second search, for 300, of every other query, which is not timed. A query follows five constraints in the
mean, as in the paper.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from benchmarks.figures import Figure
from benchmarks.search_log import Log, log
from benchmarks.shared_sets import load
from benchmarks.studies.sorted_permutations import compared
from kinstream.search.index.create import create
from kinstream.search.index.online.base import Index
from kinstream.search.index.warm_up import warm_up
from kinstream.streams.compute.blas_threads import one_blas_thread

NAME: Final = "online-search"
#: Candidates: M = 0.65 sqrt(n), but 3 k at the least.
SEARCH: Final[dict[str, Any]] = {"dtype": "float32", "bits": 256, "eps": 1.0, "candidates": 0.65, "seed": 1}
MODES: Final[dict[str, dict[str, Any]]] = {
    "linear": {"mode": "linear"},
    "naive": {"mode": "naive"},
    "lazy": {"mode": "lazy"},
    "static": {"mode": "static"},
}
#: Sorted lists: the paper has about as many as candidates, of which memory allows a tenth.
LISTS: Final = 64
DEPTHS: Final = (10, 100, 300)
#: Every so-manieth query is also asked for the 300 nearest.
DEEP: Final = 2


@dataclass(frozen=True, slots=True)
class Played:
    """What one index did with a log.

    Parameters
    ----------
    near : ids of the 10 nearest, as timed, for every query during learning and then after it.
    deep : ids of the 300 nearest, for some of those queries.
    seconds : from the first constraint to the last query during learning; updates, searches : parts of that.
    after : seconds for a query after learning, the median.
    share : of the items whose distance was looked at, in the mean over queries.
    """

    near: list[list[str]]
    deep: list[list[str]]
    seconds: float
    updates: float
    after: float
    share: float
    stats: dict[str, float]


def play(settings: dict[str, Any], events: Log) -> Played:
    """One index meets the whole log."""
    n = len(events.X)
    names = [str(row) for row in range(n)]
    index = create(**settings, **SEARCH)
    index.put(names, events.X)
    index.search(events.Q[:1], 10)
    warm_up(settings["mode"], {name: value for name, value in (settings | SEARCH).items() if name != "mode"})
    near: list[list[str]] = []
    deep: list[list[str]] = []
    updates = searches = 0.0
    after = []
    examined = []
    with one_blas_thread():
        for row, step in enumerate(events.steps):
            begun = time.thread_time()
            if step is not None:
                index.step(step.U, step.V)
            updated = time.thread_time()
            answer = index.search(events.Q[row : row + 1], 10)
            searches += time.thread_time() - updated
            updates += updated - begun
            examined.append(answer.examined[0])
            near += answer.ids
            if row % DEEP == 0:
                deep += index.search(events.Q[row : row + 1], DEPTHS[-1]).ids
        for row in range(len(events.after)):
            begun = time.thread_time()
            answer = index.search(events.after[row : row + 1], 10)
            after.append(time.thread_time() - begun)
            near += answer.ids
            if row % DEEP == 0:
                deep += index.search(events.after[row : row + 1], DEPTHS[-1]).ids
    return Played(
        near,
        deep,
        updates + searches,
        updates,
        float(np.median(after)),
        float(np.mean(examined)) / n,
        index.stats.as_dict(),
    )


def recall(found: list[list[str]], truth: list[list[str]], depth: int) -> float:
    """Share of the `depth` nearest items that were found among the first `depth`, in the mean over queries."""
    return float(
        np.mean([len(set(a[:depth]) & set(b[:depth])) / depth for a, b in zip(found, truth, strict=True)])
    )


def interleaved(events: Log) -> list[Figure]:
    """The protocol with every way of searching."""
    n, m = len(events.X), len(events.Q)
    played = {name: play(settings, events) for name, settings in MODES.items()}
    truth, naive = played["linear"], played["naive"]
    facts = {
        "items": n,
        "features": events.X.shape[1],
        "queries": m,
        "constraints": events.constraints,
        "utilised": events.utilised,
        "learning_seconds": events.learning_seconds,
        **SEARCH,
    }
    asked = n >= 100_000
    figures = []
    for name, one in played.items():
        own = {
            **facts,
            "setting": name,
            "stats": one.stats,
            "update_seconds": one.updates,
            "share_examined": one.share,
        }
        where = f"{events.name}, n = {n:,}: {name}"
        figures.append(Figure(NAME, f"{where}, learning", 1e3 * one.seconds / m, "ms a query", facts=own))
        figures.append(Figure(NAME, f"{where}, after", 1e3 * one.after, "ms a query", facts=own))
        figures.append(Figure(NAME, f"{where}, examined", 100.0 * one.share, "%", facts=own))
        if name == "linear":
            continue
        for depth in DEPTHS:
            least = 0.95 if asked and depth == 10 and name == "lazy" else None
            found = recall(one.near, truth.near, 10) if depth == 10 else recall(one.deep, truth.deep, depth)
            figures.append(Figure(NAME, f"{where}, recall within {depth}", found, "", least, facts=own))
        if name == "lazy":
            bound = 3.8 if asked and name == "lazy" else None
            ratio = naive.seconds / one.seconds
            figures.append(
                Figure(NAME, f"{where}, over naive", ratio, "times", bound, published="3.8", facts=own)
            )
            bound = 4.7 if asked and name == "lazy" else None
            for when, ratio, least in (
                ("learning", truth.seconds / one.seconds, None),
                ("after", truth.after / one.after, bound),
            ):
                figures.append(
                    Figure(
                        NAME,
                        f"{where}, over linear, {when}",
                        ratio,
                        "times",
                        least,
                        published="4.7",
                        facts=own,
                    )
                )
    return figures


def candidates(events: Log) -> list[Figure]:
    """Candidates by the keys of all items, and by sorted permutations of their bits, as many of both."""
    found = []
    for name, (share, spent) in compared(events.X, events.Q, SEARCH, LISTS).items():
        what = f"{events.name}, n = {len(events.X):,}: candidates by {name}"
        found.append(Figure(NAME, f"{what}, nearest 10 among them", share, ""))
        found.append(Figure(NAME, f"{what}, to find them", spent, "ms a query", facts={"lists": LISTS}))
    return found


def update_cost(n: int, bits: int, steps: int = 300, d: int = 64) -> float:
    """Microseconds that a utilised constraint costs `lazy` between searches, with n items."""
    draw = np.random.default_rng([n, bits])
    index: Index = create("lazy", bits=bits, dtype="float32", sample=4_096, rule="items", share=0.1, seed=1)
    for first in range(0, n, 100_000):
        rows = draw.standard_normal((min(100_000, n - first), d), np.float32)
        index.put([str(first + row) for row in range(len(rows))], rows)
    changes = [(0.003 * draw.normal(size=(d, 1)), draw.normal(size=(1, d))) for _ in range(steps)]
    begun = time.thread_time()
    for U, V in changes:
        index.step(U, V)
    return 1e6 * (time.thread_time() - begun) / steps


def figures(quick: bool) -> list[Figure]:
    """All of it. A quick run leaves out the images as they are at 100,000 items, and takes less of the rest."""
    found: list[Figure] = []
    logs = [("mnist", 20_000, 30, None), ("emnist_bymerge", 50_000, 60, 64)]
    if not quick:
        logs = [
            ("mnist", 60_000, 40, None),
            ("emnist_bymerge", 100_000, 60, None),
            ("emnist_bymerge", 100_000, 200, 64),
        ]
    for name, n, m, d in logs:
        data = load(name)
        if data is None:
            found.append(Figure(NAME, f"{name}: not there, run make data", float("nan"), ""))
            continue
        events = log(data, n, m, 5 * m, d)
        found += interleaved(events)
        if d is not None:
            found += candidates(events)
    for n in (10_000, 100_000 if quick else 1_000_000):
        for bits in (64, 128, 256):
            cost = update_cost(n, bits)
            found.append(
                Figure(NAME, f"update, {n:,} items, {bits} bits", cost, "us a constraint", facts={"d": 64})
            )
    return found
