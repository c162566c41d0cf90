"""The compiled loop of OAHU: forward pass, losses, gradients, step and hedge, one triplet after the other.

Layer l takes h_l, with h_0 the input, to the embedding u_l = h_l Theta_l and to the next hidden layer
h_{l+1} = relu(h_l W_{l+1} + b_{l+1}). Both matrices are side by side in one, [Theta_l | W_{l+1} | zeros], so one pass
over its rows serves both. A row is a whole number of vector registers long, and sums along a row run only in lanes, in
a fixed order.

About half of the hidden units are 0 for a vector. Their rows are skipped in the forward pass, in the backward pass, and
in the step.

The first layer is by far the largest. Its steps are -eta x g' each, so for a chunk of triplets x_1, x_2, ...

    x_s M_t = x_s M_0 - eta sum_r (x_s . x_r) g_r    over the vectors r of the triplets before t,

and M itself is touched twice, by matrix products: for all x_s M_0 at the beginning and for the sum at the end. Nothing
is approximated.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.events import Judged
from kinstream.learners.kernels.shared import Flags, Matrix, Report
from kinstream.streams.compute.compilation import compiled

#: Entries of a row are a multiple of it.
LANES: Final = 32
#: If a model maps a vector to less than this length, it has no direction: the model is dead for it. Smaller distances
#: count as zero.
DEAD: Final = 1e-12
#: Hedge updates (Eq. 20 of the paper).
LITERAL: Final = 0
EXP: Final = 1
LINEAR: Final = 2
_ATTRACT: Final = float(1.0 / np.expm1(2.0))
_REPEL: Final = float(-1.0 / np.expm1(-2.0))

Vector = NDArray[np.float64]
Places = NDArray[np.int64]
Cube = NDArray[Any]
#: Layers but the first (L, S, width), and hidden biases (L, S) or (0, S).
Hidden = tuple[Cube, Matrix]
#: Of n vectors: products with the first layer (n, width) before the chunk, inner products (n, n), and gradients of the
#: first layer's products (n, width), zeros at the beginning.
Ahead = tuple[Matrix, Matrix, Matrix]
#: Of the vectors of k triplets that share events: products with the first layer before the chunk, and inner products
#: with the chunk's vectors; the triplets (k, 3) over these vectors, usable or not, what un-learned metrics add to each
#: fused score; and the row of the first.
Beside = tuple[Matrix, Matrix, Places, Flags, Vector, int]
#: One zero for each stripe of `LANES` in a row: compiled code knows the length of a tuple, and unrolls the loop.
Stripes = tuple[int, ...]
#: tau, eta, temperature of the rank weight (infinity for none), beta, floor of alpha before it is normalised.
Rates = tuple[float, float, float, float, float]


def row(entries: int) -> int:
    """Entries of a row of [Theta | W | zeros], or of Theta alone."""
    return -(-entries // LANES) * LANES


def stripes(entries: int) -> Stripes:
    """Stripes of a row with that many entries."""
    return (0,) * (row(entries) // LANES)


@compiled
def found(h: Matrix, places: Places) -> int:
    """Fill in the places where h is not zero; returns their number."""
    count = 0
    for i in range(len(h)):
        places[count] = i
        count += 1 if h[i] != 0 else 0
    return count


@compiled
def product(M: Matrix, h: Matrix, places: Places, count: int, columns: int, out: Matrix) -> None:
    """out = h M, of the first columns of M."""
    out[:] = 0
    whole = count - count % 4
    for k in range(0, whole, 4):
        a, b, c, d = places[k], places[k + 1], places[k + 2], places[k + 3]
        p, q, r, s = h[a], h[b], h[c], h[d]
        A, B, C, D = M[a], M[b], M[c], M[d]
        for j in range(columns):
            out[j] += (p * A[j] + q * B[j]) + (r * C[j] + s * D[j])
    for k in range(whole, count):
        p, A = h[places[k]], M[places[k]]
        for j in range(columns):
            out[j] += p * A[j]


@compiled
def inner(A: Matrix, g: Matrix, stripes: Stripes, s: Matrix) -> float:
    """The inner product of the first stripes of two rows, in lanes that are added by halves."""
    for j in range(LANES):
        t = A[j] * g[j]
        for k in range(LANES, LANES * len(stripes), LANES):
            t += A[k + j] * g[k + j]
        s[j] = t
    for j in range(16):
        s[j] += s[j + 16]
    for j in range(8):
        s[j] += s[j + 8]
    return float((s[0] + s[4]) + (s[1] + s[5])) + float((s[2] + s[6]) + (s[3] + s[7]))


@compiled
def product_back(
    M: Matrix, g: Matrix, places: Places, count: int, stripes: Stripes, lanes: Matrix, out: Matrix
) -> None:
    """out = g M' at the given places, 0 elsewhere."""
    out[:] = 0
    for k in range(count):
        out[places[k]] = inner(M[places[k]], g, stripes, lanes)


