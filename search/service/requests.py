"""Requests over HTTP: what all of them share, and the checks beyond their schemas."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from kinstream.search.service.refusals import Refused, Why
from kinstream.streams.records.checks import MAX_SPACE_LENGTH
from kinstream.streams.records.foreign.narrowing import lost, narrowed
from kinstream.streams.records.values import Vectors

#: Greatest number of a query: its squares, added up and mapped, are float32 numbers.
MOST: Final = 1e15
Number = Annotated[float, Field(allow_inf_nan=False, ge=-MOST, le=MOST)]
Vector = Annotated[list[Number], Field(min_length=1)]
Rows = Annotated[list[Vector], Field(min_length=1)]
# numpy checks their size.
_Finite = Annotated[float, Field(allow_inf_nan=False)]
_ROWS: Final[TypeAdapter[list[list[float]]]] = TypeAdapter(
    Annotated[list[Annotated[list[_Finite], Field(min_length=1)]], Field(min_length=1)]
)
_VECTOR: Final[TypeAdapter[list[float]]] = TypeAdapter(Annotated[list[_Finite], Field(min_length=1)])

SpaceName = Annotated[
    str | None,
    Field(max_length=MAX_SPACE_LENGTH, description="May be left out if only one space is served."),
]

QueryId = Annotated[
    str | None,
    Field(
        max_length=256,
        description="Of a space with a gate: the same id always gets a drafted list, or never, whatever the vectors "
        "are. Left out, the vector decides.",
    ),
]


class Asked(BaseModel):
    """A request about a space."""

    model_config = ConfigDict(extra="forbid", strict=True)
    space: SpaceName = None


class WithheldState(BaseModel):
    """The newest model of the learner, which it does not announce, since it is worse than none."""

    generation: int
    epoch: int
    step: int
    worse_by: float | None = Field(
        description="By how much more often it is wrong than the best un-learned metric, on held-out events."
    )
    of: int | None = Field(description="How many held-out events were judged.")


#: A part of replies.
WITHHELD = Field(default=None, description="Left out if the learner withholds no newer model.")


class GateState(BaseModel):
    """What the gate has decided for the space, and whether the service can obey."""

    decided: str = Field(
        description="GENERATION.EPOCH.STEP of the model that serves by decision, or un-adapted."
    )
    missing: bool = Field(description="Whether that model is not available: queries are asked as they are.")
    challenger: str | None = Field(description="The model that is compared with it now; null for none.")
    pinned: bool = Field(description="Whether a person has ordered that no other model is to serve.")


class ErrorReply(BaseModel):
    """Why a request was not answered."""

    reason: str
    detail: str
    place: str | None = Field(description="Where in the request; null for all of it.")


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
    if "vectors" in kind.model_fields and "vectors" in found:
        vectors = found["vectors"]
        # The union is resolved here, so that an error has one place and large batches are checked once.
        found["vectors"] = [[0.0]]
        found_rows = _rows_of(vectors)
        made = _validated(kind, found)
        return made.model_copy(update={"vectors": found_rows})
    return _validated(kind, found)


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
