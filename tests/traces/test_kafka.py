"""On a real broker: `kinstream produce`, a builder and a learner that are killed, and a collector."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kinstream.streams.records.codec.every_kind import decode_model
from kinstream.streams.traces.context import context_of
from tests.faults.processes import System
from tests.kafka.broker import KafkaBroker
from tests.support.processes import until
from tests.traces.collector import collecting

pytestmark = pytest.mark.long


def test_a_sampled_event_is_one_trace_on_a_real_broker_also_after_kills(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="kinstream[otel] is not installed")
    with collecting() as collector:
        system = System(tmp_path, kafka.bootstrap, traces__endpoint=collector.url).create_topics()
        try:
            _check(system, collector)
        finally:
            system.close()


def _joined(collector: Any) -> list[Any]:
    """The learner's spans whose parents, the builder's, are there as well."""
    built = {span.span_id for span in collector.of("kinstream-builder-one-pass")}
    return [span for span in collector.of("kinstream-learner-opml") if span.parent_span_id in built]


def _check(system: System, collector: Any) -> None:
    workers = [system.worker(name, "--create") for name in ("builder-one-pass", "learner-opml")]
    rows = ["produce", "labelled", "sklearn:digits", "--space", "a", "--block-rows", "20"]
    status, output = system.run(
        *rows, "--trace-share", "0.2", "--json", "--progress-folder", str(system.folder)
    )
    assert status == 0, output
    until(lambda: bool(_joined(collector)), "spans of both agents are there")
    for worker in workers:
        worker.end()
    again = [system.worker(name, tag="-again") for name in ("builder-one-pass", "learner-opml")]
    for worker in again:
        worker.expect(r"partition \d: continuing at", 60.0)
    system.settle()
    until(lambda: bool(system.read("models")), "a model is announced")
    until(lambda: bool(collector.of("kinstream-learner-opml")), "the learner's spans are there")
    assert [worker.stop() for worker in again] == [0, 0]
    sent = {span.span_id: span for span in collector.of("kinstream-produce")}
    built = {span.span_id: span for span in collector.of("kinstream-builder-one-pass")}
    learned = {
        span.span_id: span for span in collector.of("kinstream-learner-opml") if span.name.startswith("proc")
    }
    blocks = json.loads(output.splitlines()[-1])["blocks"]
    assert 0 < len(sent) < blocks / 2
    # Kills lose the spans in the queues, and the records after the last checkpoint are processed again.
    whole = _joined(collector)
    assert whole
    for span in whole:
        origin = built[span.parent_span_id]
        assert sent[origin.parent_span_id].trace_id == origin.trace_id == span.trace_id
    by_origin: dict[bytes | None, Any] = {}
    for message in system.read("constraints"):
        headers = dict(message.headers)
        found = context_of(message.headers)
        assert by_origin.setdefault(headers["kinstream-origin"], found) == found
    assert {one.span_id for one in by_origin.values() if one} >= {s.hex() for s in built}
    for message in system.read("models"):
        version, context = decode_model(message.value), context_of(message.headers)
        assert version.learner == "opml" and context is not None
    links = [link for span in collector.of("kinstream-learner-opml") for link in span.links]
    assert links and {link.span_id for link in links} <= learned.keys()