@compiled
def descend(M: Matrix, eta: Any, h: Matrix, g: Matrix, columns: int) -> None:
    """M -= eta sum_s h_s g_s' of three vectors h (3, n) and their gradients g (3, width)."""
    x, y, z = h[0], h[1], h[2]
    G, H, K = g[0], g[1], g[2]
    for i in range(M.shape[0]):
        if x[i] != 0 or y[i] != 0 or z[i] != 0:
            p, q, r = eta * x[i], eta * y[i], eta * z[i]
            A = M[i]
            for j in range(columns):
                A[j] -= (p * G[j] + q * H[j]) + r * K[j]


@compiled
def bounds(near: float, far: float, tau: float) -> tuple[float, float, float]:
    """The adaptive-bound loss in [0, 1], and its slopes by D(x, x+) and D(x, x-); thresholds are constants."""
    c1 = tau * np.expm1(near) * _ATTRACT
    c2 = (2.0 - tau) - tau * np.expm1(-far) * _REPEL
    attract, repel = (near - c1) / (2.0 - c1), 1.0 - far / c2
    down, up = 0.0, 0.0
    if attract > 0.0:
        down = 0.5 / (2.0 - c1)
    if repel > 0.0:
        up = -0.5 / c2
    return 0.5 * (max(attract, 0.0) + max(repel, 0.0)), down, up


@compiled
def all_bounds(near: Vector, far: Vector, tau: float, losses: Vector, down: Vector, up: Vector) -> None:
    """`bounds` of two tables of distances."""
    for k in range(near.shape[0]):
        for t in range(near.shape[1]):
            losses[k, t], down[k, t], up[k, t] = bounds(near[k, t], far[k, t], tau)


@compiled
def hedge(alpha: Vector, losses: Vector, rule: int, beta: float, floor: float) -> None:
    """Weights after one triplet (Eq. 20 and the smoothing behind it)."""
    least, total = losses.min(), 0.0
    for k in range(len(alpha)):
        steep = rule == EXP
        if rule == LITERAL and losses[k] > 0.0:
            steep = beta**least * np.log(losses[k]) > beta - 1.0
        alpha[k] *= beta ** losses[k] if steep else 1.0 - (1.0 - beta) * losses[k]
        alpha[k] = max(alpha[k], floor)
        total += alpha[k]
    for k in range(len(alpha)):
        alpha[k] /= total


@compiled
def hedges(alpha: Vector, losses: Matrix, use: Flags, rule: int, beta: float, floor: float) -> None:
    """`hedge` for the rows (n, L + 1) of losses in use, one after the other."""
    for t in range(len(losses)):
        if use[t]:
            hedge(alpha, losses[t], rule, beta, floor)


@compiled
def onto_sphere(u: Matrix, f: Matrix) -> float:
    """f = u / |u|, zeros if u is nearly zero; returns |u|."""
    total = 0.0
    for j in range(len(f)):
        total += np.float64(u[j]) * np.float64(u[j])
    length = np.sqrt(total)
    for j in range(len(f)):
        f[j] = u[j] / length if length >= DEAD else 0.0
    return float(length)


@compiled
def _gap(f: Vector, g: Vector) -> float:
    total = 0.0
    for j in range(len(f)):
        total += (f[j] - g[j]) * (f[j] - g[j])
    return float(np.sqrt(total))


@compiled
def _through_sphere(f: Vector, slope: Vector, length: float, g: Matrix) -> None:
    """g = (slope - f (f.slope)) / |u|."""
    along = 0.0
    for j in range(len(f)):
        along += f[j] * slope[j]
    for j in range(len(f)):
        g[j] = (slope[j] - f[j] * along) / length if length >= DEAD else 0.0


@compiled
def largest(v: Matrix) -> float:
    """Largest absolute entry of a vector."""
    top = 0.0
    for a in v:
        top = max(top, abs(float(a)))
    return top


@compiled
def _embed(
    a: int,
    beside: Beside,
    ahead: Ahead,
    hidden: Hidden,
    m: int,
    last: int,
    touched: Places,
    known: int,
    eta: float,
    f: Matrix,
) -> bool:
    """Fill in f (models, m): vector a of `beside` under the present network. Returns whether all is finite."""
    products, inner_products, gradients = beside[0], beside[1], ahead[2]
    rest, biases = hidden
    layers, S, columns = rest.shape
    pace, finite, count = rest.dtype.type(eta), True, 0
    out, moved = np.empty(columns, rest.dtype), np.empty(len(gradients), rest.dtype)
    h, places = np.zeros(S, rest.dtype), np.empty(S + 1, np.int64)
    for k in range(layers + 1):
        wide = columns if k < layers else last
        if k == 0:
            for j in range(known):
                moved[touched[j]] = pace * inner_products[a, touched[j]]
            product(gradients, moved, touched, known, wide, out)
            for j in range(wide):
                out[j] = products[a, j] - out[j]
        else:
            product(rest[k - 1], h, places, count, wide, out)
        finite &= np.isfinite(onto_sphere(out[:m], f[k]))
        if k < layers:
            for j in range(S if len(biases) > 0 else 0):
                out[m + j] += biases[k, j]
            for j in range(S):
                h[j] = max(out[m + j], 0)
            count = found(h, places)
    return finite


