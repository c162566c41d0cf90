"""How many drafted lists the gate needs to promote a better model, and how rarely it promotes another one.

Simulated users over two corpora: the synthetic one of `benchmarks.studies.clicked_embeddings` ("loud"), and pairs of a
query and its one item from `--corpus` (an NPZ with `queries` and `items`, rows of length 1). Models of a wanted
quality are made by going part of the way to a map that is known to be better, or away from it, until NDCG@10 over all
queries has changed by the wanted share; each run draws its own queries, users and ids. Place r of ten is looked at with
probability r^-1/2; a relevant item is clicked with .9 then, another one with .02. Every list goes through the id, the
machine and the checks of `kinstream.search.gate.core`; the log advances by a tenth of a second a list.

Example: python -m benchmarks.studies.gate --runs 20 --null-runs 400
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.studies.clicked_embeddings import WORLDS, World
from kinstream.search.gate.core import List, Options, SpaceGate
from kinstream.search.interleaving.impression import Keys, show
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.records.gate import UNADAPTED, Verdict, Version

Rows = NDArray[np.float64]
Ranking = NDArray[np.int64]

SHOWN, DEPTH = 10, 30
MODEL: Final = Version(1, 0, 1)
LOOK: Final = np.arange(1, SHOWN + 1) ** -0.5
RELEVANT, NOISE = 0.9, 0.02
_STEP_MS: Final = 100


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """Queries with a family of rankings.

    Parameters
    ----------
    ranked : the items of each query (n, `DEPTH`), best first, at a place on the way: 0 is un-adapted.
    answers : whether items (k,) answer queries, given by number: (n, k) for (n, 1) queries.
    """

    ranked: Callable[[float], Ranking]
    answers: Callable[[Ranking, Ranking], NDArray[np.bool_]]

    def ndcg(self, ranking: Ranking) -> float:
        """NDCG@10, relative to ten relevant items, as in the other studies."""
        worth = 1.0 / np.log2(np.arange(2, SHOWN + 2))
        queries = np.arange(len(ranking))[:, None]
        return float(np.mean(self.answers(queries, ranking[:, :SHOWN]) @ worth) / worth.sum())

    def of_quality(self, change: float) -> Ranking:
        """Rankings whose NDCG@10 differs by that share from un-adapted."""
        plain = self.ndcg(self.ranked(0.0))
        low, high = (0.0, 1.0) if change > 0 else (-4.0, 0.0)
        for _ in range(14):
            middle = (low + high) / 2
            better = self.ndcg(self.ranked(middle)) / plain - 1 > change
            low, high = (low, middle) if better else (middle, high)
        found = self.ranked((low + high) / 2)
        reached = self.ndcg(found) / plain - 1
        if abs(reached - change) > 0.01:
            raise SystemExit(
                f"no model on the way changes NDCG@10 by {change:+.0%}; the nearest by {reached:+.1%}"
            )
        return found


def synthetic(seed: int) -> Corpus:
    """Topics under loud directions: the way is to leave those directions out."""
    world = World(seed, *WORLDS["loud"])

    def ranked(way: float) -> Ranking:
        def mapped(X: Rows) -> Rows:
            found: Rows = X - way * (X @ world._idle.T) @ world._idle
            return found

        return _best(mapped(world.tested), mapped(world.items))

    return Corpus(ranked, lambda queries, items: world.topics[items] == world.sought[queries])


def documents(file: Path) -> Corpus:
    """Pairs: the way is to the ridge regression of items on queries. It has seen the queries: only quality matters."""
    with np.load(file) as found:
        Q, D = np.asarray(found["queries"], np.float64), np.asarray(found["items"], np.float64)
    map_ = np.linalg.solve(Q.T @ Q + 1.0 * np.eye(Q.shape[1]), Q.T @ D)
    picked = np.random.default_rng(0).permutation(len(Q))[:1_500]

    def ranked(way: float) -> Ranking:
        queries = Q[picked] @ (np.eye(Q.shape[1]) + way * (map_ - np.eye(Q.shape[1])))
        scores = queries @ D.T
        return np.argsort(-scores, axis=1, kind="stable")[:, :DEPTH]

    return Corpus(ranked, lambda queries, items: items == picked[queries])


def _best(Q: Rows, D: Rows) -> Ranking:
    scores = 2 * Q @ D.T - np.einsum("ij,ij->i", D, D)
    found: Ranking = np.argsort(-scores, axis=1, kind="stable")[:, :DEPTH]
    return found


@dataclass(frozen=True, slots=True)
class Users:
    """Who clicks.

    Parameters
    ----------
    random : clicks do not depend on items.
    poisoned : share of the sessions by 20 accounts that click what the candidate alone would show.
    """

    random: bool = False
    poisoned: float = 0.0


def run(
    corpus: Corpus,
    serving: Ranking,
    candidate: Ranking,
    seed: int,
    sessions: int,
    users: Users,
    options: Options,
) -> tuple[str, int]:
    """The verdict on a candidate, and after how many lists; "open" where there was none."""
    draw = np.random.default_rng([seed, 1])
    keys = Keys(f"the secret of run {seed:08}")
    gate = SpaceGate("docs", keys, options)
    for session in range(sessions):
        q = int(draw.integers(len(serving)))
        rankings = [[str(item) for item in ranking[q]] for ranking in (serving, candidate)]
        now = session * _STEP_MS
        shown = show(
            keys,
            "docs",
            ((UNADAPTED, rankings[0]), (MODEL, rankings[1])),
            SHOWN,
            time_ms=now,
            nonce=session.to_bytes(6, "big"),
        )
        items = np.array([int(item) for item in shown.items])
        user = f"user {session}"
        if draw.random() < users.poisoned:
            user = f"bot {session % 20}"
            only = [item for item in shown.items if item not in rankings[0][:SHOWN]]
            clicked = only[:1]
        else:
            looked = draw.random(SHOWN) < (1 / np.arange(1, SHOWN + 1) if users.random else LOOK)
            answers = corpus.answers(np.array([q]), items)
            likely = np.full(SHOWN, 1.0) if users.random else np.where(answers, RELEVANT, NOISE)
            taken = looked & (draw.random(SHOWN) < likely)
            clicked = [item for item, click in zip(shown.items, taken, strict=True) if click]
        for made in gate.take(List(shown.list_id, tuple(clicked), user, user), now):
            if made.verdict is not Verdict.CHALLENGE:
                return made.verdict.value, session + 1
    return "open", sessions


def main() -> None:
    """Print a row for each corpus and case."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", type=Path, help="NPZ of the second corpus")
    parser.add_argument("--only", choices=("synthetic", "documents"))
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--bad-runs", type=int, default=100)
    parser.add_argument("--null-runs", type=int, default=400)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--cases", nargs="*", default=[])
    a = parser.parse_args()
    corpora: dict[str, Callable[[int], Corpus]] = {"synthetic": synthetic}
    if a.corpus:
        corpora["documents"] = lambda seed: documents(a.corpus)
    print("| corpus | case | runs | promoted | retired | held or open | lists, median | lists, most |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    cases: dict[str, tuple[float | None, int, int, Users]] = {
        "25 % better": (0.25, a.runs, 1_500, Users()),
        "10 % better": (0.10, a.runs, 6_000, Users()),
        "6 % worse": (-0.06, a.bad_runs, 6_000, Users()),
        "6 % worse, a fifth poisoned": (-0.06, a.bad_runs, 6_000, Users(poisoned=0.2)),
        "10 % better, random clicks": (0.10, a.bad_runs, 6_000, Users(random=True)),
        "equal": (None, a.null_runs, 6_000, Users()),
    }
    with one_blas_thread():
        for name, make in corpora.items():
            if a.only not in (None, name):
                continue
            corpus = make(0)
            for case, (change, runs, sessions, users) in cases.items():
                if not a.cases or case in a.cases:
                    _print(
                        name, case, corpus, change, range(a.first_seed, a.first_seed + runs), sessions, users
                    )


