"""k-NN error of learned metrics on rows that were never streamed, against plain Euclidean distance (spec 11)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import KNeighborsClassifier

from learners.export import learner_from
from learners.single import SingleModal
from monitoring.tallies import Tallies
from producers.hold_out import held_out_rows, streamed_rows
from producers.sources import Batch, open_source
from streams.checkpoint_view import agents, checkpoints
from streams.models_view import data_of, from_checkpoints
from streams.records import Counts
from streams.settings import Settings

NEIGHBOURS: Final = 5
EUCLIDEAN: Final = "euclidean"


@dataclass(frozen=True, slots=True)
class Row:
    """One metric: its error, and what its learner counted, whole and by rule (None for plain Euclidean distance)."""

    name: str
    error: float
    counts: Counts | None = None
    by_rule: Mapping[str, Counts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The errors of every metric on the same rows."""

    train_rows: int
    test_rows: int
    rows: tuple[Row, ...]


def evaluate(settings: Settings, source: str, space: str, *, hold_out: float, seed: int) -> HeldOut:
    """Error of a 5-NN vote in the space of each learner's newest checkpoint.

    Parameters
    ----------
    source : as `kinstream produce labelled` takes it; `hold_out` and `seed` as its options.

    Raises
    ------
    CheckpointError, SourceError : a checkpoint or the source cannot be read.
    """
    train, test = (
        streamed_rows(open_source(source), hold_out, seed),
        held_out_rows(open_source(source), hold_out, seed),
    )
    (x, y), (u, v) = _arrays(train), _arrays(test)
    rows = [Row(EUCLIDEAN, knn_error(x, y, u, v))]
    counts = _counts(settings, space)
    scaled: dict[str, Row] = {}
    learned: list[Row] = []
    for (name, learner), version in from_checkpoints(settings).models().items():
        if name != space:
            continue
        section = settings.learners[learner]
        model = learner_from(data_of(version, settings), section.kind, section.arguments())
        if isinstance(model, SingleModal) and model.scaler not in (None, "none", *scaled):
            error = knn_error(model.scale(x), y, model.scale(u), v)
            scaled[str(model.scaler)] = Row(f"{EUCLIDEAN}, {model.scaler}", error)
        error = knn_error(model.transform(x), y, model.transform(u), v)
        learned.append(Row(learner, error, *counts.get(learner, (None, {}))))
    return HeldOut(len(x), len(u), (*rows, *scaled.values(), *learned))


def knn_error(
    x: NDArray[Any], y: NDArray[Any], u: NDArray[Any], v: NDArray[Any], neighbours: int = NEIGHBOURS
) -> float:
    """Share of the rows `u` (n, d) that the vote of their nearest rows of `x` (m, d) gives a wrong label."""
    vote = KNeighborsClassifier(neighbours, algorithm="brute").fit(x, y)
    return float(np.mean(vote.predict(u) != v))


def _arrays(batch: Batch) -> tuple[NDArray[np.float32], NDArray[Any]]:
    (table,) = batch.tables
    return table.vectors, np.asarray(batch.labels)


def _counts(settings: Settings, space: str) -> dict[str, tuple[Counts, dict[str, Counts]]]:
    """What the metrics agent had counted at its newest checkpoints, whole and by rule."""
    found: dict[str, tuple[Counts, dict[str, Counts]]] = {}
    for agent in agents(settings):
        if agent.role != "metrics":
            continue
        for seen in checkpoints(settings, agent):
            state = seen.state(seen.manifest.partition_state)
            tallies = Tallies(window=settings.metrics.window, top_spaces=settings.metrics.top_spaces)
            tallies.restore(
                {n.removeprefix("tallies."): v for n, v in state.items() if n.startswith("tallies.")}
            )
            for learner in settings.learners:
                tally = tallies.find(space, learner)
                if tally is not None:
                    total, by_rule = found.get(learner, (Counts(), {}))
                    rules = {**by_rule, **tally.by_rule}
                    for rule in by_rule.keys() & tally.by_rule.keys():
                        rules[rule] = by_rule[rule] + tally.by_rule[rule]
                    found[learner] = total + tally.totals, rules
    return found
