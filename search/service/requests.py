"""Requests: the schemas of the OpenAPI page, and the checks beyond them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from kinstream.search.index.items import Modalities
from kinstream.search.service.refusals import Refused, Why
from kinstream.streams.records.checks import MAX_SPACE_LENGTH, MAX_STRING_LENGTH
from kinstream.streams.records.foreign.narrowing import lost, narrowed
from kinstream.streams.records.lists.feedback import HEAVIEST
from kinstream.streams.records.values import DEFAULT_MODALITY, Vectors

#: Greatest number of a query: its squares, added up and mapped, are float32 numbers.
MOST: Final = 1e15
#: Vectors, texts, items or feedback of a request, and neighbours of each.
MAX_ROWS: Final = 256
MAX_K: Final = 1_000
Number = Annotated[float, Field(allow_inf_nan=False, ge=-MOST, le=MOST)]
Vector = Annotated[list[Number], Field(min_length=1)]
Rows = Annotated[list[Vector], Field(min_length=1)]
# numpy checks their size.
_Finite = Annotated[float, Field(allow_inf_nan=False)]
_ROWS: Final[TypeAdapter[list[list[float]]]] = TypeAdapter(
    Annotated[list[Annotated[list[_Finite], Field(min_length=1)]], Field(min_length=1)]
)
_VECTOR: Final[TypeAdapter[list[float]]] = TypeAdapter(Annotated[list[_Finite], Field(min_length=1)])

#: A query is a few words, or a paragraph. PostgreSQL takes no zero characters.
Text = Annotated[str, Field(max_length=8_192, pattern=r"^[^\x00]*$")]
Texts = Annotated[list[Text], Field(min_length=1)]
VECTORS: Final = (
    "Raw features. A list of vectors, or one vector; of several modalities, an object with either for each, the same "
    f"number of rows in all. Where signals are vectors, an object too: `{DEFAULT_MODALITY}`, and those for signals."
)

_TEXTS: Final[TypeAdapter[list[str]]] = TypeAdapter(Texts)

SpaceName = Annotated[
    str | None,
    Field(max_length=MAX_SPACE_LENGTH, description="May be left out if only one space is served."),
]

ItemName = Annotated[str, Field(max_length=MAX_STRING_LENGTH)]
K = Annotated[int, Field(ge=1, description=f"Number of neighbours; at most {MAX_K}.")]
QueryId = Annotated[
    str | None,
    Field(
        max_length=256,
        description="Of a space with a gate: the same id always gets a drafted list, or never, whatever the vectors "
        "are. Left out, the vector decides.",
    ),
]


Actor = Annotated[
    str | None,
    Field(
        min_length=1,
        max_length=MAX_STRING_LENGTH,
        description="Whom the lists are shown to, in what a space with `record` writes.",
    ),
]


class Asked(BaseModel):
    """A request about a space."""

    model_config = ConfigDict(extra="forbid", strict=True)
    space: SpaceName = None


class MapRequest(Asked):
    """Vectors: one, or several of equal length, or either of these for each modality by name."""

    vectors: Rows | Vector | dict[str, Rows | Vector] = Field(
        description=VECTORS,
        examples=[[[0.1, 0.2], [0.3, 0.4]]],
    )


class SearchRequest(Asked):
    """Queries by vector, by text, or by both: one text for each vector."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": ["vectors"]}, {"required": ["texts"]}]}
    )
    vectors: Rows | Vector | dict[str, Rows | Vector] | None = Field(default=None, description=VECTORS)
    texts: Texts | Text | None = Field(
        default=None,
        description="What people have written. Of a space with a text: `serve.spaces.NAME.text`.",
    )
    k: K = 10
    query_id: QueryId = None
    filter: dict[str, Any] | None = Field(
        default=None,
        description="Passed to the store, its own; of pgvector values, lists and bounds by column.",
    )
    session: Actor = None
    user: Actor = None
    explain: bool = Field(
        default=False,
        description="Each neighbour shows its signals, and what each adds to its value. Of a space with signals.",
    )


class SimilarRequest(Asked):
    """A request for the neighbours of one item."""

    k: K = 10
    query_id: QueryId = None
    session: Actor = None
    user: Actor = None


class SimilarItemsRequest(SimilarRequest):
    """A request for the neighbours of several items."""

    items: Annotated[list[ItemName], Field(min_length=1)]


