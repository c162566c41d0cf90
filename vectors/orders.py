"""Orders to write a version: the newest model's map, and the comparison with the version that there is.

They read checkpoints only: that of the agent `vectors` has the catalogue and the map of its version.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kinstream.learners.adapter.learner import Adapter
from kinstream.learners.base.learner import Learner
from kinstream.learners.forms.bilinear import Bilinear
from kinstream.learners.models.query_map import SCALERS
from kinstream.search.models.loader import rebuilt
from kinstream.streams.agents.space import core_state
from kinstream.streams.errors import SettingsError
from kinstream.streams.operations.checkpoints import Agent, checkpoints
from kinstream.streams.records.gate import Version
from kinstream.streams.records.values import ModelVersion
from kinstream.streams.records.vectors import ItemMap, Rows
from kinstream.streams.settings import Settings
from kinstream.vectors.core import SpaceVectors
from kinstream.vectors.embedding import Embedding
from kinstream.vectors.map_change import moved


@dataclass(frozen=True, slots=True)
class Compared:
    """The newest map of a space beside the one of its version.

    Parameters
    ----------
    newest : the map of the newest model.
    version : number of the version that the agent's checkpoint has; 0 for none.
    present : the model of that version.
    items : in the catalogue.
    share : of neighbours that the newest map changes; 1 without a version.
    """

    newest: Embedding
    version: int
    present: Version | None
    items: int
    share: float


def compare(settings: Settings, version: ModelVersion) -> Compared:
    """Compare a model's map with the version of its space.

    Raises
    ------
    SettingsError : the learner has no item map, or none of so few dimensions.
    CheckpointError : a checkpoint or the model's file is missing or damaged.
    """
    newest = embedding_of(rebuilt(version, settings), version, settings.vectors[version.space].dimensions)
    core = read_core(settings, version.space)
    if core is None or core.map is None:
        return Compared(newest, 0, None, 0 if core is None else core.size, 1.0)
    share = moved(core.map, newest, core.items()[1])
    return Compared(newest, core.version, core.map.head.model, core.size, share)


def read_core(settings: Settings, space: str) -> SpaceVectors | None:
    """The state of a space in the newest checkpoint of the agent; None if it has none.

    Raises
    ------
    CheckpointError : it cannot be read.
    """
    for seen in checkpoints(settings, Agent("vectors", "vectors")):
        file = seen.manifest.spaces.get(space)
        state = None if file is None else core_state(seen.state(file))
        if state is not None:
            segments = seen.manifest.segments.get(space, {})
            core = SpaceVectors(space)
            core.restore(state)
            core.restore_segments(lambda name, seen=seen, of=segments: seen.state(of[name]))
            return core
    return None


def embedding_of(learner: Learner, version: ModelVersion, dimensions: int | None) -> Embedding:
    """The map of items behind a model, and that of queries where there are fewer dimensions than features.

    Raises
    ------
    SettingsError : the learner is no bilinear similarity of raw items, or has no map of so few dimensions.
    """
    if not isinstance(learner, Bilinear) or learner.scaler not in SCALERS:
        raise SettingsError(
            f"{version.learner}: {learner.algorithm} with the scaler {getattr(learner, 'scaler', 'none')} has no item "
            f"map; adapter has one, and other learners of a similarity q^T W x with the scaler {' or '.join(SCALERS)}"
        )
    item, query = _maps(learner, version, dimensions)
    head = ItemMap(
        space=version.space,
        learner=version.learner,
        model=Version(version.generation, version.epoch, version.step),
        sha256=version.sha256,
        product="cosine" if learner.scaler == "unit" else "dot",
        dimension=item.shape[1],
        rank=len(item),
        first=0,
        item=item,
        query=query,
        time_ms=version.time_ms,
    )
    return Embedding(head, item, query)


def _maps(learner: Bilinear, version: ModelVersion, dimensions: int | None) -> tuple[Rows, Rows]:
    if dimensions is None:
        item = np.asarray(learner.W, np.float32)
        return item, np.empty((0, item.shape[1]), np.float32)
    if not isinstance(learner, Adapter):
        raise SettingsError(
            f"{version.learner}: {learner.algorithm} has no map of fewer dimensions; adapter has"
        )
    try:
        query, item = learner.item_map(dimensions)
    except ValueError as error:
        raise SettingsError(f"vectors.{version.space}.dimensions = {dimensions}: {error}") from error
    return np.asarray(item, np.float32), np.asarray(query, np.float32)
