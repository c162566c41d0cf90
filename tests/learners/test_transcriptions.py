"""Every learner takes the steps that its paper prints: compared with its transcription, kernel way by kernel way.

Streams are drawn at random: dimensions 1 to 64, features of scale 1e-4 to 1e3 (or of a scale of their own in each
constraint), equal and all but equal vectors among them. Hyper-parameters that have a unit follow the scale.

- One constraint at a time: before each, the transcription takes over the product's state, so that errors do not add
  up; then mistake, loss, utilised, degenerate, rejected and the state after the step are compared.
- As one block: both run from the start, and every outcome and the last state are compared.

Two numbers are the same within 1e-9 of the largest entry (of the terms of a loss). Where the step itself amplifies a
change of the last digits of its start by more than that, which a perturbed transcription shows, the tolerance is that
amplification times `HEADROOM`; what would need more than `LOOSEST` is left out, as is whatever lies closer to an edge
than `CLOSE`. At least a quarter of all must remain; nearly all do, but where projections collapse the metric.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from kinstream.learners import registry
from kinstream.learners.base.learner import Learner, Outcomes
from kinstream.learners.base.targets import Targets
from kinstream.streams.records.values import ConstraintBlock, Kind, Table
from kinstream.testing.blocks import block, rows_of, singles
from tests.learners import published_unit
from tests.learners.reference import ReferenceOPML
from tests.learners.transcriptions import TRANSCRIPTIONS
from tests.learners.transcriptions.fusion import Concatenated, Uniform
from tests.learners.transcriptions.parts import Report, Transcription

DIMENSIONS: Final = (1, 3, 64)
#: All but one are tested in the long run.
SIZES: Final = [pytest.param(d, marks=[pytest.mark.long] * (d != 3)) for d in DIMENSIONS]
#: None: every constraint has its own, from 1e-4 to 1e3.
SCALES: Final = (1e-4, 1e-2, 1.0, 30.0, 1e3, None)
CLOSE: Final = 1e-6
TOLERANCE: Final = 1e-9
HEADROOM: Final = 1e3
LOOSEST: Final = 1e-5
#: Constraints of a stream.
LENGTH: Final = 30


@dataclass(frozen=True)
class Setup:
    """A kind with its settings, and what it is fed.

    Parameters
    ----------
    settings : of both sides, from q, the typical squared distance between two vectors.
    feed : "pairs", "targets" (pairs with targets), "triplets" or "modalities" (triplets of three).
    product : settings that only the product has.
    """

    kind: str
    name: str
    settings: Callable[[float], dict[str, Any]]
    feed: str
    product: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return f"{self.kind}-{self.name}-{self.feed}"


def setups() -> Iterator[Setup]:
    """All that are compared."""
    for loss in ("hinge", "squared"):
        for feed in ("targets", "triplets"):
            for rate in (0.1, 10.0):
                yield Setup("lego", f"{loss}-{rate}", _settings(loss=loss, eta=_over(rate, 2)), feed)
            yield Setup("lego", f"{loss}-absolute", _settings(loss=loss, eta=1e-2), feed)
        for kappa in (0.5, 0.9):
            chosen = _settings(loss=loss, eta=_over(1.0, 2), kappa=kappa)
            yield Setup("itml-online", f"{loss}-{kappa}", chosen, "targets")
        yield Setup("itml-online", loss, _settings(loss=loss, eta=_over(1.0, 2)), "triplets")
    for feed in ("pairs", "triplets"):
        yield Setup("pola", "hard", _settings(), feed)
        yield Setup("pola", "capped", _settings(cap=lambda q: 0.5 / (q**2 + 1.0)), feed)
        for psd in ("paper", "exact"):
            for start in ("zero", "identity"):
                chosen = _settings(learning_rate=_over(0.3), psd=psd, start=start)
                yield Setup("rdml", f"{psd}-{start}", chosen, feed)
    for divergence in ("frobenius", "von-neumann", "burg"):
        for shrinkage in ("soft", "hard"):
            for loss in ("hinge", "squared-hinge", "exponential", "logistic")[
                : None if shrinkage == "soft" else 1
            ]:
                chosen = _settings(
                    eta=_mirror, rho=1e-2, loss=loss, divergence=divergence, shrinkage=shrinkage
                )
                yield Setup("mdml", f"{divergence}-{shrinkage}-{loss}", chosen, "pairs")
        yield Setup("mdml", divergence, _settings(eta=_mirror, rho=0.1, divergence=divergence), "triplets")
    yield Setup("mdml", "burg-hasty", _settings(eta=0.9, rho=1e-2, divergence="burg"), "pairs")
    for rate in (0.3, 1e6):
        yield Setup("oasis", f"{rate:g}", _settings(aggressiveness=_over(rate, 2)), "triplets")
    yield Setup("oasis", "absolute", _settings(aggressiveness=0.1), "triplets")
    for start in ("identity", "zero"):
        for always in (False, True):
            chosen = _settings(eta=_over(1.0), sparsity=_times(0.02), always_shrink=always, start=start)
            yield Setup("soml-tg", f"{start}-{always}", chosen, "triplets")
    for centre in (False, True):
        chosen = _settings(kappa=_times(1.0), sparsity=_times(0.05), centre=centre)
        yield Setup("soml-da", f"{centre}", chosen, "triplets")
    for sparsity in (0.0, 0.01):
        chosen = _settings(eta=_over(0.3), sparsity=_times(sparsity))
        yield Setup("sors", f"{sparsity}", chosen, "triplets")
        chosen = _settings(eta=0.1, sparsity=_times(sparsity))
        yield Setup("adasors", f"{sparsity}", chosen, "triplets")
        yield Setup(
            "adasors", f"{sparsity}-large", _settings(eta=0.1, sparsity=sparsity, delta=0.5), "triplets"
        )
    for margin in (0.0, 0.3):
        for every in (1, 3):
            chosen = _settings(beta=0.9, aggressiveness=_over(0.5, 2), margin=_times(margin), psd_every=every)
            yield Setup("omdml", f"{margin}-{every}", chosen, "modalities")
        for own in (True, False):
            chosen = _settings(eta=_over(0.2), beta=0.8, margin=_times(margin), own_hinge=own)
            yield Setup("lomdml", f"{margin}-{own}", chosen, "modalities", {"rank": 5})
    yield Setup("omdml", "free", _settings(beta=0.5, aggressiveness=_over(5.0, 2), margin=1.0), "modalities")
    yield Setup(
        "lomdml", "clipped", _settings(eta=_over(10.0), beta=0.5, margin=1.0), "modalities", {"rank": 5}
    )


def _settings(**given: Any) -> Callable[[float], dict[str, Any]]:
    return lambda q: {name: value(q) if callable(value) else value for name, value in given.items()}


def _over(number: float, power: int = 1) -> Callable[[float], float]:
    return lambda q: number / q**power


def _mirror(q: float) -> float:
    """A step of the metric is small at large scale, one of the threshold at small scale."""
    return 0.3 / max(q, 1.0)


def _times(number: float) -> Callable[[float], float]:
    return lambda q: number * q


def _cases() -> list[Any]:
    """All set-ups in both ways; the first of a kind and feed is tested every time, the others in the long run."""
    cases, seen = [], set()
    for setup in setups():
        marks = [pytest.mark.long] * ((setup.kind, setup.feed) in seen)
        seen.add((setup.kind, setup.feed))
        known = setup.kind in registry.names()
        ways = ("sequential", "blocked") if known and registry.has(setup.kind, "kernel") else (None,)
        cases += [
            pytest.param(setup, way, id=f"{setup}-{way}" if way else str(setup), marks=marks) for way in ways
        ]
    return cases


# ---- Streams ----------------------------------------------------------------------------------------------------


def typical(d: int, scale: float | None) -> float:
    """Squared distance between two vectors of a stream."""
    return 2.0 * d * (scale or 1.0) ** 2


def stream(feed: str, d: int, scale: float | None, seed: int) -> ConstraintBlock:
    """A random block: two classes, every tenth constraint with vectors that are equal, or equal but for 1e-13."""
    draw = np.random.default_rng((seed, d, zlib.crc32(repr(scale).encode())))
    width = 2 if feed in ("pairs", "targets") else 3
    label = draw.integers(0, 2, (LENGTH, 2))
    label = np.column_stack([label[:, 0], label[:, 0], 1 - label[:, 0]])
    similar = draw.uniform(size=LENGTH) < 0.5
    if width == 2:
        label = np.where(similar[:, None], label[:, :2], label[:, 1:])
    own = 10.0 ** draw.uniform(-4, 3, (LENGTH, 1, 1)) if scale is None else np.full((LENGTH, 1, 1), scale)
    sizes = {"colour": d, "edges": 2 + d // 2, "texture": 4} if feed == "modalities" else {"": d}
    tables, index = [], np.arange(LENGTH * width, dtype=np.int32).reshape(LENGTH, width)
    for name, size in sizes.items():
        centres = 0.5 * draw.normal(size=(2, size))
        X = own * (centres[label] + draw.normal(size=(LENGTH, width, size)))
        if feed == "modalities":
            X = own * draw.uniform(size=X.shape)
        for t in range(5, LENGTH, 10):
            X[t, 1] = X[t, -1] if t % 20 == 5 else X[t, 0]
        if size > 1 and feed != "modalities":
            # Zero differences in the relative sense: float32 holds 1e-13 beside 1.
            X[LENGTH // 2, :, 0] = X[LENGTH // 2, 0, 0]
            X[LENGTH // 2, :, 1:] = 1e-16 * X[LENGTH // 2, :, 1:]
        tables.append(Table(name, np.ascontiguousarray(X.reshape(-1, size), np.float32)))
    wanted = typical(d, scale) * np.where(similar, 0.5, 1.5) * draw.uniform(0.2, 2.0, LENGTH)
    if scale is None:
        wanted *= own[:, 0, 0] ** 2
    wanted[LENGTH // 3] = 0.0
    made = block(
        tables[0].vectors,
        index,
        Kind.PAIR if width == 2 else Kind.TRIPLET,
        "test",
        np.where(similar, 1, -1) if width == 2 else None,
        wanted if feed == "targets" else None,
    )
    return made if feed != "modalities" else replace(made, tables=tuple(tables))


# ---- The two sides ----------------------------------------------------------------------------------------------


def product(setup: Setup, way: str | None, d: int, scale: float | None) -> Learner:
    """The learner under test."""
    q = typical(d, scale)
    settings = setup.settings(q) | dict(setup.product)
    if way is not None:
        settings["kernel"] = way
    if setup.kind in ("lego", "itml-online"):
        settings |= {"targets": "block"} if setup.feed == "targets" else own_targets(q)
    return published_unit.create(setup.kind, dtype="float64", **settings)


def own_targets(q: float) -> dict[str, float]:
    """y_S and y_D of triplets."""
    return {"y_similar": 0.4 * q, "y_dissimilar": 1.7 * q}


class Steps:
    """A transcription that is fed rows of a block."""

    def __init__(self, setup: Setup, d: int, scale: float | None, whole: ConstraintBlock) -> None:
        q = typical(d, scale)
        make: Any = TRANSCRIPTIONS[setup.kind]
        settings = setup.settings(q)
        sizes = {table.name: table.vectors.shape[1] for table in whole.tables}
        first: Any = d
        if setup.kind == "omdml":
            first = sizes
        if setup.kind == "lomdml":
            draw = np.random.default_rng(d)
            first = {n: draw.normal(size=(min(setup.product["rank"], s), s)) for n, s in sizes.items()}
        self.learner: Any = make(first, **settings)
        self.setup = setup
        self.whole = whole
        self.q = q
        self.thresholds: NDArray[Any] = np.full(len(whole), np.nan)
        if setup.feed == "targets":
            of = Targets("block", None, None, 2)
            self.thresholds = of.of(whole.signs, whole.targets)[1]

    def step(self, t: int) -> Report:
        """One constraint."""
        rows = self.whole.index[t]
        if self.setup.feed == "modalities":
            vectors = [
                {table.name: table.vectors[row].astype(np.float64) for table in self.whole.tables}
                for row in rows
            ]
        else:
            vectors = list(self.whole.tables[0].vectors[rows].astype(np.float64))
        with np.errstate(all="ignore"):
            if len(rows) == 2:
                target = None if self.whole.targets is None else float(self.whole.targets[t])
                found = self.learner.pair(*vectors, int(self.whole.signs[t]), target, self.thresholds[t])
            elif self.setup.kind in ("lego", "itml-online"):
                y = own_targets(self.q)
                targets = (y["y_similar"], y["y_dissimilar"])
                found = self.learner.triplet(*vectors, targets, sum(targets) / 2.0)
            else:
                found = self.learner.triplet(*vectors)
        result: Report = found
        return result


def difference(
    learner: Transcription, one: Mapping[str, Any], other: Mapping[str, Any], size: Mapping[str, Any]
) -> float:
    """Largest of the entries' differences, each relative to the largest entry in `size` of that name."""
    left, right = learner.comparable(one), learner.comparable(other)
    with np.errstate(all="ignore"):
        return max(_largest(left[n] - right[n]) / max(_largest(size[n]), 1e-300) for n in left)


