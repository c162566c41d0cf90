"""What the gate's limits do against bought clicks, and what they cost honest users.

The corpus and the models are those of `benchmarks.studies.gate`, with the gate's defaults and a list a second. Honest
users are 3,000 people at 1,500 addresses, or fewer at half as many, who ask as often; the r-th of them asks in
proportion to r^-1/2. Bought lists click what a challenger alone shows that is 6 % worse; they are a fifth of all, in
bursts (the last five of every 25 minutes) or at all times. When a comparison ends without a promotion, a newer model of
the same quality challenges after the pause.

Example: python -m benchmarks.studies.bought_clicks corpus.npz --runs 10
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.studies.gate.comparison import Answer, Series
from benchmarks.studies.gate.corpora import Corpus, Ranking, opened
from benchmarks.studies.gate.people import Flags, Users, first
from kinstream.gate.values import Options
from kinstream.streams.compute.blas_threads import one_blas_thread

LISTS, PERIOD, HONEST, STEP_MS = 18_000, 1_500, 1_200, 1_000
PEOPLE: Final = 3_000


@dataclass(frozen=True, slots=True)
class Case:
    """Who clicks.

    Parameters
    ----------
    change : of NDCG@10 of the challengers; None: equally good rankings, different for every list.
    accounts, addresses : of those who buy; 0: nobody does.
    bursts : whether bought lists come in bursts.
    people, lists : honest users, and lists of all.
    """

    change: float | None
    accounts: int = 0
    addresses: int = 0
    bursts: bool = True
    people: int = PEOPLE
    lists: int = LISTS


CASES: Final[Mapping[str, Case]] = {
    "honest, 10 % better": Case(0.10),
    "honest, 6 % worse": Case(-0.06),
    "honest, equally good": Case(None),
    "honest, 10 % better, 300 people": Case(0.10, people=300),
    "honest, 25 % better, 100 people": Case(0.25, people=100, lists=45_000),
    "honest, equally good, 100 people": Case(None, people=100, lists=45_000),
    "bursts, 20 accounts, 4 addresses": Case(-0.06, 20, 4),
    "bursts, 20 accounts, 20 addresses": Case(-0.06, 20, 20),
    "always, 20 accounts, 20 addresses": Case(-0.06, 20, 20, False),
    "always, 1,000 accounts, 20 addresses": Case(-0.06, 1_000, 20, False),
    "always, 1,000 accounts, 1,000 addresses": Case(-0.06, 1_000, 1_000, False),
}


def run(
    corpus: Corpus, serving: Ranking, candidate: Ranking, seed: int, case: Case, options: Options
) -> tuple[int | None, Counter[str], Counter[str]]:
    """After how many lists one was promoted, ends by verdict, lists left out by reason."""
    who = np.random.default_rng([seed, 3])
    shares = np.arange(1, case.people + 1) ** -0.5
    asking = np.cumsum(shares) / shares.sum()

    def answer(q: int, items: Ranking, only: Flags, draw: np.random.Generator, number: int) -> Answer:
        bought = number % PERIOD >= HONEST if case.bursts else number % 5 == 4
        if case.accounts and bought:
            account = int(who.integers(case.accounts))
            return Answer(
                first(only), f"account {account}", f"session {number}", f"farm {account % case.addresses}"
            )
        person = int(np.searchsorted(asking, who.random()))
        _, taken = Users().clicks(corpus.answers(np.array([q]), items), only, draw, number)
        return Answer(taken, f"user {person}", f"session {number}", f"home {person % (case.people // 2)}")

    noise = np.random.default_rng([seed, 2]) if case.change is None else None
    step_ms = STEP_MS * PEOPLE // case.people
    series = Series(serving, candidate, answer, seed, options, step_ms, noise)
    promoted, ended = series.played(case.lists)
    fates = series.gate.fates.items()
    left_out = {str(n): c for n, c in fates if n.startswith(("capped", "burst")) and c}
    return promoted, ended, Counter(left_out)


def main() -> None:
    """Print a row for each case."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path, help="NPZ of the documentation; made where it is not there")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--cases", nargs="+", default=list(CASES))
    parser.add_argument("--options", default="{}", help="of the gate, as JSON")
    a = parser.parse_args()
    options = Options(**json.loads(a.options))
    print("| clicks | runs | promoted | after lists, median | comparisons | left out |")
    print("|---|---|---|---|---|---|", flush=True)
    with one_blas_thread():
        corpus = opened("documents", a.corpus)
        for name in a.cases:
            case = CASES[name]
            serving, candidate = corpus.of_quality(case.change or 0.0)
            seeds = range(a.first_seed, a.first_seed + a.runs)
            found = [run(corpus, serving, candidate, seed, case, options) for seed in seeds]
            lists = [some for some, _, _ in found if some]
            comparisons = sum(ended.total() for _, ended, _ in found)
            left_out = sum((some for _, _, some in found), Counter[str]())
            print(
                f"| {name} | {a.runs} | {len(lists)} | {int(np.median(lists)) if lists else '-'} | "
                f"{comparisons} | {dict(left_out)} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
