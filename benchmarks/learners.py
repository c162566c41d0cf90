"""Every learner: microseconds a constraint, against its equations as a plain numpy loop in the same run.

Two kinds of streams. In the active one labels are drawn at random and scales are such that nearly every constraint
changes the model; the share that did is reported. In the real one, one-pass triplets of z-scored waveform (d = 21) and
of mnist (d = 784) arrive, and what need not be learned costs a prediction only.

Times are the processor's: all of this runs on one thread, so waiting for a core that others use does not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks import discriminants, fits, multi_modal
from benchmarks import numpy_forms as forms
from benchmarks.bandwidth import LARGE, bandwidth
from benchmarks.blocks import constraint_block
from benchmarks.data import arrays
from benchmarks.figures import Figure
from kinstream.learners.base.learner import Outcomes
from kinstream.learners.base.one_modality import Batch
from kinstream.learners.registry import create, has, names
from kinstream.processors.base.builder import Origin
from kinstream.processors.samples.one_pass import OnePass
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.records.values import DEFAULT_MODALITY, ConstraintBlock, Kind, SampleBlock, Table

Array = NDArray[Any]

DIMENSIONS: Final = (21, 64, 310, 784)
#: Milliseconds in Table I of the OPML paper, by `kind` and dimension. Its hardware is not stated.
TABLE_I: Final = {
    "opml": {21: 0.026, 64: 0.023, 310: 1.7},
    "lego": {21: 0.159, 64: 0.472, 310: 47},
    "oasis": {21: 0.029, 64: 0.028, 310: 9.4},
    "soml-tg": {21: 0.032, 64: 0.094, 310: 21},
    "pola": {21: 8, 64: 6.2, 310: 120},
    "rdml": {21: 0.040, 64: 0.043, 310: 2.4},
}
#: Seconds that one measurement of a loop may take.
BUDGET: Final = 1.5
REPEATS: Final = 3


@dataclass(frozen=True, slots=True)
class Stream:
    """Constraints over X (n, d): chained triplets, and as pairs their first two vectors.

    Parameters
    ----------
    index : (m, 3).
    signs, targets : (m,) of the pairs.
    """

    X: Array
    index: NDArray[np.int32]
    signs: NDArray[np.int8]
    targets: NDArray[np.float64]

    def differences(self, first: int, second: int, m: int, dtype: str) -> Array:
        """(m, d) of two columns of the index."""
        X = self.X.astype(dtype)
        return np.asarray(X[self.index[:m, first]] - X[self.index[:m, second]])


@dataclass(frozen=True, slots=True)
class Case:
    """One learner.

    Parameters
    ----------
    loop : numpy form over the first m constraints of a stream: (stream, m, dtype) -> how many were active.
    arguments : hyper-parameters of both.
    required : by dimension, how many times faster than the loop.
    same : whether both take as many constraints, because the cost of one depends on how many came before.
    alone : whether the kernel without `learn` around it (checks, conversion to its type) is reported, too.
    state : by dimension, how many numbers of the model a step reads and writes; its share of the memory's bandwidth is
        reported then.
    """

    loop: Callable[[Stream, int, str], int] | None
    arguments: dict[str, Any] = field(default_factory=dict)
    required: dict[int, float] = field(default_factory=dict)
    same: bool = False
    alone: bool = False
    state: Callable[[int], int] | None = None
    dtypes: tuple[str, ...] = ("float64",)


def _lego(stream: Stream, m: int, dtype: str) -> int:
    Z = stream.differences(0, 1, m, dtype)
    return forms.lego(np.eye(Z.shape[1], dtype=dtype), Z, stream.targets[:m], 0.1)


def _itml_online(stream: Stream, m: int, dtype: str) -> int:
    Z = stream.differences(0, 1, m, dtype)
    return forms.itml_online(np.eye(Z.shape[1], dtype=dtype), Z, stream.targets[:m], 0.1)


def _bilinear(
    form: Callable[..., int], start: Callable[..., Array], **arguments: float
) -> Callable[[Stream, int, str], int]:
    def loop(stream: Stream, m: int, dtype: str) -> int:
        x = stream.X.astype(dtype)[stream.index[:m, 0]]
        v = -stream.differences(2, 1, m, dtype)
        return form(start(x.shape[1], dtype=dtype), x, -v, **arguments)

    return loop


def _signed(form: Callable[..., int], start: Callable[..., Array], **arguments: float) -> Any:
    def loop(stream: Stream, m: int, dtype: str) -> int:
        Z = stream.differences(0, 1, m, dtype)
        return form(start(Z.shape[1], dtype=dtype), Z, stream.signs[:m], **arguments)

    return loop


def _zeros(d: int, dtype: str) -> Array:
    return np.zeros((d, d), dtype)


BOTH: Final = ("float64", "float32")
_MAP: Final = {21: 10.0, 64: 10.0, 310: 5.0, 784: 5.0}
_PSD: Final = dict.fromkeys(DIMENSIONS, 3.0)
CASES: Final[dict[str, Case]] = {
    "opml": Case(None, dtypes=BOTH),
    "copml": Case(None),
    "lego": Case(_lego, {"eta": 0.1, "loss": "squared", "targets": "block"}, _MAP, dtypes=BOTH),
    "itml-online": Case(_itml_online, {"eta": 0.1, "loss": "squared", "targets": "block"}, _MAP, dtypes=BOTH),
    "oasis": Case(_bilinear(forms.oasis, np.eye, C=0.01), {"aggressiveness": 0.01}, _MAP, dtypes=BOTH),
    "soml-tg": Case(
        _bilinear(forms.soml_tg, np.ones, eta=1e-3, sparsity=1e-3),
        {"eta": 1e-3, "sparsity": 1e-3},
        dict.fromkeys(DIMENSIONS, 20.0),
        alone=True,
        dtypes=BOTH,
    ),
    "soml-da": Case(
        _bilinear(forms.soml_da, np.ones, kappa=1e3, sparsity=1e-4),
        {"kappa": 1e3, "sparsity": 1e-4},
        state=lambda d: d,
    ),
    "sors": Case(
        _bilinear(forms.sors, np.eye, eta=1e-3, sparsity=1e-3),
        {"eta": 1e-3, "sparsity": 1e-3},
        state=lambda d: d * d,
    ),
    "adasors": Case(
        _bilinear(forms.adasors, np.eye, eta=1e-4, sparsity=1e-3),
        {"eta": 1e-4, "sparsity": 1e-3},
        state=lambda d: 2 * d * d,
    ),
    "pola": Case(_signed(forms.pola, _zeros), required=_PSD, same=True),
    "rdml": Case(
        _signed(forms.rdml_paper, _zeros, rate=0.1), {"learning_rate": 0.1, "psd": "paper"}, _PSD, same=True
    ),
    "rdml exact": Case(
        _signed(forms.rdml, _zeros, rate=0.1), {"learning_rate": 0.1, "psd": "exact"}, _PSD, same=True
    ),
    "mdml": Case(
        _signed(forms.mdml, np.eye, eta=0.1, rho=1e-3),
        {"eta": 0.1, "rho": 1e-3, "divergence": "frobenius"},
        same=True,
        state=lambda d: d * d,
    ),
    # Vectors of a d-dimensional space need d points; pairs behind the budget would be scored only.
    "kernel-lego": Case(
        None,
        {"eta": 0.1, "loss": "squared", "targets": "block", "kernel": "linear", "budget": 1_024},
        state=lambda d: d * d,
    ),
    "softmax": Case(None, dtypes=("float32",)),
    "adapter": Case(None, dtypes=("float32",)),
    "lda": Case(None),
    # Every row is new, so that every metric is judged as often as ever.
    "mixture": Case(None, dtypes=("float32",)),
    "euclidean": Case(None),
    # Their fits, after every thousand constraints, are in it.
    "mahalanobis": Case(None),
    "rca": Case(None),
}


def stream(d: int, m: int) -> Stream:
    """Chained constraints with labels by chance. Vectors are short, so that the margin of 1 is never reached."""
    draw = np.random.default_rng(d)
    X = (draw.normal(size=(m + 2, d)) * np.sqrt(0.2 / d)).astype(np.float32)
    first = np.arange(m, dtype=np.int32)
    index = np.column_stack([first + 2, first + 1, first]).astype(np.int32)
    signs = np.where(draw.random(m) < 0.5, 1, -1).astype(np.int8)
    return Stream(X, index, signs, 0.4 * draw.uniform(0.5, 2.0, m))


def as_block(source: Stream, m: int, kind: Kind) -> ConstraintBlock:
    """The first m constraints as they come from the log."""
    tables, index = {DEFAULT_MODALITY: source.X[: m + 2]}, source.index[:m]
    if kind is Kind.TRIPLET:
        return constraint_block(tables, index)
    return constraint_block(tables, index[:, :2], source.signs[:m], source.targets[:m])


def compiled(kind: str, arguments: dict[str, Any], blocks: list[ConstraintBlock]) -> tuple[float, int]:
    """Seconds to learn the blocks with a new learner, and how many constraints changed it."""
    learner = create(kind, **arguments)
    begun = time.thread_time()
    counts = [learner.learn(block).counts() for block in blocks]
    return time.thread_time() - begun, sum(found.utilised for found in counts)


def _kernel(kind: str, arguments: dict[str, Any], source: Stream, n: int) -> float:
    """Seconds of a learner's kernel for n triplets that are checked already and of its type."""
    learner: Any = create(kind, **arguments)
    learner.learn(as_block(source, 2, Kind.TRIPLET))
    X, outcomes = source.X[: n + 2].astype(arguments["dtype"]), Outcomes.blank(n)
    batch = Batch(X, source.index[:n], np.ones(n, np.bool_), source.signs[:n])
    begun = time.thread_time()
    learner._fit(batch, outcomes)
    return time.thread_time() - begun


