"""What a new tenant gains by beginning with the mean of the maps that others have learned (`prior` of `adapter`).

A tenant is a part of a package with 120 functions or more, such as `scipy.stats`, and a catalogue of its own. Half of
its functions are never asked; up to 50 of the others are its own pairs of a docstring's first paragraph and the rest.
The prior is the mean of the maps that `adapter` by default learned of each other package, from all of its functions
`--passes` times. Embeddings are those of all-MiniLM-L6-v2: of `minilm_docs` in `KINSTREAM_DATA`, and of at most 800
functions of other packages. Figures are changes of NDCG@10 against no adaptation, in percent, over tenants and seeds.

The row "prior, gated" has what serves once the gate has judged each of these models: its defaults but for
`min_learned`, since it sees a model that learns no more, and at most 6,000 drafted lists of queries that were never
learned, by the users of `benchmarks.studies.gate`. Results: `benchmarks/studies/tenants.md`.

Example: python -m benchmarks.studies.tenants --seeds 1 2 3
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import arrays
from benchmarks.real_embeddings.corpora import ITEM_TOKENS, QUERY_TOKENS, functions_in
from benchmarks.real_embeddings.trial import ndcg
from benchmarks.studies.gate.comparison import STEP_MS, Series, answers
from benchmarks.studies.gate.corpora import DEPTH, Ranking, ranked
from kinstream.gate.values import Options
from kinstream.learners.adapter.learner import Adapter
from kinstream.learners.models.query_map import query_map
from kinstream.producers.simulated.minilm import Encoder
from kinstream.streams.compute.blas_threads import one_blas_thread

Vectors = NDArray[np.float32]
Numbers = NDArray[np.int64]
Rows = NDArray[np.floating[Any]]

PACKAGES: Final = ("numpy", "scipy", "sklearn", "networkx")
MOST: Final = 800
#: Functions of a tenant at least, its own pairs, and of them those that begin.
LEAST: Final = 120
PAIRS: Final = (0, 25, 50)
#: Drafted lists until a model counts as not promoted, those of pauses included.
DRAFTED: Final = 6_000
CONTENDERS: Final = ("alone", "prior", "prior, gated")


@dataclass(frozen=True, slots=True, eq=False)
class Package:
    """Row i of `queries` (n, d) is answered by row i of `items`; `parts` (n,) are the tenants' names."""

    queries: Vectors
    items: Vectors
    parts: NDArray[np.str_]

    def tenants(self) -> list[str]:
        """Names of those with functions enough, the largest first."""
        return [name for name, number in Counter(self.parts.tolist()).most_common() if number >= LEAST]


def opened(name: str, kept: Path) -> Package:
    """A package's functions, embedded once."""
    given = arrays("minilm_docs")
    if given is not None:
        rows = [row for row, one in enumerate(given["names"].tolist()) if one.startswith(f"{name}.")]
        if rows:
            return _package(given["queries"][rows], given["items"][rows], given["names"][rows].tolist())
    path = kept / f"tenants-{name}.npz"
    if not path.exists():
        every = functions_in(name)
        some = [every[row] for row in sorted(np.random.default_rng(0).permutation(len(every))[:MOST])]
        encode = Encoder()
        found: dict[str, Any] = {
            "queries": encode([one.query for one in some], QUERY_TOKENS),
            "items": encode([one.item for one in some], ITEM_TOKENS),
            "names": np.array([one.name for one in some]),
        }
        kept.mkdir(parents=True, exist_ok=True)
        np.savez(path, **found)
    with np.load(path, allow_pickle=False) as file:
        return _package(file["queries"], file["items"], file["names"].tolist())


def _package(queries: NDArray[Any], items: NDArray[Any], names: list[str]) -> Package:
    rows = [one.astype(np.float32) for one in (queries, items)]
    rows = [one / np.linalg.norm(one, axis=1, keepdims=True) for one in rows]
    return Package(rows[0], rows[1], np.array([".".join(name.split(".")[:2]) for name in names]))


def learned(package: Package, rows: Numbers, **settings: Any) -> Adapter:
    """An adapter after one pass over pairs."""
    model = Adapter(**settings)
    with one_blas_thread():
        model.expect(package.queries.shape[1])
        if len(rows):
            model.learn_pairs(package.queries[rows], package.items[rows])
    return model


