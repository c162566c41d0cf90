"""The counts of one partition of `outcomes`, by space and learner. Pure: no clock, no Kafka, no Prometheus.

The mistake rate is mistakes / scored over constraints that were judged before anything of their event was learned; the
utilisation is utilised / accepted (= seen); docs/learning.md, "What is reported".
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.checkpoints.state_bytes import State
from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.held_out import METRICS, UNLEARNED, HeldOut, HeldOutSums
from kinstream.streams.records.values import COUNT_NAMES, Counts, Outcome

#: Label of sums: unlisted spaces, rules beyond `MAX_RULES`, and spaces or rules with this very name.
OTHER: Final = "other"
#: How far an event may be ahead of the log of its outcome.
MAX_AHEAD_MS: Final = 300_000
#: Rules counted by name on one partition: the first to appear.
MAX_RULES: Final = 32
#: No block holds more rows; a larger count is invalid, and sums stay far below 2^63.
MAX_COUNT: Final = 2**31

#: Columns of a checkpoint. The second and third ones are separate, so that older versions can read the first.
_SPLIT: Final = ("split_scored", "split_mistakes")
_HELD: Final = ("held_out",)
_INTEGERS: Final = tuple(name for name in COUNT_NAMES if name not in ("loss_sum", *_SPLIT, *_HELD))
#: Columns of a tally's held-out events: its number, whether they stand, both sums, and what `_flat` has behind them.
_FLAT: Final = 3 + 2 * (2 + len(METRICS) + len(UNLEARNED)) + 4


class ExactShare(NamedTuple):
    """A share as two exact integers."""

    part: int = 0
    whole: int = 0

    @property
    def ratio(self) -> float | None:
        """Between 0 and 1; None if the denominator is 0."""
        return self.part / self.whole if self.whole else None


def mistakes(counts: Counts) -> ExactShare:
    """Mistakes among the scored constraints: the mistake rate. Split constraints count in neither."""
    return ExactShare(counts.mistakes, counts.scored)


def utilised(counts: Counts) -> ExactShare:
    """Utilised among the accepted constraints."""
    return ExactShare(counts.utilised, counts.seen)


class Window:
    """The newest blocks that together hold at least `size` constraints, and no more blocks than needed.

    Every block kept holds at least one, so at most `size` blocks are kept.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"window size is {size}; it must be at least 1")
        self.size = size
        self.sum = ExactShare()
        self.blocks: deque[ExactShare] = deque()

    def add(self, block: ExactShare) -> None:
        """Append a block; an empty one leaves the window unchanged."""
        if not block.whole:
            return
        self.blocks.append(block)
        part, whole = self.sum.part + block.part, self.sum.whole + block.whole
        while whole - self.blocks[0].whole >= self.size:
            oldest = self.blocks.popleft()
            part, whole = part - oldest.part, whole - oldest.whole
        self.sum = ExactShare(part, whole)

    def clear(self) -> None:
        self.blocks.clear()
        self.sum = ExactShare()


