"""One trace from `produce` through builder and learner; crashes, copies and the absence of an exporter."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np

from kinstream.learners.agent import learner_spec
from kinstream.processors.agent import builder_spec
from kinstream.producers.labelled.array_source import from_arrays
from kinstream.producers.labelled.load import BlockSettings, LabelledLoad
from kinstream.producers.loads.sender import produce
from kinstream.streams.records.codec.codec import decode_model
from kinstream.streams.records.message import Message
from kinstream.streams.traces.context import context_of
from kinstream.streams.traces.loads import LoadTraces
from kinstream.streams.traces.spans import Span
from tests.support.crashes import disturbed
from tests.support.equal import same_states
from tests.support.memory_log import MemoryLog, MemorySink
from tests.support.pipeline import Agent, settings

CONFIG = settings()
SPECS = (builder_spec(CONFIG, "one-pass"), learner_spec(CONFIG, "opml"))
ROLES = ("events", "constraints", "outcomes", "models")


class Recorded:
    """Spans in memory."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def add(self, span: Span) -> None:
        self.spans.append(span)

    def of(self, start: str) -> list[Span]:
        return [span for span in self.spans if span.name.startswith(start)]


def load(space: str = "a", rows: int = 400) -> LabelledLoad:
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, rows)
    X = rng.normal(size=(rows, 4)) + y[:, None]
    return LabelledLoad(
        from_arrays({"x": X}, y, identity="rows"), space, BlockSettings(block_rows=10), "load"
    )


def events(every: int | None, spans: Recorded | None = None) -> MemoryLog:
    log = MemoryLog()
    traces = None if every is None else LoadTraces(spans or Recorded(), every)
    produce(load(), MemorySink(log), "kinstream.events", traces=traces, now_ms=lambda: 1)
    return log


def messages(log: MemoryLog, role: str) -> list[Message]:
    return [m for p in range(log.partitions) for m in log.read(f"kinstream.{role}", p, 0)]


def run(log: MemoryLog, root: Path, spans: Recorded | None = None) -> list[Agent]:
    agents = []
    for spec in SPECS:
        agents.append(Agent(spec, CONFIG, log, root, spans=spans))
        agents[-1].run()
    return agents


def key_of(span: Span) -> tuple[Any, ...]:
    """A span without its times and its links, which depend on the time of a checkpoint."""
    return span.name, span.context, span.parent, tuple(sorted(span.attributes.items())), span.error


def test_a_sampled_event_is_one_connected_trace_to_the_model(tmp_path: Path) -> None:
    spans = Recorded()
    log = events(10, spans)
    run(log, tmp_path, spans)
    sent = spans.of("send kinstream.events")
    assert len(sent) == 4, "of the 40 blocks"
    assert len({span.context.trace_id for span in sent}) == len(sent)
    by_id = {span.context.span_id: span for span in spans.spans}
    assert len(by_id) == len(spans.spans)
    learned = spans.of("process kinstream.constraints")
    # The first block of a space gives no constraint.
    assert len(sent) - 1 <= len(learned) <= len(sent)
    for span in learned:
        built = by_id[span.parent or ""]
        root = by_id[built.parent or ""]
        assert (built.name, root.name) == ("process kinstream.events", "send kinstream.events")
        assert {one.context.trace_id for one in (span, built, root)} == {root.context.trace_id}
        assert root.parent is None
    # A model has many causes: it links to every step that it was learned from.
    (announced,) = spans.of("announce kinstream.models")
    assert {link.span_id for link in announced.links} == {span.context.span_id for span in learned}
    assert announced.context.trace_id not in {span.context.trace_id for span in sent}
    (model,) = messages(log, "models")
    assert context_of(model.headers) == announced.context
    version = decode_model(model.value)
    assert (announced.attributes["kinstream.space"], announced.attributes["kinstream.step"]) == (
        "a",
        version.step,
    )


