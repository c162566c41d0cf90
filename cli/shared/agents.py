"""Agents by role and name."""

from __future__ import annotations

from typing import Any


def agent_spec(settings: Any, role: str, name: str | None) -> Any:
    """The agent that a role and a name stand for."""
    match role:
        case "builder":
            from kinstream.processors.agent import builder_spec

            return builder_spec(settings, name or "")
        case "learner":
            from kinstream.learners.agent import learner_spec

            return learner_spec(settings, name or "")
        case "source":
            from kinstream.producers.sources.agent import source_spec

            return source_spec(settings, name or "")
        case "gate":
            from kinstream.gate.agent import gate_spec

            return gate_spec(settings)
        case "vectors":
            from kinstream.vectors.agent import vectors_spec

            return vectors_spec(settings)
        case "sink":
            from kinstream.vectors.sinks.agent import sink_spec

            return sink_spec(settings, name or "")
        case _:
            from kinstream.monitoring.agent import metrics_spec

            return metrics_spec(settings)
