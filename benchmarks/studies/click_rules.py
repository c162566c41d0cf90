"""What learners make of preferences within lists that were ranked by the metric which they are to improve.

Rows of a corpus of embeddings (`queries`, `items` of an .npz file; row i of the items answers row i of the queries), or
of a labelled set, where items of the query's class are relevant. Half of the queries are never asked. People ask the
others, popular ones more often (rank^-.5), and see the twenty nearest items; place r is looked at with r^-1/2; a
relevant item is then clicked with .9, another one with .02 or `--noise`. With "fair-pairs" neighbours are swapped with
probability 1/2. NDCG@10 is that of the queries that are never asked, and of those that were, over all items.

Example: python -m benchmarks.studies.click_rules minilm_docs.npz --lists 3000 --seeds 2
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from kinstream.learners.distances import between
from kinstream.learners.registry import create, offers
from kinstream.processors.base.builder import Origin
from kinstream.processors.clicks.clicks import Clicks
from kinstream.producers.simulated.searchers import Searches, catalogue, click_blocks
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.records.values import ClickBlock, ConstraintBlock, ItemBlock

Rows = NDArray[np.float32]
Numbers = NDArray[np.int64]

SHOWN: Final = 20
#: What the builder makes of lists: name to its settings.
RULES: Final[dict[str, dict[str, Any]]] = {
    "click-skip-above": {"rules": ("click-skip-above",)},
    "the same, thinning": {"rules": ("click-skip-above",), "bias": "thinning"},
    "last-click-skip-above": {"rules": ("last-click-skip-above",)},
    "click-skip-previous": {"rules": ("click-skip-previous",)},
    "click-no-click-next": {"rules": ("click-no-click-next",)},
    "click-earlier-click": {"rules": ("click-earlier-click",)},
    "both neighbours": {"rules": ("click-skip-previous", "click-no-click-next")},
    "fair-pairs": {"rules": ("click-skip-previous",), "bias": "fair-pairs"},
    "click-list": {"rules": ("click-list",)},
}


@dataclass(frozen=True, slots=True)
class Corpus:
    """Queries (q, d), items (n, d), and the class of each, by which items are relevant."""

    queries: Rows
    items: Rows
    sought: Numbers
    classes: Numbers


def opened(source: str, split: int) -> Corpus:
    """A corpus; rows of a labelled set are cut into halves of items and queries."""
    if source == "digits":
        X, y = load_digits(return_X_y=True)
    else:
        with np.load(Path(source)) as found:
            if "queries" in found:
                queries, items = (
                    a.astype(np.float32) / np.linalg.norm(a, axis=1, keepdims=True)
                    for a in (found["queries"], found["items"])
                )
                rows = np.arange(len(queries))
                return Corpus(queries, items, rows, rows)
            X, y = found["X"], found["y"]
    order = np.random.default_rng([split, 3]).permutation(len(y))
    half = len(y) // 2
    X, y = X.astype(np.float32)[order], y.astype(np.int64)[order]
    return Corpus(X[half:], X[:half], y[half:], y[:half])


def scores(queries: Rows, items: Rows) -> Rows:
    """Minus squared Euclidean distances."""
    return np.asarray(-between(queries.astype(np.float64), items.astype(np.float64)))


def ndcg(found: Rows, corpus: Corpus, asked: Numbers) -> float:
    """NDCG@10 of queries (k,) by scores (k, n)."""
    best = np.argsort(-found, axis=1, kind="stable")[:, :10]
    gains = corpus.classes[best] == corpus.sought[asked][:, None]
    there = (corpus.classes[None, :] == corpus.sought[asked][:, None]).sum(axis=1)
    worth = 1.0 / np.log2(np.arange(2.0, 12.0))
    ideal = np.cumsum(worth)[np.minimum(there, 10) - 1]
    return float(np.mean(gains @ worth / ideal))


def lists(corpus: Corpus, asked: Numbers, number: int, noise: float, seed: int, fair: bool) -> Searches:
    """Lists that people see, and their clicks."""
    draw = np.random.default_rng([seed, 12])
    popular = np.arange(1.0, len(asked) + 1.0) ** -0.5
    pick = draw.choice(len(asked), number, p=popular / popular.sum())
    best = np.argsort(-scores(corpus.queries[asked], corpus.items), axis=1, kind="stable")[:, :SHOWN]
    shown = best[pick]
    if fair:
        swapped = draw.random((number, SHOWN // 2)) < 0.5
        pairs = shown.reshape(number, -1, 2)
        shown = np.where(swapped[:, :, None], pairs[:, :, ::-1], pairs).reshape(number, -1)
    right = corpus.classes[shown] == corpus.sought[asked[pick]][:, None]
    clicked = draw.random(shown.shape) < np.where(right, 0.9, noise)
    clicked &= draw.random(shown.shape) < np.arange(1.0, SHOWN + 1.0) ** -0.5
    return Searches(asked[pick], shown, clicked, np.full(number, -1))


def blocks(corpus: Corpus, found: Searches, settings: dict[str, Any]) -> Iterator[ConstraintBlock]:
    """What the builder makes of them."""
    builder = Clicks(**settings)
    events: list[ItemBlock | ClickBlock] = [
        *catalogue("s", corpus.items),
        *click_blocks("s", found, corpus.queries, 50),
    ]
    for offset, event in enumerate(events):
        newest = event.time_ms if isinstance(event, ItemBlock) else int(event.click_ms.max(initial=0))
        yield from builder.process(event, Origin(offset=offset, append_ms=newest)).blocks


def measured(kind: str, made: list[ConstraintBlock], corpus: Corpus, parts: Sequence[Numbers]) -> list[float]:
    """NDCG@10 of parts of the queries under a learner of that kind at its defaults."""
    learner: Any = create(kind)
    for block in made:
        if block.kind in learner.accepts:
            learner.learn(block)
    gained = []
    for rows in parts:
        Q, X = corpus.queries[rows], corpus.items
        if offers(kind, "W"):
            found = np.asarray(learner.scale(Q) @ learner.W) @ np.asarray(learner.scale(X)).T
        else:
            found = scores(np.asarray(learner.transform(Q)), np.asarray(learner.transform(X)))
        gained.append(ndcg(found, corpus, rows))
    return gained


def unlearned(corpus: Corpus, never: Numbers) -> dict[str, float]:
    """NDCG@10 of the metrics that need no learning."""
    Q, X = corpus.queries[never], corpus.items
    mean, deviation, low, span = X.mean(0), X.std(0), X.min(0), np.ptp(X, axis=0)
    deviation, span = np.where(deviation > 0, deviation, 1), np.where(span > 0, span, 1)

    def unit(a: Rows) -> Rows:
        return np.asarray(a / np.maximum(np.linalg.norm(a, axis=1, keepdims=True), 1e-12))

    views = {
        "euclidean": (Q, X),
        "cosine": (unit(Q), unit(X)),
        "zscore": ((Q - mean) / deviation, (X - mean) / deviation),
        "minmax": ((Q - low) / span, (X - low) / span),
    }
    return {name: ndcg(scores(*pair), corpus, never) for name, pair in views.items()}


def main() -> None:
    """Print a row for each rule, learner and seed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sources", nargs="+", help="an .npz file, or digits")
    parser.add_argument("--lists", type=int, default=3_000)
    parser.add_argument("--noise", type=float, default=0.02)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--learners", nargs="+", default=["mixture", "oasis", "opml", "adapter"])
    parser.add_argument("--rules", nargs="+", default=list(RULES), choices=list(RULES))
    a = parser.parse_args()
    print(
        "| data | rule | learner | seed | constraints | shown ranking | best un-learned | learned | change | "
        "change of queries that were asked |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for source in a.sources:
        for seed in range(a.first_seed, a.first_seed + a.seeds):
            corpus = opened(source, seed)
            order = np.random.default_rng([seed, 11]).permutation(len(corpus.queries))
            asked, never = np.split(order, [len(order) // 2])
            plain = unlearned(corpus, never)
            best = max(plain.values())
            for rule in a.rules:
                found = lists(corpus, asked, a.lists, a.noise, seed, RULES[rule].get("bias") == "fair-pairs")
                made = list(blocks(corpus, found, RULES[rule]))
                again = np.unique(found.query)
                best_again = max(unlearned(corpus, again).values())
                for kind in a.learners:
                    with one_blas_thread():
                        learned, of_again = measured(kind, made, corpus, (never, again))
                    change, other = 100.0 * (learned / best - 1.0), 100.0 * (of_again / best_again - 1.0)
                    total = sum(map(len, made))
                    cells = (
                        f"{total} | {plain['euclidean']:.3f} | {best:.3f} | {learned:.3f} | {change:+.1f} %"
                    )
                    cells += f" | {other:+.1f} %"
                    print(f"| {Path(source).stem} | {rule} | {kind} | {seed} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