@dataclass(slots=True)
class Tally:
    """What one learner did with the constraints of one space; under `OTHER`, of all unlisted spaces together.

    Parameters
    ----------
    mistake_window, utilisation_window : None while the space is not listed.
    generation, epoch, step, weights : of the newest outcome; experts or modalities by name.
    time_ms : newest event since the model began, or None before the first.
    held_out : all blocks, and where the newest model stands; None before the first held-out event.
    stands : whether the window of `held_out` is that of the current model.
    """

    totals: Counts = field(default_factory=Counts)
    by_rule: dict[str, Counts] = field(default_factory=dict)
    mistake_window: Window | None = None
    utilisation_window: Window | None = None
    generation: int = -1
    epoch: int = -1
    step: int = 0
    time_ms: int | None = None
    weights: dict[str, float] = field(default_factory=dict)
    held_out: HeldOut | None = None
    stands: bool = False

    def count(self, counts: Counts, by_rule: dict[str, Counts], held_out: HeldOut | None = None) -> None:
        """Add one block to the totals."""
        self.totals += counts
        if held_out is not None:
            self.held_out = held_out if self.held_out is None else self.held_out + held_out
            self.stands = True
        for rule, some in by_rule.items():
            self.by_rule[rule] = self.by_rule.get(rule, Counts()) + some

    def slide(self, counts: Counts, window: int) -> None:
        """Add one block to the windows."""
        for_mistakes, for_utilisation = self.windows(window)
        for_mistakes.add(mistakes(counts))
        for_utilisation.add(utilised(counts))

    def windows(self, size: int) -> tuple[Window, Window]:
        """Both windows, made when they are first needed."""
        self.mistake_window = self.mistake_window or Window(size)
        self.utilisation_window = self.utilisation_window or Window(size)
        return self.mistake_window, self.utilisation_window

    def drop_windows(self) -> None:
        """Forget the windows: a fresh model, or a space that is no longer listed."""
        self.mistake_window = self.utilisation_window = None

    def follow(self, outcome: Outcome, log_ms: int) -> None:
        """Copy the model's values from the outcome. A newer model empties the windows, never the totals.

        Parameters
        ----------
        log_ms : time of the outcome in its log, or 0. Whatever clock has dated an event, it is not newer.
        """
        if (outcome.generation, outcome.epoch) > (self.generation, self.epoch):
            self.drop_windows()
            self.time_ms, self.stands = None, False
        self.generation, self.epoch = outcome.generation, outcome.epoch
        self.step = outcome.step
        newest = outcome.time_ms if self.time_ms is None else max(self.time_ms, outcome.time_ms)
        self.time_ms = min(newest, log_ms + MAX_AHEAD_MS) if log_ms > 0 else newest
        self.weights = dict(outcome.weights)


class Row(NamedTuple):
    """A tally at one moment. Unlisted spaces together have no `step`, `time_ms`, `weights`, and nothing that stands."""

    space: str
    learner: str
    totals: Counts
    by_rule: dict[str, Counts]
    mistake_window: ExactShare
    utilisation_window: ExactShare
    step: int | None
    time_ms: int | None
    weights: dict[str, float]
    held_out: HeldOut | None
    stands: bool


class Snapshot(NamedTuple):
    """The tallies of a partition between two outcomes."""

    rows: tuple[Row, ...]
    listed: int
    unlisted: int


