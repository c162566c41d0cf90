"""One cell of an experiment: a metric on one split of one data set, from the stream to the measures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold, TimeSeriesSplit

from kinstream.evaluation.experiment import views
from kinstream.evaluation.experiment.data import Data, LabelledRows, Labels, Recorded, Tables
from kinstream.evaluation.experiment.plan import Cell, Contender, Plan
from kinstream.evaluation.experiment.splits import Index, Scaling, scaled_blocks
from kinstream.evaluation.measures.measurement import Measured, of_constraints, of_rows
from kinstream.evaluation.runner.batch import fitted
from kinstream.evaluation.runner.prequential import Run, prequential
from kinstream.learners import registry as learners
from kinstream.learners.base.learner import Learner
from kinstream.learners.warm_up import warm_up
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.errors import KinstreamError, SettingsError
from kinstream.streams.records.values import ConstraintBlock, Kind

Blocks = Iterable[ConstraintBlock | None]
#: Bytes of a stream that are kept, for the next contender of the same split.
_KEPT_BYTES: Final = 256 * 1024**2
#: Points of a curve in each block of rows.
_POINTS: Final = 16
#: Share of the stream that a choice leaves out once.
_LEFT_OUT: Final = 0.3


@dataclass(frozen=True)
class Done:
    """A finished cell, as JSON: the result, and the times, on which no result may depend."""

    result: dict[str, Any]
    times: dict[str, Any]


class Runner:
    """Runs cells, one after the other, of one plan on some data sets.

    Parameters
    ----------
    plan : see `Plan`.
    data : one of each name.
    """

    def __init__(self, plan: Plan, data: Iterable[Data]) -> None:
        self._plan = plan
        self._data = tuple(data)
        self._streams = _Kept()
        #: Of the last split, by kind of scaler.
        self._scaled: tuple[tuple[int, int], dict[str | None, dict[str, Any]]] | None = None
        self._warm: set[str] = set()

    def run(self, cell: Cell) -> Done:
        """Choose settings if there is a choice, learn, measure.

        Raises
        ------
        SettingsError, BadRecord : the message names metric, data set and split.
        """
        contender = self._plan.contenders[cell.contender]
        data = self._data[cell.data]
        try:
            self.compile(contender)
            if isinstance(data, Recorded):
                return self._recorded(data, cell, contender)
            return self._rows(data, cell, contender)
        except KinstreamError as error:
            error.args = (f"{contender.name} on {data.name}, split {cell.split}: {error}", *error.args[1:])
            raise

    def compile(self, contender: Contender) -> None:
        """Compile once in this process, so that times of constraints exclude compilation."""
        if contender.batch:
            return
        arguments = contender.arguments(contender.grid[0])
        key = f"{contender.kind} {arguments}"
        if key not in self._warm:
            warm_up(contender.kind, arguments)
            self._warm.add(key)

    # ---- labelled rows ------------------------------------------------------------------------------------------

    def _rows(self, data: LabelledRows, cell: Cell, contender: Contender) -> Done:
        plan, seed = self._plan, self._plan.seed + cell.split
        split = plan.splitter(data, cell.split)
        if not len(split.train) or not len(split.test):
            raise SettingsError(f"{len(data)} rows leave a part empty")
        y, v = data.labels[split.train], data.labels[split.test]
        tried: list[dict[str, Any]] = []
        if len(contender.grid) > 1:
            for point in contender.grid:
                tried.append(
                    {"settings": dict(point), "score": self._tried(data, split.train, contender, point, seed)}
                )
        point = contender.grid[_best(tried)] if tried else contender.grid[0]
        scaled = self._scaling(data, cell, split.train, contender)
        seen = views.tables(scaled, contender.view)
        train = {name: table[split.train] for name, table in seen.items()}
        test = {name: table[split.test] for name, table in seen.items()}
        began = perf_counter()
        if contender.batch:
            built, run = 0.0, self._fitted(contender, train, y, seed)
        else:
            stream = self._stream((cell.data, cell.split), contender, train, y, seed)
            built = perf_counter() - began
            run = self._learned(contender, point, seed, stream)
        began = perf_counter()
        with one_blas_thread():
            found = of_rows(run.learner, views.several(contender), train, y, test, v, plan.measuring, seed)
        measuring = perf_counter() - began
        done = self._done(
            cell, data, contender, point, tried, run, found, (len(y), len(v)), (built, measuring)
        )
        done.result["smallest_class"] = int(np.unique(y, return_counts=True)[1].min())
        return done

    def _fitted(self, contender: Contender, train: Tables, y: Labels, seed: int) -> Run:
        began = perf_counter()
        with one_blas_thread():
            model: Any = fitted(contender.kind, next(iter(train.values())), y, seed)
        return Run(model, seconds=[perf_counter() - began], sizes=[len(y)])

    def _scaling(self, data: LabelledRows, cell: Cell, train: Index, contender: Contender) -> dict[str, Any]:
        place, kind = (cell.data, cell.split), contender.scaling
        if self._scaled is None or self._scaled[0] != place:
            self._scaled = (place, {})
        if kind not in self._scaled[1]:
            self._scaled[1][kind] = self._scale(data, train, contender)
        return self._scaled[1][kind]

    def _scale(self, data: LabelledRows, train: Index, contender: Contender) -> dict[str, Any]:
        """All rows after the contender's scaler, which is fitted to the training rows."""
        scaling = self._plan.scaling if contender.scaling is None else Scaling(contender.scaling)
        return scaling(data.tables, train)

    def _stream(
        self, place: tuple[int, int], contender: Contender, train: Tables, y: Labels, seed: int
    ) -> Blocks:
        key = (place, repr(contender.feed.describe()), contender.view, contender.scaling)
        return self._streams.of(key, lambda: contender.feed(train, y, seed))

    def _tried(
        self, data: LabelledRows, train: Index, contender: Contender, point: Mapping[str, Any], seed: int
    ) -> float | None:
        """Mean score of a point over the folds, less is better; None if it has none."""
        choice = self._plan.choice
        scores = []
        for fit, rest in _folds(len(train), choice.folds, seed):
            # A stream keeps its order.
            inner, left = train[np.sort(fit)], train[np.sort(rest)]
            tables = views.tables(self._scale(data, inner, contender), contender.view)
            x = {name: table[inner] for name, table in tables.items()}
            u = {name: table[left] for name, table in tables.items()}
            y, v = data.labels[inner], data.labels[left]
            run = self._learned(contender, point, seed, _at_most(contender.feed(x, y, seed), choice.limit))
            if choice.by == "mistakes":
                scores.append(_share(run.counts.mistakes, run.counts.scored))
            else:
                what = "retrieval" if choice.by == "map" else "classification"
                with one_blas_thread():
                    found = of_rows(
                        run.learner,
                        views.several(contender),
                        x,
                        y,
                        u,
                        v,
                        self._plan.measuring,
                        seed,
                        what=(what,),
                    )
                value = found.values.get("map" if choice.by == "map" else "error")
                scores.append(math.nan if value is None else -value if choice.by == "map" else value)
        mean = float(np.mean(scores))
        return mean if math.isfinite(mean) else None

    # ---- recorded constraints -----------------------------------------------------------------------------------

    def _recorded(self, data: Recorded, cell: Cell, contender: Contender) -> Done:
        every = [
            b if b is None else views.block(b, contender.view) for b in data.streams[contender.feed.name]
        ]
        stop, end = _parts(every, self._plan.hold_out, self._plan.splits, cell.split)
        every = scaled_blocks(every, stop, contender.scaling or "none")
        stream, rest = every[:stop], list(_begun(b for b in every[stop:end] if b is not None))
        declared = None if contender.unlearned else data.scaler
        tried: list[dict[str, Any]] = []
        if len(contender.grid) > 1:
            for point in contender.grid:
                run = self._learned(contender, point, None, stream, declared)
                score = _share(run.counts.mistakes, run.counts.scored)
                tried.append({"settings": dict(point), "score": score if math.isfinite(score) else None})
        point = contender.grid[_best(tried)] if tried else contender.grid[0]
        run = self._learned(contender, point, None, stream, declared)
        began = perf_counter()
        with one_blas_thread():
            found = of_constraints(run.learner, views.several(contender), rest, self._plan.measuring.ranks)
        sizes = (_constraints(stream), _constraints(rest))
        return self._done(
            cell, data, contender, point, tried, run, found, sizes, (0.0, perf_counter() - began)
        )

    # ---- both ---------------------------------------------------------------------------------------------------

    def _learned(
        self,
        contender: Contender,
        point: Mapping[str, Any],
        seed: int | None,
        stream: Blocks,
        declared: str | None = None,
    ) -> Run:
        arguments = contender.arguments(point, seed)

        def make() -> Learner:
            return learners.create_in(declared, contender.kind, **arguments)

        # The constraints of a log have the points that its outcomes have, one for each block.
        return prequential(make, stream, points=1 if seed is None else _POINTS)

    def _done(
        self,
        cell: Cell,
        data: Data,
        contender: Contender,
        point: Mapping[str, Any],
        tried: list[dict[str, Any]],
        run: Run,
        found: Measured,
        sizes: tuple[int, int],
        seconds: tuple[float, float],
    ) -> Done:
        counts = asdict(run.counts)
        counts["loss"] = counts.pop("loss_sum")
        measures = dict(found.values)
        if run.counts.scored:
            measures["mistake_rate"] = run.counts.mistakes / run.counts.scored
        if run.counts.seen and not contender.unlearned:
            measures["utilisation"] = run.counts.utilised / run.counts.seen
        curve = run.curve.thinned(self._plan.curve_points)
        names = sorted({name for at in curve.weights for name in at})
        where = {"data": data.name, "metric": contender.name, "split": cell.split}
        result = where | {
            "seed": self._plan.seed + cell.split,
            "train_rows": sizes[0],
            "test_rows": sizes[1],
            "settings": {**contender.settings, **point},
            "tried": tried,
            "constraints": run.constraints,
            "columns": found.columns,
            "shares": found.shares,
            "counts": counts,
            "curve": {
                "constraints": curve.constraints,
                "scored": curve.scored,
                "mistakes": curve.mistakes,
                "utilised": curve.utilised,
            },
            "weights": {
                "constraints": curve.weighed,
                "names": names,
                "values": [[at.get(name, 0.0) for name in names] for at in curve.weights],
            }
            if names
            else None,
            "measures": measures,
            "roc": found.roc,
            "recall": found.recall,
        }
        transform = {"seconds_transform": found.seconds_transform, "transformed": found.transformed}
        return Done(result, where | _times(run, *seconds) | transform)


