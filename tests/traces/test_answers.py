"""The span of an answer belongs to the caller's trace, and links to the announcement of the model that it is from."""

from __future__ import annotations

import httpx
import numpy as np
from prometheus_client import generate_latest

from kinstream.search.service.process import trace
from kinstream.search.service.routes import make_app
from kinstream.streams.traces.context import model_context
from kinstream.streams.traces.exporter import Exporter
from kinstream.streams.traces.spans import Span
from tests.search.index_service import on_a_port
from tests.search.store_service import LEARNER, Memory, bilinear, running, section
from tests.support.processes import until

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def test_an_answer_names_its_model_in_the_callers_trace() -> None:
    found: list[Span] = []

    def take(batch: object) -> bool:
        found.extend(batch)  # type: ignore[arg-type]
        return True

    store = Memory(["a", "b"], np.eye(2))
    exporter = Exporter(take)
    body = {"vectors": [[1.0, 0.0]], "k": 1}
    with running({"docs": section()}, create=lambda *_: store) as gateway:
        app = make_app(gateway.service)
        trace(app, exporter)
        with (
            on_a_port(gateway.settings.serve, app, gateway.wait) as url,
            httpx.Client(base_url=url, timeout=10) as client,
        ):

            def ask(path: str, flags: str | None) -> int:
                headers = {} if flags is None else {"traceparent": f"00-{TRACE}-{CALLER}-{flags}"}
                return client.post(path, json=body, headers=headers).status_code

            assert ask("/search", "01") == 200  # no model yet
            gateway.announced.announce("docs", bilinear(2, 1), 3)
            gateway.settle()
            assert [ask("/search", "00"), ask("/search", None)] == [200, 200]
            assert [ask("/search", "01"), ask("/map", "01")] == [200, 422]
            store.away = "gone"
            assert ask("/search", "01") == 503
            page = client.get("/metrics").text
    exporter.close(10.0)
    until(lambda: len(found) == 4, "the spans are there", 5.0)
    assert "kinstream_trace_spans_exported_total" in page
    assert "kinstream_trace_spans_exported_total 4.0" in generate_latest(app.state.metrics.registry).decode()
    for span in found:
        assert (span.context.trace_id, span.parent, span.kind) == (TRACE, CALLER, "server")
    assert len({span.context.span_id for span in found} | {CALLER}) == 5
    model = model_context("docs", LEARNER, 1, 0, 3)
    assert [span.links for span in found] == [(), (model,), (), (model,)]
    assert [(span.name, span.attributes["http.response.status_code"]) for span in found] == [
        ("POST /search", 200),
        ("POST /search", 200),
        ("POST /map", 422),
        ("POST /search", 503),
    ]
    assert found[1].attributes["kinstream.step"] == 3 and "kinstream.step" not in found[0].attributes
    assert [span.error for span in found] == [None, None, None, "status 503"]