@compiled
def _judge(
    beside: Beside,
    ahead: Ahead,
    hidden: Hidden,
    m: int,
    last: int,
    touched: Places,
    known: int,
    eta: float,
    tau: float,
    alpha: Vector,
    share: float,
    begin: int,
    end: int,
    judged: Judged,
) -> None:
    """Fill in margins and losses of the triplets from row `begin` up to `end`, each vector in a row mapped once."""
    _, _, index, usable, given, row = beside
    _, before, levels = judged
    f = np.zeros((3, len(alpha), m))
    at, fine = np.full(3, -1), np.zeros(3, np.bool_)
    for t in range(begin, end):
        n = t - row
        before[t] = np.nan
        if not usable[n]:
            continue
        fused, total = 0.0, 0.0
        for s in range(3):
            if index[n, s] != at[s]:
                fine[s] = _embed(index[n, s], beside, ahead, hidden, m, last, touched, known, eta, f[s])
                at[s] = index[n, s]
        for k in range(len(alpha)):
            near, far = _gap(f[0, k], f[1, k]), _gap(f[0, k], f[2, k])
            loss, _, _ = bounds(near, far, tau)
            fused += alpha[k] * (near - far)
            total += alpha[k] * loss
        if fine.all():
            before[t], levels[t] = 0.0 - (share * fused + given[n]), total


