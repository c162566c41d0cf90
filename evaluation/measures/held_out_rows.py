"""k-NN error of learned metrics on rows that were never streamed, against plain Euclidean distance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import MinMaxScaler, StandardScaler, normalize

from kinstream.learners.base.learner import Learner
from kinstream.learners.base.one_modality import SingleModal
from kinstream.learners.base.several_modalities import MultiModal
from kinstream.learners.models.export import learner_from
from kinstream.learners.several_modalities.fusion import Fusion
from kinstream.monitoring.tallies import Tallies
from kinstream.producers.labelled.batch import Batch
from kinstream.producers.labelled.hold_out import held_out_rows, streamed_rows
from kinstream.producers.labelled.sources import open_source
from kinstream.streams.errors import SettingsError
from kinstream.streams.operations.checkpoints import agents, checkpoints
from kinstream.streams.operations.models import data_of, from_checkpoints
from kinstream.streams.records.state import without_prefix
from kinstream.streams.records.values import Counts
from kinstream.streams.settings import Settings

NEIGHBOURS: Final = 5
EUCLIDEAN: Final = "euclidean"
COSINE: Final = "cosine"

#: Rows (n, d) of each modality, by name.
Features = Mapping[str, NDArray[np.floating[Any]]]
#: The counts of a learner, in total and by rule.
Counted = tuple[Counts | None, Mapping[str, Counts]]


@dataclass(frozen=True, slots=True)
class Row:
    """One metric: its error, and the counts of its learner, in total and by rule (None for plain Euclidean distance).

    The error is None if the learner has learned nothing, for example a learner of one modality in a space of several.
    """

    name: str
    error: float | None
    counts: Counts | None = None
    by_rule: Mapping[str, Counts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HeldOutErrors:
    """The errors of every metric on the same rows."""

    train_rows: int
    test_rows: int
    rows: tuple[Row, ...]
    neighbours: int = NEIGHBOURS


def evaluate(settings: Settings, source: str, space: str, *, hold_out: float, seed: int) -> HeldOutErrors:
    """Error of a 5-NN vote in the space of each learner's newest checkpoint, and without learning.

    Parameters
    ----------
    source : as `kinstream produce labelled` takes it; `hold_out` and `seed` as its options.

    Raises
    ------
    CheckpointError, SourceError : a checkpoint or the source cannot be read.
    SettingsError : as `grade`.
    """
    train, test = (
        streamed_rows(open_source(source), hold_out, seed),
        held_out_rows(open_source(source), hold_out, seed),
    )
    learned: dict[str, Learner | None] = {}
    for (name, learner), version in from_checkpoints(settings).models().items():
        if name == space:
            section = settings.learners[learner]
            learned[learner] = learner_from(data_of(version, settings), section.kind, section.arguments())
    return grade(learned, train, test, _counts(settings, space), scalings=True)


def grade(
    learned: Mapping[str, Learner | None],
    train: Batch,
    test: Batch,
    counts: Mapping[str, Counted] | None = None,
    *,
    scalings: bool = False,
) -> HeldOutErrors:
    """Error of a vote of the 5 nearest rows of `train` on the rows of `test`, under each metric.

    Plain Euclidean distance comes first, over all modalities side by side; where there are several, then each of
    them alone; then the same vectors after each scaler of a learner. A learner of several modalities measures with
    all of them, one of one modality with the one that has as many features as it has learned from.

    Parameters
    ----------
    learned : by the name of the row; None for a learner that has received no constraint.
    counts : of each learner, in total and by rule.
    scalings : whether to measure the usual scalings too, of all rows of `train`, under Euclidean distance and cosine.

    Raises
    ------
    SettingsError : the modality that a learner of one has learned from is ambiguous.
    """
    x, u = _tables(train), _tables(test)
    y, v = np.asarray(train.labels), np.asarray(test.labels)

    def error(near: NDArray[Any], asked: NDArray[Any]) -> float:
        return knn_error(near, y, asked, v)

    plain = [Row(EUCLIDEAN, error(side_by_side(x), side_by_side(u)))]
    if len(x) > 1:
        plain += [Row(f"{EUCLIDEAN}, {name} alone", error(x[name], u[name])) for name in x]
    scaled: dict[str, Row] = {}
    if scalings:
        for scaling, both in _scaled(side_by_side(x), side_by_side(u)).items():
            scaled[scaling] = Row(scaling, error(*both))
    metrics: list[Row] = []
    for name, learner in learned.items():
        counted: Counted = (counts or {}).get(name, (None, {}))
        if learner is None or not begun(learner):
            metrics.append(Row(name, None, *counted))
            continue
        # Features in the learner's form: a table, or tables by name.
        model: Any = learner
        which = _modality(name, learner, x)
        near: Any = x if which is None else x[which]
        asked: Any = u if which is None else u[which]
        after = _after_scaler(learner, which if len(x) > 1 else None)
        if after is not None and after not in scaled:
            scaled[after] = Row(after, error(model.scale(near), model.scale(asked)))
        metrics.append(Row(name, error(model.transform(near), model.transform(asked)), *counted))
    return HeldOutErrors(len(y), len(v), (*plain, *scaled.values(), *metrics))


def knn_error(
    x: NDArray[Any], y: NDArray[Any], u: NDArray[Any], v: NDArray[Any], neighbours: int = NEIGHBOURS
) -> float:
    """Share of the rows `u` (n, d) that the vote of their nearest rows of `x` (m, d) gives a wrong label."""
    vote = KNeighborsClassifier(neighbours, algorithm="brute").fit(x, y)
    return float(np.mean(vote.predict(u) != v))


def side_by_side(tables: Features) -> NDArray[Any]:
    """The modalities (n, d_i) of each row one after the other, (n, sum d_i)."""
    return np.concatenate(list(tables.values()), axis=1)


def _scaled(x: NDArray[Any], u: NDArray[Any]) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
    """Rows (n, d) and (m, d) by what anybody can do without learning; scales are those of the first."""
    z, share = StandardScaler().fit(x), MinMaxScaler().fit(x)
    return {
        COSINE: (normalize(x), normalize(u)),
        f"{EUCLIDEAN}, zscore": (z.transform(x), z.transform(u)),
        f"{COSINE}, zscore": (normalize(z.transform(x)), normalize(z.transform(u))),
        f"{EUCLIDEAN}, minmax": (share.transform(x), share.transform(u)),
    }


def _tables(batch: Batch) -> dict[str, NDArray[np.floating[Any]]]:
    return {table.name: table.vectors for table in batch.tables}


def begun(learner: Learner) -> bool:
    """Whether it has seen a vector."""
    if isinstance(learner, SingleModal):
        return learner.dimension is not None
    return not isinstance(learner, MultiModal | Fusion) or bool(learner.modalities)


def _modality(name: str, learner: Learner, tables: Features) -> str | None:
    """The modality that a learner measures with; None for all."""
    if not isinstance(learner, SingleModal):
        return None
    fitting = [m for m, table in tables.items() if len(tables) == 1 or table.shape[1] == learner.dimension]
    if len(fitting) != 1:
        sizes = ", ".join(f"{m}: {table.shape[1]}" for m, table in tables.items())
        raise SettingsError(
            f"{name} has learned from {learner.dimension} features: it is not clear which of the modalities that "
            f"is ({sizes})"
        )
    return fitting[0]


def _after_scaler(learner: Learner, alone: str | None) -> str | None:
    """Name of the row of the vectors after a learner's scaler; None without a scaler."""
    scaler = getattr(learner, "scaler", "none")
    if scaler == "none":
        return None
    found = f"{EUCLIDEAN}, {scaler}"
    if isinstance(learner, Fusion) and learner.how == "concatenate" and len(learner.modalities) > 1:
        # "unit" is another scaler over all modalities at once.
        return f"{found} of all at once" if scaler == "unit" else found
    return found if alone is None else f"{found}, {alone} alone"


def _counts(settings: Settings, space: str) -> dict[str, tuple[Counts, dict[str, Counts]]]:
    """The counts in the newest checkpoints of the metrics agent, in total and by rule."""
    found: dict[str, tuple[Counts, dict[str, Counts]]] = {}
    for agent in agents(settings):
        if agent.role != "metrics":
            continue
        for seen in checkpoints(settings, agent):
            state = seen.state(seen.manifest.partition_state)
            tallies = Tallies(window=settings.metrics.window, top_spaces=settings.metrics.top_spaces)
            tallies.restore(without_prefix("tallies.", state))
            for learner in settings.learners:
                tally = tallies.find(space, learner)
                if tally is not None:
                    total, by_rule = found.get(learner, (Counts(), {}))
                    rules = {**by_rule, **tally.by_rule}
                    for rule in by_rule.keys() & tally.by_rule.keys():
                        rules[rule] = by_rule[rule] + tally.by_rule[rule]
                    found[learner] = total + tally.totals, rules
    return found