def promoted(serving: Ranking, candidate: Ranking, right: Numbers, seed: int) -> bool:
    """Whether the gate lets a candidate serve, of rankings (q, `DEPTH`) of queries that `right` (q,) answers."""
    series = Series(serving, candidate, answers(right), seed, Options(min_learned=0), STEP_MS)
    return series.played(DRAFTED)[0] is not None


def maps_of_others(packages: dict[str, Package], name: str, folder: Path) -> str:
    """A folder with the maps of all packages but one, of those in `folder`, as the setting `prior` names them."""
    others = folder / f"without-{name}"
    others.mkdir()
    for other in packages.keys() - {name}:
        (others / f"{other}.npz").write_bytes((folder / f"{other}.npz").read_bytes())
    return str(others / "*.npz")


class Division(NamedTuple):
    """The functions of a tenant in two halves.

    Parameters
    ----------
    rows, own : of all functions, and of those that may be asked.
    items, queries : of all functions, and of those that nobody asks.
    right : of these queries the rows in `items`.
    """

    rows: Numbers
    own: Numbers
    items: Rows
    queries: Rows
    right: Numbers


def divided(package: Package, tenant: str, draw: np.random.Generator) -> Division:
    """A division that is drawn."""
    rows = draw.permutation(np.flatnonzero(package.parts == tenant))
    own, never = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    every = np.sort(rows)
    return Division(rows, own, package.items[every], package.queries[never], np.searchsorted(every, never))


def trial(packages: dict[str, Package], seed: int, passes: int, folder: Path) -> dict[str, list[list[float]]]:
    """By contender, for each tenant its changes in percent after `PAIRS` own pairs."""
    draw = np.random.default_rng(seed)
    for name, package in packages.items():
        rows = np.concatenate([draw.permutation(len(package.parts)) for _ in range(passes)])
        sister = learned(package, rows, seed=seed)
        np.savez(folder / f"{name}.npz", W=query_map(sister).arrays["W"])
    found: dict[str, list[list[float]]] = {contender: [] for contender in CONTENDERS}
    for name, package in packages.items():
        others = maps_of_others(packages, name, folder)
        for tenant in package.tenants():
            _, own, items, queries, right = divided(package, tenant, draw)
            before, first = ndcg(queries, items, right), ranked(queries, items, DEPTH)
            for contender, prior in (("alone", None), ("prior", others)):
                models = [learned(package, own[:pairs], seed=seed, prior=prior) for pairs in PAIRS]
                mapped = [query_map(model)(queries) for model in models]
                found[contender].append([100.0 * (ndcg(one, items, right) / before - 1.0) for one in mapped])
            serves = [promoted(first, ranked(one, items, DEPTH), right, seed) for one in mapped]
            found["prior, gated"].append(
                [change if new else 0.0 for new, change in zip(serves, found["prior"][-1], strict=True)]
            )
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--packages", nargs="+", default=PACKAGES, help="any that are installed")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--kept", type=Path, default=Path(".cache") / "minilm")
    a = parser.parse_args()
    packages = {name: opened(name, a.kept) for name in a.packages}
    print(", ".join(tenant for package in packages.values() for tenant in package.tenants()))
    total: dict[str, list[list[float]]] = {contender: [] for contender in CONTENDERS}
    for seed in a.seeds:
        with tempfile.TemporaryDirectory() as folder:
            for contender, rows in trial(packages, seed, a.passes, Path(folder)).items():
                total[contender] += rows
    print("| begins with | " + " | ".join(f"{pairs} own pairs" for pairs in PAIRS) + " |")
    print("|---" * (len(PAIRS) + 1) + "|")
    for contender, rows in total.items():
        table = np.array(rows)
        means, errors = table.mean(axis=0), table.std(axis=0, ddof=1) / np.sqrt(len(table))
        cells = [
            f"{mean:+.1f} ± {error:.1f} (worst {worst:+.1f}; {below} of {len(table)} below -1)"
            for mean, error, worst, below in zip(
                means, errors, table.min(axis=0), (table < -1.0).sum(axis=0), strict=True
            )
        ]
        print(f"| {contender} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
