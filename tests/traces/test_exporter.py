"""Spans reach a collector over OTLP; one that is slow, absent or refuses never holds an agent up."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kinstream.streams.settings import Settings
from kinstream.streams.traces.context import root_of
from kinstream.streams.traces.exporter import BATCH_SPANS, Exporter, open_exporter
from kinstream.streams.traces.spans import Span
from kinstream.streams.worker.page.traces import TraceCollector
from tests.support.processes import until
from tests.traces.collector import collecting


def span(number: int = 0, **more: object) -> Span:
    return Span(
        "process t", "consumer", root_of("test", number), None, 1_000, 2_000, {"a": 1, "b": "c"}
    )._replace(
        **more  # type: ignore[arg-type]
    )


def test_a_span_reaches_a_collector_with_all_that_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="kinstream[otel] is not installed")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x")
    with collecting() as collector:
        settings = Settings.model_validate({"traces": {"endpoint": collector.url + "/"}})
        exporter = open_exporter(settings, "kinstream-learner-opml")
        assert exporter is not None
        whole = span(1, parent="12" * 8, links=(root_of("x"), root_of("y")), error="refused")
        exporter.add(whole)
        exporter.add(span(2))
        exporter.close(10.0)
        assert (exporter.exported, exporter.dropped) == (2, 0)
        first, second = collector.of("kinstream-learner-opml")
        assert set(collector.logins) == {"Bearer x"}
    assert first.trace_id.hex() == whole.context.trace_id and first.span_id.hex() == whole.context.span_id
    assert first.parent_span_id.hex() == "12" * 8 and second.parent_span_id == b""
    assert (first.name, first.start_time_unix_nano, first.end_time_unix_nano) == ("process t", 1_000, 2_000)
    assert [(link.trace_id.hex(), link.span_id.hex()) for link in first.links] == [
        (root_of(name).trace_id, root_of(name).span_id) for name in "xy"
    ]
    assert first.kind == 5, "CONSUMER of OTLP"
    assert (first.status.code, first.status.message, second.status.code) == (2, "refused", 0)
    values = {a.key: a.value.string_value or a.value.int_value for a in first.attributes}
    assert values == {"a": 1, "b": "c"}


@pytest.mark.parametrize("status", [302, 304, 307])
def test_credentials_follow_no_redirect_of_a_collector(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="kinstream[otel] is not installed")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=x")
    with collecting() as collector, collecting("localhost") as other:
        collector.status, collector.location = status, f"{other.url}/v1/traces"
        settings = Settings.model_validate({"traces": {"endpoint": collector.url}})
        exporter = open_exporter(settings, "x")
        assert exporter is not None
        exporter.add(span())
        exporter.close(10.0)
        assert (exporter.exported, exporter.dropped) == (0, 1)
        assert (len(collector.logins), len(other.logins)) == (1, 0)


def test_without_an_endpoint_nothing_is_exported() -> None:
    assert open_exporter(Settings.model_validate({}), "x") is None


def test_a_collector_that_does_not_answer_costs_spans_and_no_time() -> None:
    answer = threading.Event()
    sent: list[bool] = []

    def send(batch: Sequence[Span]) -> bool:
        sent.append(answer.wait(20.0))
        return sent[-1]

    exporter = Exporter(send, room=600)
    # Made before the clock runs: on a busy machine this takes longer than to add them.
    later = [span(number) for number in range(5_000)]
    for number in range(BATCH_SPANS):
        exporter.add(span(number))
    until(lambda: not exporter._queue, "the first batch is on its way", 10.0)
    began = time.perf_counter()
    for one in later:
        exporter.add(one)
    seconds = time.perf_counter() - began
    assert not sent, "all were added during the first batch"
    assert exporter.dropped == 5_000 - 600
    assert seconds < 2.0, "it never waits"
    answer.set()
    exporter.close(10.0)
    assert exporter.exported == BATCH_SPANS + 600
    registry = CollectorRegistry()
    registry.register(TraceCollector(exporter))
    page = generate_latest(registry).decode()
    assert "kinstream_trace_spans_dropped_total 4400.0" in page
    assert f"kinstream_trace_spans_exported_total {BATCH_SPANS + 600:.1f}" in page


@pytest.mark.parametrize("fault", ["refuses", "raises"])
def test_what_is_not_accepted_is_counted_and_logged_once(
    fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    def send(batch: Sequence[Span]) -> bool:
        if fault == "raises":
            raise OSError("no route")
        return False

    exporter = Exporter(send)
    for number in range(3 * BATCH_SPANS):
        exporter.add(span(number))
    exporter.close(10.0)
    assert (exporter.exported, exporter.dropped) == (0, 3 * BATCH_SPANS)
    (line,) = [record.getMessage() for record in caplog.records if record.name == "kinstream.traces"]
    assert "spans of traces were dropped" in line and ("no route" in line) == (fault == "raises")


def test_a_closed_exporter_ends_in_time_with_an_absent_collector() -> None:
    pytest.importorskip("opentelemetry.sdk", reason="kinstream[otel] is not installed")
    exporter = open_exporter(Settings.model_validate({"traces": {"endpoint": "http://127.0.0.1:1"}}), "x")
    assert exporter is not None
    exporter.add(span())
    began = time.monotonic()
    exporter.close(0.5)
    assert time.monotonic() - began < 3.0