def test_an_event_that_is_not_sampled_is_passed_on_and_not_recorded(tmp_path: Path) -> None:
    spans, log = Recorded(), MemoryLog()
    header = ("traceparent", f"00-{'a' * 32}-{'b' * 16}-00".encode())
    for message in messages(events(None), "events"):
        log.append(message.topic, message.key, message.value, (header, ("other", b"x")))
    run(log, tmp_path, spans)
    assert not spans.spans
    for role in ("constraints", "outcomes"):
        assert messages(log, role)
        assert all(header in message.headers for message in messages(log, role))
        assert all("other" not in dict(message.headers) for message in messages(log, role))


def test_without_an_exporter_the_context_is_passed_on_as_it_is(tmp_path: Path) -> None:
    log = events(1)
    run(log, tmp_path)
    sent = {m.offset: context_of(m.headers) for m in messages(log, "events")}
    for message in messages(log, "constraints"):
        origin = dict(message.headers)["kinstream-origin"] or b""
        assert context_of(message.headers) == sent[int(origin.split(b"/")[2])]
    assert all(m.headers == () for m in messages(log, "models"))


def test_traces_change_no_state_no_value_and_no_identity(tmp_path: Path) -> None:
    plain, traced = events(None), events(1)
    before = run(plain, tmp_path / "plain")
    after = run(traced, tmp_path / "traced", Recorded())
    for old, new in zip(before, after, strict=True):
        assert same_states(old.states(), new.states())
    for role in ROLES[:3]:
        assert len(messages(plain, role)) == len(messages(traced, role)) > 0
        for old_one, new_one in zip(messages(plain, role), messages(traced, role), strict=True):
            assert (old_one.key, old_one.value) == (new_one.key, new_one.value)
            assert new_one.headers[: len(old_one.headers)] == old_one.headers
    manifests = [
        sorted((f.relative_to(root), f.stat().st_size) for f in root.rglob("*.safetensors"))
        for root in (tmp_path / "plain", tmp_path / "traced")
    ]
    assert manifests[0] == manifests[1] != []


def test_crashes_give_the_same_headers_and_spans(tmp_path: Path) -> None:
    quiet, wild = Recorded(), Recorded()
    log = events(2)
    run(log, tmp_path / "quiet", quiet)
    crashes, other, rng = 0, events(2), random.Random(4)
    for spec in SPECS:
        crashes += disturbed(spec, CONFIG, other, tmp_path / "wild", rng, wild)[1]
    assert crashes > 5
    identity = ("kinstream-emitter", "kinstream-generation", "kinstream-epoch", "kinstream-origin")
    for role in ("constraints", "outcomes"):
        found: dict[Any, Any] = {}
        again = 0
        for message in messages(other, role):
            headers = dict(message.headers)
            key = tuple(headers[name] for name in identity)
            again += key in found
            assert found.setdefault(key, message.headers) == message.headers
        if role == "constraints":
            assert again, "some outputs were emitted again"
            expected = [message.headers for message in messages(log, role)]
            assert sorted(found.values()) == sorted(expected)
    built = [{key_of(s) for s in one.of("process kinstream.events")} for one in (quiet, wild)]
    assert built[0] == built[1]
    assert len(wild.of("process kinstream.events")) > len(built[1]), "the same span is sent again"


def test_a_copy_of_a_record_has_no_second_span(tmp_path: Path) -> None:
    spans = Recorded()
    log = events(1)
    run(log, tmp_path, spans)
    before = len(spans.of("process kinstream.constraints"))
    for message in messages(log, "constraints"):
        log.append(message.topic, message.key, message.value, message.headers, message.partition)  # type: ignore[arg-type]
    Agent(SPECS[1], CONFIG, log, tmp_path, spans=spans).run()
    assert len(spans.of("process kinstream.constraints")) == before


def test_a_dead_letter_keeps_the_context_of_its_record(tmp_path: Path) -> None:
    spans, log = Recorded(), MemoryLog()
    header = ("traceparent", f"00-{'a' * 32}-{'b' * 16}-01".encode())
    log.append("kinstream.events", b"a", b"no record", (header,))
    run(log, tmp_path, spans)
    (letter,) = messages(log, "dead-letters")
    assert [value for name, value in letter.headers if name == "traceparent"] == [header[1]]
    (span,) = spans.spans
    assert (span.parent, span.error) == ("b" * 16, "sent to dead letters")
