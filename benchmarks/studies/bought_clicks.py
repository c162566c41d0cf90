"""What the gate's limits do against bought clicks, and what they cost honest users.

The corpus and the models are those of `benchmarks.studies.gate`, with the gate's defaults and a list a second. Honest
users are 3,000 people at 1,500 addresses; the r-th of them asks in proportion to r^-1/2. Bought lists click what a
challenger alone shows that is 6 % worse; they are a fifth of all, in bursts (the last five of every 25 minutes) or at
all times. When a comparison ends without a promotion, a newer model of the same quality challenges after the pause.

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
PEOPLE, HOMES = 3_000, 1_500
#: Share of all lists by the people up to each.
_ASKING: Final = np.cumsum(np.arange(1, PEOPLE + 1) ** -0.5) / np.sum(np.arange(1, PEOPLE + 1) ** -0.5)


@dataclass(frozen=True, slots=True)
class Case:
    """Who clicks.

    Parameters
    ----------
    change : of NDCG@10 of the challengers.
    accounts, addresses : of those who buy; 0: nobody does.
    bursts : whether bought lists come in bursts.
    """

    change: float
    accounts: int = 0
    addresses: int = 0
    bursts: bool = True


CASES: Final[Mapping[str, Case]] = {
    "honest, 10 % better": Case(0.10),
    "honest, 6 % worse": Case(-0.06),
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

    def answer(q: int, items: Ranking, only: Flags, draw: np.random.Generator, number: int) -> Answer:
        bought = number % PERIOD >= HONEST if case.bursts else number % 5 == 4
        if case.accounts and bought:
            account = int(who.integers(case.accounts))
            return Answer(
                first(only), f"account {account}", f"session {number}", f"farm {account % case.addresses}"
            )
        person = int(np.searchsorted(_ASKING, who.random()))
        _, taken = Users().clicks(corpus.answers(np.array([q]), items), only, draw, number)
        return Answer(taken, f"user {person}", f"session {number}", f"home {person % HOMES}")

    series = Series(serving, candidate, answer, seed, options, STEP_MS)
    promoted, ended = series.played(LISTS)
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
            serving, candidate = corpus.of_quality(case.change)
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
