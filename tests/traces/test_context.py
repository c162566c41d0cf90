"""Headers as W3C's recommendation has them; the cases are those of its section on `traceparent`."""

from __future__ import annotations

import pytest

from kinstream.streams.traces.context import TraceContext, context_of, model_context, root_of

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{SPAN}-01".encode()


def test_a_context_is_read_and_written_as_it_was() -> None:
    headers = (("a", b"b"), ("traceparent", GOOD), ("tracestate", b"vendor=x,other=y"))
    found = context_of(headers)
    assert found == TraceContext(TRACE, SPAN, 1, b"vendor=x,other=y") and found.sampled
    assert found.headers() == headers[1:]
    # Other flags are passed on as well.
    other = context_of([("traceparent", f"00-{TRACE}-{SPAN}-02".encode())])
    assert other is not None and not other.sampled
    assert other.headers() == (("traceparent", f"00-{TRACE}-{SPAN}-02".encode()),)


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    assert context_of([("traceparent", b"cc" + GOOD[2:] + b"-more")]) == TraceContext(TRACE, SPAN)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"00",
        GOOD[:-1],
        GOOD + b"-more",
        GOOD + b"\n",
        GOOD.upper(),
        b"ff" + GOOD[2:],
        f"00-{'0' * 32}-{SPAN}-01".encode(),
        f"00-{TRACE}-{'0' * 16}-01".encode(),
        f"00-{TRACE[:-1]}g-{SPAN}-01".encode(),
        b"cc" + GOOD[2:] + b"-" + b"x" * 300,
        b"\xff" * 55,
    ],
)
def test_what_is_no_context_is_none(value: bytes | None) -> None:
    assert context_of([("traceparent", value), ("tracestate", b"a=b")]) is None


def test_two_contexts_are_none_and_a_state_alone_is_none() -> None:
    assert context_of([("traceparent", GOOD), ("traceparent", GOOD)]) is None
    assert context_of([("tracestate", b"a=b")]) is None
    assert context_of([]) is None


def test_a_state_that_is_too_long_is_left_out() -> None:
    found = context_of([("traceparent", GOOD), ("tracestate", b"a=" + b"b" * 600)])
    assert found == TraceContext(TRACE, SPAN)


def test_ids_follow_from_what_they_are_about() -> None:
    assert root_of("load", "a", "s", 1) == root_of("load", "a", "s", 1)
    others = {root_of("load", "a", "s", n) for n in range(1000)} | {model_context("s", "l", 1, 0, 5)}
    assert len({one.trace_id for one in others}) == len({one.span_id for one in others}) == 1001
    for one in others:
        assert context_of(one.headers()) == one