def measure(name: str, case: Case, d: int, dtype: str, quick: bool) -> list[Figure]:
    """One learner at one size, every constraint active."""
    kind = name.split()[0]
    arguments = case.arguments | {"dtype": dtype}
    if has(kind, "unit"):
        # As in the numpy forms.
        arguments |= {"unit": "published"}
    form = create(kind, **arguments).form
    most = max(2_000, int(2e8 / (d * d + 2_000)))
    source = stream(d, most)
    budget = BUDGET / 5 if quick else BUDGET
    m, loop_seconds, loop_active = 4, np.inf, 0
    facts: dict[str, Any] = {"dimension": d, "dtype": dtype}
    if case.loop is not None:
        case.loop(source, 2, dtype)
        while True:
            begun = time.thread_time()
            loop_active = case.loop(source, m, dtype)
            took = time.thread_time() - begun
            if took > budget / 4 or m >= most:
                loop_seconds = took / m
                break
            m = min(most, 2 * m if took * 8 > budget / 4 else 8 * m)
        for _ in range(0 if quick else REPEATS - 1):
            begun = time.thread_time()
            case.loop(source, m, dtype)
            loop_seconds = min(loop_seconds, (time.thread_time() - begun) / m)
        facts |= {"numpy": loop_seconds, "numpy_constraints": m, "numpy_active": loop_active / m}
    n = m if case.same else most
    block = [as_block(source, n, form)]
    compiled(kind, arguments, [as_block(source, min(n, 64), form)])
    tries = [compiled(kind, arguments, block) for _ in range(1 if quick else REPEATS)]
    seconds, active = min(tries)
    facts |= {"compiled": seconds / n, "constraints": n, "active": active / n}
    label = f"{name}, d = {d}, {dtype}"
    paper = TABLE_I.get(name, {}).get(d)
    figure = Figure("learners", f"{label}: a constraint", 1e6 * seconds / n, "microseconds", facts=facts)
    found = [figure if paper is None else replace(figure, published=f"{1e3 * paper:,.0f} microseconds")]
    if case.loop is not None:
        factor = loop_seconds / (seconds / n)
        found.append(
            Figure("learners", f"{label}: over numpy", factor, "times", at_least=case.required.get(d))
        )
        if case.alone:
            alone = min(_kernel(kind, arguments, source, n) for _ in range(1 if quick else REPEATS))
            factor = loop_seconds / (alone / n)
            facts = {"kernel": alone / n}
            found.append(
                Figure("learners", f"{label}: kernel alone over numpy", factor, "times", facts=facts)
            )
    if case.state is not None:
        found.append(_share(label, case.state(d), d, np.dtype(dtype).itemsize, seconds / n))
    return found


