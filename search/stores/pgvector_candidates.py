"""Candidates from a table: the nearest rows and those whose text matches best, with every signal, in one statement.

The text is a column of the type tsvector, best with a GIN index on it. A row matches if it has any word of the query,
and ranks by `ts_rank` over the logarithm of its length. Words are operands as the server has split them, so no sign of
a text is an operator.
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
    """What the column of vectors is now: its type, the schema of the extension, and its dimension if it has one."""

    schema: str
    type: str
    dimension: int | None


class Row(NamedTuple):
    """A row of the answer: of which query, whether it was found by its text, and its numbers and columns."""

    query: int
    by_text: bool
    id: str
    similarity: float | None
    adapted: float | None
    more: Sequence[Any]


def statement(
    place: Place, column: Column, number: int, rules: Sequence[sql.Composable], language: str
) -> str:
    """The statement for so many queries.

    Its parameters are, of each query, its vector, its mapped vector and its text; n, and then again the rest:
    dimension (of a column without one), the operands of `rules`, n; the last three again if the space has a text.

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
    held = sql.SQL(", ").join(own)

    def similar(one: sql.Composable, other: str) -> sql.Composed:
        found = sql.SQL("{}({} operator({}.{}) {})").format(
            sql.SQL(sign), one, schema, sql.SQL(operator), sql.SQL(other)
        )
        if column.dimension is not None:
            return found
        same = sql.SQL("{0}.vector_dims({1}) = {0}.vector_dims({2})").format(schema, one, sql.SQL(other))
        return sql.SQL("case when {} then {} end").format(same, found)

    near_rules: list[sql.Composable] = [sql.SQL("{} is not null").format(one) for one in (name, vector)]
    near_rules.append(sql.SQL("q.mapped is not null"))
    if column.dimension is None:
        near_rules.append(sql.SQL("{0}.vector_dims({1}) = {0}.vector_dims(q.mapped)").format(schema, vector))
    near = sql.SQL(
        "(select false, {held} from {table} where {rules} order by {vector} operator({schema}.{far}) q.mapped limit %s)"
    ).format(
        held=held,
        table=table,
        rules=sql.SQL(" and ").join([*near_rules, *rules]),
        vector=vector,
        schema=schema,
        far=sql.SQL(operator),
    )
    matching: sql.Composable = sql.SQL("")
    words: sql.Composable = sql.SQL("")
    rank: sql.Composable = sql.SQL("null")
    if place.text:
        text = sql.Identifier(place.text)
        words = sql.SQL(_WORDS).format(language=sql.Literal(language))
        rank = sql.SQL(_RANK).format(text=sql.SQL("near.k2"))
        text_rules = [sql.SQL("{} is not null").format(name), sql.SQL("{} @@ w.any_word").format(text)]
        matching = sql.SQL(
            " union all (select true, {held} from {table} where {rules}"
            ' order by {rank} desc, {name}::text collate "C" limit %s)'
        ).format(
            held=held,
            table=table,
            rules=sql.SQL(" and ").join([*text_rules, *rules]),
            rank=sql.SQL(_RANK).format(text=text),
            name=name,
        )
    at = len(own) - len(shown)
    numbers = [sql.SQL("near.{}::float8").format(sql.SQL(one)) for one in given[at : at + len(place.signals)]]
    columns = [sql.SQL("near.{}").format(sql.SQL(one)) for one in given[at + len(place.signals) :]]
    vector_now = sql.SQL("near.k1")
    return (
        sql.SQL(
            "select q.n, pg_current_snapshot()::text, c.* from (values {queries}) q(n, plain, mapped, words) {words}"
            " left join lateral (select near.by_text, near.k0::text, {values} from ({near}{matching}) near(by_text,"
            " {given})) c on true order by 1"
        )
        .format(
            queries=sql.SQL(", ").join(
                sql.SQL("({0}, %s::{1}, %s::{1}, %s::text)").format(sql.Literal(row), kind)
                for row in range(number)
            ),
            words=words,
            values=sql.SQL(", ").join(
                [similar(vector_now, "q.plain"), similar(vector_now, "q.mapped"), rank, *numbers, *columns]
            ),
            near=near,
            matching=matching,
            given=sql.SQL(", ").join(map(sql.SQL, given)),
        )
        .as_string(None)
    )


def candidates(place: Place, asked: Sequence[Asked], rows: Iterable[Row]) -> list[Candidates]:
    """The candidates of each query, each item once; of equal ids the first row stands for all.

    An item without a similarity, such as a vector of zeros, is one only if its text was found.
    """
    found: list[dict[str, Row]] = [{} for _ in asked]
    for row in rows:
        no_number = row.similarity is None or row.similarity != row.similarity
        if row.by_text or not no_number:
            found[row.query].setdefault(row.id, row)
    skip = 0 if place.text else 1
    many = len(place.signals) + 1
    answers = []
    for one, items in zip(asked, found, strict=True):
        numbers = [[row.similarity, row.adapted, *row.more[skip:many]] for row in items.values()]
        fields = [dict(zip(place.columns, row.more[many:], strict=True)) for row in items.values()]
        answers.append(Candidates(list(items), fields, signals_of(place, one, numbers)))
    return answers