def _largest(values: NDArray[Any]) -> float:
    return float(np.abs(values).max())


def perturb(learner: Transcription, draw: np.random.Generator) -> None:
    """Change the last digits of a state, those of the largest numbers on the way to it; symmetric where it was."""
    found = {}
    for name, value in learner.state().items():
        largest = max(_largest(np.asarray(value)), learner.reach.get(name, 0.0))
        noise = (2.0 * draw.integers(0, 2, np.shape(value)) - 1.0) * largest * 1e-15
        if np.ndim(value) == 2 and np.array_equal(value, np.transpose(value)):
            noise = (noise + noise.T) / 2.0
        found[name] = np.maximum(1.0, value + noise) if name in ("b", "mu") else value + noise
    learner.load(found)


def compared(found: Outcomes, t: int, wanted: Report, twin: Report, moved: float, slack: float) -> None:
    """Assert that an outcome is the transcription's; `twin` is that of the perturbed one."""
    assert bool(found.rejected[t]) == wanted["rejected"], "rejected"
    if wanted["rejected"]:
        return
    assert int(found.mistake[t]) == (-1 if wanted["mistake"] is None else int(wanted["mistake"])), "mistake"
    if not (wanted["utilised"] and moved < 1e-13):
        assert bool(found.utilised[t]) == wanted["utilised"], "utilised"
        assert bool(found.degenerate[t]) == wanted["degenerate"], "degenerate"
    if np.isfinite(wanted["size"]):
        room = slack * wanted["size"] + HEADROOM * abs(twin["loss"] - wanted["loss"])
        assert abs(found.loss[t] - wanted["loss"]) <= room, (found.loss[t], wanted["loss"])


