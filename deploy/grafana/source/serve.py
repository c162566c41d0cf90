"""The row "Is search healthy?" of the stream's dashboard: answers of the service, its stores, indexes and models."""

from __future__ import annotations

from typing import Final

from deploy.grafana.source.panels import Query, Row, lines, number

_JOB: Final = 'job=~"$job"'
_SPACE: Final = f'{_JOB}, space=~"$space"'
_MODEL: Final = f'{_SPACE}, learner=~"$learner"'
_ASKED: Final = f'{_JOB}, route=~"/(search|similar|map|spaces|feedback).*"'
_SECONDS: Final = f"kinstream_serve_request_duration_seconds_bucket{{{_ASKED}}}"
_STORES: Final = f"kinstream_serve_store_duration_seconds_bucket{{{_SPACE}}}"
_EXAMINED: Final = f"kinstream_serve_examined_items_bucket{{{_SPACE}}}"


def _rate(series: str, by: str, labels: str) -> str:
    return f"sum by ({by}) (rate(kinstream_serve_{series}{{{labels}}}[5m]))"


def _quantile(share: float, by: str, buckets: str) -> str:
    return f"histogram_quantile({share}, sum by ({by}, le) (rate({buckets}[5m])))"


SERVE: Final = Row(
    "Is search healthy?",
    (
        number(
            "Services that are ready",
            "as many as run.",
            "0: no query is answered. Fewer than run: /readyz of the others names what they wait for.",
            Query(f"sum(kinstream_serve_ready{{{_JOB}}})"),
            unit="short",
            steps=((None, "red"), (1, "green")),
            runbook="KinstreamServeDown",
        ),
        number(
            "Spaces to serve",
            "those of the settings of the metrics agent.",
            "a difference from the spaces below: the service has another settings file, or was not restarted.",
            Query(f"count(kinstream_serve_space_info{{{_MODEL}}})"),
            unit="short",
        ),
        number(
            "Answers that fail",
            "0%: the share of requests answered with 5xx.",
            "above 5% an alert pages on-call; the stores and the answers by status show the cause.",
            Query(f"max(job:kinstream_serve_failures:ratio_increase5m{{{_JOB}}})"),
            unit="percentunit",
            steps=((None, "green"), (0.01, "orange"), (0.05, "red")),
            runbook="KinstreamServeFailing",
        ),
        number(
            "Stores that answer",
            "1 for each space with a store.",
            "0: the store is away, refuses the login, or is too slow (half of serve.request_seconds).",
            Query(f"min by (space) (kinstream_serve_store_up{{{_MODEL}}})", "{{space}}"),
            unit="short",
            steps=((None, "red"), (1, "green")),
            runbook="KinstreamServeFailing",
        ),
        number(
            "A learned model serves",
            "1 once a model has been learned.",
            "0 for long: no model is announced for the space, or none can be loaded.",
            Query(f"min by (space) (kinstream_serve_model_learned{{{_MODEL}}})", "{{space}}"),
            unit="short",
        ),
        number(
            "Sampled recall",
            "near 1, and at least the target of the index: the share of the true nearest items in the answers.",
            "it has fallen: more candidates, bits or depth in the options of the index, or an exact one.",
            Query(f"min by (space) (kinstream_serve_recall_ratio{{{_SPACE}}})", "{{space}}"),
            unit="percentunit",
            steps=((None, "red"), (0.8, "orange"), (0.9, "green")),
        ),
        number(
            "Items that can be found",
            "the items sent, minus those deleted.",
            "it has fallen: items are older than the retention, or the space was reset; send the catalogue again.",
            Query(f"max by (space) (kinstream_serve_catalogue_items{{{_MODEL}}})", "{{space}}"),
            unit="short",
        ),
        number(
            "Model cannot follow",
            "0 s, or the time to build an index: how long a newer model waits to serve.",
            "it grows: the index is built slowly, or fails; see builds below and /spaces.",
            Query(f"max by (space) (kinstream_serve_model_stale_seconds{{{_MODEL}}})", "{{space}}"),
            unit="s",
            steps=((None, "green"), (300, "orange"), (900, "red")),
            runbook="KinstreamServeModelStale",
        ),
        lines(
            "Queries",
            "the usual rate of the time of day: queried vectors or items.",
            "0 while clients send queries: see the answers by status.",
            Query(f"sum by (space) (job_space:kinstream_serve_queries:rate5m{{{_SPACE}}})", "{{space}}"),
            Query(_rate("drafted_lists_total", "space", _SPACE), "{{space}} · drafted"),
            Query(_rate("randomised_lists_total", "space", _SPACE), "{{space}} · randomised"),
            unit="cps",
            runbook="KinstreamServeDown",
        ),
        lines(
            "Time of an answer",
            "half of them in milliseconds, 99 of 100 far below serve.request_seconds.",
            "it rises with the catalogue: use an approximate index; with the load: run more; with its store: ask why.",
            Query(_quantile(0.5, "route", _SECONDS), "{{route}} p50"),
            Query(_quantile(0.99, "route", _SECONDS), "{{route}} p99"),
            Query(_quantile(0.99, "space", _STORES), "{{space}} · store p99"),
            unit="s",
            runbook="KinstreamServeFailing",
        ),
        lines(
            "Answers by status",
            "200; some 4xx, which are invalid requests.",
            "503: too many at once, not ready, or a store away. 504: too slow. 500: a fault, which the log has.",
            Query(_rate("request_duration_seconds_count", "status", _ASKED), "{{status}}"),
            Query(_rate("store_failures_total", "space", _SPACE), "{{space}} · store away"),
            unit="cps",
            stacked=True,
            runbook="KinstreamServeFailing",
        ),
        lines(
            "Lists and feedback written",
            "as many lists as a space with record shows, and the feedback of users.",
            "dropped, not-written: the brokers are away or slow. forged, late: clients send strange ids, or too late.",
            Query(_rate("recorded_lists_total", "space", _SPACE), "{{space}} · lists"),
            Query(_rate("dropped_lists_total", "space", _SPACE), "{{space}} · lists dropped"),
            Query(_rate("feedback_total", "space, fate", _SPACE), "{{space}} · feedback {{fate}}"),
            unit="cps",
            runbook="KinstreamServeNotRecorded",
        ),
        lines(
            "Requests at once",
            "below serve.max_concurrent (64) of each service.",
            "at the limit further requests are refused with 503: run more services.",
            Query(
                f"max by (instance) (kinstream_serve_requests_in_progress{{{_JOB}}})",
                "{{instance}}",
            ),
            unit="short",
            runbook="KinstreamServeFailing",
        ),
        lines(
            "Connections",
            "below 512 of each service, eight times serve.max_concurrent; only idle ones are closed.",
            "slow or stalled clients hold connections, and the service closes them to make room: see the reason.",
            Query(f"max by (instance) (kinstream_serve_connections{{{_JOB}}})", "{{instance}}"),
            Query(
                f"sum by (reason) (rate(kinstream_serve_connections_closed_total{{{_JOB}}}[5m]))",
                "closed per second: {{reason}}",
            ),
            unit="short",
        ),
        lines(
            "Candidates examined",
            "for an approximate index, a small part of the catalogue: items whose distance was computed for a query.",
            "near the whole catalogue: the index saves nothing; use more bits, or an exact index.",
            Query(_quantile(0.5, "space", _EXAMINED), "{{space}} p50"),
            Query(_quantile(0.99, "space", _EXAMINED), "{{space}} p99"),
            unit="short",
        ),
        lines(
            "Recall checks",
            "“measured” leads: queries compared with the exact scan.",
            "“dropped”: the checks do not keep up; raise serve.recall_every. “outdated”: the model changed meanwhile.",
            Query(_rate("recall_samples_total", "space, fate", _SPACE), "{{space}} · {{fate}}"),
            unit="cps",
        ),
        lines(
            "Step of the serving model",
            "rises with the learner's, by a checkpoint at a time, or steadily in spaces with updates.",
            "flat while the learner learns: the model is stale.",
            Query(
                f"min by (space, learner) (kinstream_serve_model_step{{{_MODEL}}})",
                "{{space}} · {{learner}}",
            ),
            Query(
                f"min by (space, learner) (kinstream_serve_decided_step{{{_MODEL}}})",
                "{{space}} · {{learner}} · by decision of the gate",
            ),
            unit="short",
            runbook="KinstreamServeModelStale",
        ),
        lines(
            "Staleness",
            "age: the time since the last learning. Behind: 1 briefly, while a newer model is taken over.",
            "behind stays at 1: the newer model cannot be loaded or built. Only the age rises: nothing new is learned.",
            Query(
                f"max by (space, learner) (kinstream_serve_model_age_seconds{{{_MODEL}}})",
                "{{space}} · {{learner}}, age",
            ),
            Query(
                f"max by (space, learner) (kinstream_serve_model_behind{{{_MODEL}}})",
                "{{space}} · {{learner}}, behind",
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
            runbook="KinstreamServeModelStale",
        ),
        lines(
            "Models and updates left out",
            "0. “updates”: 1 while update records cannot be read, and spaces follow announced models instead.",
            "the reason names the fault of the model's file; unreachable: the checkpoint store.",
            Query(_rate("model_failures_total", "reason", _MODEL), "{{reason}}"),
            Query(f"max(kinstream_serve_updates_trouble{{{_JOB}}})", "updates"),
            Query(_rate("update_records_total", "fate", f'{_JOB}, fate="unreadable"'), "updates, {{fate}}"),
            unit="short",
            runbook="KinstreamServeModelStale",
        ),
        lines(
            "Indexes",
            "swapped follows builds; adopted and stepped replace both for indexes that follow the metric.",
            "failed or abandoned: the log has the reason; builds without swapped: a build takes very long.",
            Query(_rate("index_events_total", "space, event", _SPACE), "{{space}} · {{event}}"),
            unit="cps",
            runbook="KinstreamServeModelStale",
        ),
        lines(
            "Duration of a build",
            "shorter than the time between two checkpoints of the learner.",
            "it grows with the catalogue: use an index that follows the metric in place, or more cores.",
            Query(f"max by (space) (kinstream_serve_index_build_seconds{{{_SPACE}}})", "{{space}}"),
            unit="s",
            runbook="KinstreamServeModelStale",
        ),
        lines(
            "Vectors and indexes",
            "grows with the catalogue, and doubles briefly while an index is built.",
            "near the memory limit of the service: raise it, or serve fewer spaces.",
            Query(f"max by (space) (kinstream_serve_memory_bytes{{{_MODEL}}})", "{{space}}"),
            unit="bytes",
        ),
        lines(
            "Catalogue records",
            "“applied” as items arrive; “passed_over” counts records of spaces that are not served.",
            "refused records are in the dead letters of the builders, with their reasons.",
            Query(_rate("records_total", "fate", _JOB), "{{fate}}"),
            Query(_rate("records_refused_total", "reason", _JOB), "refused: {{reason}}"),
            unit="cps",
            runbook="KinstreamDeadLettersRising",
        ),
        lines(
            "Records left to read at the start",
            "falls to 0 and stays there; the service is ready after that.",
            "it does not fall: the brokers do not answer, or the service lacks memory.",
            Query(f"sum by (instance) (kinstream_serve_catch_up_records{{{_JOB}}})", "{{instance}}"),
            unit="short",
            runbook="KinstreamServeDown",
        ),
        lines(
            "Records lost",
            "0: offsets of the catalogue that were deleted before they were read.",
            "above 0: items are missing; send the catalogue again, and lengthen the retention.",
            Query(f"sum by (instance) (kinstream_serve_records_lost_total{{{_JOB}}})", "{{instance}}"),
            unit="short",
        ),
    ),
)
