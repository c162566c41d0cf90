"""How fast the compiled kernels of OPML are, against the same learner as a plain numpy loop.

Every constraint is active: labels are drawn at random and the vectors have the length at which OPML works on
z-scored data, so no step is clipped and the hinge stays open. Run with `python -m benchmarks.kernels`; on a
machine that does other work too, look at the ratios only.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks.blocks import constraint_block
from benchmarks.figures import Figure
from kinstream.learners.one_modality.opml import OPML
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.records.values import DEFAULT_MODALITY, ConstraintBlock

DIMENSIONS = (21, 64, 100, 130, 310, 784)
GAMMA = 1e-3
#: How many times faster than numpy the better kernel must be.
REQUIRED = {21: 30.0, 64: 12.0, 310: 10.0, 784: 25.0}


def numpy_loop(
    L: NDArray[Any], X: NDArray[Any], index: NDArray[np.int32], gamma: float = GAMMA
) -> tuple[NDArray[Any], int]:
    """OPML as one writes it from the paper: Python over triplets, numpy within one, safe step included."""
    active = 0
    for anchor, positive, negative in index:
        a, b = X[anchor] - X[positive], X[anchor] - X[negative]
        p, q = L @ a, L @ b
        if 1.0 + p @ p - q @ q <= 0.0:
            continue
        aa, bb, ab = float(a @ a), float(b @ b), float(a @ b)
        low = 0.5 * (aa - bb - np.sqrt((aa - bb) ** 2 + 4.0 * (aa * bb - ab * ab)))
        step = gamma if gamma * -low <= 0.9 else 0.9 / -low
        det = 1.0 + step * (aa - bb) + step * step * (ab * ab - aa * bb)
        ca = (-step / det) * ((1.0 - step * bb) * a + step * ab * b)
        cb = (step / det) * ((1.0 + step * aa) * b - step * ab * a)
        L = L + np.outer(p, ca) + np.outer(q, cb)
        active += 1
    return L, active


def stream(d: int, m: int, dtype: str) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """Table (m + 2, d) and index (m, 3) of m triplets as one-pass construction chains them, all of them
    active.

    Vectors are short (squared length 0.2), so the margin of 1 is never reached however often they are
    learned.
    """
    draw = np.random.default_rng(d)
    X = (draw.normal(size=(m + 2, d)) * np.sqrt(0.2 / d)).astype(np.float32)
    first = np.arange(m, dtype=np.int32)
    return X.astype(dtype), np.column_stack([first + 2, first + 1, first]).astype(np.int32)


def as_block(X: NDArray[Any], index: NDArray[np.int32]) -> ConstraintBlock:
    """The triplets as they come from the stream: float32 vectors, each of them once."""
    return constraint_block({DEFAULT_MODALITY: X}, index)


def seconds_per_constraint(
    d: int, dtype: str, way: str, m: int, repeats: int
) -> tuple[float, float, NDArray[Any]]:
    """Best time of one constraint over the repeats, the share of active ones, and the learned map."""
    X, index = stream(d, m, dtype)
    best, active, L = np.inf, 0, np.eye(d, dtype=dtype)
    for _ in range(repeats):
        learner = OPML(GAMMA, unit="published", dtype=dtype, kernel=way if way != "numpy" else "auto")
        identity = np.eye(d, dtype=dtype)
        block = as_block(X, index)
        begun = time.perf_counter()
        if way == "numpy":
            L, active = numpy_loop(identity, X, index)
        else:
            active = learner.learn(block).counts().utilised
        best = min(best, time.perf_counter() - begun)
        L = L if way == "numpy" else learner.L
    return best / m, active / m, L


def run(quick: bool) -> dict[str, Any]:
    """Measure all dimensions and types.

    Parameters
    ----------
    quick : fewer constraints and repeats, for a look at a change rather than for a report.

    Returns
    -------
    dict
        {"rows": [{dimension, dtype, numpy, sequential, blocked: seconds a constraint; active: share; factor:
        numpy over the better kernel; auto: numpy over what kernel="auto" takes; error: of both maps against
        numpy's}]}.
    """
    from kinstream.learners.warm_up import warm_up

    for dtype in ("float32", "float64"):
        warm_up("opml", {"dtype": dtype})
    rows = []
    for dtype in ("float32", "float64"):
        for d in DIMENSIONS:
            work = (3e7 if quick else 3e8) / (d * d + 2000)
            slow, fast, repeats = max(32, int(work / 60)), max(640, int(work)), 3 if quick else 5
            row: dict[str, Any] = {"dimension": d, "dtype": dtype}
            with one_blas_thread():
                row["numpy"], row["active"], _ = seconds_per_constraint(d, dtype, "numpy", slow, repeats)
                maps = [
                    seconds_per_constraint(d, dtype, way, 200, 1)[2]
                    for way in ("numpy", "sequential", "blocked")
                ]
            for way in ("sequential", "blocked", "auto"):
                row[way], active, _ = seconds_per_constraint(d, dtype, way, fast, repeats)
                row["active"] = min(row["active"], active)
            row["factor"] = row["numpy"] / min(row["sequential"], row["blocked"])
            row["auto"] = row["numpy"] / row["auto"]
            row["error"] = max(float(np.abs(found - maps[0]).max()) for found in maps[1:])
            rows.append(row)
    return {"rows": rows}


def figures(quick: bool) -> list[Figure]:
    """The better kernel over numpy, by dimension and type."""
    return [
        Figure(
            "kernels",
            f"d = {row['dimension']}, {row['dtype']}: over numpy",
            row["factor"],
            "times",
            at_least=REQUIRED.get(row["dimension"]),
            facts=row,
        )
        for row in run(quick)["rows"]
    ]


@click.command()
@click.option("--quick", is_flag=True, help="Fewer constraints and repeats.")
@click.option("--output", type=click.Path(path_type=Path), help="Write the figures there as JSON, too.")
def main(quick: bool, output: Path | None) -> None:
    """Time OPML's kernels against a numpy loop, every constraint active.

    Example: python -m benchmarks.kernels --quick
    """
    found = run(quick)
    if output is not None:
        output.write_text(json.dumps(found, indent=2) + "\n")
    click.echo(
        f"{'d':>4} {'type':8} {'numpy':>9} {'sequential':>10} {'blocked':>9} {'factor':>7} {'auto':>6}  (us)"
    )
    for row in found["rows"]:
        times = [row[way] * 1e6 for way in ("numpy", "sequential", "blocked")]
        click.echo(
            f"{row['dimension']:>4} {row['dtype']:8} {times[0]:9.2f} {times[1]:10.2f} {times[2]:9.2f} "
            f"{row['factor']:7.1f} {row['auto']:6.1f}  active {row['active']:.2f}, error {row['error']:.0e}"
        )


if __name__ == "__main__":
    main()
