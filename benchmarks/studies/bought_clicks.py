"""What the gate's limits do against bought clicks that come in bursts, and that honest users do not notice them.

The users, the corpus and the models are those of `benchmarks.studies.gate`, with the gate's defaults and a list a
second. In every 25 minutes, the last five are bought: 20 accounts click what a challenger alone shows that is 6 %
worse. When a comparison ends without a promotion, a newer model of the same quality challenges after the pause.

Example: python -m benchmarks.studies.bought_clicks corpus.npz --runs 10
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.studies.gate.comparison import Answer, Series
from benchmarks.studies.gate.corpora import Corpus, Ranking, opened
from benchmarks.studies.gate.people import ACCOUNTS, Flags, Users, first
from kinstream.search.gate.core import Options
from kinstream.streams.compute.blas_threads import one_blas_thread

LISTS, PERIOD, HONEST, STEP_MS = 18_000, 1_500, 1_200, 1_000
HOMES = 1_500
OFF: Final[dict[str, Any]] = {"burst_minutes": 0.0, "per_address": 0}


def run(
    corpus: Corpus, serving: Ranking, candidate: Ranking, seed: int, addresses: int, options: Options
) -> tuple[int | None, Counter[str], Counter[str]]:
    """After how many lists one was promoted, ends by verdict, lists left out by reason; 0 `addresses`: nobody buys."""

    def answer(q: int, items: Ranking, only: Flags, draw: np.random.Generator, number: int) -> Answer:
        if addresses and number % PERIOD >= HONEST:
            account = number % ACCOUNTS
            name = f"account {account}"
            return Answer(first(only), name, name, f"farm {account % addresses}")
        user, taken = Users().clicks(corpus.answers(np.array([q]), items), only, draw, number)
        return Answer(taken, user, user, f"home {number % HOMES}")

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
    a = parser.parse_args()
    print("| clicks | runs | promoted | after lists, median | comparisons | left out |")
    print("|---|---|---|---|---|---|", flush=True)
    with one_blas_thread():
        corpus = opened("documents", a.corpus)
        (serving, better), (_, worse) = corpus.of_quality(0.10), corpus.of_quality(-0.06)
        for case, candidate, addresses, changes in (
            ("honest, 10 % better", better, 0, {}),
            ("honest, 6 % worse", worse, 0, {}),
            ("bought, no limits of addresses and bursts", worse, 4, OFF),
            ("bought, 4 addresses", worse, 4, {}),
            ("bought, 1 address", worse, 1, {}),
        ):
            options = Options(**changes)
            found = [run(corpus, serving, candidate, seed, addresses, options) for seed in range(a.runs)]
            lists = [some for some, _, _ in found if some]
            comparisons = sum(ended.total() for _, ended, _ in found)
            left_out = sum((some for _, _, some in found), Counter[str]())
            print(
                f"| {case} | {a.runs} | {len(lists)} | {int(np.median(lists)) if lists else '-'} | "
                f"{comparisons} | {dict(left_out)} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