class GivenFeedback(BaseModel):
    """What was done with a list: an action on an item, or how well the list has served; or that one is taken back."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "anyOf": [{"required": ["item"]}, {"required": ["outcome"]}, {"required": ["retract"]}]
        },
    )
    list_id: Annotated[str, Field(min_length=1, max_length=MAX_STRING_LENGTH)]
    item: Annotated[str, Field(min_length=1, max_length=MAX_STRING_LENGTH)] | None = Field(
        default=None, description="Of the list; left out, the feedback is of the whole list."
    )
    action: Annotated[str, Field(min_length=1, max_length=256)] | None = Field(
        default=None, description='The kind, such as "cited" or "purchase"; left out, a click.'
    )
    value: Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)] | None = Field(
        default=None, description="How good the item was: the action counts so much of its weight."
    )
    weight: Annotated[float, Field(ge=0.0, le=HEAVIEST, allow_inf_nan=False)] | None = Field(
        default=None, description="How much the action counts; left out, 1."
    )
    outcome: Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)] | None = Field(
        default=None,
        description="How well the whole list has served, 0 to 1. The items that were used share it, less further down.",
    )
    key: Annotated[str, Field(max_length=256)] = Field(
        default="",
        description="Of several with the same list, item, action and key, the first counts. So a repeat is harmless.",
    )
    retract: bool = Field(
        default=False,
        description="Takes back, for good, what has the same list, item, action and key; without an item, an outcome. "
        "After the window, all that the list said of the item, from what is remembered; no outcome.",
    )


class FeedbackRequest(Asked):
    """What was done with lists of a space."""

    feedback: Annotated[list[GivenFeedback], Field(min_length=1)]


_Asked = TypeVar("_Asked", bound=Asked)


def read(kind: type[_Asked], body: bytes) -> _Asked:
    """Parse a request from its body.

    Raises
    ------
    Refused : not JSON (400), or not of this schema (422), with the place.
    """
    try:
        found = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise Refused(400, Why.NOT_JSON, f"the body is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise Refused(422, Why.INVALID, "the body must be a JSON object")
    # Unions are resolved here, so that an error has one place and large batches are checked once.
    given: dict[str, Any] = {}
    if "vectors" in kind.model_fields and found.get("vectors") is not None:
        given["vectors"] = _rows_of(found["vectors"])
        found["vectors"] = [[0.0]]
    if "texts" in kind.model_fields and found.get("texts") is not None:
        given["texts"] = _texts_of(found["texts"])
        found["texts"] = ""
    return _validated(kind, found).model_copy(update=given)


def _validated(kind: type[_Asked], found: Any) -> _Asked:
    try:
        return kind.model_validate(found)
    except ValidationError as error:
        raise _refusal(error, "") from None


def _rows_of(vectors: Any) -> Any:
    if isinstance(vectors, dict):
        if not vectors:
            raise Refused(422, Why.INVALID, "no modality is given", place="vectors")
        return {name: _table(part, f"vectors.{name}") for name, part in vectors.items()}
    return _table(vectors, "vectors")


def _texts_of(texts: Any) -> Any:
    try:
        return _TEXTS.validate_python([texts] if isinstance(texts, str) else texts, strict=True)
    except ValidationError as error:
        raise _refusal(error, "texts") from None


def _table(value: Any, place: str) -> list[list[float]]:
    try:
        if isinstance(value, list) and value and isinstance(value[0], list):
            rows = _ROWS.validate_python(value, strict=True)
        else:
            rows = [_VECTOR.validate_python(value, strict=True)]
    except ValidationError as error:
        raise _refusal(error, place) from None
    width = len(rows[0])
    for row, vector in enumerate(rows):
        if len(vector) != width:
            detail = f"{len(vector)} numbers, and the first vector has {width}"
            raise Refused(422, Why.WRONG_DIMENSION, detail, place=f"{place}[{row}]")
    return rows


def _refusal(error: ValidationError, place: str) -> Refused:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    for part in first["loc"]:
        place += f"[{part}]" if isinstance(part, int) else f".{part}" if place else str(part)
    why = Why.NOT_FINITE if first["type"] == "finite_number" else Why.INVALID
    return Refused(422, why, str(first["msg"]), place=place or None)


def checked(rows: list[list[float]], size: int | None, place: str, most: int, whose: str) -> Vectors:
    """Vectors of a request, (n, d) float32.

    Parameters
    ----------
    size : d; None takes any.
    whose : what has this dimension, for the error.

    Raises
    ------
    Refused : too many of them, another dimension, or a number that float32 does not hold, or not well enough.
    """
    if len(rows) > most:
        raise Refused(422, Why.TOO_LARGE, f"{len(rows)} vectors; at most {most} in a request", place=place)
    if size is not None and len(rows[0]) != size:
        raise Refused(
            422, Why.WRONG_DIMENSION, f"{len(rows[0])} numbers; {whose} has {size}", place=f"{place}[0]"
        )
    table = np.array(rows, np.float64)
    large = np.abs(table) > MOST
    if large.any():
        row, column = np.argwhere(large)[0].tolist()
        raise Refused(422, Why.TOO_LARGE, f"above {MOST:g}", place=f"{place}[{row}][{column}]")
    if (loss := lost(table)) is not None:
        raise Refused(422, Why.INVALID, loss[1], place=f"{place}[][{loss[0]}]")
    return narrowed(table)


def parted(given: Any, signals: Sequence[str], most: int) -> tuple[Any, dict[str, Vectors]]:
    """What is given for the vectors of queries, None for nothing, and tables (n, d) float32 for signals by name.

    Parameters
    ----------
    signals : those for which queries may have vectors of their own: none where an object is of modalities.
    most : vectors of a request.

    Raises
    ------
    Refused : another signal, too many vectors, or a number that float32 does not hold.
    """
    if not signals or not isinstance(given, dict):
        return given, {}
    for name in given:
        if name not in (DEFAULT_MODALITY, *signals):
            known = ", ".join((DEFAULT_MODALITY, *signals))
            raise Refused(422, Why.INVALID, f"the space has {known}", place=f"vectors.{name}")
    own = {
        name: checked(given[name], None, f"vectors.{name}", most, "the signal")
        for name in signals
        if name in given
    }
    own.pop(DEFAULT_MODALITY, None)
    return given.get(DEFAULT_MODALITY), own


def rows_of(given: Any, modalities: Modalities | None, dimension: int | None, most: int) -> Vectors:
    """The vectors of a request as a space of these modalities takes them, (n, D) float32.

    Parameters
    ----------
    modalities : empty while unknown; None for a space whose queries are one vector, with `dimension` features.
    most : vectors of a request.

    Raises
    ------
    Refused : too many of them, other modalities or dimensions, or a number that float32 does not hold.
    """
    if modalities is None:
        if isinstance(given, dict):
            raise Refused(422, Why.INVALID, "must be a vector or a list of vectors", place="vectors")
        return checked(given, dimension, "vectors", most, "the space")
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
