"""Whether `adapter` by its defaults harms queries that nobody has asked, and what it gains on those that people ask.

Corpora, people and measures are those of `benchmarks.real_embeddings`; "documentation" is scientific with the product's
own embedder (LSA). Each split draws the queries that are never asked, each seed the people and the learner. A line of
JSON is written for each run, and runs that are there are not made again. The tables show changes of NDCG@10 against no
adaptation in percent: the mean over runs and the worst run of queries never asked, then the mean of those asked. What
was found: `benchmarks/studies/adapter_defaults.md`.

Examples:
  python -m benchmarks.studies.adapter_defaults results.jsonl --corpora mathematics services
  python -m benchmarks.studies.adapter_defaults results.jsonl --tables
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from benchmarks.real_embeddings.corpora import Corpus, opened
from benchmarks.real_embeddings.trial import PEOPLE, learned, trial
from kinstream.learners.registry import create
from kinstream.producers.simulated.documentation import corpus
from kinstream.producers.simulated.searchers import Searchers
from kinstream.streams.compute.blas_threads import one_blas_thread

SIZES: Final = (250, 500, 1_000, 2_000, 4_000, 8_000, 12_000, 20_000)
#: Settings by name; the third are the defaults of adapter/1.
CONTENDERS: Final[dict[str, dict[str, Any]]] = {
    "adapter": {},
    "rank = 64": {"rank": 64},
    "adapter/1": {"rank": 64, "step": 0.25},
    "step = 0.8": {"step": 0.8},
    "step = 0.9": {"step": 0.9},
    "step = 0.8, memory = 1024": {"step": 0.8, "memory": 1_024},
}
#: Those that are run where none is named.
USUAL: Final = ("adapter", "rank = 64", "adapter/1")


class People(NamedTuple):
    """Who searches, and how many queries they ask; None: half of all."""

    who: Searchers
    asked: int | None = None


CONDITIONS: Final[dict[str, People]] = {
    "2 % wrong clicks": People(PEOPLE),
    "5 % wrong clicks": People(replace(PEOPLE, noise=0.05)),
    "500 queries": People(PEOPLE, 500),
    "200 queries": People(PEOPLE, 200),
    "a fifth poisoned": People(replace(PEOPLE, poisoned=0.2)),
}


def of_name(name: str) -> Corpus:
    """A corpus of MiniLM, or "documentation" of LSA."""
    if name != "documentation":
        return opened(name)
    made = corpus()
    return Corpus(name, made.queries, made.items)


def run(found: Corpus, condition: str, split: int, seed: int, lists: int, settings: dict[str, Any]) -> Any:
    """Changes in percent by the number of lists: never asked, asked."""
    people = CONDITIONS[condition]
    one = trial(found, split, seed, lists, people.who, asked=people.asked)
    before = one.quality()
    with one_blas_thread():
        after = learned(create("adapter", **{"seed": seed, **settings}), one, SIZES)
    return {str(size): list(quality.change(before)) for size, quality in after.items()}


def main() -> None:
    """Make the runs that are missing, and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, help="JSON lines, kept")
    parser.add_argument("--corpora", nargs="+", default=["mathematics", "services"])
    parser.add_argument("--conditions", nargs="+", default=[*CONDITIONS], choices=[*CONDITIONS])
    parser.add_argument("--contenders", nargs="+", default=USUAL, choices=[*CONTENDERS])
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=100, help="of splits and of people")
    parser.add_argument("--lists", type=int, default=SIZES[-1])
    parser.add_argument("--tables", action="store_true", help="print them without making runs")
    a = parser.parse_args()
    if not a.tables:
        numbers = [
            (a.first_seed + split, a.first_seed + seed)
            for seed in range(a.seeds)
            for split in range(a.splits)
        ]
        made = {_key(row) for row in _rows(a.results)}
        for name in a.corpora:
            found = of_name(name)
            for split, seed in numbers:
                for condition in a.conditions:
                    for contender in a.contenders:
                        row = {
                            "corpus": name,
                            "condition": condition,
                            "contender": contender,
                            "split": split,
                            "seed": seed,
                        }
                        if _key(row) in made:
                            continue
                        row["change"] = run(found, condition, split, seed, a.lists, CONTENDERS[contender])
                        with a.results.open("a") as file:
                            file.write(json.dumps(row) + "\n")
    print(tables([*_rows(a.results)]))


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        yield from map(json.loads, path.read_text().splitlines())


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("corpus", "condition", "contender", "split", "seed"))


def tables(rows: list[dict[str, Any]]) -> str:
    """A table for each corpus."""
    lines = []
    for name in dict.fromkeys(row["corpus"] for row in rows):
        lines += [f"\n{name}: never asked, mean (worst run); asked, mean\n"]
        lines += ["| clicks | settings | runs | " + " | ".join(f"{size:,}" for size in SIZES) + " |"]
        lines += ["|---" * (len(SIZES) + 3) + "|"]
        for condition in CONDITIONS:
            for contender in CONTENDERS:
                some = [
                    row["change"]
                    for row in rows
                    if (row["corpus"], row["condition"], row["contender"]) == (name, condition, contender)
                ]
                if some:
                    cells = " | ".join(_cell([one[str(n)] for one in some if str(n) in one]) for n in SIZES)
                    lines.append(f"| {condition} | `{contender}` | {len(some)} | {cells} |")
    return "\n".join(lines)


def _cell(changes: list[list[float]]) -> str:
    if not changes:
        return ""
    never, asked = np.array(changes).T
    return f"{never.mean():+.1f} ({never.min():+.1f}); {asked.mean():+.1f}"


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
