"""What is evaluated of a log is what the agents applied of it, and the numbers are theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kinstream.evaluation.experiment import log_rows as log
from kinstream.evaluation.experiment.contenders import ComparisonRequest, of_log
from kinstream.evaluation.experiment.data import Recorded
from kinstream.evaluation.experiment.plan import Plan
from kinstream.evaluation.runner.prequential import prequential
from kinstream.evaluation.runner.run import evaluate
from kinstream.learners import registry
from kinstream.monitoring.agent import metrics_spec
from kinstream.replay.log.guarantees import LogKind
from kinstream.replay.log.pipeline import state_digest
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.codec.codec import decode, decode_event, encode
from kinstream.streams.records.values import COUNT_NAMES, Action, Control, Counts, Outcome, SampleBlock
from tests.replay.conftest import MakeSystem
from tests.replay.system import CONSTRAINTS, EVENTS, System
from tests.support.pipeline import Agent, samples

SPACE = "a"
STREAM = (("one-pass",),)


def messages(system: System, topic: str, partition: int = 0) -> Any:
    return list(system.log.read(topic, partition, 0))


def constraints(system: System) -> Recorded:
    return log.constraints(system.settings, messages(system, CONSTRAINTS), SPACE, STREAM)


def evaluated(system: System, data: Recorded, folder: Path, **changes: Any) -> dict[str, Any]:
    options: dict[str, Any] = {"splits": 1, "hold_out": 0.0} | changes
    given = Plan("log", of_log(system.settings, ComparisonRequest()), **options)
    return evaluate(given, [data], folder)


def prometheus(system: System, folder: Path, messages: int) -> dict[str, dict[str, float]]:
    """Counts by learner on the page of a metrics agent that has taken so many messages of the space's partition."""
    spec = metrics_spec(system.settings)
    Agent(spec, system.settings, system.log, folder).step(0, messages)
    registry = CollectorRegistry()
    for collector in spec.collectors:
        registry.register(collector)
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            if sample.labels.get("space") == SPACE and sample.name.startswith("kinstream_constraints_"):
                fate = sample.name.removeprefix("kinstream_constraints_").removesuffix("_total")
                found.setdefault(sample.labels["learner"], {})[fate] = sample.value
    return found


def test_evaluation_replay_and_prometheus_agree_exactly(system: System, tmp_path: Path) -> None:
    result = evaluated(system, constraints(system), tmp_path / "evaluation")
    replayed = system.replay(LogKind.CONSTRAINTS, space=SPACE).outcomes
    page = prometheus(system, tmp_path / "metrics", 10**9)
    learners = [cell for cell in result["cells"] if cell["metric"] in system.settings.learners]
    assert len(learners) == 2
    for cell in learners:
        counts = Counts(**{("loss_sum" if n == "loss" else n): v for n, v in cell["counts"].items()})
        assert counts == replayed[cell["metric"], SPACE]
        assert counts.mistakes > 0
        shown = page[cell["metric"]]
        assert {n: getattr(counts, n) for n in COUNT_NAMES if n != "loss_sum"} == {
            n: shown[n] for n in COUNT_NAMES if n != "loss_sum"
        }


def test_the_whole_curve_is_that_of_the_recorded_outcomes(system: System, tmp_path: Path) -> None:
    result = evaluated(system, constraints(system), tmp_path, curve_points=10_000)
    curves = {cell["metric"]: cell["curve"] for cell in result["cells"]}
    for learner in system.settings.learners:
        sums: dict[str, list[int]] = {"scored": [], "mistakes": [], "utilised": []}
        total = Counts()
        for message in messages(system, "kinstream.outcomes"):
            record = decode(message.value, Outcome, Control)
            if isinstance(record, Outcome) and (record.learner, record.space) == (learner, SPACE):
                total += record.counts
                for name, column in sums.items():
                    column.append(getattr(total, name))
        assert len(sums["scored"]) > 5
        assert {name: curves[learner][name] for name in sums} == sums


@pytest.mark.long
@pytest.mark.parametrize("messages", [3, 9, 14])
def test_prometheus_shows_the_point_of_the_curve_that_it_has_reached(
    system: System, tmp_path: Path, messages: int
) -> None:
    result = evaluated(system, constraints(system), tmp_path / "evaluation", curve_points=10_000)
    page = prometheus(system, tmp_path / "metrics", messages)
    taken = [
        decode(message.value, Outcome, Control)
        for message in system.log.read("kinstream.outcomes", 0, 0)[:messages]
    ]
    for learner in page:
        blocks = sum(isinstance(o, Outcome) and (o.learner, o.space) == (learner, SPACE) for o in taken)
        curve = next(cell["curve"] for cell in result["cells"] if cell["metric"] == learner)
        for name in ("scored", "mistakes", "utilised"):
            assert page[learner][name] == curve[name][blocks - 1]


def test_builders_make_of_the_events_what_they_made_live(system: System) -> None:
    of_events = log.built(system.settings, messages(system, EVENTS), SPACE, STREAM)
    assert of_events.digest == constraints(system).digest


def test_rows_of_a_log_are_each_loads_rows_once(system: System) -> None:
    system.load(3)  # The first sequences of the same load again: duplicates.
    rows = log.rows(system.settings, messages(system, EVENTS), SPACE)
    blocks = [decode_event(block) for block in samples(SPACE, 12)]
    vectors = np.concatenate([b.tables[0].vectors for b in blocks if isinstance(b, SampleBlock)])
    assert np.array_equal(rows.tables["x"], vectors)


def test_a_reset_forgets_rows_and_models(make_system: MakeSystem, tmp_path: Path) -> None:
    system = make_system()
    system.load(5)
    control = encode(Control(SPACE, Action.RESET, 1))
    system.log.append(EVENTS, SPACE.encode(), control)
    system.load(6, load="second")
    system.run()
    rows = log.rows(system.settings, messages(system, EVENTS), SPACE)
    assert len(rows) == 6 * 8
    data = constraints(system)
    blocks = data.streams["one-pass"]
    assert blocks.count(None) == 1
    assert data.digest == log.built(system.settings, messages(system, EVENTS), SPACE, STREAM).digest

    section = system.settings.learners["opml"]
    run = prequential(
        lambda: registry.create(section.kind, **section.arguments()),
        blocks,
    )
    assert state_digest(run.learner.state()) == state_digest(system.learners["opml"].states()[SPACE])


def test_held_out_constraints_are_the_latest_ones(system: System, tmp_path: Path) -> None:
    data = constraints(system)
    result = evaluated(system, data, tmp_path, hold_out=0.25, splits=2)
    sizes = [(cell["train_rows"], cell["test_rows"]) for cell in result["cells"] if cell["metric"] == "opml"]
    blocks = [len(block) for block in data.streams["one-pass"] if block is not None]
    part = round(len(blocks) * 0.25)
    assert sizes == [
        (sum(blocks[: -2 * part]), sum(blocks[-2 * part : -part])),
        (sum(blocks[:-part]), sum(blocks[-part:])),
    ]
    assert all(0.0 <= cell["measures"]["held_out_mistakes"] <= 1.0 for cell in result["cells"])


def test_a_space_without_anything_is_an_error(system: System) -> None:
    with pytest.raises(SettingsError, match="no constraints of space 'nobody' by one-pass"):
        log.constraints(system.settings, messages(system, CONSTRAINTS), "nobody", STREAM)
    with pytest.raises(SettingsError, match="no labelled samples of space 'nobody'"):
        log.rows(system.settings, messages(system, EVENTS), "nobody")
