"""Scores of shown items in the lists of a space: how many names they have, and what an action weighs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.processors.base.builder import State
from kinstream.processors.clicks.filters import TAKEN
from kinstream.processors.clicks.lists import Fault, Lists
from kinstream.processors.clicks.rules import TOO_SHORT, Reading
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.scores import MOST_NAMES
from kinstream.streams.records.values import CLICK, HEAVIEST, ClickBlock

#: How many kinds of actions have weights.
MOST_KINDS: Final = 32

_NAMES: Final = "score_names"


class ScoreNames:
    """The names of the scores of a space, in the order in which they came; at most `MOST_NAMES`."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def admit(self, lists: Lists, fate: NDArray[np.int8]) -> None:
        """Add the names of accepted lists; one that would bring too many gets its fault, and adds none."""
        scores = lists.block.scores
        if scores is None:
            return
        new = [column for column, name in enumerate(scores.names) if name not in self._names]
        if not new:
            return
        # (n, new) names that have a value in a list.
        held = np.logical_or.reduceat(~np.isnan(scores.values[:, new]), lists.block.starts[:-1])
        held &= ((fate == TAKEN) & (lists.faults == Fault.NONE))[:, None]
        for i in np.flatnonzero(held.any(axis=1)).tolist():
            names = [scores.names[new[at]] for at in np.flatnonzero(held[i])]
            more = [name for name in names if name not in self._names]
            if len(self._names) + len(more) > MOST_NAMES:
                lists.faults[i] = Fault.TOO_MANY_NAMES
            else:
                self._names += more

    def state(self) -> State:
        # Without scores, a state is what it was before there were any.
        return {_NAMES: "\n".join(self._names)} if self._names else {}

    def restore(self, state: State) -> None:
        self._names = str(state[_NAMES]).split("\n") if _NAMES in state else []


def checked_weights(weights: Mapping[str, float]) -> dict[str, float]:
    """The setting `action_weights`.

    Raises
    ------
    SettingsError : it is no table of names and numbers above 0, up to `HEAVIEST`.
    """
    fits = isinstance(weights, Mapping) and len(weights) <= MOST_KINDS
    if not fits or not all(type(n) in (int, float) and 0.0 < n <= HEAVIEST for n in weights.values()):
        raise SettingsError(
            f"action_weights must be up to {MOST_KINDS} kinds of actions, each with a weight above 0 and up to "
            f"{HEAVIEST:g}, not {weights!r}"
        )
    return {str(kind): float(weight) for kind, weight in weights.items()}


def action_weights(block: ClickBlock, reading: Reading, weights: Mapping[str, float]) -> NDArray[np.float32]:
    """(m,) the largest weight of the actions on each impression that count; 1 without any.

    Parameters
    ----------
    weights : by kind; an action with a weight of its own weighs as much more.
    """
    kinds = [*block.kinds, CLICK]
    by_kind = np.array([weights.get(kind, 1.0) for kind in kinds], np.float32)
    action = np.full(len(block.clicked), -1) if block.action is None else block.action
    counts = reading.click_fate != TOO_SHORT
    found = np.zeros(len(block.item), np.float32)
    worth = by_kind[action] if block.weight is None else by_kind[action] * block.weight
    np.maximum.at(found, block.clicked[counts], worth[counts])
    return np.where(found > 0.0, found, np.float32(1.0))