def usable(wanted: Report) -> bool:
    """Whether rounding cannot decide a branch of the step."""
    return wanted["edge"] >= CLOSE


@cache
def rows_to_learn(setup: Setup, d: int, scale: float | None) -> tuple[ConstraintBlock, int]:
    """A stream without the constraints that lie on an edge, and how many of its first rows a block can hold."""
    whole = stream(setup.feed, d, scale, zlib.crc32(str(setup).encode()))
    steps, kept = Steps(setup, d, scale, whole), []
    for t in range(len(whole)):
        before = deepcopy(steps.learner)
        if usable(steps.step(t)):
            kept.append(t)
        else:
            steps.learner = before
    chosen = rows_of(whole, np.array(kept, np.intp))  # type: ignore[arg-type]
    one, other = Steps(setup, d, scale, chosen), Steps(setup, d, scale, chosen)
    draw = np.random.default_rng(1)
    largest: dict[str, NDArray[Any]] = {}
    for t in range(len(chosen)):
        perturb(other.learner, draw)
        reports = one.step(t), other.step(t)
        left, right = one.learner.state(), other.learner.state()
        for name, value in one.learner.comparable(left).items():
            entries = (_largest(value), one.learner.reach.get(name, 0.0))
            largest[name] = np.append(largest.get(name, []), entries)
        losses = abs(reports[0]["loss"] - reports[1]["loss"]) / max(reports[0]["size"], 1e-300)
        if HEADROOM * max(losses, difference(one.learner, left, right, largest)) > LOOSEST:
            return chosen, t
    return chosen, len(chosen)


