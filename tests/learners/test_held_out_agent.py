"""The learner agent holds events out, says so in its outcomes, and withholds models that are worse than none."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kinstream.cli.commands.models import withheld
from kinstream.learners.agent import learner_spec
from kinstream.learners.held_out.choice import HeldOutShare
from kinstream.learners.held_out.judge import Judge
from kinstream.learners.registry import create
from kinstream.monitoring.agent import metrics_spec
from kinstream.processors.agent import builder_spec
from kinstream.streams.agents.generations.birth import (
    Birth,
    BirthFacts,
    compare,
    read_birth,
    settings_digest,
)
from kinstream.streams.errors import GenerationMismatch, SettingsError
from kinstream.streams.records.codec.codec import decode, decode_constraints, encode
from kinstream.streams.records.held_out import LEARNED
from kinstream.streams.records.values import (
    ConstraintBlock,
    LoadPosition,
    ModelVersion,
    Outcome,
    SampleBlock,
    Table,
)
from kinstream.streams.settings import CheckpointSettings, Settings, read
from tests.support.equal import same_states
from tests.support.memory_log import MemoryLog
from tests.support.memory_system import MemorySystem
from tests.support.pipeline import Agent, settings

BUILDERS = {"triplets": {"kind": "random-triplets", "per_sample": 1}}


def config(kind: str = "opml", **section: Any) -> Settings:
    return settings(builders=BUILDERS, learners={"it": {"kind": kind, "from": ["triplets"], **section}})


def fill(
    log: MemoryLog, made: Settings, X: NDArray[np.float32], labels: NDArray[np.int64], rows: int = 64
) -> None:
    """Append samples in blocks to the events, and what the builder makes of them to the constraints."""
    for n, start in enumerate(range(0, len(X), rows)):
        part = slice(start, start + rows)
        block = SampleBlock("s", (Table("x", X[part]),), labels[part], n, None, LoadPosition("load", n))
        log.append(made.topic("events"), b"s", encode(block))


def embeddings(n: int = 2500, d: int = 384, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Normalised embeddings whose topics hide under a few loud nuisance directions, scaled as users' own often are."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 20, n)
    topics, nuisance = rng.normal(size=(20, d)), rng.normal(size=(4, d))
    X = topics[labels] + 1.0 * rng.normal(size=(n, 4)) @ nuisance + 1.2 * rng.normal(size=(n, d))
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32), labels


class Run:
    """A builder and a learner in memory, over all that a log holds."""

    def __init__(self, made: Settings, root: Path, X: NDArray[np.float32], labels: NDArray[np.int64]) -> None:
        self.settings, self.log, self.root = made, MemoryLog(partitions=1), root
        fill(self.log, made, X, labels)
        Agent(builder_spec(made, "triplets"), made, self.log, root).run()
        self.agent = Agent(learner_spec(made, "it"), made, self.log, root)

    def outcomes(self) -> list[Outcome]:
        values = (m.value for m in self.log.read(self.settings.topic("outcomes"), 0, 0))
        return [found for value in values if isinstance(found := decode(value, Outcome), Outcome)]

    def blocks(self) -> list[ConstraintBlock]:
        values = (m.value for m in self.log.read(self.settings.topic("constraints"), 0, 0))
        return [found for v in values if isinstance(found := decode_constraints(v), ConstraintBlock)]

    def announced(self) -> list[ModelVersion]:
        self.agent.sink.confirm(1.0)
        partitions = range(self.log.partitions)
        found = [m for p in partitions for m in self.log.read(self.settings.topic("models"), p, 0)]
        return [v for m in found if isinstance(v := decode(m.value, ModelVersion), ModelVersion)]

    def models(self) -> list[int]:
        """Steps of the models that were announced."""
        return [version.step for version in self.announced()]

    def withheld(self) -> str | None:
        """What `kinstream models show` says."""
        stored = self.settings.model_copy(update={"checkpoints": CheckpointSettings(url=str(self.root))})
        return withheld(self.announced()[-1], stored)

    def through(self, steps: int = 8) -> None:
        """Apply everything, with a checkpoint after every few blocks."""
        while self.agent.step(0, steps):
            self.agent.runners[0].checkpoint()


def test_held_out_events_reach_no_learner_and_all_constraints_add_up(tmp_path: Path) -> None:
    X, labels = embeddings(600, 8)
    run = Run(config(held_out=0.1, gamma=0.01), tmp_path, X, labels)
    run.through()
    own, choice, judged = create("opml", gamma=0.01), HeldOutShare(0.1, "s"), 0
    for block, outcome in zip(run.blocks(), run.outcomes(), strict=True):
        held = choice.rows(block)
        counts = own.learn(block.take(~held)).counts()
        assert outcome.counts.held_out == held.sum()
        assert (outcome.counts.seen, outcome.counts.mistakes) == (counts.seen, counts.mistakes)
        total = outcome.counts
        assert total.seen + total.rejected + total.ignored + total.held_out == len(block)
        judged += 0 if outcome.held_out is None else int(outcome.held_out.block.weight)
    waiting = len(run.agent.judges()["s"]["waiting.signs"])
    assert 0 < waiting <= 1 + judged // 8
    assert judged + waiting == sum(o.counts.held_out for o in run.outcomes()) > 20
    assert same_states(run.agent.states(), {"s": own.state()})


def test_nothing_is_held_out_at_0_and_records_are_those_of_before(tmp_path: Path) -> None:
    X, labels = embeddings(300, 8)
    run = Run(config(held_out=0.0), tmp_path, X, labels)
    run.through()
    assert not any(o.counts.held_out or o.held_out for o in run.outcomes())
    assert run.agent.judges() == {}


def test_the_metrics_agent_shows_what_the_learner_keeps(tmp_path: Path) -> None:
    X, labels = embeddings(900, 8)
    run = Run(config(held_out=0.2), tmp_path, X, labels)
    run.through()
    spec = metrics_spec(run.settings)
    Agent(spec, run.settings, run.log, tmp_path).run()
    last = next(o.held_out for o in reversed(run.outcomes()) if o.held_out)
    shown = {
        (sample.name, sample.labels.get("metric")): sample.value
        for collector in spec.collectors
        for metric in collector.collect()
        for sample in metric.samples
    }
    assert shown["kinstream_held_out_events_total", None] == last.events > 100
    assert shown["kinstream_held_out_mistake_rate", "learned"] == last.window.rate(LEARNED)
    assert last.difference is not None
    assert shown["kinstream_held_out_difference_low", None] == last.difference.low


# ---- publishing -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hard() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    return embeddings()


#: README's settings of old: a step that is too large for 384 features behind a z-score.
OLD: dict[str, Any] = {"gamma": 0.001, "scaler": "zscore", "unit": "published", "held_out": 0.1}
HEALTHY: dict[str, Any] = {"gamma": 0.03, "held_out": 0.1}


def test_settings_that_destroy_embeddings_are_noticed_and_the_model_is_withheld(
    hard: tuple[NDArray[np.float32], NDArray[np.int64]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kinstream.models")
    run = Run(config(**OLD), tmp_path, *hard)
    run.through()
    last = next(o.held_out for o in reversed(run.outcomes()) if o.held_out)
    assert last.worse and last.difference is not None and last.difference.value > 0.1
    assert max(run.models()) < run.outcomes()[-1].step
    assert "the model of learner it is withheld" in caplog.text
    assert run.withheld() == (
        f"1.0.{run.outcomes()[-1].step}: {last.difference.value:.3f} worse than the best un-learned metric on "
        f"{last.events} held-out events, so it is not announced"
    )
    # It goes on learning, and its checkpoints are written.
    restored = Agent(run.agent.spec, run.settings, run.log, tmp_path)
    assert same_states(restored.states(), run.agent.states())
    assert same_states(restored.judges(), run.agent.judges())


def test_a_healthy_model_is_always_announced(
    hard: tuple[NDArray[np.float32], NDArray[np.int64]], tmp_path: Path
) -> None:
    run = Run(config(**HEALTHY), tmp_path, *hard)
    run.through()
    found = [o.held_out for o in run.outcomes() if o.held_out]
    assert not any(one.worse for one in found)
    last = found[-1].difference
    assert last is not None and last.high < 0.0
    assert max(run.models()) == run.outcomes()[-1].step
    assert run.withheld() is None


@pytest.mark.parametrize(
    ("kind", "section"), [("opml", {**OLD, "publish": "always"}), ("euclidean", {"held_out": 0.05})]
)
def test_by_request_and_for_baselines_every_model_is_announced(
    kind: str, section: dict[str, Any], hard: tuple[NDArray[np.float32], NDArray[np.int64]], tmp_path: Path
) -> None:
    run = Run(config(kind, **section), tmp_path, *hard)
    run.through()
    assert max(run.models()) == run.outcomes()[-1].step


def test_a_model_that_is_better_again_is_announced_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kinstream.models")
    X, labels = embeddings(600, 8)
    run = Run(config(held_out=0.1), tmp_path, X, labels)
    for worse in (False, True, True, False):
        monkeypatch.setattr(Judge, "worse", worse)
        before = max(run.models(), default=0)
        assert run.agent.step(0, 2)
        run.agent.runners[0].checkpoint()
        # While it is worse, the model from before is announced again.
        assert (max(run.models()) > before) is not worse
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


# ---- settings -------------------------------------------------------------------------------------------------------


def facts(made: Settings, birth: Birth) -> BirthFacts:
    """What a worker with these settings finds on the cluster of a birth record."""
    shaping = learner_spec(made, "it").shaping
    cluster = (birth.cluster_id, birth.input_topic, birth.input_topic_id, birth.input_partitions)
    return BirthFacts(settings_digest(shaping), shaping, *cluster, birth.output_topics)


def test_a_generation_from_before_goes_on_with_0_and_is_refused_by_default(tmp_path: Path) -> None:
    old = config(held_out=0.0)
    assert "held_out" not in learner_spec(old, "it").shaping
    system = MemorySystem(
        tmp_path, builders=BUILDERS, learners={"it": {"kind": "opml", "from": ["triplets"], "held_out": 0}}
    )
    system.bear(learner_spec(old, "it"))
    birth = read_birth(str(tmp_path), "learner-it", 1)
    assert birth is not None
    compare(birth, facts(old, birth))
    with pytest.raises(
        GenerationMismatch,
        match=r"setting learners\.\S+\.held_out: was not set, is 0\.02(.|\n)*--new-generation",
    ):
        compare(birth, facts(config(), birth))


def test_publishing_does_not_shape_outcomes() -> None:
    one, other = (learner_spec(config(publish=how), "it").shaping for how in ("better", "always"))
    assert one == other


@pytest.mark.parametrize(
    "text", ["held_out = 0.5", "held_out = -0.1", "held_out = true", 'publish = "worse"']
)
def test_other_values_are_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "kinstream.toml"
    file.write_text(f'[builders.b]\nkind = "one-pass"\n[learners.it]\nkind = "opml"\nfrom = ["b"]\n{text}\n')
    found = read(file)
    assert found.settings is None and len(found.faults) == 1
    with pytest.raises(SettingsError, match=text.split()[0]):
        raise SettingsError(str(found.faults[0]))