def _share(label: str, numbers: int, d: int, itemsize: int, seconds: float) -> Figure:
    """What a step must move, the state there and back and three vectors, of what the memory moves in that time.

    The memory is the one that holds a buffer of the state's size, mostly a cache.
    """
    size = numbers * itemsize
    moved = 2 * size + 3 * d * itemsize
    speeds = {"of_its_size": bandwidth(size), "of_a_large_buffer": bandwidth(LARGE)}
    facts = {"bytes": moved, "seconds": seconds, "bandwidth": speeds}
    share = 100 * moved / seconds / speeds["of_its_size"]
    return Figure("learners", f"{label}: share of bandwidth", share, "%", facts=facts)


def real(name: str, quick: bool) -> list[ConstraintBlock] | None:
    """One-pass triplets of a data set, in blocks of 256 samples; None where the data is not there."""
    found = arrays(name)
    if found is None:
        return None
    X, y = found["X"].astype(np.float32), found["y"]
    order = np.random.default_rng(0).permutation(len(X))[: 1_000 if quick else 5_000]
    X, y = X[order], y[order]
    width = X.std(axis=0)
    X = ((X - X.mean(axis=0)) / np.where(width > 0, width, 1)).astype(np.float32)
    builder = OnePass(prefix_pairs=False)
    blocks: list[ConstraintBlock] = []
    for start in range(0, len(X), 256):
        rows = slice(start, start + 256)
        tables = (Table(DEFAULT_MODALITY, np.ascontiguousarray(X[rows])),)
        blocks += builder.process(
            SampleBlock("benchmark", tables, y[rows].astype(np.int64), 0), Origin(start)
        ).blocks
    return blocks