def started(
    setup: Setup, way: str | None, d: int, scale: float | None, whole: ConstraintBlock, steps: Steps
) -> Learner:
    """The learner under test, in the transcription's first state."""
    learner = product(setup, way, d, scale)
    if setup.kind == "lomdml":
        # Where its W begin is the product's choice; the state holds nothing else that a first constraint changes.
        learner.learn(rows_of(whole, slice(0, 1)))
        first = {name: W for name, W in steps.learner.state().items() if name != "theta"}
        even = np.zeros(len(first), np.int64)
        learner.restore(learner.state() | first | {"accepted": 0, "behind": even})
    return learner


def state_of(learner: Any) -> dict[str, Any]:
    """The product's state; what it keeps in another form (sums, counts, thresholds still due) from its attributes."""
    state: dict[str, Any] = dict(learner.state())
    state |= {name: getattr(learner, name) for name in ("W", "w") if hasattr(learner, name)}
    if hasattr(learner, "weights"):
        state["theta"] = np.array(list(learner.weights.values()))
    return state


# ---- Tests ------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Small eigenproblems take longest with threads that wait for each other."""
    with threadpool_limits(1, "blas"):
        yield


def _known(setup: Setup) -> None:
    if setup.kind not in registry.names():
        pytest.fail(f"kinstream.learners.registry knows no {setup.kind!r}")


