"""Result lists to feed the click builder with. The vector of item "i7" is (7, 1), a query's own vector (100 + q, 1)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from kinstream.processors.base.builder import Made, Origin
from kinstream.processors.clicks.clicks import Clicks
from kinstream.streams.records.scores import Scores
from kinstream.streams.records.values import (
    Click,
    ClickBlock,
    ConstraintBlock,
    ItemBlock,
    ItemClick,
    LoadPosition,
    Table,
    Vectors,
)
from tests.processors.bounds import clicks

SPACE = "shop"
#: Append time of every event, far enough ahead of all times of the samples.
NOW = 10**12


def vector(number: float) -> tuple[Table, ...]:
    return (Table("x", np.array([[number, 1.0]], np.float32)),)


def items(names: Iterable[str], gone: Sequence[str] = ()) -> ItemBlock:
    names = tuple(names)
    table = np.array([[int(name[1:]), 1] for name in names], np.float32).reshape(-1, 2)
    return ItemBlock(SPACE, names, (Table("x", table),) if names else (), 0, tuple(gone))


def shown(
    list_id: str,
    names: str | Sequence[str],
    clicks: Sequence[tuple[str, int] | tuple[str, int, int | None]] = (),
    *,
    at: int = 0,
    query: str | float | None = "i0",
    user: str | None = None,
    session: str | None = None,
    address: str | None = None,
    positions: Sequence[int] | None = None,
) -> Click:
    """A list as one writes it in a test: names with spaces between them, clicks as (name, time[, dwell])."""
    names = tuple(names.split() if isinstance(names, str) else names)
    return Click(
        SPACE,
        list_id,
        names,
        tuple(range(len(names)) if positions is None else positions),
        tuple(ItemClick(*click) for click in clicks),
        at,
        session,
        user,
        query if isinstance(query, str) else None,
        vector(query) if isinstance(query, float | int) else (),
        address=address,
    )


def block_of(clicks: Sequence[Click], load: LoadPosition | None = None) -> ClickBlock:
    """The lists as one block; clicks on what was not shown cannot be said in one."""
    ids: dict[str, int] = {}
    actors: dict[str, int] = {}
    starts, clicked, click_ms, dwell_ms = [0], [], [], []
    item: list[int] = []
    position: list[int] = []
    session, user, address, query, query_row = [], [], [], [], []
    vectors: list[Vectors] = []
    kinds: dict[str, int] = {}
    action: list[int] = []
    columns: dict[str, list[float]] = {}
    for click in clicks:
        first = len(item)
        item += [ids.setdefault(name, len(ids)) for name in click.items]
        position += click.positions
        if click.scores is not None:
            for name, values in zip(click.scores.names, click.scores.values.T.tolist(), strict=True):
                column = columns.setdefault(name, [])
                column += [math.nan] * (first - len(column)) + values
        for one in click.clicks:
            clicked.append(first + click.items.index(one.item))
            click_ms.append(one.time_ms)
            dwell_ms.append(-1 if one.dwell_ms is None else one.dwell_ms)
            action.append(-1 if one.action is None else kinds.setdefault(one.action, len(kinds)))
        starts.append(len(item))
        session.append(-1 if click.session is None else actors.setdefault(click.session, len(actors)))
        user.append(-1 if click.user is None else actors.setdefault(click.user, len(actors)))
        address.append(-1 if click.address is None else actors.setdefault(click.address, len(actors)))
        query.append(-1 if click.query_item is None else ids.setdefault(click.query_item, len(ids)))
        query_row.append(len(vectors) if click.query_vector else -1)
        vectors += [t.vectors[0] for t in click.query_vector]
    for column in columns.values():
        column += [math.nan] * (len(item) - len(column))
    return ClickBlock(
        space=SPACE,
        ids=tuple(ids),
        list_ids=tuple(click.list_id for click in clicks),
        actors=tuple(actors),
        session=np.array(session, np.int32),
        user=np.array(user, np.int32),
        query=np.array(query, np.int32),
        query_row=np.array(query_row, np.int32),
        query_vectors=(Table("x", np.array(vectors, np.float32)),) if vectors else (),
        shown_at_ms=np.array([click.shown_at_ms for click in clicks], np.int64),
        starts=np.array(starts, np.int32),
        item=np.array(item, np.int32),
        position=np.array(position, np.int32),
        clicked=np.array(clicked, np.int32),
        click_ms=np.array(click_ms, np.int64),
        dwell_ms=np.array(dwell_ms, np.int64),
        load=load,
        address=np.array(address, np.int32) if max(address, default=-1) >= 0 else None,
        scores=Scores.of(columns) if columns else None,
        kinds=tuple(kinds),
        action=np.array(action, np.int32) if kinds else None,
    )


def name_of(number: float) -> str:
    return f"i{number:.0f}" if number < 100 else f"q{number - 100:.0f}"


def rows_of(blocks: Iterable[ConstraintBlock]) -> list[tuple[str, float, tuple[str, ...]]]:
    """Constraints as (rule, weight, names), in order."""
    rows = []
    for block in blocks:
        numbers = block.tables[0].vectors[:, 0].tolist() if len(block) else []
        for row, rule, weight in zip(block.index.tolist(), block.rule, block.weights, strict=True):
            names = tuple(name_of(numbers[i]) for i in row)
            rows.append((block.rules[rule], round(float(weight), 5), names))
    return rows


def told(made: Made) -> list[tuple[str, ...]]:
    """Only the names of the constraints."""
    return [names for _, _, names in rows_of(made.blocks)]


def preferring(**settings: Any) -> Clicks:
    """A builder of preferences: each clicked item over those above it."""
    return clicks(**{"rules": ["click-skip-above"], **settings})


def with_items(builder: Clicks, names: str = "i0 i1 i2 i3 i4 i5 i6 i7 i8 i9") -> Clicks:
    builder.process(items(names.split()), Origin(0, NOW))
    return builder


# ---- at random ------------------------------------------------------------------------------------------------------

_TIMES = st.integers(0, 400)


@st.composite
def random_click(draw: st.DrawFn, known: int = 7) -> Click:
    """A list of up to seven items, of which "i7" and above are in no catalogue; some are bad."""
    names = draw(
        st.lists(st.integers(0, known + 1), min_size=1, max_size=7, unique=draw(st.integers(0, 9)) > 0)
    )
    places = draw(
        st.one_of(
            st.just(list(range(len(names)))),
            st.permutations([2 * n for n in range(len(names))]),
            st.permutations(range(len(names))),
        )
    )
    if draw(st.integers(0, 19)) == 0:
        places[-1] = places[0]
    shown_at = draw(_TIMES)
    if draw(st.integers(0, 29)) == 0:
        shown_at = -1
    clicks = draw(
        st.lists(
            st.tuples(
                st.sampled_from(names),
                st.integers(0, 30),
                st.one_of(st.none(), st.integers(0, 20)),
            ),
            max_size=4,
        )
    )
    query = draw(st.one_of(st.none(), st.integers(0, known), st.integers(0, known), st.integers(0, 3)))
    own = draw(st.integers(0, 4)) == 0
    return Click(
        SPACE,
        draw(st.sampled_from(["", *(f"list {n}" for n in range(12))])),
        tuple(f"i{n}" for n in names),
        tuple(places),
        tuple(ItemClick(f"i{n}", max(shown_at, 0) + after, dwell) for n, after, dwell in clicks),
        shown_at,
        draw(st.sampled_from([None, "s", "t", "ann"])),
        draw(st.sampled_from([None, "ann", "bob"])),
        None if query is None else f"i{query}",
        vector(100 + (query or 0)) if own else (),
        address=draw(st.sampled_from([None, None, "ann", "x"])),
    )
