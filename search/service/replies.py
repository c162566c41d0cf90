"""Answers: the schemas of the OpenAPI page."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

INDEX = "Of a space with our own index; left out otherwise."
SIGNALS = "Of a space with signals; left out otherwise."
STORE = "Of a space with a store; left out otherwise."


class ModelName(BaseModel):
    """The version of the model. If nothing is learned, the vectors are used as they are."""

    learner: str
    generation: int
    epoch: int
    step: int
    learned: bool | None = Field(default=None, description=INDEX)
    adapted: bool | None = Field(default=None, description=STORE)
    digest: str | None = Field(
        default=None, description=f"SHA-256 of the model's state; empty if nothing is learned. {STORE}"
    )


class CatalogueState(BaseModel):
    """The state of the catalogue: all records of `kinstream.events` up to this offset had been applied."""

    epoch: int
    items: int
    partition: int | None
    offset: int


class StoreState(BaseModel):
    """The store, and the state of it that all results come from; null if the store cannot name one."""

    kind: str
    collection: str
    version: str | None


class WithheldState(BaseModel):
    """The newest model of the learner, which it does not announce, since it is worse than none."""

    generation: int
    epoch: int
    step: int
    worse_by: float | None = Field(
        description="By how much more often it is wrong than the best un-learned metric, on held-out events."
    )
    of: int | None = Field(description="How many held-out events were judged.")


class GateState(BaseModel):
    """What the gate has decided for the space, and whether the service can obey."""

    decided: str = Field(
        description="GENERATION.EPOCH.STEP of the model that serves by decision, or un-adapted."
    )
    missing: bool = Field(description="Whether that model is not available: queries are asked as they are.")
    challenger: str | None = Field(description="The model that is compared with it now; null for none.")
    pinned: bool = Field(description="Whether a person has ordered that no other model is to serve.")


class _Reply(BaseModel):
    space: str
    model: ModelName
    catalogue: CatalogueState | None = Field(default=None, description=INDEX)
    withheld: WithheldState | None = Field(
        default=None, description="Left out if the learner withholds no newer model."
    )


class _Gated(_Reply):
    store: StoreState | None = Field(default=None, description=STORE)
    gate: GateState | None = Field(default=None, description="Left out in a space without a gate.")


class Neighbour(BaseModel):
    """An item. The field that ranks it is null in a list that is drafted or randomised."""

    id: str
    squared_distance: float | None = Field(default=None, description=f"Under the model. {INDEX}")
    similarity: float | None = Field(
        default=None, description=f"Inner product or cosine of the mapped query and the item. {STORE}"
    )
    fields: dict[str, Any] | None = Field(default=None, description=f"Its columns. {STORE}")
    value: float | None = Field(default=None, description=f"The sum of its terms, which ranks it. {SIGNALS}")
    signals: dict[str, float | None] | None = Field(
        default=None,
        description=f"By `explain`: what the store says of it by name; null is missing. Of a drawn list, without the "
        f"adapted similarity, which is a model's own. {SIGNALS}",
    )
    terms: dict[str, float] | None = Field(
        default=None, description=f"By `explain`: what each signal adds to `value`. {SIGNALS}"
    )
    chosen: int | None = Field(
        default=None,
        description="By `explain`: how often it was chosen for this query; left out where none is remembered. "
        f"{SIGNALS}",
    )


class Result(BaseModel):
    """The neighbours of one query, best first; of a drafted list, in its order. The index orders equals by id."""

    neighbours: list[Neighbour]
    list_id: str | None = Field(
        default=None,
        description="Of a list that is drafted, randomised or recorded: the `list_id` of feedback and of the click "
        "event. Null for another list, and left out in a space that has none.",
    )
    examined: int | None = Field(default=None, description=f"Items whose distance was computed. {INDEX}")
    fewer: Literal["filter", "store"] | None = Field(
        default=None,
        description="Why there are fewer than k: with the filter, or without one, the store found no more. Left out if "
        "there are k.",
    )


class SearchReply(_Gated):
    """One result for each query, in their order. All come from the named models and the named state of the items."""

    candidate: ModelName | None = Field(
        default=None,
        description="The other model of the drafted lists; null if there are none. Left out in a space without a gate.",
    )
    results: list[Result]


class MapReply(_Reply):
    """Mapped vectors: of our own index, their squared Euclidean distances are the learned ones; of a store, it ranks
    raw items by them as learned."""

    vectors: list[list[float]]


class ModalitySize(BaseModel):
    name: str
    dimension: int


class SpaceReply(_Gated):
    """The current state of a served space."""

    ready: bool
    index: str | None = Field(default=None, description=INDEX)
    modalities: list[ModalitySize] | None = Field(default=None, description=INDEX)
    dimension: int | None = Field(
        default=None, description=f"Features of the store's vectors; null while unknown. {STORE}"
    )
    announced: str | None = Field(
        description="generation.epoch.step of the newest model that was announced; null for a pinned model."
    )
    behind: bool = Field(
        description="Whether a newer model is known than the serving one; with a gate, whether another one is to serve."
    )


class SpacesReply(BaseModel):
    spaces: list[SpaceReply]


class FeedbackReply(BaseModel):
    """The brokers have acknowledged the feedback."""

    space: str
    written: int = Field(description="How much of it: all that was sent.")


class ErrorReply(BaseModel):
    """Why a request was not answered."""

    reason: str
    detail: str
    place: str | None = Field(description="Where in the request; null for all of it.")