@pytest.mark.parametrize("d", SIZES)
@pytest.mark.parametrize(("setup", "way"), _cases())
def test_every_step_is_the_transcribed_one(setup: Setup, way: str | None, d: int) -> None:
    _known(setup)
    compared_steps = 0
    draw = np.random.default_rng(d)
    for scale in SCALES:
        whole, _ = rows_to_learn(setup, d, scale)
        steps, twin = Steps(setup, d, scale, whole), Steps(setup, d, scale, whole)
        learner = started(setup, way, d, scale, whole, steps)
        for t, single in enumerate(singles(whole)):
            before = state_of(learner) if t or setup.kind == "lomdml" else steps.learner.state()
            steps.learner.load(before)
            twin.learner.load(steps.learner.state())
            perturb(twin.learner, draw)
            wanted = steps.step(t)
            other = twin.step(t)
            outcomes = learner.learn(single)
            after = state_of(learner)
            assert all(np.isfinite(np.asarray(after[name])).all() for name in steps.learner.state())
            old, new = steps.learner.comparable(before), steps.learner.comparable(steps.learner.state())
            reach = steps.learner.reach
            size = {n: np.array([_largest(old[n]), _largest(new[n]), reach.get(n, 0.0)]) for n in new}
            moved = difference(steps.learner, before, steps.learner.state(), size)
            slack = max(
                TOLERANCE,
                HEADROOM * difference(steps.learner, twin.learner.state(), steps.learner.state(), size),
            )
            if not usable(wanted) or slack > LOOSEST:
                continue
            compared_steps += 1
            where = f"scale {scale}, step {t}: {wanted}"
            try:
                compared(outcomes, 0, wanted, other, moved, slack)
            except AssertionError as error:
                raise AssertionError(f"{where}: {error}") from None
            found = difference(steps.learner, after, steps.learner.state(), size)
            assert found <= slack, f"{where}: state differs by {found:.3g} of the largest entry"
    assert compared_steps >= LENGTH * len(SCALES) // 4


@pytest.mark.parametrize("d", [*SIZES[:1], *SIZES[2:]])
@pytest.mark.parametrize(("setup", "way"), _cases())
def test_a_block_ends_where_the_transcription_ends(setup: Setup, way: str | None, d: int) -> None:
    _known(setup)
    compared_steps = 0
    draw = np.random.default_rng(d)
    for scale in SCALES:
        whole, length = rows_to_learn(setup, d, scale)
        compared_steps += length
        if length == 0:
            continue
        whole = rows_of(whole, slice(0, length))
        steps, twin = Steps(setup, d, scale, whole), Steps(setup, d, scale, whole)
        learner = started(setup, way, d, scale, whole, steps)
        outcomes = learner.learn(whole)
        slack = TOLERANCE
        largest: dict[str, NDArray[Any]] = {}
        for t in range(length):
            before = steps.learner.state()
            perturb(twin.learner, draw)
            wanted = steps.step(t)
            other = twin.step(t)
            now = steps.learner.state()
            for name, value in steps.learner.comparable(now).items():
                entries = (_largest(value), steps.learner.reach.get(name, 0.0))
                largest[name] = np.append(largest.get(name, []), entries)
            moved = difference(steps.learner, before, now, steps.learner.comparable(before))
            slack = max(slack, HEADROOM * difference(steps.learner, twin.learner.state(), now, largest))
            try:
                compared(outcomes, t, wanted, other, moved, slack)
            except AssertionError as error:
                raise AssertionError(f"scale {scale}, row {t}: {wanted}: {error}") from None
        found = difference(steps.learner, state_of(learner), steps.learner.state(), largest)
        assert found <= slack, f"scale {scale}: state differs by {found:.3g} of the largest entry"
    assert compared_steps >= LENGTH * len(SCALES) // 4


