"""Requests and answers of the query agent: the schemas of its OpenAPI page, and the checks beyond them."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, Field

from kinstream.search.index.items import Modalities
from kinstream.search.service.refusals import Refused, Why
from kinstream.search.service.requests import (
    WITHHELD,
    Asked,
    GateState,
    QueryId,
    Rows,
    Vector,
    WithheldState,
    checked,
)
from kinstream.streams.records.checks import MAX_STRING_LENGTH
from kinstream.streams.records.values import Vectors

ItemName = Annotated[str, Field(max_length=MAX_STRING_LENGTH)]
K = Annotated[int, Field(ge=1, description="Number of neighbours; the server's limit is search.max_k.")]


class TransformRequest(Asked):
    """Vectors: one, or several of equal length, or either of these for each modality by name."""

    vectors: Rows | Vector | dict[str, Rows | Vector] = Field(
        description="Raw features. A list of vectors, or one vector; of several modalities, an object with either "
        "for each, the same number of rows in all.",
        examples=[[[0.1, 0.2], [0.3, 0.4]]],
    )


class SearchRequest(TransformRequest):
    """Queries by vector."""

    k: K = 10
    query_id: QueryId = None


class SimilarRequest(Asked):
    """A request for the neighbours of one item."""

    k: K = 10
    query_id: QueryId = None


class SimilarItemsRequest(SimilarRequest):
    """A request for the neighbours of several items."""

    items: Annotated[list[ItemName], Field(min_length=1)]


class ModelName(BaseModel):
    """The version of the metric. If `learned` is false, it is the un-learned map: Euclidean distance."""

    learner: str
    generation: int
    epoch: int
    step: int
    learned: bool


class CatalogueState(BaseModel):
    """The state of the catalogue: all records of `kinstream.events` up to this offset had been applied."""

    epoch: int
    items: int
    partition: int | None
    offset: int


class _Reply(BaseModel):
    space: str
    model: ModelName
    catalogue: CatalogueState
    withheld: WithheldState | None = WITHHELD


class Neighbour(BaseModel):
    id: str
    squared_distance: float | None = Field(description="Null in a drafted list.")


class Result(BaseModel):
    """The neighbours of one query: the nearest first, equally near ones by id; of a drafted list, in its order."""

    neighbours: list[Neighbour]
    list_id: str | None = Field(
        default=None,
        description="Of a drafted list: the `list_id` of the click event. Null for another list, and left out in a "
        "space without a gate.",
    )
    examined: int = Field(description="Items whose distance was computed.")


class SearchReply(_Reply):
    """One result for each query, in their order. All come from the named models and catalogue."""

    candidate: ModelName | None = Field(
        default=None,
        description="The other model of the drafted lists; null if there are none. Left out in a space without a gate.",
    )
    gate: GateState | None = Field(default=None, description="Left out in a space without a gate.")
    results: list[Result]


class TransformReply(_Reply):
    """Mapped vectors: their squared Euclidean distances are the learned ones."""

    vectors: list[list[float]]


class ModalitySize(BaseModel):
    name: str
    dimension: int


class SpaceReply(_Reply):
    """The current state of a served space."""

    ready: bool
    index: str
    modalities: list[ModalitySize]
    announced: str = Field(description="generation.epoch.step of the newest model that was announced.")
    behind: bool = Field(
        description="Whether a newer model than the serving one is known; with a gate, whether another one is to serve."
    )
    gate: GateState | None = Field(default=None, description="Left out in a space without a gate.")


class SpacesReply(BaseModel):
    spaces: list[SpaceReply]


def rows_of(request: TransformRequest, modalities: Modalities, most: int) -> Vectors:
    """The vectors of a request as a catalogue of these modalities takes them, (n, D) float32.

    Raises
    ------
    Refused : too many of them, other modalities or dimensions, or a number that float32 does not hold.
    """
    given: Any = request.vectors
    if not isinstance(given, dict):
        if len(modalities) > 1:
            names = ", ".join(name for name, _ in modalities)
            raise Refused(
                422, Why.WRONG_DIMENSION, f"the space has several modalities: {names}", place="vectors"
            )
        given = {modalities[0][0] if modalities else "": given}
        places = {next(iter(given)): "vectors"}
    else:
        places = {name: f"vectors.{name}" for name in given}
    sizes = dict(modalities) if modalities else {name: len(rows[0]) for name, rows in given.items()}
    if set(given) != set(sizes):
        raise Refused(
            422, Why.WRONG_DIMENSION, f"the modalities are {', '.join(sorted(sizes))}", place="vectors"
        )
    tables = [checked(given[name], size, places[name], most, "the catalogue") for name, size in sizes.items()]
    if len({len(table) for table in tables}) > 1:
        raise Refused(422, Why.INVALID, "the modalities have different numbers of vectors", place="vectors")
    return np.concatenate(tables, axis=1)
