"""Pieces that several record kinds share: tables, load positions, arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.checks import (
    MAX_LOAD_ID_LENGTH,
    check_scores,
    sequence_number,
    text,
    vectors,
)
from kinstream.streams.records.scores import Scores
from kinstream.streams.records.values import LoadPosition, Table


def tables_out(tables: tuple[Table, ...]) -> list[dict[str, Any]]:
    return [
        {
            "name": t.name,
            "rows": t.vectors.shape[0],
            "columns": t.vectors.shape[1],
            "data": np.ascontiguousarray(t.vectors, dtype="<f4").tobytes(),
        }
        for t in tables
    ]


def round_tables(body: dict[str, Any]) -> None:
    """Write the vectors of a body as float16. A table with a number that is too large for it stays as it is."""
    for value in body.values():
        for table in value if isinstance(value, list) else ():
            if isinstance(table, dict) and "columns" in table:
                with np.errstate(over="ignore"):
                    rounded = np.frombuffer(table["data"], "<f4").astype("<f2")
                if np.isfinite(rounded).all():
                    table["data"] = rounded.tobytes()


def tables_in(bodies: list[dict[str, Any]], what: str) -> tuple[Table, ...]:
    tables = tuple(
        Table(text(b["name"], "the name of a modality"), vectors(b["data"], b["rows"], b["columns"], what))
        for b in bodies
    )
    if len({t.name for t in tables}) != len(tables):
        raise BadRecord(Reason.BAD_SHAPE, f"{what}: a modality is named twice")
    if len({len(t.vectors) for t in tables}) > 1:
        raise BadRecord(Reason.BAD_SHAPE, f"{what}: the tables differ in their number of rows")
    return tables


def load_out(load: LoadPosition | None) -> dict[str, Any] | None:
    return None if load is None else {"load_id": load.load_id, "sequence": load.sequence}


def load_in(body: dict[str, Any] | None) -> LoadPosition | None:
    return None if body is None else load_position(body["load_id"], body["sequence"])


def load_position(load_id: str, sequence: int) -> LoadPosition:
    """A position in a load, its parts checked."""
    return LoadPosition(text(load_id, "a load id", MAX_LOAD_ID_LENGTH), sequence_number(sequence))


def scores_out(scores: Scores | None) -> dict[str, Any] | None:
    if scores is None:
        return None
    values = np.ascontiguousarray(scores.values, dtype="<f4")
    return {"names": list(scores.names), "values": values.tobytes()}


def scores_in(body: dict[str, Any] | None, rows: int, what: str) -> Scores | None:
    if body is None:
        return None
    names = tuple(body["names"])
    values = array(body["values"], "<f4", rows * len(names), what)
    return check_scores(Scores(names, values.reshape(rows, len(names))), what)


def array(data: bytes, dtype: str, rows: int, what: str) -> NDArray[Any]:
    if len(data) != rows * np.dtype(dtype).itemsize:
        raise BadRecord(Reason.BAD_SHAPE, f"{what} has {len(data)} bytes for {rows} rows")
    return np.frombuffer(data, dtype=dtype)
