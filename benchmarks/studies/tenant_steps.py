"""How large the steps of a map that begins with a prior should be: own pairs that are right, wrong, few or pushed.

Tenants and priors are those of `benchmarks.studies.tenants`, in other divisions of the tenants' functions. Each row has
steps that are those after so many lists, at once; "rising" has those of a map without a prior. Own pairs are

- "clean": right, each of another query;
- "wrong": so, but 40 % name a random item;
- "few": of a tenth as many queries, 20 % name a random item;
- "pushed": of a fifth as many queries, 20 % name one item.

Results: `benchmarks/studies/tenants.md`. Example: python -m benchmarks.studies.tenant_steps --pairs few
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.real_embeddings.trial import ndcg
from benchmarks.studies.tenants import Numbers, Package, divided, learned, maps_of_others, opened
from kinstream.learners.adapter import learner as adapter
from kinstream.learners.models.query_map import query_map
from kinstream.streams.compute.blas_threads import one_blas_thread

PACKAGES: Final = ("numpy", "scipy", "sklearn", "networkx", "sympy", "torch")
PASSES: Final = 3
PAIRS: Final = (0, 25, 50, 100, 200)
KINDS: Final = ("clean", "wrong", "few", "pushed")
#: Constants of the adapter: lists that count as learned, and lists over which steps rise.
STEPS: Final = {"rising": {"PRIOR_QUERIES": 0.0, "RISES": 480.0}} | {
    f"{lists:,}": {"PRIOR_QUERIES": float(lists), "RISES": 1e-9} for lists in (0, 300, 900, 2_700)
}


def own_pairs(kind: str, own: Numbers, rows: Numbers, number: int, seed: int) -> tuple[Numbers, Numbers]:
    """Rows of the queries and of the items of a tenant's own pairs.

    Parameters
    ----------
    own, rows : of functions that may be asked, and all of the tenant's.
    """
    draw = np.random.default_rng([seed, number, len(own)])
    if kind in ("clean", "wrong"):
        asked = own[:number]
    else:
        asked = draw.choice(own[: max(1, number // (10 if kind == "few" else 5))], number)
    named = asked.copy()
    wrong = draw.random(len(asked)) < {"clean": 0.0, "wrong": 0.4}.get(kind, 0.2)
    named[wrong] = rows[-1] if kind == "pushed" else draw.choice(rows, int(wrong.sum()))
    return asked, named


def trial(
    packages: dict[str, Package], seed: int, kind: str, rank: int | None, folder: Path
) -> dict[str, list[list[float]]]:
    """By size of steps, for each tenant its changes in percent after `PAIRS` own pairs."""
    vars(adapter).update(STEPS["rising"])
    draw = np.random.default_rng(seed)
    for name, package in packages.items():
        rows = np.concatenate([draw.permutation(len(package.parts)) for _ in range(PASSES)])
        found: dict[str, Any] = query_map(learned(package, rows, seed=seed, rank=rank)).arrays
        np.savez(folder / f"{name}.npz", **found)
    draw = np.random.default_rng(seed + 100)
    changes: dict[str, list[list[float]]] = {name: [] for name in STEPS}
    for name, package in packages.items():
        settings = {"seed": seed, "rank": rank, "prior": maps_of_others(packages, name, folder)}
        for tenant in package.tenants():
            rows, own, items, queries, right = divided(package, tenant, draw)
            before = ndcg(queries, items, right)
            for steps, sizes in STEPS.items():
                vars(adapter).update(sizes)
                row = []
                for number in PAIRS:
                    model = learned(package, own[:0], **settings)
                    asked, named = own_pairs(kind, own, rows, number, seed)
                    if number:
                        with one_blas_thread():
                            model.learn_pairs(package.queries[asked], package.items[named])
                    row.append(100.0 * (ndcg(query_map(model)(queries), items, right) / before - 1.0))
                changes[steps].append(row)
    return changes


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--packages", nargs="+", default=PACKAGES, help="any that are installed")
    parser.add_argument("--pairs", default="clean", choices=KINDS)
    parser.add_argument("--rank", type=int, help="of all maps")
    parser.add_argument("--kept", type=Path, default=Path(".cache") / "minilm")
    a = parser.parse_args()
    packages = {name: opened(name, a.kept) for name in a.packages}
    total: dict[str, list[list[float]]] = {name: [] for name in STEPS}
    for seed in a.seeds:
        with tempfile.TemporaryDirectory() as folder:
            for steps, rows in trial(packages, seed, a.pairs, a.rank, Path(folder)).items():
                total[steps] += rows
    print("| steps | " + " | ".join(f"{number} own pairs" for number in PAIRS) + " |")
    print("|---" * (len(PAIRS) + 1) + "|")
    for steps, rows in total.items():
        table = np.array(rows)
        errors = table.std(axis=0, ddof=1) / np.sqrt(len(table))
        cells = [
            f"{mean:+.1f} ± {error:.1f} (worst {worst:+.1f})"
            for mean, error, worst in zip(table.mean(axis=0), errors, table.min(axis=0), strict=True)
        ]
        print(f"| {steps} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