class Tallies:
    """Tallies of one partition.

    At most `top_spaces` spaces are listed by name. A space is listed when it appears, as long as there is
    room; later it displaces the smallest listed one (by constraints seen) once it has seen more than twice as
    many and `window` more. What is applied while its space is not listed is added to `OTHER` and stays there;
    counts under a name never move to it. So no counter ever decreases, each outcome moves one
    series, and a listed space's own counters are its full totals. The listing is part of the state: the same
    after a restart, and on whichever worker.

    Parameters
    ----------
    window : constraints that the windows hold at least.
    top_spaces : how many spaces are listed by name.
    """

    def __init__(self, *, window: int, top_spaces: int) -> None:
        for name, value in (("window", window), ("top_spaces", top_spaces)):
            if value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        self.window = window
        self.top_spaces = top_spaces
        self._spaces: dict[str, dict[str, Tally]] = {}
        self._listed: dict[str, int] = {}
        self._others: dict[str, Tally] = {}
        self._rules: dict[str, None] = {}

    # ---- applying --------------------------------------------------------------------------------------

    def apply(self, outcome: Outcome, log_ms: int = 0) -> bool:
        """Count an outcome; False, with nothing changed, if its generation or epoch is older than the last.

        Each learner of a space reaches a new epoch at its own time, so epochs are compared per learner.

        Parameters
        ----------
        log_ms : time of the outcome in its log; 0 without one.

        Raises
        ------
        BadRecord : counts that contradict each other; nothing has changed.
        """
        for counts in (outcome.counts, *outcome.by_rule.values()):
            check_counts(counts)
        learners = self._spaces.get(outcome.space, {})
        tally = learners.get(outcome.learner)
        if tally is not None and (outcome.generation, outcome.epoch) < (tally.generation, tally.epoch):
            return False
        if tally is None:
            tally = learners[outcome.learner] = Tally()
            self._spaces[outcome.space] = learners
        by_rule: dict[str, Counts] = {}
        for rule, counts in outcome.by_rule.items():
            name = self._rule(rule)
            by_rule[name] = by_rule.get(name, Counts()) + counts
        tally.follow(outcome, log_ms)
        tally.count(outcome.counts, by_rule, outcome.held_out)
        if self._admit(outcome.space):
            tally.slide(outcome.counts, self.window)
        else:
            other = self._others.setdefault(outcome.learner, Tally())
            other.count(outcome.counts, by_rule, outcome.held_out)
            other.slide(outcome.counts, self.window)
        return True

    def forget(self, space: str, learner: str) -> None:
        """Drop the tally of a learner whose space was deleted; unknown ones are ignored."""
        learners = self._spaces.get(space, {})
        learners.pop(learner, None)
        if not learners:
            self._spaces.pop(space, None)
            self._listed.pop(space, None)

    def _rule(self, rule: str) -> str:
        if rule not in self._rules:
            if len(self._rules) >= MAX_RULES or rule == OTHER:
                return OTHER
            self._rules[rule] = None
        return rule

    def _admit(self, space: str) -> bool:
        """Whether the space is listed, after listing it if it has become large enough."""
        if space == OTHER:
            return False
        size = sum(tally.totals.seen for tally in self._spaces[space].values())
        if space not in self._listed and len(self._listed) >= self.top_spaces:
            smallest = min(self._listed, key=self._listed.__getitem__)
            if size <= 2 * self._listed[smallest] + self.window:
                return False
            self._unlist(smallest)
        self._listed[space] = size
        return True

    def _unlist(self, space: str) -> None:
        del self._listed[space]
        for tally in self._spaces[space].values():
            tally.drop_windows()

    # ---- reading ---------------------------------------------------------------------------------------

    def find(self, space: str, learner: str) -> Tally | None:
        """The live tally of a space, listed or not; None if there is none."""
        return self._spaces.get(space, {}).get(learner)

    @property
    def listed(self) -> tuple[str, ...]:
        """Spaces listed by name, the longest listed first."""
        return tuple(self._listed)

    def snapshot(self) -> Snapshot:
        """The values to show: the listed spaces, and the rest by learner under `OTHER`."""
        rows = [
            _row(space, learner, tally, has_model=True)
            for space in self._listed
            for learner, tally in self._spaces[space].items()
        ]
        rows += [_row(OTHER, learner, tally, has_model=False) for learner, tally in self._others.items()]
        return Snapshot(tuple(rows), len(self._listed), len(self._spaces) - len(self._listed))

    # ---- checkpoints -----------------------------------------------------------------------------------

    def state(self) -> State:
        """All tallies as columns: names as JSON, integers as int64, sums and weights as float64."""
        keys = [(space, learner) for space, learners in self._spaces.items() for learner in learners]
        tallies = [self._spaces[space][learner] for space, learner in keys] + list(self._others.values())
        models = [
            (
                t.generation,
                t.epoch,
                t.step,
                t.time_ms is not None,
                t.time_ms or 0,
                t.mistake_window is not None,
            )
            for t in tallies
        ]
        by_rule = [(i, rule, counts) for i, t in enumerate(tallies) for rule, counts in t.by_rule.items()]
        blocks = [
            (i, kind, *block)
            for i, t in enumerate(tallies)
            for kind, window in enumerate((t.mistake_window, t.utilisation_window))
            if window is not None
            for block in window.blocks
        ]
        weights = [(i, name, weight) for i, t in enumerate(tallies) for name, weight in t.weights.items()]
        return {
            "keys": json.dumps(keys),
            "others": json.dumps(list(self._others)),
            "listed": json.dumps(list(self._listed)),
            "rules": json.dumps(list(self._rules)),
            "models": np.array(models, np.int64).reshape(-1, 6),
            "counts": _integers([t.totals for t in tallies], _INTEGERS),
            "split": _integers([t.totals for t in tallies], _SPLIT),
            "held": _integers([t.totals for t in tallies], _HELD),
            "held_out": np.array(
                [(i, t.stands, *_flat(t.held_out)) for i, t in enumerate(tallies) if t.held_out is not None],
                np.float64,
            ).reshape(-1, _FLAT),
            "losses": np.array([t.totals.loss_sum for t in tallies], np.float64),
            "rule_names": json.dumps([(i, rule) for i, rule, _ in by_rule]),
            "rule_counts": _integers([counts for _, _, counts in by_rule], _INTEGERS),
            "rule_split": _integers([counts for _, _, counts in by_rule], _SPLIT),
            "rule_held": _integers([counts for _, _, counts in by_rule], _HELD),
            "rule_losses": np.array([counts.loss_sum for _, _, counts in by_rule], np.float64),
            "blocks": np.array(blocks, np.int64).reshape(-1, 4),
            "weight_names": json.dumps([(i, name) for i, name, _ in weights]),
            "weights": np.array([weight for _, _, weight in weights], np.float64),
        }

    def restore(self, state: State) -> None:
        """Replace everything by what `state` describes; the inverse of `state`."""
        keys, others = json.loads(str(state["keys"])), json.loads(str(state["others"]))
        totals = _counts(state, "")
        tallies = [Tally(totals=counts) for counts in totals]
        for tally, (generation, epoch, step, known, time_ms, windows) in zip(
            tallies, _rows(state, "models"), strict=True
        ):
            tally.generation, tally.epoch, tally.step = generation, epoch, step
            tally.time_ms = time_ms if known else None
            if windows:
                tally.windows(self.window)
        # Older checkpoints have no held-out events.
        for i, stands, *numbers in _rows(state, "held_out") if "held_out" in state else ():
            tallies[int(i)].held_out, tallies[int(i)].stands = _held_out(numbers), bool(stands)
        names = json.loads(str(state["rule_names"]))
        for (i, rule), counts in zip(names, _counts(state, "rule_"), strict=True):
            tallies[i].by_rule[rule] = counts
        for i, kind, part, whole in _rows(state, "blocks"):
            tallies[i].windows(self.window)[kind].add(ExactShare(part, whole))
        names = json.loads(str(state["weight_names"]))
        for (i, name), weight in zip(names, _rows(state, "weights"), strict=True):
            tallies[i].weights[name] = weight
        self._rules = dict.fromkeys(json.loads(str(state["rules"])))
        self._spaces = {}
        for (space, learner), tally in zip(keys, tallies, strict=False):
            self._spaces.setdefault(space, {})[learner] = tally
        self._others = dict(zip(others, tallies[len(keys) :], strict=True))
        sizes = {
            space: sum(t.totals.seen for t in learners.values()) for space, learners in self._spaces.items()
        }
        self._listed = {space: sizes[space] for space in json.loads(str(state["listed"]))}
        while len(self._listed) > self.top_spaces:
            self._unlist(min(self._listed, key=self._listed.__getitem__))

    def gather(self, parts: Mapping[int, State], here: int, home: Callable[[str], int]) -> None:
        """Become the tallies of partition `here` of an input whose number of partitions was raised.

        The tally of a space goes where the space goes, and stays listed if it was and there is room. Counts under
        `OTHER` stay with their partition. So sums over all partitions do not change.

        Parameters
        ----------
        parts : the last state of every old partition.
        home : the partition of a space now.
        """
        come: list[str] = []
        for p, state in sorted(parts.items(), key=lambda part: (part[0] != here, part[0])):
            old = Tallies(window=self.window, top_spaces=self.top_spaces)
            old.restore(state)
            if p == here:
                self._others, self._rules = old._others, old._rules
            mine = {space: learners for space, learners in old._spaces.items() if home(space) == here}
            self._spaces |= mine
            come += [space for space in old._listed if space in mine]
        names = (rule for ls in self._spaces.values() for tally in ls.values() for rule in tally.by_rule)
        for rule in names:
            self._rule(rule)
        for space in come:
            self._admit(space)
        for space in come:
            if space not in self._listed:
                for tally in self._spaces[space].values():
                    tally.drop_windows()


