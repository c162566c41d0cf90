"""The row "Is the gateway healthy?" of the stream's dashboard: its answers, the stores that it asks, and its models."""

from __future__ import annotations

from typing import Final

from deploy.grafana.source.panels import Query, Row, lines, number

_JOB: Final = 'job=~"$job"'
_SPACE: Final = f'{_JOB}, space=~"$space"'
_MODEL: Final = f'{_SPACE}, learner=~"$learner"'
_ASKED: Final = f'{_JOB}, route=~"/(search|map|spaces).*"'


def _rate(series: str, by: str, labels: str) -> str:
    return f"sum by ({by}) (rate(kinstream_serve_{series}{{{labels}}}[5m]))"


def _quantile(share: float, by: str, series: str, labels: str) -> str:
    return f"histogram_quantile({share}, {_rate(f'{series}_bucket', f'{by}, le', labels)})"


GATEWAY: Final = Row(
    "Is the gateway healthy?",
    (
        number(
            "Gateways that are ready",
            "as many as run.",
            "0: no query is answered. Fewer than run: /readyz of the others names what they wait for.",
            Query(f"sum(kinstream_serve_ready{{{_JOB}}})"),
            unit="short",
            steps=((None, "red"), (1, "green")),
            runbook="KinstreamGatewayDown",
        ),
        number(
            "Answers that fail",
            "0%: the share of requests answered with 5xx.",
            "above 5% an alert pages on-call; the stores and the answers by status show the cause.",
            Query(f"max(job:kinstream_serve_failures:ratio_increase5m{{{_JOB}}})"),
            unit="percentunit",
            steps=((None, "green"), (0.01, "orange"), (0.05, "red")),
            runbook="KinstreamGatewayFailing",
        ),
        number(
            "Stores that answer",
            "1 for each space.",
            "0: the store is away, refuses the login, or is too slow for gateway.store_seconds.",
            Query(f"min by (space) (kinstream_serve_store_up{{{_MODEL}}})", "{{space}}"),
            unit="short",
            steps=((None, "red"), (1, "green")),
            runbook="KinstreamGatewayFailing",
        ),
        number(
            "Queries are adapted",
            "1 once a model has been learned.",
            "0 for long: no model is announced for the space, or none can be loaded.",
            Query(f"min by (space) (kinstream_serve_model_learned{{{_MODEL}}})", "{{space}}"),
            unit="short",
        ),
        lines(
            "Queries through the gateway",
            "the usual rate of the time of day.",
            "0 while clients send queries: see the answers by status.",
            Query(_rate("queries_total", "space", _SPACE), "{{space}}"),
            Query(_rate("drafted_lists_total", "space", _SPACE), "{{space}} · drafted"),
            Query(_rate("randomised_lists_total", "space", _SPACE), "{{space}} · randomised"),
            unit="cps",
        ),
        lines(
            "Time of an answer",
            "a few milliseconds more than the store needs.",
            "the store is slow where its line rises too; else the gateway has too few threads or processors.",
            Query(_quantile(0.99, "job", "request_duration_seconds", _ASKED), "answer, 99 %"),
            Query(_quantile(0.5, "job", "request_duration_seconds", _ASKED), "answer, 50 %"),
            Query(_quantile(0.99, "space", "store_duration_seconds", _SPACE), "{{space}} · store, 99 %"),
            unit="s",
        ),
        lines(
            "Answers of the gateway by status",
            "200 leads.",
            "503: overload, or a store does not answer; 504: a store is too slow; 4xx: a client is wrong.",
            Query(
                f"sum by (status) (rate(kinstream_serve_request_duration_seconds_count{{{_ASKED}}}[5m]))",
                "{{status}}",
            ),
            Query(_rate("store_failures_total", "space", _SPACE), "{{space}} · store away"),
            unit="cps",
        ),
        lines(
            "Load of the gateway",
            "below gateway.max_concurrent (64) and gateway.max_connections (512) of each gateway.",
            "at its limit: run more gateways.",
            Query(
                f"max by (instance) (kinstream_serve_requests_in_progress{{{_JOB}}})",
                "{{instance}} · requests",
            ),
            Query(
                f"max by (instance) (kinstream_serve_connections{{{_JOB}}})", "{{instance}} · connections"
            ),
            unit="short",
        ),
        lines(
            "Connections that the gateway closed",
            "few.",
            "slow or stalled: clients or the network; evicted: more clients than gateway.max_connections.",
            Query(_rate("connections_closed_total", "reason", _JOB), "{{reason}}"),
            unit="cps",
        ),
        lines(
            "Model of the gateway",
            "the age falls with every checkpoint while a learner learns.",
            "behind for long, or failures: the checkpoint store, or a model that does not fit.",
            Query(
                f"max by (space, learner) (kinstream_serve_model_age_seconds{{{_MODEL}}})",
                "{{space}} · age",
            ),
            Query(
                f"max by (space, learner) (kinstream_serve_model_behind{{{_MODEL}}})", "{{space}} · behind"
            ),
            Query(
                f"max by (space, learner) (kinstream_serve_decided_missing{{{_MODEL}}})",
                "{{space}} · the gate's model is missing",
            ),
            Query(
                f"1 - min by (space, learner) (kinstream_serve_decided_kept{{{_MODEL}}})",
                "{{space}} · the gate's model has no copy",
            ),
            unit="s",
            runbook="KinstreamGatewayModelStale",
        ),
        lines(
            "Steps of the gateway's model",
            "rise while a learner learns.",
            "they stand still while the learner's step rises: see the failures.",
            Query(
                f"min by (space, learner) (kinstream_serve_model_step{{{_MODEL}}})",
                "{{space}} · {{learner}}",
            ),
            Query(
                f"min by (space, learner) (kinstream_serve_decided_step{{{_MODEL}}})",
                "{{space}} · {{learner}} · by decision of the gate",
            ),
            unit="short",
            runbook="KinstreamGatewayModelStale",
        ),
        lines(
            "Models that were not loaded",
            "0.",
            "missing, damaged or refused: see the runbook; unreachable: the checkpoint store.",
            Query(_rate("model_failures_total", "space, reason", _MODEL), "{{space}} · {{reason}}"),
            unit="cps",
            runbook="KinstreamGatewayModelStale",
        ),
    ),
)
