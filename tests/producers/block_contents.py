"""Blocks as the lists and relations they were made of."""

from __future__ import annotations

import numpy as np

from kinstream.streams.records.codec.codec import decode_event, encode
from kinstream.streams.records.values import (
    Click,
    ClickBlock,
    Event,
    ItemBlock,
    ItemClick,
    Relation,
    RelationBlock,
    Table,
)


def lists_of(block: Event) -> list[Click]:
    """The result lists of a block that has been encoded and decoded."""
    b = decode_event(encode(block))
    assert isinstance(b, ClickBlock)
    found = []
    for n, list_id in enumerate(b.list_ids):
        begin, end = int(b.starts[n]), int(b.starts[n + 1])
        clicks = [
            ItemClick(
                b.ids[b.item[at]],
                int(b.click_ms[k]),
                None if b.dwell_ms[k] < 0 else int(b.dwell_ms[k]),
                None if b.action is None else _named(b.kinds, int(b.action[k])),
            )
            for k, at in enumerate(b.clicked.tolist())
            if begin <= at < end
        ]
        row = int(b.query_row[n])
        vector = tuple(Table(t.name, t.vectors[row : row + 1]) for t in b.query_vectors) if row >= 0 else ()
        found.append(
            Click(
                b.space,
                list_id,
                tuple(b.ids[i] for i in b.item[begin:end]),
                tuple(b.position[begin:end].tolist()),
                tuple(clicks),
                int(b.shown_at_ms[n]),
                _named(b.actors, int(b.session[n])),
                _named(b.actors, int(b.user[n])),
                _named(b.ids, int(b.query[n])),
                vector,
                address=None if b.address is None else _named(b.actors, int(b.address[n])),
                scores=None if b.scores is None else b.scores.take(slice(begin, end)),
            )
        )
    return found


def plain(click: Click) -> tuple[object, ...]:
    """A list as something that can be compared. A score without a value is none."""
    vector = tuple((t.name, t.vectors.tolist()) for t in click.query_vector)
    fields = [name for name in Click.__dataclass_fields__ if name not in ("query_vector", "load", "scores")]
    scores = {} if click.scores is None else dict(zip(click.scores.names, click.scores.values.T, strict=True))
    known = {name: tuple(v if v == v else None for v in values.tolist()) for name, values in scores.items()}
    given = {name: values for name, values in known.items() if any(v is not None for v in values)}
    return (*(getattr(click, name) for name in fields), vector, given)


def relations_of(block: Event) -> list[Relation]:
    """The relations of a block that has been encoded and decoded."""
    b = decode_event(encode(block))
    assert isinstance(b, RelationBlock)
    return [
        Relation(
            b.space,
            b.ids[b.left[n]],
            b.ids[b.right[n]],
            bool(b.similar[n]),
            int(b.time_ms[n]),
            _named(b.sources, int(b.source[n])),
        )
        for n in range(len(b))
    ]


def items_of(block: Event) -> tuple[dict[str, list[list[float]]], tuple[str, ...]]:
    """id -> the vector of each modality, and the tombstones."""
    b = decode_event(encode(block))
    assert isinstance(b, ItemBlock)
    vectors = {
        name: [np.asarray(t.vectors[row]).tolist() for t in b.tables] for row, name in enumerate(b.ids)
    }
    return vectors, b.tombstones


def _named(names: tuple[str, ...], number: int) -> str | None:
    return None if number < 0 else names[number]
