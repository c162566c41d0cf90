"""ListGains of a log with the scores that they carry: how each ranking would have ordered what people saw, in one pass.

A ranking is judged on a list before anything is learned from it. Of the items shown, it is asked where it puts those
that were clicked; a click on a place that few look at counts for more, by the inverse of the place's examination. What
was not shown plays no part, so figures tell how to order candidates, not how to find them.

References
----------
Joachims, Swaminathan, Schnabel: Unbiased learning-to-rank with biased feedback. WSDM 2017 (weights by examination).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kinstream.evaluation.queries.baselines import RANKS, ranks
from kinstream.evaluation.queries.compare import FUSED, HINDSIGHT
from kinstream.learners.ranking.blend import Blend
from kinstream.learners.registry import create, offers
from kinstream.processors.base.builder import Origin
from kinstream.processors.clicks.clicks import Clicks
from kinstream.streams.errors import BadRecord, SettingsError
from kinstream.streams.records.held_out import ShownLists
from kinstream.streams.records.values import LIST_RULE, Click, ClickBlock, ConstraintBlock, ItemBlock, Kind
from kinstream.streams.signals import ADAPTED, REMEMBERED, SIMILARITY

Rows = NDArray[np.float32]
Values = NDArray[np.float64]

AS_SHOWN: Final = "what was shown"
EQUAL: Final = "equal shares"
#: Gradient steps in which these are found, and the size of the first.
_STEPS: Final = 400
_SIZE: Final = 1.0
_TINY: Final = 1e-12


class JudgedList(NamedTuple):
    """One list of n items.

    Parameters
    ----------
    query : its number.
    new : whether it is the first list of the query with a click.
    signals : (n,) by name, from the top: the similarity, and the scores that the list carries, NaN for a missing one.
    worth : (n,) of a click on each place; 0 where none was.
    """

    query: int
    new: bool
    signals: dict[str, NDArray[Any]]
    worth: Values


class ListGains(NamedTuple):
    """Gains of n lists by ranking, what each list counts, whether its query was new, and the query's number."""

    gains: dict[str, Values]
    worth: Values
    new: NDArray[np.bool_]
    query: NDArray[np.int64]


class RecordedLists:
    """Reads the events of one space in order.

    Parameters
    ----------
    contenders : kind and settings by name.
    exponent : users look at place k, from 1, with probability k^-exponent.

    Attributes
    ----------
    refused : events that the builder of lists refused.

    Raises
    ------
    SettingsError : a contender has no similarity of queries to items, or takes no pairs.
    """

    def __init__(self, contenders: dict[str, tuple[str, dict[str, Any]]], exponent: float = 1.0) -> None:
        self._builder = Clicks(rules=(LIST_RULE,), bias_exponent=exponent)
        self._learners: dict[str, Any] = {}
        for name, (kind, settings) in contenders.items():
            if not offers(kind, "W") or Kind.PAIR not in create(kind).accepts:
                raise SettingsError(
                    f"{kind} has no similarity of queries to items, or does not learn from lists"
                )
            self._learners[name] = create(kind, **settings)
        self._learned: dict[str, list[float]] = {name: [] for name in self._learners}
        self._queries: dict[bytes, int] = {}
        self._seen: list[JudgedList] = []
        self._offset = 0
        self.refused = 0

    def take(self, event: object) -> None:
        """The next event. Those that are no items and no lists play no part."""
        if not isinstance(event, ItemBlock | Click | ClickBlock):
            return
        self._offset += 1
        try:
            blocks = self._builder.process(event, Origin(offset=self._offset, append_ms=_time(event))).blocks
        except BadRecord:
            self.refused += 1
            return
        for block in blocks:
            if block.lists is not None:
                self._judge(block, block.lists)
            for learner in self._learners.values():
                learner.learn(block)

    def _judge(self, block: ConstraintBlock, lists: ShownLists) -> None:
        X = np.concatenate([table.vectors for table in block.tables], axis=1)
        length = np.linalg.norm(X, axis=1)
        for i, row in enumerate(lists.query.tolist()):
            places = slice(int(lists.starts[i]), int(lists.starts[i + 1]))
            items, clicked = lists.item[places], lists.clicked[places]
            before = len(self._queries)
            number = self._queries.setdefault(X[row].tobytes(), before)
            if clicked.all():
                continue
            with np.errstate(divide="ignore", invalid="ignore"):
                signals = {SIMILARITY: X[items] @ X[row] / (length[items] * length[row])}
            if lists.scores is not None:
                values = lists.scores.values[places]
                signals |= {name: values[:, k] for k, name in enumerate(lists.scores.names)}
            worth = np.where(clicked, (1.0 + np.arange(len(items))) ** lists.exponent, 0.0)
            self._seen.append(JudgedList(number, number == before, signals, worth))
            for name, learner in self._learners.items():
                names = None if lists.names is None else lists.names[places]
                values = _learned_values(learner, X[row], X[items], length[items], signals, names)
                self._learned[name].append(gain(values, worth))

    def result(self) -> ListGains:
        """The gains of all lists with a click and a choice."""
        names = sorted({name for one in self._seen for name in one.signals} - {SIMILARITY})
        rankings: dict[str, Callable[[JudgedList], NDArray[Any]]] = {
            AS_SHOWN: lambda one: -np.arange(len(one.worth), dtype=np.float64),
            SIMILARITY: lambda one: one.signals[SIMILARITY],
        }
        rankings |= {name: partial(_of, name=name) for name in names}
        if names:
            every = [SIMILARITY, *names]
            rankings[FUSED] = lambda one: np.sum(
                [1.0 / (RANKS + _ranks(_of(one, name))) for name in every], axis=0
            )
            rankings[EQUAL] = lambda one: Blend.fixed(dict.fromkeys(every, 1.0))(one.signals)
            best = Blend.fixed(self._best(every))
            rankings[HINDSIGHT] = lambda one: best(one.signals)
        gains = {
            name: np.array([gain(values(one), one.worth) for one in self._seen])
            for name, values in rankings.items()
        }
        gains |= {name: np.array(found) for name, found in self._learned.items()}
        worth = np.array([one.worth.sum() for one in self._seen])
        new = np.array([one.new for one in self._seen], np.bool_)
        return ListGains(gains, worth, new, np.array([one.query for one in self._seen], np.int64))

    def _best(self, names: list[str]) -> dict[str, float]:
        """The fixed weights that fit all lists best, by gradient steps on the softmax of each list."""
        each = [
            np.stack([Blend.fixed({name: 1.0})({name: _of(one, name)}) for name in names], axis=1)
            for one in self._seen
        ]
        values, worth = np.concatenate(each), np.concatenate([one.worth for one in self._seen])
        lengths = np.array([len(one) for one in each])
        starts = np.cumsum(lengths) - lengths
        whole = np.add.reduceat(worth, starts)
        weights, squares = np.ones(len(names)), np.zeros(len(names))
        for _ in range(_STEPS):
            value = values @ weights
            p = np.exp(value - np.repeat(np.maximum.reduceat(value, starts), lengths))
            p *= np.repeat(whole / np.add.reduceat(p, starts), lengths)
            gradient = (p - worth) @ values / len(each)
            squares += gradient * gradient
            weights -= _SIZE * gradient / (np.sqrt(squares) + _TINY)
        return dict(zip(names, weights.tolist(), strict=True))