@compiled
def triplets(
    ahead: Ahead,
    hidden: Hidden,
    m: int,
    whole: Stripes,
    short: Stripes,
    alpha: Vector,
    rates: Rates,
    rule: int,
    by_alpha: bool,
    share: float,
    given: Vector,
    index: Places,
    usable: Flags,
    limit: float,
    bound: float,
    report: Report,
    beside: Beside,
    judged: Judged,
    first: int,
) -> float:
    """OAHU, one triplet of a chunk after the other.

    Parameters
    ----------
    ahead, hidden : the last part of `ahead`, and `hidden`, are changed in place.
    m : dimension of the embeddings.
    whole, short : stripes of a row, and of the part of it that Theta uses.
    alpha : (L + 1,) weights of the metric models; changed in place.
    rates, rule : step sizes and other constants, and the hedge update.
    by_alpha : whether a model's gradient is weighted with its alpha, and not with 1 / (L + 1).
    share, given : the fused score is share sum_l alpha_l (D_l(x, x+) - D_l(x, x-)) + given, (b,) by triplet.
    index : (b, 3) of the n vectors of `ahead`.
    usable : see `kinstream.learners.base.one_modality.Batch`.
    limit : an entry below it is safely a number of the type.
    bound : at least the network's largest entry.
    report : outcome arrays.
    beside, judged : the triplets of events to judge, see `kinstream.learners.kernels.events`; the level is the loss. Of
        `judged` the ends are those of the chunk, the other arrays and the numbers in it are of all rows.
    first : the row of the chunk's first triplet.

    Returns
    -------
    float
        The bound after the last triplet.
    """
    mistake, utilised, clipped, rejected, degenerate, loss, margins = report
    products, inner_products, gradients = ahead
    rest, biases = hidden
    tau, eta, temperature, beta, floor = rates
    layers, S, columns = rest.shape
    last = LANES * len(short)
    models = layers + 1
    h = np.zeros((layers, 3, S), rest.dtype)
    out = np.empty((3, columns), rest.dtype)
    g = np.zeros((models, 3, columns), rest.dtype)
    back = np.empty(S, rest.dtype)
    places = np.empty((layers, 3, S + 1), np.int64)
    counts = np.zeros((layers, 3), np.int64)
    lanes = np.empty(LANES, rest.dtype)
    # Vectors whose gradient is no longer zero, in order of appearance.
    touched, known = np.empty(len(products), np.int64), 0
    is_touched = np.zeros(len(products), np.bool_)
    moved = np.empty(len(products), rest.dtype)
    f, lengths, slopes = np.zeros((models, 3, m)), np.zeros((models, 3)), np.zeros((3, m))
    losses, weights = np.zeros(models), np.zeros(models)
    pace = rest.dtype.type(eta)
    for t in range(len(index)):
        if len(judged[0]) > 0 and judged[0][t] > 0:
            _judge(
                beside, ahead, hidden, m, last, touched, known, eta, tau, alpha, share, first + t + 1, judged[0][t],
                judged,
            )  # fmt: skip
        mistake[t], loss[t], margins[t] = -1, 0.0, np.nan
        utilised[t], clipped[t], degenerate[t], rejected[t] = False, False, False, True
        if not usable[t]:
            continue
        fused, total, active, finite = 0.0, 0.0, False, True
        # Forward, with every model's loss and the gradient of its embeddings.
        for k in range(models):
            wide = columns if k < layers else last
            for s in range(3):
                if k == 0:
                    a = index[t, s]
                    for j in range(known):
                        moved[touched[j]] = pace * inner_products[a, touched[j]]
                    product(gradients, moved, touched, known, wide, out[s])
                    u, v = out[s], products[a]
                    for j in range(wide):
                        u[j] = v[j] - u[j]
                else:
                    product(rest[k - 1], h[k - 1, s], places[k - 1, s], counts[k - 1, s], wide, out[s])
                lengths[k, s] = onto_sphere(out[s, :m], f[k, s])
                finite &= np.isfinite(lengths[k, s])
                if k < layers:
                    u, v = out[s], h[k, s]
                    if len(biases) > 0:
                        for j in range(S):
                            u[m + j] += biases[k, j]
                    for j in range(S):
                        v[j] = max(u[m + j], 0)
                    counts[k, s] = found(v, places[k, s])
            near, far = _gap(f[k, 0], f[k, 1]), _gap(f[k, 0], f[k, 2])
            losses[k], down, up = bounds(near, far, tau)
            fused += alpha[k] * (near - far)
            total += alpha[k] * losses[k]
            weight = alpha[k] if by_alpha else 1.0 / models
            weights[k] = weight
            if temperature < np.inf:
                weight *= 2.0 / (1.0 + np.exp((far - near) / temperature))
            # Equal and opposite points have no slope along the sphere, nor have a point and the dead centre.
            pull, push = 0.0, 0.0
            if lengths[k, 0] >= DEAD and lengths[k, 1] >= DEAD and DEAD <= near <= 2.0 - DEAD:
                pull = weight * down / near
            if lengths[k, 0] >= DEAD and lengths[k, 2] >= DEAD and DEAD <= far <= 2.0 - DEAD:
                push = weight * up / far
            active |= pull != 0.0 or push != 0.0
            for j in range(m):
                p, q = pull * (f[k, 0, j] - f[k, 1, j]), push * (f[k, 0, j] - f[k, 2, j])
                slopes[0, j], slopes[1, j], slopes[2, j] = p + q, -p, -q
            for s in range(3):
                _through_sphere(f[k, s], slopes[s], lengths[k, s], g[k, s, :m])
        fused = share * fused + given[t]
        margins[t] = 0.0 - fused
        if not (finite and np.isfinite(fused)):
            continue
        # Backward pass through the layers.
        reach = 0.0
        for k in range(layers, -1, -1):
            for s in range(3):
                size = np.sqrt(inner(g[k, s], g[k, s], whole, lanes))
                finite &= np.isfinite(size)
                if k == 0:
                    source = inner_products[index[t, s], index[t, s]]
                else:
                    source, v, count = 0.0, h[k - 1, s], counts[k - 1, s]
                    for j in range(count):
                        value = float(v[places[k - 1, s, j]])
                        source += value * value
                    if k < layers:
                        product_back(rest[k - 1], g[k, s], places[k - 1, s], count, whole, lanes, back)
                    else:
                        product_back(rest[k - 1], g[k, s], places[k - 1, s], count, short, lanes, back)
                    for j in range(S):
                        g[k - 1, s, m + j] = back[j]
                reach = max(reach, eta * size * max(np.sqrt(source), 1.0))
        if not (finite and bound + 3.0 * reach < limit):
            continue
        mistake[t], loss[t], rejected[t] = 1 if fused >= 0.0 else 0, total, False
        degenerate[t] = not active
        if not active:
            continue
        utilised[t] = True
        bound += 3.0 * reach
        for s in range(3):
            a = index[t, s]
            if not is_touched[a]:
                is_touched[a], touched[known] = True, a
                known += 1
            u, v = gradients[a], g[0, s]
            for j in range(columns if layers > 0 else last):
                u[j] += v[j]
        for k in range(1, models):
            descend(rest[k - 1], pace, h[k - 1], g[k], columns if k < layers else last)
        for k in range(len(biases)):
            for s in range(3):
                for j in range(S):
                    biases[k, j] -= pace * g[k, s, m + j]
        hedge(alpha, losses, rule, beta, floor)
    return bound
