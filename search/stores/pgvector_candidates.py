"""Candidates from a table: the nearest rows and those whose text matches best, with every signal, in one statement.

The text is a column of the type tsvector, best with a GIN index on it. A row matches if it has any word of the query,
and ranks by `ts_rank` over the logarithm of its length. Words are operands as the server has split them, so no sign of
a text is an operator. Of a table, places of rows are sorted, and not the rows: only candidates are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from psycopg import sql

from kinstream.search.stores.base import Asked, Candidates, Place, signals_of
from kinstream.streams.configuration.service import COSINE

#: Operator of a distance, and what makes a similarity of it.
OPERATORS: Final = {COSINE: ("<=>", "1 - "), "inner-product": ("<#>", "-")}
#: The configuration of text search, as for the column, if the options name no other.
LANGUAGE: Final = "english"
#: Of each query: any of its words. A quote and a backslash are doubled within the quotes of an operand.
_WORDS: Final = """
left join lateral (
    select string_agg(
        E'\\'' || replace(replace(lexeme, E'\\\\', E'\\\\\\\\'), E'\\'', E'\\'\\'') || E'\\'', ' | '
    )::tsquery any_word
    from unnest(to_tsvector({language}::regconfig, q.words))
) w on true"""
_RANK: Final = "coalesce(ts_rank({text}, w.any_word, 1), 0)"


class Column(NamedTuple):
    """What the column of vectors is now.

    Parameters
    ----------
    schema : of the extension.
    dimension : None for vectors of any.
    placed : whether rows have a place (ctid) that can be asked for: those of a view have none.
    beside : name, type and dimension of the signals that are further columns of vectors.
    """

    schema: str
    type: str
    dimension: int | None
    placed: bool
    beside: tuple[tuple[str, str, int | None], ...] = ()


def statement(
    place: Place, column: Column, number: int, n: int, rules: Sequence[sql.Composable], language: str
) -> str:
    """The statement for so many queries, and `n` candidates of each by vector and by text.

    Its parameters are, of each query, its vector, its mapped vector, its text, and its vector for each further column
    of vectors; then the operands of `rules`, twice if the space has a text. `n` is none, because a plan for any number
    of rows would be another one.

    Parameters
    ----------
    rules : conditions on rows, from the filter.
    """
    operator, sign = OPERATORS[place.distance]
    schema = sql.Identifier(column.schema)
    kind = sql.Identifier(column.schema, column.type)
    name = sql.Identifier(str(place.options.get("id", "id")))
    vector = sql.Identifier(str(place.options.get("vector", "embedding")))
    table = sql.Identifier(*place.collection.split("."))
    shown = [*place.signals, *place.columns]
    own = [name, vector, *([sql.Identifier(place.text)] if place.text else []), *map(sql.Identifier, shown)]
    given = [f"k{at}" for at in range(len(own))]
    listed = sql.SQL(", ").join(map(sql.SQL, given))
    held = sql.SQL("tableoid, ctid") if column.placed else sql.SQL(", ").join(own)

    def similar(one: str, other: str, dimension: int | None) -> sql.Composed:
        vectors = sql.SQL(one), sql.SQL(other)
        found = sql.SQL("{0}({1} operator({2}.{3}) {4})").format(
            sql.SQL(sign), vectors[0], schema, sql.SQL(operator), vectors[1]
        )
        if dimension is not None:
            return found
        same = sql.SQL("{0}.vector_dims({1}) = {0}.vector_dims({2})").format(schema, *vectors)
        return sql.SQL("case when {} then {} end").format(same, found)

    near_rules: list[sql.Composable] = [sql.SQL("{} is not null").format(one) for one in (name, vector)]
    near_rules.append(sql.SQL("q.mapped is not null"))
    if column.dimension is None:
        near_rules.append(sql.SQL("{0}.vector_dims({1}) = {0}.vector_dims(q.mapped)").format(schema, vector))
    near = sql.SQL(
        "(select false, {held} from {table} t where {rules}"
        " order by {vector} operator({schema}.{far}) q.mapped limit {n})"
    ).format(
        held=held,
        table=table,
        rules=sql.SQL(" and ").join([*near_rules, *rules]),
        vector=vector,
        schema=schema,
        far=sql.SQL(operator),
        n=sql.Literal(n),
    )
    matching: sql.Composable = sql.SQL("")
    words: sql.Composable = sql.SQL("")
    ranks: list[sql.Composable] = []
    if place.text:
        text = sql.Identifier(place.text)
        words = sql.SQL(_WORDS).format(language=sql.Literal(language))
        ranks = [sql.SQL(_RANK).format(text=sql.SQL("near.k2"))]
        text_rules = [sql.SQL("{} is not null").format(name), sql.SQL("{} @@ w.any_word").format(text)]
        matching = sql.SQL(
            " union all (select true, {held} from {table} t where {rules}"
            ' order by {rank} desc, {name}::text collate "C" limit {n})'
        ).format(
            held=held,
            table=table,
            rules=sql.SQL(" and ").join([*text_rules, *rules]),
            rank=sql.SQL(_RANK).format(text=text),
            name=name,
            n=sql.Literal(n),
        )
    found = sql.SQL("({near}{matching})").format(near=near, matching=matching)
    if column.placed:
        found = sql.SQL(
            "(select f.by_text, {own} from {found} f(by_text, part, at)"
            " join {table} t on t.ctid = f.at and t.tableoid = f.part)"
        ).format(own=sql.SQL(", ").join(sql.SQL("t.{}").format(one) for one in own), found=found, table=table)
    at = len(own) - len(shown)
    beside = {name: (f"q.b{number}", size) for number, (name, _, size) in enumerate(column.beside)}
    numbers = [
        similar(f"near.{one}", *beside[name])
        if name in beside
        else sql.SQL("near.{}::float8").format(sql.SQL(one))
        for one, name in zip(given[at:], place.signals, strict=False)
    ]
    similarities = [similar("near.k1", other, column.dimension) for other in ("q.plain", "q.mapped")]
    columns = [sql.SQL("near.{}").format(sql.SQL(one)) for one in given[at + len(place.signals) :]]
    return (
        sql.SQL(
            "select q.n, (select pg_current_snapshot()::text), c.* from (values {queries}) q({asked})"
            " {words} left join lateral (select near.by_text, near.k0::text, {values} from"
            " (select by_text, {once} from {found} found(by_text, {given}) offset 0) near) c on true"
        )
        .format(
            queries=sql.SQL(", ").join(
                sql.SQL("({0}, %s::{1}, %s::{1}, %s::text{2})").format(
                    sql.Literal(row),
                    kind,
                    sql.SQL("").join(
                        sql.SQL(", %s::{}").format(sql.Identifier(column.schema, of))
                        for _, of, _ in column.beside
                    ),
                )
                for row in range(number)
            ),
            asked=sql.SQL(", ").join(
                map(
                    sql.SQL,
                    ["n", "plain", "mapped", "words", *(f"b{at}" for at in range(len(column.beside)))],
                )
            ),
            words=words,
            values=sql.SQL(", ").join([*similarities, *ranks, *numbers, *columns]),
            # A vector is often stored outside of its row: as an element of an array it is fetched once.
            once=sql.SQL(", ").join(sql.SQL("(array[k1])[1] k1" if one == "k1" else one) for one in given),
            found=found,
            given=listed,
        )
        .as_string(None)
    )


def candidates(
    place: Place,
    column: Column,
    asked: Sequence[Asked],
    exponents: Sequence[dict[str, int]],
    rows: Iterable[Sequence[Any]],
) -> list[Candidates]:
    """The candidates of each query, each item once; of rows with one id the nearest stands for all.

    An item without a similarity, such as a vector of zeros, is one only if its text was found.

    Parameters
    ----------
    exponents : of each query, by signal: its vector was divided by this power of 2. Others have no vector.
    rows : the answer to `statement`, in any order.
    """
    found: list[dict[str, Sequence[Any]]] = [{} for _ in asked]
    for row in rows:
        near, name = row[5], row[3]
        known = near is not None and near == near
        # A query without candidates has a row without any.
        if known or row[2]:
            items = found[row[0]]
            other = items.setdefault(name, row)
            if other is not row and known and not (other[5] is not None and other[5] >= near):
                items[name] = row
    behind = 6 + bool(place.text) + len(place.signals)
    answers = []
    for one, items, powers in zip(asked, found, exponents, strict=True):
        known = [row[4:behind] for row in items.values()]
        missing = {name for name, _, _ in column.beside} - powers.keys()
        signals = signals_of(place, one, known, {} if place.distance == COSINE else powers, missing)
        fields: list[dict[str, Any]]
        if place.columns:
            fields = [dict(zip(place.columns, row[behind:], strict=True)) for row in items.values()]
        else:
            fields = [{} for _ in items]
        answers.append(Candidates(list(items), fields, signals))
    return answers
