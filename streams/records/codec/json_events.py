"""Events that users' own systems write as JSON: samples, items, clicks, relations (docs/json-events.md).

    {"kind": "samples", "space": "digits", "vectors": [[0.1, 0.2], [0.3, 0.4]], "labels": [3, 5], "time_ms": 0}

`vectors` is a list of rows, or an object of such lists by modality. Only what is documented is accepted: an unknown
field is an error, because a misspelt field would otherwise be dropped silently.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.checks import MAX_DIMENSION, check_space, scores_of, strings, text
from kinstream.streams.records.codec.clicks import weight_of
from kinstream.streams.records.codec.json_text import parse
from kinstream.streams.records.codec.parts import load_position
from kinstream.streams.records.foreign.narrowing import lost, narrowed
from kinstream.streams.records.lists.feedback import HEAVIEST
from kinstream.streams.records.scores import Scores
from kinstream.streams.records.values import (
    DEFAULT_MODALITY,
    Click,
    Event,
    ItemBlock,
    ItemClick,
    LoadPosition,
    Relation,
    SampleBlock,
    Table,
)

_FIELDS: Final[dict[str, tuple[frozenset[str], frozenset[str]]]] = {
    "samples": (frozenset({"vectors", "labels", "time_ms"}), frozenset({"ids", "load"})),
    "items": (frozenset({"time_ms"}), frozenset({"ids", "vectors", "tombstones", "load"})),
    "click": (
        frozenset({"list_id", "items", "clicks", "shown_at_ms"}),
        frozenset(
            {"positions", "session", "user", "address", "query_item", "query_vector", "load", "scores"}
        ),
    ),
    "relation": (frozenset({"left", "right", "similar", "time_ms"}), frozenset({"source", "load"})),
}

_CLICK: Final = {"item", "time_ms", "dwell_ms", "action", "weight"}
#: The types of numbers that the parser makes; true and false are of another.
_NUMBERS: Final = frozenset({int, float})


def read_json(value: bytes) -> Event:
    """Read one JSON event.

    Raises
    ------
    BadRecord : not JSON, nested too deep, a string that is not valid UTF-8, a field missing, unknown, named twice or
        of the wrong type.
    """
    body = parse(value)
    kind = body.pop("kind", None)
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise BadRecord(Reason.WRONG_KIND, f"kind must be one of {', '.join(sorted(_FIELDS))}")
    space = check_space(_text(body.pop("space", None), "space"))
    required, optional = _FIELDS[kind]
    if missing := required - body.keys():
        raise BadRecord(Reason.BAD_SHAPE, f"{kind}: {', '.join(sorted(missing))} missing")
    if unknown := body.keys() - required - optional:
        raise BadRecord(Reason.BAD_SHAPE, f"{kind}: unknown field {sorted(unknown)[0]!r}")
    load = _load(body.get("load"))
    match kind:
        case "samples":
            return _samples(space, body, load)
        case "items":
            return _items(space, body, load)
        case "click":
            return _click(space, body, load)
        case _:
            similar = body["similar"]
            if not isinstance(similar, bool):
                raise BadRecord(Reason.BAD_SHAPE, "similar must be true or false")
            left, right = _text(body["left"], "left"), _text(body["right"], "right")
            source = None if body.get("source") is None else _text(body["source"], "source")
            return Relation(space, left, right, similar, _integer(body["time_ms"], "time_ms"), source, load)


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise BadRecord(Reason.BAD_SHAPE, f"{what} must be a string")
    return text(value, what)


def _integer(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise BadRecord(Reason.BAD_SHAPE, f"{what} must be a whole number of 64 bits")
    return value


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise BadRecord(Reason.BAD_SHAPE, f"{what} must be a list")
    return value


def _load(value: Any) -> LoadPosition | None:
    if value is None:
        return None
    if not isinstance(value, dict) or value.keys() != {"load_id", "sequence"}:
        raise BadRecord(Reason.BAD_SHAPE, "load must be {load_id, sequence}")
    return load_position(_text(value["load_id"], "load_id"), _integer(value["sequence"], "sequence"))


def _tables(value: Any, what: str) -> tuple[Table, ...]:
    named = value if isinstance(value, dict) else {DEFAULT_MODALITY: value}
    tables = tuple(Table(_text(name, "modality"), _rows(rows, what)) for name, rows in sorted(named.items()))
    if len({len(t.vectors) for t in tables}) > 1:
        raise BadRecord(Reason.BAD_SHAPE, f"{what}: the modalities differ in their number of rows")
    return tables


def _rows(value: Any, what: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    rows = _list(value, what)
    if not rows:
        raise BadRecord(Reason.EMPTY, f"{what} is empty")
    width = len(_list(rows[0], f"a row of {what}"))
    if not 1 <= width <= MAX_DIMENSION:
        raise BadRecord(Reason.BAD_SHAPE, f"{what}: rows of {width} numbers")
    for number, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != width:
            raise BadRecord(Reason.BAD_SHAPE, f"{what}: row {number} differs in length from the first")
        if not _NUMBERS.issuperset(map(type, row)):
            raise BadRecord(Reason.BAD_SHAPE, f"{what}: row {number} holds something that is not a number")
    try:
        wide = np.array(rows, dtype=np.float64)
    except OverflowError as error:
        raise BadRecord(Reason.NOT_FINITE, f"{what}: a number does not fit") from error
    if (found := lost(wide)) is not None:
        raise BadRecord(Reason.BAD_SHAPE, f"{what}: number {found[0]} of a row: {found[1]}")
    return narrowed(wide).astype("<f4")


def _samples(space: str, body: dict[str, Any], load: LoadPosition | None) -> SampleBlock:
    tables = _tables(body["vectors"], "vectors")
    if not tables:
        raise BadRecord(Reason.EMPTY, "samples without vectors")
    rows = len(tables[0].vectors)
    raw = _list(body["labels"], "labels")
    if len(raw) != rows:
        raise BadRecord(Reason.BAD_SHAPE, f"{len(raw)} labels for {rows} rows")
    labels: Any
    if all(isinstance(label, str) for label in raw):
        labels = strings(raw, rows, "labels")
    else:
        labels = np.array([_integer(label, "a label") for label in raw], dtype=np.int64)
    ids = None if body.get("ids") is None else _texts(body["ids"], "ids")
    if ids is not None and len(ids) != rows:
        raise BadRecord(Reason.BAD_SHAPE, f"{len(ids)} ids for {rows} rows")
    return SampleBlock(space, tables, labels, _integer(body["time_ms"], "time_ms"), ids, load)


def _texts(value: Any, what: str) -> tuple[str, ...]:
    return tuple(_text(v, f"one of the {what}") for v in _list(value, what))


def _items(space: str, body: dict[str, Any], load: LoadPosition | None) -> ItemBlock:
    ids = _texts(body.get("ids", []), "ids")
    tables = _tables(body["vectors"], "vectors") if body.get("vectors") else ()
    tombstones = _texts(body.get("tombstones", []), "tombstones")
    rows = len(tables[0].vectors) if tables else 0
    if len(ids) != rows:
        raise BadRecord(Reason.BAD_SHAPE, f"{len(ids)} ids for {rows} rows")
    if not rows and not tombstones:
        raise BadRecord(Reason.EMPTY, "items without ids and without tombstones")
    return ItemBlock(space, ids, tables, _integer(body["time_ms"], "time_ms"), tombstones, load)


def _click(space: str, body: dict[str, Any], load: LoadPosition | None) -> Click:
    items = _texts(body["items"], "items")
    if not items:
        raise BadRecord(Reason.EMPTY, "a click record without shown items")
    positions = tuple(
        _integer(p, "a position") for p in _list(body.get("positions", [*range(len(items))]), "positions")
    )
    if len(positions) != len(items) or any(not 0 <= p < 2**31 for p in positions):
        raise BadRecord(Reason.BAD_SHAPE, "positions must be one non-negative rank for each item")
    clicks = []
    for click in _list(body["clicks"], "clicks"):
        if not isinstance(click, dict) or not {"item", "time_ms"} <= click.keys() <= _CLICK:
            raise BadRecord(Reason.BAD_SHAPE, "a click is {item, time_ms, dwell_ms?, action?, weight?}")
        dwell = None if click.get("dwell_ms") is None else _integer(click["dwell_ms"], "dwell_ms")
        action = None if click.get("action") is None else _text(click["action"], "action")
        time_ms = _integer(click["time_ms"], "time_ms")
        weight = None if click.get("weight") is None else _weight(click["weight"])
        clicks.append(ItemClick(_text(click["item"], "item"), time_ms, dwell, action, weight))
    query: tuple[Table, ...] = ()
    if body.get("query_vector") is not None:
        raw = body["query_vector"]
        query = _tables({m: [v] for m, v in raw.items()} if isinstance(raw, dict) else [raw], "query_vector")
        if not all(np.isfinite(t.vectors).all() for t in query):
            raise BadRecord(Reason.NOT_FINITE, "query_vector must be finite")
    optional = {
        n: None if body.get(n) is None else _text(body[n], n)
        for n in ("session", "user", "address", "query_item")
    }
    return Click(
        space,
        _text(body["list_id"], "list_id"),
        items,
        positions,
        tuple(clicks),
        _integer(body["shown_at_ms"], "shown_at_ms"),
        optional["session"],
        optional["user"],
        optional["query_item"],
        query,
        load,
        optional["address"],
        _scores(body.get("scores"), len(items)),
    )


def _weight(value: Any) -> float:
    if type(value) not in _NUMBERS:
        raise BadRecord(Reason.BAD_SHAPE, "weight must be a number")
    return weight_of(float(np.float32(min(value, 2.0 * HEAVIEST))))


def _scores(value: Any, rows: int) -> Scores | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise BadRecord(Reason.BAD_SHAPE, "scores must be an object: a list of numbers for each name")
    return scores_of(
        {name: _list(numbers, f"the scores {name[:40]!r}") for name, numbers in value.items()}, rows
    )