def test_every_transcribed_kind_is_a_product() -> None:
    assert set(TRANSCRIPTIONS) <= set(registry.names())


def test_streams_reach_what_they_are_for() -> None:
    """Utilised and not, capped and not, degenerate and not: each in most of the set-ups."""
    seen: dict[str, set[str]] = {"utilised": set(), "clipped": set(), "degenerate": set()}
    quiet = set()
    for setup in setups():
        whole, _ = rows_to_learn(setup, 3, 1.0)
        steps = Steps(setup, 3, 1.0, whole)
        reports = [steps.step(t) for t in range(len(whole))]
        for name, kinds in seen.items():
            if any(r[name] for r in reports):  # type: ignore[literal-required]
                kinds.add(setup.kind)
        if any(not r["utilised"] and not r["degenerate"] for r in reports):
            quiet.add(setup.kind)
    assert seen["utilised"] == set(TRANSCRIPTIONS)
    assert seen["degenerate"] >= set(TRANSCRIPTIONS) - {"omdml", "lomdml"}
    assert seen["clipped"] >= {"itml-online", "pola", "rdml", "mdml", "oasis", "omdml", "lomdml"}
    assert quiet == set(TRANSCRIPTIONS)


class OPMLSteps(ReferenceOPML):
    """The reference of OPML, with a distance."""

    def distance(self, u: NDArray[Any], v: NDArray[Any]) -> float:
        """Learned squared distance."""
        return float(np.sum((self.L @ (u - v)) ** 2))


#: Base -> its settings, and how to make its transcription of d features.
FUSED: Final[dict[str, tuple[dict[str, Any], Callable[[int], Any]]]] = {
    "opml": ({"gamma": 0.05}, lambda d: OPMLSteps(d, 0.05)),
    "pola": ({}, lambda d: TRANSCRIPTIONS["pola"](d)),  # type: ignore[call-arg]
    "rdml": (
        {"learning_rate": 0.1, "start": "identity"},
        lambda d: TRANSCRIPTIONS["rdml"](d, learning_rate=0.1, start="identity"),  # type: ignore[call-arg]
    ),
}


@pytest.mark.parametrize("base", FUSED)
@pytest.mark.parametrize("how", ["concatenate", "uniform"])
@pytest.mark.parametrize("d", [1, 3, 17])
def test_fusion_is_one_learner_of_all_or_the_sum_of_one_for_each(d: int, how: str, base: str) -> None:
    assert {"fusion", base} <= set(registry.names())
    settings, make = FUSED[base]
    whole = stream("modalities", d, 1.0, 9)
    names = [table.name for table in whole.tables]
    sizes = {table.name: table.vectors.shape[1] for table in whole.tables}
    fused: Any = Concatenated(sizes, make) if how == "concatenate" else Uniform(sizes, make)
    learner: Any = published_unit.create("fusion", base=base, how=how, settings=settings)
    for t, single in enumerate(singles(whole)):
        x, positive, negative = (
            {table.name: table.vectors[row].astype(np.float64) for table in whole.tables}
            for row in whole.index[t]
        )
        near, far = fused.distance(x, positive), fused.distance(x, negative)
        before = deepcopy(fused)
        found = fused.triplet(x, positive, negative)
        reports = [found] if how == "concatenate" else list(found.values())
        if not all(usable(r) for r in reports) or 0.0 < abs(near - far) < CLOSE * (near + far):
            fused = before
            continue
        outcomes = learner.learn(single)
        assert outcomes.mistake[0] == (near >= far), (t, near, far)
        assert outcomes.utilised[0] == any(r["utilised"] for r in reports), t
        tables = [{name: v[name][None] for name in names} for v in (x, positive, negative)]
        for other in (1, 2):
            assert learner.distance(tables[0], tables[other])[0] == pytest.approx(
                fused.distance(x, (positive, negative)[other - 1]), rel=1e-7, abs=1e-9
            )