def _of(one: JudgedList, name: str) -> NDArray[Any]:
    """(n,) values of a signal; NaN where there is none."""
    found = one.signals.get(name)
    return np.full(len(one.worth), np.nan) if found is None else found


def gain(values: NDArray[Any], worth: Values) -> float:
    """The mean of 1 / log2(1 + rank) of the clicked items, each counting its worth (n,).

    An item without a value is behind all others; ties are lost.
    """
    clicked = np.flatnonzero(worth)
    rank = _ranks(values)[clicked]
    return float((worth[clicked] / np.log2(1.0 + rank)).sum() / worth[clicked].sum())


def _ranks(values: NDArray[Any]) -> Values:
    """Rank of each (n,), from 1; what has no value is the last."""
    return np.asarray(ranks(np.where(np.isnan(values), -np.inf, values)[None])[0])


def _learned_values(
    learner: Any,
    query: Rows,
    items: Rows,
    lengths: Rows,
    signals: dict[str, NDArray[Any]],
    names: NDArray[np.uint64] | None,
) -> NDArray[Any]:
    blend: Blend | None = getattr(learner, "blend", None)
    if blend is not None:
        signals = signals | {ADAPTED: learner.signals(query[None], items)[ADAPTED][0]}
        recalled = None if learner.remembered is None else learner.remembered.recall(query)
        if recalled is not None and names is not None:
            blend, signals = learner.known_blend, signals | {REMEMBERED: recalled.rates(names)}
        return np.asarray(blend(signals))
    adapted = signals[SIMILARITY]
    if learner.dimension is not None:
        adapted = items @ np.asarray(learner.scale(query[None]) @ learner.W)[0]
        if learner.product == "cosine":
            with np.errstate(divide="ignore", invalid="ignore"):
                adapted = adapted / lengths
    return np.asarray(adapted)


def _time(event: ItemBlock | Click | ClickBlock) -> int:
    if isinstance(event, ItemBlock):
        return event.time_ms
    if isinstance(event, ClickBlock):
        return int(event.click_ms.max(initial=int(event.shown_at_ms.max(initial=0))))
    return max((one.time_ms for one in event.clicks), default=event.shown_at_ms)


def recorded(
    events: Iterable[object], contenders: dict[str, tuple[str, dict[str, Any]]], exponent: float = 1.0
) -> tuple[list[dict[str, Any]], int]:
    """A row for each ranking, as `kinstream.evaluation.queries.compare.summarised` gives them; and how many lists.

    What users saw is the ranking that they had. `changes` has one for each query; parameters as of `RecordedLists`.

    Raises
    ------
    SettingsError : no list has a click, or as of `RecordedLists`.
    """
    found = RecordedLists(contenders, exponent)
    for event in events:
        found.take(event)
    lists = found.result()
    if not len(lists.new):
        raise SettingsError("no list of the space has a click and another item beside it")
    return [
        {"metric": name, "had": name == AS_SHOWN}
        | _means(lists, name, lists.new)
        | {"asked": _means(lists, name, ~lists.new)}
        for name in lists.gains
    ], len(lists.new)


def _means(lists: ListGains, name: str, chosen: NDArray[np.bool_]) -> dict[str, Any]:
    """Gain and its change in percent, over queries: each is the mean of its lists, which count their worth."""
    if not chosen.any():
        return {"ndcg_at_10": None, "change": None, "error": 0.0, "changes": []}
    query = np.unique(lists.query[chosen], return_inverse=True)[1]
    number, worth = np.bincount(query), lists.worth[chosen]
    whole = float((np.bincount(query, worth) / number).mean())
    own, had = (
        np.bincount(query, worth * lists.gains[of][chosen]) / number / whole for of in (name, AS_SHOWN)
    )
    changes = 100.0 * (own - had) / had.mean()
    error = float(changes.std(ddof=1) / np.sqrt(len(changes))) if len(changes) > 1 else 0.0
    change = None if name == AS_SHOWN else float(changes.mean())
    return {"ndcg_at_10": float(own.mean()), "change": change, "error": error, "changes": changes.tolist()}
