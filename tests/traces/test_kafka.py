"""On a real broker, with a collector: agents that are killed, and every step from a click to answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import pytest

from kinstream.cli.local.system import free_port
from kinstream.streams.records.codec.codec import decode_model
from kinstream.streams.records.identity import Headers
from kinstream.streams.traces.context import TraceContext, context_of
from tests.faults.processes import System
from tests.kafka.broker import KafkaBroker
from tests.support.postgres import postgres
from tests.support.processes import until
from tests.traces.collector import Collector, collecting

pytestmark = pytest.mark.long
#: Every list is of items of its own, whose click is news to a learner.
X: Final = np.eye(12, dtype=np.float32)
NAMES: Final = [f"sku-{row}" for row in range(len(X))]
CALLER: Final = "c" * 16


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
    status, output = system.run(*rows, "--json", "--progress-folder", str(system.folder))
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


def test_a_click_is_followed_to_the_models_and_answers_that_it_changed(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="kinstream[otel] is not installed")
    ports = {"index": free_port(), "store": free_port()}
    with collecting() as collector, postgres() as server:
        server.fill("items", NAMES, X)
        (tmp_path / "url").write_text(server.url)
        store = {"backend": "pgvector", "connection_file": str(tmp_path / "url"), "collection": "items"}
        system = System(
            tmp_path,
            kafka.bootstrap,
            traces__endpoint=collector.url,
            builders__clicks={"kind": "clicks", "rules": ["click-skip-above"]},
            learners__taste={
                "kind": "oasis",
                "from": ["clicks"],
                "unranked_lists": True,
                "publish": "always",
            },
            serve__http_port=ports["index"],
            serve__spaces={"shop": {"learner": "taste"}},
        ).create_topics()
        try:
            for name, *agent in (("builder", "clicks"), ("learner", "taste"), ("metrics",)):
                system.start(name, "worker", name, *agent, "--create")
            system.start("index", "serve")
            spaces = json.dumps({"shop": {"learner": "taste", **store}})
            port = f"serve.http_port={ports['store']}"
            system.start("store", "--set", f"serve.spaces={spaces}", "--set", port, "serve")
            _follow(system, collector, [f"http://127.0.0.1:{port}/search" for port in ports.values()])
        finally:
            system.close()


def _context(number: int, flags: int = 1) -> Headers:
    return TraceContext(f"{number + 1:032x}", CALLER, flags).headers()


def _step(url: str, headers: Headers = ()) -> int:
    """The step of the model that answers; -1 while there is no answer."""
    told = {name: (value or b"").decode() for name, value in headers}
    try:
        answer = httpx.post(url, json={"vectors": X[:1].tolist(), "k": 1}, headers=told, timeout=5)
    except httpx.HTTPError:
        return -1
    return int(answer.json()["model"]["step"]) if answer.status_code == 200 else -1


def _follow(system: System, collector: Collector, urls: list[str]) -> None:
    def send(kind: str, headers: Headers = (), **fields: Any) -> None:
        event = {"kind": kind, "space": "shop", **fields}
        system.send([("shop", json.dumps(event).encode())], headers=headers)

    send("items", ids=NAMES, vectors=X.tolist(), time_ms=1)
    sampled = [_context(6), _context(9)]
    # The first click's trace is not to be recorded, the second one has none.
    for row, headers in zip(range(0, 12, 3), (_context(0, flags=0), (), *sampled), strict=True):
        query, *shown = NAMES[row : row + 3]
        clicks = [{"item": shown[1], "time_ms": 3}]
        lists = {"list_id": f"list-{row}", "query_item": query, "items": shown, "clicks": clicks}
        send("click", headers, **lists, shown_at_ms=2)

    def steps(service: str, role: str) -> dict[str, Any]:
        """The span of each click in an agent."""
        found = [one for one in collector.of(service) if one.name == f"process {system.topic(role)}"]
        by_trace = {one.trace_id.hex(): one for one in found}
        assert len(found) == len(by_trace)
        return by_trace

    def announced() -> dict[bytes, Any]:
        return {one.span_id: one for one in collector.of("kinstream-learner-taste") if one.links}

    until(lambda: len(steps("kinstream-metrics", "outcomes")) == 2, "the clicks are counted")
    until(lambda: sum(len(one.links) for one in announced().values()) == 2, "they are in models")
    newest = system.read("models")[-1]
    model = context_of(newest.headers)
    assert model is not None
    step = decode_model(newest.value).step
    for url in urls:
        until(lambda url=url: _step(url) == step, f"{url} serves the newest model")  # type: ignore[misc]
        assert _step(url, _context(12)) == step
    until(lambda: len(collector.of("kinstream-serve")) == len(urls), "the answers are there")

    built = steps("kinstream-builder-clicks", "events")
    learned, counted = steps("kinstream-learner-taste", "constraints"), steps("kinstream-metrics", "outcomes")
    traces = {parent.split(b"-")[1].decode() for ((_, parent),) in sampled if parent}
    assert built.keys() == learned.keys() == counted.keys() == traces
    for trace in traces:
        assert built[trace].parent_span_id.hex() == CALLER
        assert learned[trace].parent_span_id == built[trace].span_id
        assert counted[trace].parent_span_id == learned[trace].span_id
    causes = {link.span_id for one in announced().values() for link in one.links}
    assert causes == {one.span_id for one in learned.values()}
    last = announced()[bytes.fromhex(model.span_id)]
    for answer in collector.of("kinstream-serve"):
        assert (answer.name, answer.parent_span_id.hex()) == ("POST /search", CALLER)
        assert [(one.trace_id, one.span_id) for one in answer.links] == [(last.trace_id, last.span_id)]
