"""Prometheus's own linter finds nothing in the page that a metrics worker serves."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kinstream.gate.core import SpaceGate
from kinstream.gate.exposure.lists import ListKind, Served
from kinstream.gate.lists.list_id import Keys
from kinstream.gate.metrics import Board, GateCollector
from kinstream.gate.values import Options
from kinstream.monitoring.exposition import OwnedTallies, TallyCollector
from kinstream.monitoring.roster import Roster
from kinstream.monitoring.tallies import Tallies
from kinstream.streams.records.values import Counts, ItemBlock
from kinstream.streams.settings import (
    BuilderSettings,
    LearnerSettings,
    ServeSettings,
    ServeSpaceSettings,
    Settings,
)
from kinstream.streams.traces.exporter import Exporter
from kinstream.streams.worker.page.gauges import WorkerCollector, WorkerGauges, registry
from kinstream.streams.worker.page.traces import TraceCollector
from tests.monitoring.outcomes import found, outcome


def full_page() -> bytes:
    """Every series at least once."""
    owned = OwnedTallies(clock=lambda: 1.5)
    for partition in (0, 1):
        owned.assign(partition, Tallies(window=10, top_spaces=2), live=True)
        for space in ("digits", 'quo"te\\d', "third"):
            by_rule = {"one-pass": Counts(seen=4, scored=4)}
            record = outcome(space, seen=4, utilised=2, time_ms=1_000, by_rule=by_rule, weights={"L0": 1.0})
            owned.apply(partition, replace(record, held_out=found(60, 0.5, 0.2)))
    gauges = WorkerGauges("metrics:metrics", checkpoint_age_limit_seconds=90.0)
    gauges.partitions_added = {"kinstream.outcomes": 0}
    gauges.assign("kinstream.outcomes", 0)
    with gauges.edit("kinstream.outcomes", 0) as shown:
        shown.position = shown.log_end = shown.checkpoint_offset = 7
        shown.log_start, shown.retention_seconds = 0, 3_600.0
        shown.counts["fate.late"] = 3
        shown.checkpoint_bytes, shown.headroom_seconds = 1_000, 5.5
    worker = WorkerCollector(gauges, build={"kinstream": "1.0", "python": "3.11"})
    settings = Settings(
        builders={"one-pass": BuilderSettings(kind="one-pass")},
        learners={"opml": LearnerSettings.model_validate({"kind": "opml", "from": ["one-pass"]})},
        serve=ServeSettings(spaces={"digits": ServeSpaceSettings(learner="opml")}),
    )
    board = Board({"docs": 0.2})
    gate = SpaceGate("docs", Keys("a secret of the tests"), Options())
    gate.exposure.catalogue(ItemBlock("docs", ("a", "b"), (), 0), 0)
    gate.exposure.show(Served("1", 1, ("a",), (0,), frozenset()), ListKind.RANKED, 0)
    board.put(0, "docs", gate)
    traces = TraceCollector(Exporter(lambda batch: True))
    made = registry(TallyCollector(owned), Roster(settings), worker, GateCollector(board), traces)
    return generate_latest(made)


def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        reason = "promtool is not on the PATH (Debian package prometheus)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def test_promtool_finds_nothing() -> None:
    command = [promtool(), "check", "metrics"]
    done = subprocess.run(command, input=full_page(), capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_every_series_of_ours_has_a_help_text_and_a_value() -> None:
    families = {f.name: f for f in text_string_to_metric_families(full_page().decode())}
    ours = {name: family for name, family in families.items() if name.startswith("kinstream_")}
    assert len(ours) > 40
    assert all(family.documentation and family.samples for family in ours.values())
