"""The compiled loop of SORS and AdaSORS: a step along x v^T, v = x+ - x-, and a threshold of every entry.

An active step is delayed to the next sweep over W, which applies it row by row while computing the next product: one
pass over memory per constraint. Rows with x_i = 0 are skipped, and for sparse v only the entries where both x and v are
non-zero are visited.

Entries that are not visited miss thresholds. They are applied when the entry is next written, k of them as one of k
times the size; until then `rows` and `since` hold the number of steps that a stored entry has had. Reading applies them
without changing W: the stored values depend on the constraints alone.

`H` is None for SORS, and the branches on it are gone once compiled.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.events import Judged
from kinstream.learners.kernels.matrices.bilinear import SCATTER, direction, filled, total
from kinstream.learners.kernels.shared import Flags, Matrix, Report, largest
from kinstream.streams.compute.compilation import compiled, compiled_map

#: `rows` (d,): steps that every entry of a row has had. `since` (d, d): the same for entries that a sparse step visited
#: later. `mixed` (d,): whether there is such an entry.
Ages = tuple[NDArray[np.int64], NDArray[np.int32], Flags]
#: eta; eta times lambda; delta of AdaSORS; whether the diagonal is spared.
Rule = tuple[float, float, float, bool]
#: Steps that `since` can count. After that, every entry is updated, and counting begins again.
MOST_STEPS: Final = 2**31 - 1


@compiled_map
def shrunk(value: Any, by: Any) -> Any:
    """The soft threshold."""
    taken = by if value > by else value
    return value - (-by if taken < -by else taken)


@compiled_map
def up_to_date(W: Matrix, H: Matrix | None, ages: Ages, rule: Rule, i: int, now: int, out: Matrix) -> None:
    """Write row i with all thresholds before step `now` into `out`."""
    rows, since, _ = ages
    _, pull, delta, spare = rule
    least = W.dtype.type(delta)
    for j in range(W.shape[0]):
        by = W.dtype.type(pull * (now - max(rows[i], since[i, j])))
        if H is not None:
            by /= least + H[i, j]
        out[j] = shrunk(W[i, j], by)
    if spare:
        out[i] = W[i, i]


@compiled
def _sweep(
    W: Matrix,
    H: Matrix | None,
    ages: Ages,
    rule: Rule,
    due: bool,
    px: Matrix,
    pv: Matrix,
    then: int,
    wanted: bool,
    x: Matrix,
    now: int,
    p: Matrix,
    row: Matrix,
) -> None:
    """Apply step number `then`, along px pv^T, if it is due; fill p = W^T x as of step `now` if requested."""
    rows, _, mixed = ages
    eta, pull, delta, spare = rule
    by, least, ahead = W.dtype.type(pull), W.dtype.type(delta), W.dtype.type(eta)
    zero, one, d = W.dtype.type(0.0), W.dtype.type(1.0), W.shape[0]
    if wanted:
        p[:] = 0
    for i in range(d):
        q = p[i]
        if due and px[i] != 0:
            if pull > 0.0 and mixed[i]:
                up_to_date(W, H, ages, rule, i, then, row)
                for j in range(d):
                    W[i, j] = row[j]
            elif pull > 0.0 and rows[i] < then:
                old, late = W[i, i], W.dtype.type(pull * (then - rows[i]))
                if H is None:
                    for j in range(d):
                        W[i, j] = shrunk(W[i, j], late)
                else:
                    for j in range(d):
                        W[i, j] = shrunk(W[i, j], late / (least + H[i, j]))
                if spare:
                    W[i, i] = old
            rows[i], mixed[i] = then + 1, False
            old, f, g = W[i, i], px[i], zero
            if wanted:
                g = x[i]
            if H is None:
                f *= ahead
                for j in range(d):
                    w = shrunk(W[i, j] + f * pv[j], by)
                    W[i, j] = w
                    p[j] += g * w
                if spare:
                    W[i, i] = old + f * pv[i]
            else:
                for j in range(d):
                    slope = f * pv[j]
                    h = np.sqrt(H[i, j] * H[i, j] + slope * slope)
                    s = one / (least + h)
                    w = shrunk(W[i, j] + ahead * (slope * s), by * s)
                    H[i, j] = h
                    W[i, j] = w
                    p[j] += g * w
                if spare:
                    W[i, i] = old + ahead * (f * pv[i] * (one / (least + H[i, i])))
            if spare:
                p[i] = q + g * W[i, i]
        elif wanted and x[i] != 0:
            g = x[i]
            if pull > 0.0 and mixed[i]:
                up_to_date(W, H, ages, rule, i, now, row)
                for j in range(d):
                    p[j] += g * row[j]
            elif pull > 0.0 and rows[i] < now:
                late = W.dtype.type(pull * (now - rows[i]))
                if H is None:
                    for j in range(d):
                        p[j] += g * shrunk(W[i, j], late)
                else:
                    for j in range(d):
                        p[j] += g * shrunk(W[i, j], late / (least + H[i, j]))
                if spare:
                    p[i] = q + g * W[i, i]
            else:
                for j in range(d):
                    p[j] += g * W[i, j]


@compiled
def _meet(
    W: Matrix,
    H: Matrix | None,
    ages: Ages,
    rule: Rule,
    x: Matrix,
    v: Matrix,
    columns: NDArray[np.int64],
    now: int,
    active: bool,
) -> float:
    """x^T W v over the entries where both are non-zero; if `active`, step number `now` is also applied there."""
    rows, since, mixed = ages
    eta, pull, delta, spare = rule
    least, one, ahead = W.dtype.type(delta), W.dtype.type(1.0), W.dtype.type(eta)
    margin = 0.0
    for i in range(len(x)):
        if x[i] == 0:
            continue
        part = 0.0
        for j in columns:
            pulled = 0.0 if spare and i == j else pull
            by, late = W.dtype.type(pulled), W.dtype.type(pulled * (now - max(rows[i], since[i, j])))
            if H is not None:
                late /= least + H[i, j]
            value = shrunk(W[i, j], late)
            part += float(value) * float(v[j])
            if active:
                if H is None:
                    W[i, j] = shrunk(value + (x[i] * ahead) * v[j], by)
                else:
                    slope = x[i] * v[j]
                    H[i, j] = np.sqrt(H[i, j] * H[i, j] + slope * slope)
                    s = one / (least + H[i, j])
                    W[i, j] = shrunk(value + ahead * (slope * s), by * s)
                since[i, j] = now + 1
        mixed[i] |= active
        margin += float(x[i]) * part
    return margin


@compiled
def _begin_again(W: Matrix, H: Matrix | None, ages: Ages, rule: Rule, now: int, row: Matrix) -> None:
    """Bring all entries up to date, as of step 0."""
    rows, since, mixed = ages
    if rule[1] > 0.0:
        for i in range(len(W)):
            up_to_date(W, H, ages, rule, i, now, row)
            for j in range(len(W)):
                W[i, j] = row[j]
    rows[:], since[:], mixed[:] = 0, 0, False


@compiled
def _judge(
    W: Matrix,
    H: Matrix | None,
    ages: Ages,
    rule: Rule,
    now: int,
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    first: int,
    last: int,
    v: Matrix,
    p: Matrix,
    row: Matrix,
    columns: NDArray[np.int64],
    work: NDArray[np.float64],
    before: NDArray[np.float64],
) -> None:
    """Fill in before[first:last] with margins as of step `now`, with one product for each anchor."""
    anchor, no = -1, len(W) == 0
    for t in range(first, last):
        before[t] = np.nan
        if not usable[t]:
            continue
        direction(X, index[t], v, work)
        x, count = X[index[t, 0]], filled(v, columns)
        if count * SCATTER < len(v):
            before[t] = _meet(W, H, ages, rule, x, v, columns[:count], now, no)
            continue
        if index[t, 0] != anchor:
            _sweep(W, H, ages, rule, no, x, v, now, not no, x, now, p, row)
            anchor = index[t, 0]
        before[t] = total(p, v, work)


@compiled
def triplets(
    W: Matrix,
    H: Matrix | None,
    ages: Ages,
    rule: Rule,
    steps: int,
    bounds: NDArray[np.float64],
    limit: float,
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    report: Report,
    judged: Judged,
) -> int:
    """SORS or AdaSORS, one triplet after the other.

    Parameters
    ----------
    W : (d, d), changed in place.
    H : (d, d) roots of the summed squares of the gradients, changed in place; None for SORS.
    ages, rule : see above; ages are changed in place.
    steps : number of earlier steps.
    bounds : (2,) at least the largest absolute entries of W and of H squared, changed in place; negative if unknown.
    limit : entries below it are safely numbers of W's type. A step that might go beyond is rejected.
    X : (n, d) vectors, of W's type.
    index : (m, 3) rows of X: anchor, positive, negative.
    usable : (m,) false where a vector is not finite.
    report : outcome arrays of length m.
    judged : see `kinstream.learners.kernels.events`.

    Returns
    -------
    int
        The steps for the next call.
    """
    mistake, utilised, clipped, rejected, degenerate, loss, margins = report
    ends, before, _ = judged
    d = len(W)
    v, pv, p, row = np.empty(d, W.dtype), np.empty(d, W.dtype), np.zeros(d, W.dtype), np.empty(d, W.dtype)
    columns, work = np.empty(d, np.int64), np.empty(d)
    # Not literals: the pieces would be compiled again for each literal.
    yes, no = d > 0, d == 0
    due, px, then = no, row, steps
    if bounds[0] < 0.0:
        bounds[:] = np.inf
    for t in range(len(index)):
        if len(ends) > 0 and ends[t] > 0:
            if due:
                _sweep(W, H, ages, rule, due, px, pv, then, no, px, steps, p, row)
                due = no
            _judge(
                W, H, ages, rule, steps, X, index, usable, t + 1, ends[t], v, p, row, columns, work, before
            )
        mistake[t], loss[t], margins[t] = -1, 0.0, np.nan
        utilised[t], clipped[t], degenerate[t], rejected[t] = False, False, False, True
        if not usable[t]:
            continue
        if steps == MOST_STEPS:
            _sweep(W, H, ages, rule, due, px, pv, then, no, px, steps, p, row)
            _begin_again(W, H, ages, rule, steps, row)
            due, steps = no, 0
        xx, vv, flat = direction(X, index[t], v, work)
        if flat:
            # There is no direction, but the step counts: its threshold applies.
            mistake[t], loss[t], degenerate[t], rejected[t], margins[t] = 1, 1.0, True, False, 0.0
            steps += 1
            continue
        x = X[index[t, 0]]
        count = filled(v, columns)
        sparse = count * SCATTER < d
        if due and (sparse or steps > then + 1):
            # A degenerate triplet in between also counts as a step.
            _sweep(W, H, ages, rule, due, px, pv, then, no, x, steps, p, row)
            due = no
        if not sparse:
            _sweep(W, H, ages, rule, due, px, pv, then, yes, x, steps, p, row)
            due = no
        met = columns[:count]
        margin = _meet(W, H, ages, rule, x, v, met, steps, no) if sparse else total(p, v, work)
        hinge, margins[t] = 1.0 - margin, margin
        if not np.isfinite(hinge):
            continue
        if hinge > 0.0:
            area = xx * vv
            most = rule[0] * (np.sqrt(xx) * np.sqrt(vv) if H is None else 1.0)
            if not (bounds[0] + most < limit and bounds[1] + area < limit):
                bounds[0], bounds[1] = largest(W), 0.0
                if H is not None:
                    bounds[1] = largest(H) ** 2
                if not (bounds[0] + most < limit and bounds[1] + area < limit):
                    continue
            bounds[0] += most
            if H is not None:
                bounds[1] += area
            if sparse:
                _meet(W, H, ages, rule, x, v, met, steps, yes)
            else:
                due, px, then = yes, x, steps
                v, pv = pv, v
            utilised[t] = True
        steps += 1
        rejected[t] = False
        mistake[t] = 1 if margin <= 0.0 else 0
        loss[t] = max(hinge, 0.0)
    _sweep(W, H, ages, rule, due, px, pv, then, no, px, steps, p, row)
    return steps
