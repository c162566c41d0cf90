"""The simulator of the studies on real embeddings: queries asked and never asked are apart, and people click."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.real_embeddings import corpora
from benchmarks.real_embeddings.corpora import Corpus
from benchmarks.real_embeddings.trial import LISTS, map_of, trial
from kinstream.learners.adapter.learner import Adapter


def corpus(n: int = 400, d: int = 16) -> Corpus:
    """Items, and queries near them."""
    draw = np.random.default_rng(1)
    items = draw.normal(size=(n, d))
    queries = items + 0.8 * draw.normal(size=(n, d))
    return Corpus(
        "made",
        *((one / np.linalg.norm(one, axis=1, keepdims=True)).astype(np.float32) for one in (queries, items)),
    )


def test_people_ask_one_half_and_both_are_measured() -> None:
    one = trial(corpus(), split=3, seed=0, lists=1_000, asked=120)
    assert len(one.never) == 200 and len(one.asked) == 120 and not set(one.asked) & set(one.never)
    times = np.bincount(one.found.query, minlength=120)
    assert times[:20].mean() > 2.0 * times[60:].mean()
    before = one.quality()
    assert 0.0 < before.never < 1.0 and 0.0 < before.asked < 1.0
    nothing = one.quality(lambda queries: np.zeros_like(queries))
    assert nothing.change(before) == (-100.0, -100.0)


def test_another_split_asks_others_and_another_seed_clicks_others() -> None:
    made = corpus()
    one, split, seed = (trial(made, *numbers, 200) for numbers in ((0, 0), (1, 0), (0, 1)))
    assert set(one.never) != set(split.never) and set(one.never) == set(seed.never)
    assert not np.array_equal(one.found.clicked, seed.found.clicked)


def test_a_learner_is_given_lists_of_asked_queries_in_order() -> None:
    one = trial(corpus(), 0, 0, 500)
    learner, asked = Adapter(rank=4), {row.tobytes() for row in one.corpus.queries[one.asked]}
    seen = []
    for lists, blocks in one.constraints():
        seen.append(lists)
        for block in blocks:
            assert {row.tobytes() for row in block.tables[0].vectors[block.index[:, 0]]} <= asked
            learner.learn(block)
    assert seen == list(range(LISTS, 501, LISTS))
    assert one.quality(map_of(learner)) != one.quality()
    labels = sum(len(block) for block in one.labels(50))
    assert labels == 50


def test_descriptions_of_packages_come_from_the_lists_of_apt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "It reads a table and writes what it has found. " * 5
    record = "Package: {}\nDescription-md5: 0\nDescription-en: {}\n {}\n .\n Homepage.\n\n"
    (tmp_path / "debian_main_i18n_Translation-en").write_text(
        record.format("one", "tool that reads the tables of others", words)
        + record.format("one-dev", "tool that reads the tables of others (files)", words)
        + record.format("two", "short", words)
    )
    updates = record.format("three", "tool that mends the tables of others", words)
    (tmp_path / "debian-security_main_i18n_Translation-en").write_text(updates)
    monkeypatch.setenv("KINSTREAM_DATA", str(tmp_path))
    found = corpora.texts("packages")
    assert list(found) == ["tool that reads the tables of others"]
    (item,) = found.values()
    assert item == f"{words}Homepage."


def test_what_a_corpus_lacks_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(corpora.DOCSTRINGS, "mathematics", ("no_such_package",))
    monkeypatch.setenv("KINSTREAM_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=r"no_such_package is not installed: pip install 'kinstream\[bench"):
        corpora.texts("mathematics")
    monkeypatch.setattr(corpora, "APT", tmp_path)
    with pytest.raises(SystemExit, match=r"no file .*Translation-en under"):
        corpora.texts("packages")