def check_counts(counts: Counts) -> None:
    """Refuse invalid counts; a counter must never decrease or overflow.

    Raises
    ------
    BadRecord : mistakes above scored, all scored or utilised above seen, a count out of range, a negative loss.
    """
    if any(not 0 <= getattr(counts, name) <= MAX_COUNT for name in (*_INTEGERS, *_SPLIT, *_HELD)):
        raise BadRecord(Reason.BAD_SHAPE, f"a count outside 0 to {MAX_COUNT}")
    within = counts.mistakes <= counts.scored and counts.split_mistakes <= counts.split_scored
    if not within or max(counts.scored + counts.split_scored, counts.utilised) > counts.seen:
        raise BadRecord(Reason.BAD_SHAPE, f"counts contradict each other: {counts}")
    if not counts.loss_sum >= 0:
        raise BadRecord(Reason.BAD_SHAPE, f"the sum of losses is {counts.loss_sum}")


def _row(space: str, learner: str, tally: Tally, *, has_model: bool) -> Row:
    windows = (tally.mistake_window, tally.utilisation_window)
    wrong, used = (ExactShare() if window is None else window.sum for window in windows)
    return Row(
        space,
        learner,
        tally.totals,
        dict(tally.by_rule),
        wrong,
        used,
        step=tally.step if has_model else None,
        time_ms=tally.time_ms if has_model else None,
        weights=dict(tally.weights) if has_model else {},
        held_out=tally.held_out,
        stands=tally.stands and has_model,
    )


