"""What a partition does for traces: passes them on to its outputs, and records its own steps.

The machine knows nothing of it, so traces change no state, no identity and no value. An agent without an exporter
passes the context on as it is; with one, its outputs name the agent's own span, whose id is a hash of the input's
place.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from kinstream.streams.agents.machine import Machine, Place
from kinstream.streams.records.codec.codec import decode_model
from kinstream.streams.records.message import Message, Output
from kinstream.streams.records.values import ModelVersion
from kinstream.streams.traces.context import TRACEPARENT, TraceContext, model_context, span_id_of
from kinstream.streams.traces.spans import Span, Spans

#: Number of causes that a model names, and of spaces whose causes are kept.
MAX_CAUSES: Final = 32
MAX_SPACES: Final = 1_000


class PartitionTraces:
    """The traces of one partition of an agent.

    Parameters
    ----------
    spans : None if this process exports none.
    announces : whether the agent announces models. Then their causes are kept until the next announcement.
    """

    def __init__(self, place: Place, spans: Spans | None, *, announces: bool) -> None:
        self._place = place
        self._spans = spans
        self._announces = announces
        #: The newest steps of each space since its last announcement.
        self._causes: dict[str, deque[TraceContext]] = {}

    def step(self, machine: Machine, message: Message, parent: TraceContext) -> list[Output]:
        """`Machine.step` of a message that belongs to a trace. Raises what that raises."""
        if self._spans is None or not parent.sampled:
            return _with(machine.step(message), parent)
        place = self._place
        origin = (message.topic, message.partition, message.offset)
        own = parent._replace(span_id=span_id_of("step", place.name, place.generation, *origin))
        applied, began = machine.counts["applied"], time.time_ns()
        outputs = machine.step(message)
        if not outputs and machine.counts["applied"] == applied:
            # Seen before, or not for this agent.
            return outputs
        self._spans.add(
            Span(
                f"process {message.topic}",
                "consumer",
                own,
                parent.span_id,
                began,
                time.time_ns(),
                self._about(message),
                error=_refusal(outputs, place),
            )
        )
        if self._announces:
            self._keep((message.key or b"").decode("utf-8", "replace"), own)
        return _with(outputs, own)

    def _about(self, message: Message) -> dict[str, str | int]:
        place = self._place
        return {
            "messaging.system": "kafka",
            "messaging.destination.name": message.topic,
            "messaging.destination.partition.id": str(message.partition),
            "messaging.kafka.offset": message.offset,
            "kinstream.space": (message.key or b"").decode("utf-8", "replace"),
            "kinstream.agent": place.name,
            "kinstream.generation": place.generation,
        }

    def _keep(self, space: str, cause: TraceContext) -> None:
        if space not in self._causes and len(self._causes) >= MAX_SPACES:
            del self._causes[next(iter(self._causes))]
        self._causes.setdefault(space, deque(maxlen=MAX_CAUSES)).append(cause)

    def announced(self, outputs: Sequence[Output]) -> Sequence[Output]:
        """Announcements of models, each with the context of its model.

        A model has many causes, so it begins a trace of its own that links to the steps which were learned since the
        model before. One without such a step has the same context, and no span.
        """
        if self._spans is None or not self._announces:
            return outputs
        return [self._announcement(output, self._spans) for output in outputs]

    def _announcement(self, output: Output, spans: Spans) -> Output:
        version = decode_model(output.value)
        context = context_of_model(version)
        # A model that is announced again while a newer one is withheld has no new causes.
        causes = () if output.headers else self._causes.pop(version.space, ())
        if causes:
            now = time.time_ns()
            about: dict[str, str | int] = {
                "messaging.system": "kafka",
                "messaging.destination.name": output.topic,
                "kinstream.space": version.space,
                "kinstream.learner": version.learner,
                "kinstream.generation": version.generation,
                "kinstream.epoch": version.epoch,
                "kinstream.step": version.step,
            }
            links = tuple(causes)
            spans.add(Span(f"announce {output.topic}", "producer", context, None, now, now, about, links))
        return replace(output, headers=(*output.headers, *context.headers()))


def context_of_model(version: ModelVersion) -> TraceContext:
    """The context of the announcement of a model."""
    return model_context(version.space, version.learner, version.generation, version.epoch, version.step)


def _with(outputs: Iterable[Output], context: TraceContext) -> list[Output]:
    """The outputs with the context; a dead letter keeps the one of its record."""
    added = context.headers()
    return [
        output
        if any(name == TRACEPARENT for name, _ in output.headers)
        else replace(output, headers=(*output.headers, *added))
        for output in outputs
    ]


def _refusal(outputs: Iterable[Output], place: Place) -> str | None:
    refused = any(output.topic == place.dead_letters for output in outputs)
    return "sent to dead letters" if refused else None