def _print(
    name: str, case: str, corpus: Corpus, change: float | None, seeds: range, sessions: int, users: Users
) -> None:
    serving = corpus.ranked(0.0)
    candidate = serving if change is None else corpus.of_quality(change)
    options = Options(max_sessions=sessions, per_item=0)
    found: list[Any] = []
    for seed in seeds:
        mine, other = (serving, candidate) if change is not None else _exchangeable(corpus, seed)
        found.append(run(corpus, mine, other, seed, sessions, users, options))
    verdicts = [verdict for verdict, _ in found]
    promoted = [lists for verdict, lists in found if verdict == "promote"]
    decided = promoted or [lists for verdict, lists in found if verdict == "retire"]
    print(
        f"| {name} | {case} | {len(found)} | {len(promoted)} | {verdicts.count('retire')} | "
        f"{len(found) - len(promoted) - verdicts.count('retire')} | "
        f"{int(np.median(decided)) if decided else '-'} | {max(decided, default='-')} |",
        flush=True,
    )


def _exchangeable(corpus: Corpus, seed: int) -> tuple[Ranking, Ranking]:
    """Two different rankings that are equally good: the un-adapted one, with noise drawn in the same way for both."""
    draw = np.random.default_rng([seed, 2])
    base = corpus.ranked(0.0)

    def noisy() -> Ranking:
        order = np.argsort(np.arange(DEPTH) + draw.normal(0.0, 3.0, base.shape), axis=1)
        found: Ranking = np.take_along_axis(base, order, axis=1)
        return found

    return noisy(), noisy()


if __name__ == "__main__":
    main()