def on_real_data(kind: str, data: str, blocks: list[ConstraintBlock], quick: bool) -> Figure:
    """One learner with its defaults, cost by the share that is active."""
    arguments = {"warm_up": 64} if kind in ("lego", "itml-online") else {}
    n = sum(len(block) for block in blocks)
    compiled(kind, arguments, blocks[:2])
    seconds, active = min(compiled(kind, arguments, blocks) for _ in range(1 if quick else 2))
    label = f"{kind}, {data} ({100 * active / n:.0f} % active): a constraint"
    return Figure("learners", label, 1e6 * seconds / n, "microseconds", facts={"constraints": n})


def figures(quick: bool) -> list[Figure]:
    """All learners, sizes and streams."""
    found: list[Figure] = []
    known = names()
    with one_blas_thread():
        for size in (*sorted({8 * n * d for d in DIMENSIONS for n in (1, d, 2 * d)}), LARGE):
            label = f"memory, a buffer of {size:,} bytes in place"
            found.append(Figure("learners", label, bandwidth(size) / 1e9, "GB/s"))
        for name, case in CASES.items():
            if name.split()[0] not in known:
                continue
            for d in DIMENSIONS:
                for dtype in case.dtypes:
                    found += measure(name, case, d, dtype, quick)
        found += discriminants.figures(quick)
        found += multi_modal.figures(quick)
        found += fits.figures(quick)
        for data in ("waveform", "mnist"):
            blocks = real(data, quick)
            if blocks is None:
                continue
            for kind in dict.fromkeys(name.split()[0] for name in CASES):
                if kind in known:
                    found.append(on_real_data(kind, data, blocks, quick))
    return found