class _Kept:
    """Streams of the last split, so that contenders of one feed do not each build it. Large ones are rebuilt."""

    def __init__(self) -> None:
        self._place: Any = None
        self._kept: dict[Any, tuple[ConstraintBlock, ...]] = {}

    def of(self, key: Any, make: Callable[[], Iterator[ConstraintBlock]]) -> Iterable[ConstraintBlock]:
        if self._place != key[0]:
            self._place, self._kept = key[0], {}
        if key in self._kept:
            return self._kept[key]
        blocks: list[ConstraintBlock] = []
        room = _KEPT_BYTES - sum(_bytes(b) for kept in self._kept.values() for b in kept)
        for block in make():
            blocks.append(block)
            room -= _bytes(block)
            if room < 0:
                return make()
        self._kept[key] = tuple(blocks)
        return self._kept[key]


def _bytes(block: ConstraintBlock) -> int:
    return sum(table.vectors.nbytes for table in block.tables) + block.index.nbytes


def _folds(n: int, folds: int, seed: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    order = np.random.default_rng([seed, 1_618]).permutation(n)
    if folds == 1:
        cut = n - max(1, round(n * _LEFT_OUT))
        yield order[:cut], order[cut:]
        return
    for fit, rest in KFold(folds).split(order):
        yield order[fit], order[rest]


def _at_most(stream: Iterator[ConstraintBlock], limit: int | None) -> Iterator[ConstraintBlock]:
    left = limit
    for block in stream:
        if left is None:
            yield block
            continue
        yield block.take(slice(left)) if len(block) > left else block
        left -= len(block)
        if left <= 0:
            return


def _best(tried: list[dict[str, Any]]) -> int:
    """The first of the points with the least score; one without a score comes last."""
    return min(range(len(tried)), key=lambda i: (tried[i]["score"] is None, tried[i]["score"] or 0.0, i))


def _share(part: int, whole: int) -> float:
    return part / whole if whole else math.nan


def _constraints(blocks: Iterable[ConstraintBlock | None]) -> int:
    return sum(len(block) for block in blocks if block is not None)


def _begun(blocks: Iterable[ConstraintBlock]) -> Iterator[ConstraintBlock]:
    """The blocks without the end of an event that began before them, which a learner that learned its beginning
    already knows."""
    begun = False
    for block in blocks:
        split = np.zeros(len(block), np.bool_) if begun else block.split(Kind.PAIR)
        begun |= not split.all()
        if not split.all():
            yield block.take(~split) if split.any() else block


def _parts(
    blocks: list[ConstraintBlock | None], hold_out: float, splits: int, number: int
) -> tuple[int, int]:
    """The end of a split's stream, and of its test part, in blocks.

    Each split learns from all that came before its test part; test parts follow each other, the last one at the end.
    """
    if hold_out == 0.0:
        if splits > 1:
            raise SettingsError("several splits of recorded constraints need a share that is held out")
        return len(blocks), len(blocks)
    size = max(1, round(len(blocks) * hold_out))
    if len(blocks) <= size * splits:
        raise SettingsError(f"{len(blocks)} blocks are too few for {splits} test parts of {size}")
    *_, (train, test) = list(TimeSeriesSplit(splits, test_size=size).split(blocks))[: number + 1]
    return len(train), int(test[-1]) + 1


def _times(run: Run, building: float, measuring: float) -> dict[str, Any]:
    sizes = np.maximum(np.array(run.sizes, np.int64), 1)
    each = np.repeat(np.array(run.seconds) / sizes, run.sizes) * 1e6
    return {
        "seconds_building": building,
        "seconds_learning": float(sum(run.seconds)),
        "seconds_measuring": measuring,
        "per_constraint_us": {
            "median": float(np.median(each)) if len(each) else None,
            "p99": float(np.percentile(each, 99)) if len(each) else None,
        },
    }
