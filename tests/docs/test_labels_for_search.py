"""The recipe of docs/adapter.md, 'Labels for search': its settings are whole, and judgements reach the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinstream.learners.registry import create
from kinstream.processors import registry as builders
from kinstream.processors.base.builder import Origin
from kinstream.producers.sources.mapping import mapper
from kinstream.streams.records.message import Message
from kinstream.streams.settings import Settings, load
from tests.docs.pages import ROOT, blocks

QUERIES, DOCUMENTS, FEATURES = 40, 80, 16


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    (text,) = [
        block.text for block in blocks(ROOT / "docs" / "adapter.md", "toml") if "[sources." in block.text
    ]
    monkeypatch.setenv("KINSTREAM_GATE_KEY", "a key of sixteen characters")
    (tmp_path / "kinstream.toml").write_text(text)
    return load(tmp_path / "kinstream.toml")


def test_source_builder_learner_gate_and_service_are_named(settings: Settings) -> None:
    assert set(settings.sources) == {"documents", "queries", "judgements"}
    assert list(settings.learners["search"].follows) == ["labels", "clicks"]
    assert list(settings.gate) == list(settings.serve.spaces) == ["docs"]
    assert settings.serve.spaces["docs"].learner == "search"


def test_judged_queries_are_learned(settings: Settings) -> None:
    draw = np.random.default_rng(0)
    turn = np.linalg.qr(draw.normal(size=(FEATURES, FEATURES)))[0]
    documents = draw.normal(size=(DOCUMENTS, FEATURES)).astype(np.float32)
    answers = draw.integers(0, DOCUMENTS, QUERIES)
    queries = (documents[answers] @ turn).astype(np.float32)
    records = [
        # Too early: refused as the page says.
        ("judgements", {"query": "query/0", "document": "doc-0", "relevant": True}),
        *(("documents", {"id": f"doc-{n}", "embedding": row.tolist()}) for n, row in enumerate(documents)),
        *(("queries", {"id": f"query/{n}", "embedding": row.tolist()}) for n, row in enumerate(queries)),
        *(
            ("judgements", {"query": f"query/{n}", "document": f"doc-{at}", "relevant": True})
            for n, at in enumerate(answers)
        ),
    ]
    mappers = {name: mapper(section) for name, section in settings.sources.items()}
    section = settings.builders["labels"]
    builder = builders.create(section.kind, **section.arguments())
    learner: Any = create(settings.learners["search"].kind, **settings.learners["search"].arguments())
    pairs, refused = 0, []
    for number, (name, record) in enumerate(records):
        message = Message(
            "t", 0, number, 1_800_000_000_000, None, json.dumps(record).encode(), (), number - 1
        )
        for event in mappers[name].events(message) or ():
            made = builder.process(event, Origin(number, 1_800_000_000_000))
            refused += [one.reason.value for one in made.refused]
            for block in made.blocks:
                pairs += len(block)
                learner.learn(block)
    # Each judgement is one pair, whose first vector is the query's; nothing is derived.
    assert pairs == QUERIES
    assert refused == ["unknown-item"]
    untaught = (queries * documents[answers]).sum(axis=1)
    assert (learner.similarity(queries, documents[answers]) - untaught).mean() > 0.0
