"""Simulated searchers click as their settings say, and the corpus is what the packages' files hold."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import indent
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from kinstream.producers.simulated.documentation import Embedder, functions_of
from kinstream.producers.simulated.searchers import Searchers, Searches, catalogue, click_blocks, searches
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.codec.codec import decode_event, encode


def found(lists: int = 4_000, **settings: Any) -> tuple[Searches, Any, Any]:
    draw = np.random.default_rng(1)
    items = draw.normal(size=(300, 8)).astype(np.float32)
    items /= np.linalg.norm(items, axis=1, keepdims=True)
    queries = (items[:100] + 0.2 * draw.normal(size=(100, 8))).astype(np.float32)
    people = Searchers(**({"shown": 10} | settings))
    return searches(queries, items, np.arange(100), people, lists, 7), queries, items


def test_lists_show_the_nearest_items_and_every_query_is_asked_as_often() -> None:
    one, queries, items = found()
    assert set(np.bincount(one.query)) == {40}
    scores = queries[one.query[3]] @ items.T
    assert list(one.items[3]) == list(np.argsort(-scores, kind="stable")[:10])
    again, _, _ = found()
    np.testing.assert_array_equal(one.clicked, again.clicked)


def test_clicks_follow_places_relevance_and_noise() -> None:
    one, _, _ = found(40_000)
    right = one.items == one.query[:, None]
    first = one.clicked[:, 0]
    assert first[right[:, 0]].mean() == pytest.approx(0.9, abs=0.01)
    assert first[~right[:, 0]].mean() == pytest.approx(0.02, abs=0.01)
    assert one.clicked[:, 3][~right[:, 3]].mean() == pytest.approx(0.02 / 2, abs=0.003)


def test_a_cascade_ends_at_the_first_click() -> None:
    one, _, _ = found(model="cascade", noise=0.2)
    assert one.clicked.sum(axis=1).max() == 1
    assert one.clicked.any(axis=1).mean() > 0.8


def test_poisoners_are_few_and_click_what_is_irrelevant() -> None:
    one, _, _ = found(poisoned=0.2, poisoners=5)
    bad = one.poisoner >= 0
    assert bad.mean() == pytest.approx(0.2, abs=0.03)
    assert set(one.poisoner[bad]) == set(range(5))
    right = one.items == one.query[:, None]
    assert not (one.clicked & right)[bad].any()
    assert one.clicked[bad].mean() == pytest.approx(0.45, abs=0.05)


def test_popular_items_are_clicked_whatever_is_asked() -> None:
    few, many = found()[0], found(popular=0.5)[0]
    assert many.clicked.sum() > 1.15 * few.clicked.sum()


def test_demand_falls_with_the_rank_of_a_query() -> None:
    asked = np.bincount(found(40_000, demand=0.5)[0].query, minlength=100)
    assert asked[:10].sum() / asked[25:40].sum() == pytest.approx(
        (np.arange(1, 11) ** -0.5).sum() / (np.arange(26, 41) ** -0.5).sum(), rel=0.05
    )


def test_items_like_the_relevant_one_are_clicked_half_as_often() -> None:
    one, _, items = found(40_000, alike=0.8, noise=0.0, bias=0.0)
    alike = np.einsum("lsd,ld->ls", items[one.items], items[one.query]) >= 0.8
    right = one.items == one.query[:, None]
    assert one.clicked[right].mean() == pytest.approx(0.9, abs=0.01)
    assert one.clicked[alike & ~right].mean() == pytest.approx(0.45, abs=0.01)
    assert not one.clicked[~alike].any()


def test_the_events_hold_the_lists() -> None:
    one, queries, items = found(450)
    blocks = [decode_event(encode(block)) for block in click_blocks("s", one, queries)]
    assert [len(block) for block in blocks] == [200, 200, 50]  # type: ignore[arg-type]
    last: Any = blocks[-1]
    shown = np.array([int(last.ids[item]) for item in last.item]).reshape(50, 10)
    np.testing.assert_array_equal(shown, one.items[400:])
    np.testing.assert_array_equal(last.clicked, np.flatnonzero(one.clicked[400:]))
    np.testing.assert_array_equal(last.query_vectors[0].vectors[last.query_row], queries[one.query[400:]])
    stored: list[Any] = [decode_event(encode(block)) for block in catalogue("s", items)]
    assert [name for block in stored for name in block.ids] == [str(n) for n in range(300)]


@pytest.mark.parametrize(
    "wrong",
    [{"noise": 1.1}, {"shown": 0}, {"model": "none"}, {"bias": -1.0}, {"poisoners": 0}, {"demand": -1.0}],
    ids=str,
)
def test_settings_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        Searchers(**wrong)


SOURCE = '''
def scaled(rows, factor):
    """Multiply
    all rows.

    Parameters: the rows, and by what.
    """
    return rows * factor

def short():
    """One paragraph."""

def _inner():
    """Not public.

    At all.
    """

class Box:
    """A box.

    For things.
    """
    size = 3
'''


def test_a_query_is_the_first_paragraph_and_the_item_all_else_but_the_name(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "mod.py").write_text(SOURCE)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_mod.py").write_text(SOURCE)
    (tmp_path / "broken.py").write_text("def (")
    one, two = functions_of(tmp_path, "pack")
    assert (one.name, one.query) == ("pack.sub.mod.scaled", "Multiply all rows.")
    assert one.item == "Parameters: the rows, and by what.\nrows factor\n    return rows * factor"
    assert (two.name, two.query) == ("pack.sub.mod.Box", "A box.")
    assert "size = 3" in two.item and "Box" not in two.item


FUNCTION = 'def {}():\n    """Do one thing.\n\n    Well."""\n'


def test_functions_of_every_statement_are_found_in_the_order_of_the_whole_tree(tmp_path: Path) -> None:
    heads = {
        "if one": ("elif two", "else"),
        "for one in two": ("else",),
        "while one": ("else",),
        "try": ("except One", "except Two", "else", "finally"),
        "with one": (),
        "class One": (),
        "async def one()": (),
        "match one": (),
    }
    text = ""
    for head, rest in heads.items():
        case = "    case 1:\n" if head.startswith("match") else ""
        for part in (head, *rest):
            inner = FUNCTION.format(f"at_{len(text)}")
            text += f"{part}:\n{case}{indent(inner, ' ' * (8 if case else 4))}"
    text += FUNCTION.format("last")
    (tmp_path / "mod.py").write_text(text)
    wanted = [
        node.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node)
    ]
    assert len(wanted) == 17
    assert [one.name.rpartition(".")[2] for one in functions_of(tmp_path, "pack")] == wanted


def test_an_embedder_measures_n_grams_as_scikit_learn_does() -> None:
    texts = [
        "Sort\tthe  rows, descending",
        "a b",
        "Rows\u2003of a\nsorted table",
        "SORT the rows\xa0again",
    ] * 3
    weighed = TfidfVectorizer(
        analyzer="char_wb", ngram_range=(3, 5), min_df=3, max_features=60_000, sublinear_tf=True
    )
    rows = TruncatedSVD(2, random_state=0, n_iter=3).fit_transform(weighed.fit_transform(texts))
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    np.testing.assert_allclose(Embedder(texts, 2)(texts), rows / lengths, rtol=0, atol=1e-6)


def test_an_embedder_finds_what_shares_words() -> None:
    texts = [
        f"{a} {b} of things" for a in ("red", "green", "blue") for b in ("apples", "boxes", "stones")
    ] * 3
    embed = Embedder(texts, dimensions=4)
    vectors = embed(["red apples", "red apples of things", "blue stones of things"])
    assert vectors.shape == (3, 4) and vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=1e-5)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]
