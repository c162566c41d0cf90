"""Requests and answers of the gateway: the schemas of its OpenAPI page."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from kinstream.search.service.requests import WITHHELD, Asked, GateState, QueryId, Rows, Vector, WithheldState

K = Annotated[int, Field(ge=1, description="Number of neighbours; the server's limit is gateway.max_k.")]


class MapRequest(Asked):
    """Query vectors: one, or several of equal length."""

    vectors: Rows | Vector = Field(
        description="Raw query vectors. A list of vectors, or one vector.",
        examples=[[[0.1, 0.2], [0.3, 0.4]]],
    )


class SearchRequest(MapRequest):
    """Queries by vector."""

    k: K = 10
    query_id: QueryId = None
    filter: dict[str, Any] | None = Field(
        default=None,
        description="Passed to the store: of Qdrant its own filter, of pgvector values, lists and bounds by column.",
    )


class ModelName(BaseModel):
    """The version of the query map. If `adapted` is false, queries were asked as they are."""

    learner: str
    generation: int
    epoch: int
    step: int
    digest: str = Field(description="SHA-256 of the model's state; empty if `adapted` is false.")
    adapted: bool


class StoreState(BaseModel):
    """The store, and the state of it that all results come from; null if the store cannot name one."""

    kind: str
    collection: str
    version: str | None


class Neighbour(BaseModel):
    id: str
    similarity: float | None = Field(
        description="Inner product or cosine of the mapped query and the item; null in a drafted list."
    )
    fields: dict[str, Any]


class Result(BaseModel):
    """The neighbours of one query, the most similar first; of a drafted list, in the order of the draft."""

    neighbours: list[Neighbour]
    list_id: str | None = Field(
        default=None,
        description="Of a drafted list: the `list_id` of the click event. Null for another list, and left out in a "
        "space without a gate.",
    )
    fewer: Literal["filter", "store"] | None = Field(
        default=None,
        description="Why there are fewer than k: with the filter, or without one, the store found no more. Left out if "
        "there are k.",
    )


class SearchReply(BaseModel):
    """One result for each query, in their order. All come from the named models and store."""

    space: str
    model: ModelName
    candidate: ModelName | None = Field(
        default=None,
        description="The other model of the drafted lists; null if there are none. Left out in a space without a gate.",
    )
    gate: GateState | None = Field(default=None, description="Left out in a space without a gate.")
    withheld: WithheldState | None = WITHHELD
    store: StoreState
    results: list[Result]


class MapReply(BaseModel):
    """Mapped queries, for a store that you ask yourself."""

    space: str
    model: ModelName
    withheld: WithheldState | None = WITHHELD
    vectors: list[list[float]]


class SpaceReply(BaseModel):
    """The current state of a served space."""

    space: str
    model: ModelName
    store: StoreState
    ready: bool
    dimension: int | None = Field(description="Features of the store's vectors; null while unknown.")
    announced: str | None = Field(
        description="generation.epoch.step of the newest model that was announced; null for a pinned model."
    )
    behind: bool = Field(
        description="Whether a newer model is known than the newest usable one; with a gate, also whether the model "
        "is missing that serves by decision."
    )
    gate: GateState | None = Field(default=None, description="Left out in a space without a gate.")
    withheld: WithheldState | None = WITHHELD


class SpacesReply(BaseModel):
    spaces: list[SpaceReply]
