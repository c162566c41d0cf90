"""MDML with all divergences, losses and ways to shrink."""

from __future__ import annotations

from functools import partial

from kinstream.testing.blocks import SCALER_STATE, pair_blocks, triplet_blocks
from kinstream.testing.learners import Case
from tests.learners.published_unit import create

#: Counts; the first moves with every pair.
WATCHING = frozenset({"pairs", "updates"})


def cases() -> list[Case]:
    found = []
    for divergence in ("frobenius", "von-neumann", "burg"):
        for dtype in ("float64", "float32"):
            make = partial(create, "mdml", eta=0.1, divergence=divergence, dtype=dtype)
            found.append(Case(f"mdml:{divergence}-{dtype}", make, pair_blocks(1, 7), 0.0, WATCHING))
        # More eigenvectors than the kernel multiplies itself, and more updates than go without a renewal.
        make = partial(create, "mdml", eta=0.05, rho=1e-4, divergence=divergence)
        found.append(Case(f"mdml:{divergence}-wide", make, pair_blocks(2, 40), 0.0, WATCHING, elsewhere=True))
        make = partial(create, "mdml", eta=0.3, rho=0.05, divergence=divergence, shrinkage="hard")
        found.append(Case(f"mdml:{divergence}-hard", make, triplet_blocks(3, 3), 0.0, WATCHING))
    for loss in ("squared-hinge", "exponential", "logistic"):
        make = partial(create, "mdml", eta=0.01, loss=loss)
        found.append(Case(f"mdml:{loss}", make, pair_blocks(4, 2), 0.0, WATCHING))
    found.append(
        Case("mdml:raw", partial(create, "mdml", eta=0.1, guard="raw"), pair_blocks(5, 1), 0.0, WATCHING)
    )
    make = partial(create, "mdml", scaler="zscore", warm_up=30)
    watching = WATCHING | SCALER_STATE
    found.append(Case("mdml:zscore", make, pair_blocks(6, 4, scale=30.0), 0.0, watching))
    return found