def _integers(counts: list[Counts], names: tuple[str, ...]) -> NDArray[np.int64]:
    rows = [[getattr(c, name) for name in names] for c in counts]
    return np.array(rows, np.int64).reshape(-1, len(names))


def _counts(state: State, which: str) -> list[Counts]:
    """The counts whose columns' names begin with `which`; older checkpoints lack some columns."""
    integers, losses = _rows(state, f"{which}counts"), _rows(state, f"{which}losses")

    def newer(name: str, names: tuple[str, ...]) -> list[Any]:
        return (
            _rows(state, f"{which}{name}") if f"{which}{name}" in state else [(0,) * len(names)] * len(losses)
        )

    columns = zip(integers, losses, newer("split", _SPLIT), newer("held", _HELD), strict=True)
    return [Counts(*(*some, loss, *split, *held)) for some, loss, split, held in columns]


def _flat(found: HeldOut) -> list[float]:
    numbers = [float(found.events)]
    for sums in (found.block, found.window):
        numbers += [sums.weight, sums.squared_weight, *sums.losses.values(), *sums.squares.values()]
    queries = -1.0 if found.queries is None else float(found.queries)
    return [*numbers, float(found.judged), queries, found.against is not None, found.against or 0.0]


def _held_out(numbers: list[float]) -> HeldOut:
    """The inverse of `_flat`; older checkpoints end behind the sums."""
    half = 2 + len(METRICS) + len(UNLEARNED)
    block, window = numbers[1 : 1 + half], numbers[1 + half : 1 + 2 * half]
    judged, queries, known, against = numbers[1 + 2 * half :] or (round(block[0]), -1.0, 0.0, 0.0)

    def sums(part: list[float]) -> HeldOutSums:
        losses, squares = part[2 : 2 + len(METRICS)], part[2 + len(METRICS) :]
        by_metric = dict(zip(METRICS, losses, strict=True))
        return HeldOutSums(part[0], part[1], by_metric, dict(zip(UNLEARNED, squares, strict=True)))

    return HeldOut(
        sums(block),
        int(numbers[0]),
        sums(window),
        int(judged),
        None if queries < 0.0 else int(queries),
        against if known else None,
    )


def _rows(state: State, name: str) -> list[Any]:
    rows: list[Any] = np.asarray(state[name]).tolist()
    return rows
