"""Queries that were never learned from, before and after others were: measures, simulated users, the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from kinstream.cli.main import cli
from kinstream.evaluation.queries.baselines import (
    BOOST,
    HALF,
    bm25,
    clicked_at_all,
    clicked_for_the_query,
    counted,
    fused,
)
from kinstream.evaluation.queries.batch import batch_adapter
from kinstream.evaluation.queries.compare import (
    BM25,
    BY_ITEM,
    BY_QUERY,
    FUSED,
    HALVES,
    HINDSIGHT,
    NOTHING,
    WITH_TEXT,
    SearchTrial,
    summarised,
)
from kinstream.evaluation.queries.judgements import Judgements
from kinstream.evaluation.queries.measures import answered, ranked
from kinstream.evaluation.queries.recommendation import recommended
from kinstream.evaluation.queries.signals import HALF_AND_HALF, Signals
from kinstream.evaluation.queries.sources import Corpus, opened
from kinstream.evaluation.queries.split import split
from kinstream.learners.held_out.judge import Judge
from kinstream.learners.registry import create
from kinstream.producers.simulated.searchers import Searchers, Searches
from kinstream.streams.errors import SettingsError, SourceError
from kinstream.streams.records.held_out import HeldOut
from kinstream.streams.records.values import LIST_RULE, Kind
from kinstream.streams.signals import TEXT

Vectors = NDArray[np.float32]


def world(n: int = 1_200, d: int = 24) -> tuple[Vectors, Vectors]:
    """Items, and queries in which half of the features are turned."""
    draw = np.random.default_rng(1)
    items = draw.normal(size=(n, d))
    turn = np.linalg.qr(draw.normal(size=(d, d)))[0]
    turned = items @ (0.7 * np.eye(d) + 0.7 * turn)
    queries = turned + 0.8 * draw.normal(size=(n, d))

    def unit(rows: NDArray[np.float64]) -> Vectors:
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)

    return unit(queries), unit(items)


def test_measures_are_those_of_scikit_learn() -> None:
    from sklearn.metrics import label_ranking_average_precision_score, ndcg_score, top_k_accuracy_score

    queries, items = world(150)
    relevant = np.random.default_rng(2).permutation(150)[:90]
    found = answered(queries[:90], items, relevant)
    scores, truth = queries[:90] @ items.T, np.eye(150)[relevant]
    assert found.ndcg == pytest.approx(ndcg_score(truth, scores, k=10))
    assert found.mrr == pytest.approx(label_ranking_average_precision_score(truth, scores))
    for k, value in found.recall.items():
        assert value == pytest.approx(top_k_accuracy_score(relevant, scores, k=k, labels=np.arange(150)))


def test_a_tie_counts_against_the_answer() -> None:
    items = np.ones((4, 2), np.float32)
    assert answered(items[:1], items, np.array([0])).mrr == 0.25


def test_learned_and_tested_queries_are_apart_and_clicks_are_of_learned_ones() -> None:
    queries, items = world(300)
    parts = split(queries, items, 5, 180, 100)
    assert len(parts.learned) == 180 and not set(parts.learned) & set(parts.tested)
    labels = [*parts.labels(5)]
    asked = np.concatenate([block.tables[0].vectors[block.index[:, 0]] for block in labels])
    assert {row.tobytes() for row in asked} == {row.tobytes() for row in queries[parts.learned]}
    lists = [*parts.clicks(parts.searches(Searchers(), 900, 5))]
    assert {block.kind for block in lists} == {Kind.PAIR} and {block.rules for block in lists} == {
        (LIST_RULE,)
    }
    of_lists = {row.tobytes() for block in lists for row in block.tables[0].vectors[block.index[:, 0]]}
    assert of_lists <= {row.tobytes() for row in queries[parts.learned]}
    assert sum(int((block.signs > 0).sum()) for block in lists) > 200


@pytest.mark.parametrize(
    "people", [None, Searchers(), Searchers(model="cascade")], ids=["labels", "clicks", "cascade"]
)
def test_an_adapter_gains_on_queries_that_it_has_not_seen(people: Searchers | None) -> None:
    queries, items = world()
    contenders: dict[str, tuple[str, dict[str, Any]]] = {"adapter": ("adapter", {"rank": 16})}
    request = SearchTrial(contenders, people, 4_000, 400)
    before, *others, after = summarised(Corpus(queries, items), range(2), request)
    assert (before["metric"], before["change"], before["asked"]["change"]) == (NOTHING, None, None)
    assert after["change"] > 5.0 and after["asked"]["change"] > 5.0
    assert [row["metric"] for row in others] == ([] if people is None else [BY_QUERY, BY_ITEM])
    # What is known of a query says nothing of another one.
    for row in others[:1]:
        assert row["change"] == 0.0 and row["asked"]["change"] > 5.0
    assert after["ndcg_at_10"] > before["ndcg_at_10"] and after["mrr"] > before["mrr"]


def test_held_out_lists_are_judged_by_what_was_learned_from_others() -> None:
    queries, items = world()
    judge, learner = Judge(0.2, "search"), create("adapter", rank=16)
    found: HeldOut | None = None
    parts = split(queries, items, 0, 800, 400)
    for block in parts.clicks(parts.searches(Searchers(), 4_000, 0)):
        held = judge.rows(block)
        if judge.watches(block, held):
            judge, found = judge.after(learner, block, held)
        learner.learn(block.take(~held))
    assert found is not None and found.events > 200 and not judge.worse
    learned, raw = found.window.rate("learned"), found.window.rate("cosine")
    assert learned is not None and raw is not None and learned < raw


def lists(query: list[int], items: list[list[int]], clicked: list[list[int]]) -> Searches:
    return Searches(np.array(query), np.array(items), np.array(clicked, np.bool_), np.full(len(query), -1))


def test_clicks_are_counted_for_the_query_and_for_the_item_and_fade() -> None:
    found = lists([0, 1, 0], [[2, 3], [3, 4], [2, 3]], [[1, 0], [1, 0], [1, 1]])
    by_query, by_item = counted(found, np.array([7, 9]), 5)
    day = 0.5 ** (1 / HALF)
    assert by_query == {7: {2: pytest.approx(1 + day**2), 3: 1.0}, 9: {3: pytest.approx(day)}}
    np.testing.assert_allclose(by_item, [0, 0, 1 + day**2, 1 + day, 0])
    similarity = np.array([[0.9, 0.8, 0.1, 0.2, 0.5]]).repeat(10, axis=0)
    rows = np.array([7, 9, 8])
    of_query = clicked_for_the_query(lambda rows: similarity[rows], by_query)(rows)
    assert np.argsort(-of_query, axis=1).tolist() == [[2, 3, 0, 1, 4], [3, 0, 1, 4, 2], [0, 1, 4, 3, 2]]
    at_all = clicked_at_all(lambda rows: similarity[rows], by_item)(rows)
    # A little more for what is popular, for every query.
    np.testing.assert_allclose(at_all, at_all[:1].repeat(3, axis=0))
    np.testing.assert_allclose(at_all[0] - (similarity[0] - 0.1) / 0.8, [0, 0, BOOST, BOOST, 0], atol=1e-4)


def test_bm25_is_that_of_its_definition() -> None:
    texts = ["the red tea cup", "a red hat, red", "tea", "linear_model of tea leaves"]
    found = bm25(["red tea", "nothing", "model"], texts)(np.arange(3))
    lengths = [4, 4, 1, 5]  # "a" is a word, and so are the parts of an identifier.

    def of(word_count: int, holding: int, length: int) -> float:
        rare = np.log1p((4 - holding + 0.5) / (holding + 0.5))
        return float(rare * word_count / (word_count + 1.2 * (0.25 + 0.75 * length / np.mean(lengths))))

    wanted = np.zeros((3, 4))
    wanted[0] = [of(1, 2, 4) + of(1, 3, 4), of(2, 2, 4), of(1, 3, 1), of(1, 3, 5)]
    wanted[2, 3] = of(1, 1, 5)
    np.testing.assert_allclose(found, wanted)


def test_fused_rankings_add_up_the_places() -> None:
    first, second = np.array([[3.0, 2.0, 1.0, 0.0]]), np.array([[0.0, 1.0, 1.0, 1.0]])
    found = fused(lambda rows: first[rows], lambda rows: second[rows])(np.array([0]))
    # Equal scores share the last of their places.
    np.testing.assert_allclose(found, [[1 / 61 + 1 / 64, 1 / 62 + 1 / 63, 1 / 63 + 1 / 63, 1 / 64 + 1 / 63]])


def test_the_batch_adapter_finds_what_was_turned() -> None:
    pytest.importorskip("torch", reason="the extra torch")
    queries, items = world()
    W = batch_adapter(queries[:800], items[:800], 0, epochs=10)
    before = answered(queries[800:], items, np.arange(800, 1_200)).ndcg
    assert answered(queries[800:] @ W, items, np.arange(800, 1_200)).ndcg > 1.2 * before


def test_files_that_do_not_fit_are_refused_with_their_place(tmp_path: Path) -> None:
    queries, items = world(10)
    with pytest.raises(
        SettingsError, match="write documentation, minilm, file:PATH, events:PATH or space:NAME"
    ):
        opened("sklearn:iris")
    path = tmp_path / "search.npz"
    with pytest.raises(SourceError, match=r"search\.npz: not an NPZ file with queries and items"):
        opened(f"file:{path}")
    np.savez(path, queries=queries)
    with pytest.raises(SourceError, match="not an NPZ file with queries and items"):
        opened(f"file:{path}")
    np.savez(path, queries=queries, items=items[:5])
    with pytest.raises(
        SourceError, match=r"judgements are missing, and queries and items are of \(10, 24\) and \(5, 24\)"
    ):
        opened(f"file:{path}")
    np.savez(path, queries=queries, items=items, query_texts=np.array(["a"] * 10))
    with pytest.raises(
        SourceError, match="query_texts and item_texts go together, each an array of as many texts"
    ):
        opened(f"file:{path}")
    items[3, 0] = np.nan
    np.savez(path, queries=queries, items=items)
    with pytest.raises(SourceError, match="row 3 of items is not finite"):
        opened(f"file:{path}")


def searched(n: int = 300) -> Corpus:
    """Items of which the vectors say as much as their two words."""
    queries, items = world(n)
    draw = np.random.default_rng(4)
    words = [f"word{row // 3} other{row % 7}" for row in range(n)]
    asked = [word if draw.random() < 0.6 else "other3" for word in words]
    return Corpus(queries, items, (asked, words))


def test_a_blend_ranks_the_best_by_similarity_and_by_text_and_nothing_else() -> None:
    corpus = searched()
    signals, rows = Signals(corpus), np.array([0, 7, 299])
    assert signals.text is not None
    found = signals.blended(HALF_AND_HALF)(rows)
    for row, values in zip(rows, found, strict=True):
        similarity, text = corpus.queries[row] @ corpus.items.T, signals.text(np.array([row]))[0]
        best = {*np.argsort(-similarity)[:100].tolist()}
        # Of equal scores of text, any may be the last of the hundred.
        assert best | {*np.flatnonzero(text > np.sort(text)[-100]).tolist()} <= {
            *np.flatnonzero(np.isfinite(values)).tolist()
        }
        some = np.flatnonzero(np.isfinite(values))
        assert len(some) <= 200
        wide = [one[some].max() - one[some].min() for one in (similarity, text)]
        wanted = 0.5 * similarity[some] / wide[0] + 0.5 * text[some] / wide[1]
        np.testing.assert_allclose(values[some] - values[some].mean(), wanted - wanted.mean(), atol=1e-6)
    shown, scores = signals.shown(rows, 20)
    np.testing.assert_array_equal(shown, np.argsort(-found, axis=1, kind="stable")[:, :20])
    np.testing.assert_array_equal(scores[TEXT], np.take_along_axis(signals.text(rows), shown, axis=1))


def test_lists_of_a_corpus_with_texts_are_hybrid_and_carry_the_scores_of_texts() -> None:
    corpus = searched()
    signals = Signals(corpus)
    parts = split(corpus.queries, corpus.items, 0, 200, 100)
    best, scores = signals.shown(parts.learned, 20)
    found = parts.searches(Searchers(), 400, 0, best)
    assert {*map(tuple, found.items)} <= {*map(tuple, best)}
    blocks = [*parts.clicks(found, scores=scores)]
    texts = {name for block in blocks if block.scores for name in block.scores.names}
    assert texts == {TEXT}
    rows = {corpus.queries[row].tobytes(): row for row in parts.learned}
    names = {vector.tobytes(): row for row, vector in enumerate(corpus.items)}
    for block in blocks:
        assert block.scores is not None
        vectors = block.tables[0].vectors
        for (query, item), (value,) in zip(block.index.tolist(), block.scores.values.tolist(), strict=True):
            row, other = rows[vectors[query].tobytes()], names[vectors[item].tobytes()]
            assert value == np.float32(signals.text(np.array([row]))[0, other])  # type: ignore[misc]


def a_row(name: str, changes: list[float], *, had: bool = False) -> dict[str, Any]:
    of = {"change": float(np.mean(changes)), "error": 0.1, "changes": changes}
    return {"metric": name, "had": had, "asked": {"change": 2.0, "error": 0.2}} | of


def test_the_advice_keeps_what_is_not_beaten_and_names_what_needs_no_learning() -> None:
    had = a_row(HALVES, [0.0] * 4, had=True)
    learned, noise = a_row("ranking", [4.0, 4.2, 4.1, 3.9]), a_row("adapter", [3.0, -2.0, 1.0, -1.0])
    hindsight, counters = a_row(HINDSIGHT, [9.0, 9.1, 9.0, 9.2]), a_row(BY_QUERY, [0.0] * 4)
    everything = [had, noise, hindsight, counters]
    assert recommended(everything, ["adapter"]) == (
        "Keep half and half: nothing is significantly better on queries that were never asked."
    )
    gain = "+4.0 ± 0.1 % on queries never asked and +2.0 ± 0.2 % on those asked"
    assert recommended([*everything, learned], ["adapter", "ranking"]) == f"Recommended: ranking, {gain}."
    fused_ = a_row(FUSED, [2.0, 2.1, 1.9, 2.0])
    with_both = recommended([*everything, learned, fused_], ["adapter", "ranking"])
    assert (
        with_both.startswith("Recommended: ranking") and f"Without any learning: {FUSED}, +2.0" in with_both
    )
    assert recommended([had, fused_], ["adapter"]).endswith("It needs no learning.")
    worse = a_row("ranking", [-4.0, -4.2, -4.1, -3.9])
    assert recommended([had, worse], ["ranking"]).startswith("Keep half and half")
    once = [a_row(HALVES, [0.0], had=True), a_row("ranking", [9.0])]
    assert recommended(once, ["ranking"]).startswith("One split recommends nothing")


def test_graded_judgements_are_measured_as_scikit_learn_does() -> None:
    from sklearn.metrics import ndcg_score

    draw = np.random.default_rng(3)
    queries, items = draw.normal(size=(30, 6)), draw.normal(size=(80, 6))
    truth = np.where(draw.random((30, 80)) < 0.1, draw.integers(1, 4, size=(30, 80)), 0)
    truth[4] = 0
    table = np.column_stack([*np.nonzero(truth), truth[np.nonzero(truth)]])
    judged = Judgements.of_table(draw.permutation(table), 30, 80)
    assert 4 not in judged.queries and len(judged.queries) == 29
    scores = queries @ items.T
    found = ranked(lambda rows: scores[rows], judged.queries, judged)
    kept = judged.queries
    assert found.ndcg == pytest.approx(ndcg_score(truth[kept], scores[kept], k=10))
    first = [int(np.argmax(truth[row][np.argsort(-scores[row])] > 0)) + 1 for row in kept.tolist()]
    assert found.mrr == pytest.approx(np.mean(1.0 / np.array(first)))
    top = np.argsort(-scores, axis=1)[:, :10]
    share = [(truth[row, top[row]] > 0).sum() / (truth[row] > 0).sum() for row in kept.tolist()]
    assert found.recall[10] == pytest.approx(np.mean(share))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([[0, 1, 1], [0, 1, 2]], "query 0 and item 1 are judged twice"),
        ([[0, 1], [3, 1]], r"judgement 1 names query 3 of 3"),
        ([[0, -1]], r"judgement 0 names item -1 of 5"),
        ([[0, 1, 0]], "no item answers a query"),
        ([[0.5, 1, 1]], "no numbers"),
        ([0, 1], "judgements are rows of query, item and grade"),
    ],
)
def test_judgements_that_do_not_fit_are_refused(table: list[Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        Judgements.of_table(np.array(table), 3, 5)
    queries, items = world(10)
    path = tmp_path / "search.npz"
    np.savez(path, queries=queries[:3], items=items[:5], judgements=np.array(table))
    with pytest.raises(SourceError, match=rf"search\.npz: .*{message}"):
        opened(f"file:{path}")


def test_an_adapter_gains_where_several_items_answer_a_query(tmp_path: Path) -> None:
    queries, items = world(600)
    # Each second query has no judgement, and each other one two answers, the second one worth less.
    asked = np.arange(0, 600, 2)
    near = np.argsort(-(items[asked] @ items.T), axis=1)[:, 1]
    table = np.concatenate(
        [np.column_stack([asked, asked, 0 * asked + 2]), np.column_stack([asked, near, 0 * asked + 1])]
    )
    path = tmp_path / "search.npz"
    np.savez(path, queries=queries, items=items, judgements=table)
    corpus = opened(f"file:{path}")
    assert corpus.answered == 300
    request = SearchTrial({"adapter": ("adapter", {})}, None, 0, 100)
    before, after = summarised(corpus, range(2), request)
    assert after["asked"]["change"] > 5.0 and before["recall"][100] > before["recall"][1]
    parts = split(corpus.queries, corpus.items, 0, 200, 100, corpus.judgements)
    assert len(parts.pairs()) == 400 and {*parts.learned.tolist(), *parts.tested.tolist()} == {
        *asked.tolist()
    }
    found = parts.searches(Searchers(noise=0.0, bias=0.0, attraction=1.0), 200, 0)
    for query, shown, clicked in zip(found.query, found.items, found.clicked, strict=True):
        answers = {parts.learned[query], near[parts.learned[query] // 2]}
        assert {*shown[clicked].tolist()} == answers & {*shown.tolist()}


def test_the_command_prints_a_row_for_each_metric(tmp_path: Path) -> None:
    queries, items = world(400)
    path = tmp_path / "search.npz"
    words = np.array([f"word{row} other{row % 7}" for row in range(400)])
    np.savez(path, queries=queries, items=items, query_texts=words, item_texts=words)
    arguments = ["evaluate", "queries", "--from", f"file:{path}", "--lists", "800", "--splits", "2"]
    dense = '{"kind": "adapter", "rank": 0}'
    found = CliRunner().invoke(cli, [*arguments, "--learner", "oasis", "--learner", dense, "--json"])
    assert found.exit_code == 0, found.output
    answer = json.loads(found.output)
    rows = answer["rows"]
    unlearned = [NOTHING, BM25, FUSED, HALVES, BY_QUERY, BY_ITEM, HINDSIGHT]
    both = [name.format(kind) for kind in ("oasis", dense) for name in ("{}", WITH_TEXT)]
    assert [row["metric"] for row in rows] == [*unlearned, *both]
    assert [row["metric"] for row in rows if row["had"]] == [HALVES]
    assert answer["recommendation"] == recommended(rows, ["oasis", dense])
    assert set(rows[0]["recall"]) == {"1", "10", "100"}
    found_by = {row["metric"]: row["ndcg_at_10"] for row in rows}
    assert found_by[BM25] == 1.0 > found_by[FUSED] > found_by[NOTHING]
    for kind, refused in (("oasis", "learns from triplets"), ("lda", "no similarity of queries to items")):
        labels = CliRunner().invoke(cli, [*arguments, "--learn-from", "labels", "--learner", kind])
        assert labels.exit_code != 0 and refused in str(labels.output) + str(labels.exception)
    shown = CliRunner().invoke(cli, arguments)
    assert shown.exit_code == 0 and "NEVER ASKED" in shown.output and "adapter" in shown.output
    assert "144 queries of 400" in shown.output
    wrong = CliRunner().invoke(cli, [*arguments, "--learner", "{rank: 3"])
    assert wrong.exit_code != 0 and "not JSON with a kind" in str(wrong.output) + str(wrong.exception)
