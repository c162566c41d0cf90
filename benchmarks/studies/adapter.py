"""What the adapter gains on searches of the Python documentation, and what it costs.

The corpus is `kinstream.producers.simulated.documentation`. NDCG@10 is that of 1,500 queries over all items, and of as
many of the others, which are learned from. "labels": every pair of a query and its item once. Clicks: 10,656 lists of
20 items, simulated by `kinstream.producers.simulated.searchers`, through the builder `clicks` with the rule `click-
list`. The batch adapter has the labels, in 30 epochs, and is left out without the extra `torch`.

Examples:
  python -m benchmarks.studies.adapter --seeds 5
  python -m benchmarks.studies.adapter --cost
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np

from kinstream.evaluation.queries.compare import BATCH, NOTHING, Comparison, SearchTrial
from kinstream.evaluation.queries.signals import Signals
from kinstream.evaluation.queries.sources import Corpus
from kinstream.learners.adapter.learner import Adapter
from kinstream.learners.models.export import encode, export
from kinstream.producers.simulated.documentation import corpus
from kinstream.producers.simulated.searchers import Searchers
from kinstream.streams.checkpoints.state_bytes import to_bytes
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.records.values import ModelVersion

TESTED, LISTS = 1_500, 10_656
#: Contenders: kind, settings.
ONLINE: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "adapter": ("adapter", {}),
    "rank = 64": ("adapter", {"rank": 64}),
}
PEOPLE: Final[dict[str, Searchers | None]] = {
    "labels": None,
    "clicks": Searchers(),
    "clicks, a fifth poisoned": Searchers(poisoned=0.2),
    "clicks, cascade": Searchers(model="cascade"),
    "clicks, popular items": Searchers(popular=0.3),
}


def main() -> None:
    """Print a table of gains, or of costs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--corpus", type=Path, help="NPZ with queries and items; made where it is not there")
    parser.add_argument("--contenders", nargs="+", default=[*ONLINE, BATCH], choices=[*ONLINE, BATCH])
    parser.add_argument("--cost", action="store_true")
    a = parser.parse_args()
    if a.cost:
        costs()
        return
    with one_blas_thread():
        gains(a.corpus, range(a.first_seed, a.first_seed + a.seeds), a.contenders)


def gains(path: Path | None, seeds: range, chosen: list[str]) -> None:
    """Mean change of NDCG@10 against no adaptation, with its standard error: of queries never asked / asked."""
    if path is not None and path.exists():
        with np.load(path) as file:
            queries, items = file["queries"], file["items"]
    else:
        made = corpus()
        queries, items = made.queries, made.items
        if path is not None:
            np.savez(path, queries=queries, items=items)
    # Without texts: people see what is most similar.
    searched = Corpus(queries, items)
    signals = Signals(searched)
    print(f"{len(items)} items of {items.shape[1]} features, seeds {seeds.start} to {seeds.stop - 1}\n")
    batch = BATCH in chosen and find_spec("torch") is not None
    online = {name: of for name, of in ONLINE.items() if name in chosen}
    names = [*online, *([BATCH] if batch else [])]
    print(f"| learned from | {NOTHING} | {' | '.join(names)} |\n|{'---|' * (len(names) + 2)}", flush=True)
    for title, people in PEOPLE.items():
        rows = []
        for seed in seeds:
            contenders = {
                name: (kind, settings | {"seed": seed}) for name, (kind, settings) in online.items()
            }
            request = SearchTrial(contenders, people, LISTS, TESTED, batch and people is None)
            found = Comparison(searched, signals, request, seed).rows()
            measured = {name: (one.never.ndcg, one.asked.ndcg) for name, one in found}
            rows.append([measured.get(name, (np.nan, np.nan)) for name in (NOTHING, *names)])
        table = np.array(rows)
        changes = 100.0 * (table[:, 1:] / table[:, :1] - 1.0)
        error = changes.std(axis=0, ddof=1 if len(rows) > 1 else 0) / np.sqrt(len(rows))
        cells = [
            "" if np.isnan(mean[0]) else f"{mean[0]:+.1f} ± {e[0]:.1f} / {mean[1]:+.1f} ± {e[1]:.1f} %"
            for mean, e in zip(changes.mean(axis=0), error, strict=True)
        ]
        print(f"| {title} | {table[:, 0, 0].mean():.3f} | {' | '.join(cells)} |", flush=True)


def costs() -> None:
    """Labelled pairs a second (the best of five times 2,048), sizes, and microseconds of a mapped query; one thread."""
    print("| d | rank | pairs/s | model, MB | state, MB | query map, us |\n|---|---|---|---|---|---|")
    for d, rank in ((384, 0), (384, 64), (1_536, 128), (3_072, 128)):
        draw = np.random.default_rng(d)
        learner = Adapter(rank)
        batches = [draw.normal(size=(2, 256, d)).astype(np.float32) for _ in range(44)]
        for queries, items in batches[:4]:
            learner.learn_pairs(queries, items)
        rate = max(_pairs_a_second(learner, batches[first : first + 8]) for first in range(4, 44, 8))
        version = ModelVersion("s", "a", learner.algorithm, 1, 0, 1, "t", 0, 1, "", "0" * 64, 0)
        model = len(encode(export(learner, version, {}), "safetensors")) / 1e6
        state = len(to_bytes(learner.state())) / 1e6
        factors, q = learner.factors, batches[0][0][0]
        with one_blas_thread():
            if rank:
                U, Vt = factors[0], np.ascontiguousarray(factors[1].T)
                micro = 1e6 * _fastest(lambda q=q, U=U, Vt=Vt: q + (q @ U) @ Vt)  # type: ignore[misc]
            else:
                micro = 1e6 * _fastest(lambda q=q, W=factors[0]: q @ W)  # type: ignore[misc]
        print(f"| {d:,} | {rank} | {rate:,.0f} | {model:.2f} | {state:.2f} | {micro:.1f} |", flush=True)


def _pairs_a_second(learner: Adapter, batches: list[Any]) -> float:
    """Pairs learned in a second of processor time."""
    begun = time.process_time()
    for queries, items in batches:
        learner.learn_pairs(queries, items)
    return sum(len(queries) for queries, _ in batches) / (time.process_time() - begun)


def _fastest(call: Callable[[], Any]) -> float:
    """Seconds of a call, the least of many means of 100."""
    found = []
    for _ in range(50):
        begun = time.perf_counter()
        for _ in range(100):
            call()
        found.append((time.perf_counter() - begun) / 100)
    return min(found)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
