"""What the gate's limits do against bought clicks that come in bursts, and that honest users do not notice them.

The users, the corpus and the models are those of `benchmarks.studies.gate`, with a list a second. In every 25 minutes,
the last five are bought: 20 accounts click what a challenger alone shows that is 6 % worse.

Example: python -m benchmarks.studies.bought_clicks corpus.npz --runs 10
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.studies.gate.comparison import MODEL
from benchmarks.studies.gate.corpora import SHOWN, Corpus, Ranking, opened
from benchmarks.studies.gate.people import ACCOUNTS, Users
from kinstream.search.gate.core import List, Options, SpaceGate
from kinstream.search.interleaving.impression import Keys, show
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.records.gate import UNADAPTED, Verdict

LISTS, PERIOD, HONEST = 6_000, 1_500, 1_200
HOMES = 1_500
OFF: Final[dict[str, Any]] = {"burst_minutes": 0.0, "per_address": 0}


def run(
    corpus: Corpus, serving: Ranking, candidate: Ranking, seed: int, addresses: int, options: Options
) -> tuple[str, int, Counter[str]]:
    """The verdict, after how many lists, and how many were left out by reason; without `addresses` nobody buys."""
    draw, keys = np.random.default_rng([seed, 1]), Keys(f"the secret of run {seed:08}")
    gate = SpaceGate("docs", keys, options)
    verdict, number = "open", 0
    while verdict == "open" and number < LISTS:
        q, now = int(draw.integers(len(serving))), number * 1_000
        rankings = [[str(item) for item in ranking[q]] for ranking in (serving, candidate)]
        pair = (UNADAPTED, rankings[0]), (MODEL, rankings[1])
        shown = show(keys, "docs", pair, SHOWN, time_ms=now, nonce=number.to_bytes(6, "big"))
        user, address = f"user {number}", f"home {number % HOMES}"
        if addresses and number % PERIOD >= HONEST:
            account = number % ACCOUNTS
            user, address = f"account {account}", f"farm {account % addresses}"
            clicked = [item for item in shown.items if item not in rankings[0][:SHOWN]][:1]
        else:
            items = np.array([int(item) for item in shown.items])
            answers = corpus.answers(np.array([q]), items)
            _, taken = Users().clicks(answers, np.zeros(SHOWN, np.bool_), draw, number)
            clicked = [item for item, click in zip(shown.items, taken, strict=True) if click]
        number += 1
        for made in gate.take(List(shown.list_id, tuple(clicked), user, user, address), now):
            if made.verdict is not Verdict.CHALLENGE:
                verdict = made.verdict.value
    left_out = {str(n): c for n, c in gate.fates.items() if n.startswith(("capped", "burst")) and c}
    return verdict, number, Counter(left_out)


def main() -> None:
    """Print a row for each case."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path, help="NPZ of the documentation; made where it is not there")
    parser.add_argument("--runs", type=int, default=10)
    a = parser.parse_args()
    print("| clicks | runs | promoted | retired | lists | left out |")
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
            options = Options(max_sessions=LISTS, **changes)
            found = [run(corpus, serving, candidate, seed, addresses, options) for seed in range(a.runs)]
            verdicts = [verdict for verdict, _, _ in found]
            left_out = sum((some for _, _, some in found), Counter[str]())
            print(
                f"| {case} | {a.runs} | {verdicts.count('promote')} | {verdicts.count('retire')} | "
                f"{sum(lists for _, lists, _ in found)} | {dict(left_out)} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
