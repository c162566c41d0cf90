"""The row "Is search healthy?" of the stream's dashboard: what the query agents answer, and from which models."""

from __future__ import annotations

from typing import Final

from deploy.grafana.source.panels import Query, Row, lines, number

_JOB: Final = 'job=~"$job"'
_SPACE: Final = f'{_JOB}, space=~"$space"'
_MODEL: Final = f'{_SPACE}, learner=~"$learner"'
_ASKED: Final = f'{_JOB}, route=~"/(search|similar|transform|spaces).*"'
_SECONDS: Final = f"kinstream_search_request_duration_seconds_bucket{{{_ASKED}}}"
_EXAMINED: Final = f"kinstream_search_examined_items_bucket{{{_SPACE}}}"


def _rate(series: str, by: str, labels: str) -> str:
    return f"sum by ({by}) (rate(kinstream_search_{series}{{{labels}}}[5m]))"


def _quantile(share: float, by: str, buckets: str) -> str:
    return f"histogram_quantile({share}, sum by ({by}, le) (rate({buckets}[5m])))"


SEARCH: Final = Row(
    "Is search healthy?",
    (
        number(
            "Query agents that are ready",
            "as many as run.",
            "0 of some: nobody gets an answer. Fewer than run: /readyz of the others says what they wait for.",
            Query(f"sum(kinstream_search_ready{{{_JOB}}})"),
            unit="short",
            steps=((None, "red"), (1, "green")),
            runbook="KinstreamSearchDown",
        ),
        number(
            "Spaces to be searched",
            "those of the settings of the metrics agent.",
            "other than the query agents show below: they have another settings file, or were not started again.",
            Query(f"count(kinstream_search_space_info{{{_MODEL}}})"),
            unit="short",
        ),
        number(
            "Answers that fail",
            "0%: the share of requests that are answered with 5xx.",
            "above a twentieth somebody is woken; the answers by status say why.",
            Query(f"max(job:kinstream_search_failures:ratio_increase5m{{{_JOB}}})"),
            unit="percentunit",
            steps=((None, "green"), (0.01, "orange"), (0.05, "red")),
            runbook="KinstreamSearchFailing",
        ),
        number(
            "Sampled recall",
            "near 1, at least what the index was chosen for: of the true nearest items, the share that was answered.",
            "it has fallen: more candidates, bits or depth in the options of the index, or an exact one.",
            Query(f"min by (space) (kinstream_search_recall_ratio{{{_SPACE}}})", "{{space}}"),
            unit="percentunit",
            steps=((None, "red"), (0.8, "orange"), (0.9, "green")),
        ),
        number(
            "Items that can be found",
            "what was sent, less what was deleted.",
            "it has fallen: items have outlived the retention, or the space was reset; send the catalogue again.",
            Query(f"max by (space) (kinstream_search_catalogue_items{{{_MODEL}}})", "{{space}}"),
            unit="short",
        ),
        number(
            "Model cannot follow",
            "0 s, or as long as an index takes to be built: how long a newer model waits to serve.",
            "it grows: the index is built slowly, or fails; see builds below and /spaces.",
            Query(f"max by (space) (kinstream_search_model_stale_seconds{{{_MODEL}}})", "{{space}}"),
            unit="s",
            steps=((None, "green"), (300, "orange"), (900, "red")),
            runbook="KinstreamSearchModelStale",
        ),
        lines(
            "Queries",
            "the usual rate of the time of day: vectors or items that were asked for.",
            "0 while somebody asks: see the answers by status.",
            Query(f"sum by (space) (job_space:kinstream_search_queries:rate5m{{{_SPACE}}})", "{{space}}"),
            unit="cps",
            runbook="KinstreamSearchDown",
        ),
        lines(
            "Time of an answer",
            "half of them in milliseconds, 99 of 100 far below search.request_seconds.",
            "it rises with the catalogue: an approximate index; with the load: more query agents.",
            Query(_quantile(0.5, "route", _SECONDS), "{{route}} p50"),
            Query(_quantile(0.99, "route", _SECONDS), "{{route}} p99"),
            unit="s",
            runbook="KinstreamSearchFailing",
        ),
        lines(
            "Answers by status",
            "200; some 4xx, which are wrong questions.",
            "503: too many at once, or not ready. 504: too slow. 500: a fault, whose trace is in the log.",
            Query(_rate("request_duration_seconds_count", "status", _ASKED), "{{status}}"),
            unit="cps",
            stacked=True,
            runbook="KinstreamSearchFailing",
        ),
        lines(
            "Requests at once",
            "below search.max_concurrent (64) of each query agent.",
            "at the limit more are told to come again: more query agents.",
            Query(
                f"max by (instance) (kinstream_search_requests_in_progress{{{_JOB}}})",
                "{{instance}}",
            ),
            unit="short",
            runbook="KinstreamSearchFailing",
        ),
        lines(
            "Connections",
            "below search.max_connections (512) of each query agent; none closed but idle ones.",
            "slow or stalled clients hold connections, and the agent closes them to make room: see the reason.",
            Query(f"max by (instance) (kinstream_search_connections{{{_JOB}}})", "{{instance}}"),
            Query(
                f"sum by (reason) (rate(kinstream_search_connections_closed_total{{{_JOB}}}[5m]))",
                "closed a second: {{reason}}",
            ),
            unit="short",
        ),
        lines(
            "Candidates examined",
            "of an approximate index a small part of the catalogue: items whose distance was computed for a query.",
            "near the whole catalogue the index saves nothing: more bits, or an exact index.",
            Query(_quantile(0.5, "space", _EXAMINED), "{{space}} p50"),
            Query(_quantile(0.99, "space", _EXAMINED), "{{space}} p99"),
            unit="short",
        ),
        lines(
            "Recall checks",
            "“measured” leads: queries that were compared with the exact scan.",
            "“dropped”: the checks do not keep up, raise search.recall_every. “outdated”: the model changed meanwhile.",
            Query(_rate("recall_samples_total", "space, fate", _SPACE), "{{space}} · {{fate}}"),
            unit="cps",
        ),
        lines(
            "Step of the model that serves",
            "rises with the learner's, by a checkpoint at a time, or steadily in spaces with updates.",
            "flat while the learner learns: the model is stale.",
            Query(
                f"min by (space, learner) (kinstream_search_model_step{{{_MODEL}}})",
                "{{space}} · {{learner}}",
            ),
            unit="short",
            runbook="KinstreamSearchModelStale",
        ),
        lines(
            "Staleness",
            "age: as old as what was learned last. Behind: 1 for moments, while a newer model is taken over.",
            "behind stays at 1: the newer model cannot be loaded or built. Only the age rises: nothing new is learned.",
            Query(
                f"max by (space, learner) (kinstream_search_model_age_seconds{{{_MODEL}}})",
                "{{space}} · {{learner}}, age",
            ),
            Query(
                f"max by (space, learner) (kinstream_search_model_behind{{{_MODEL}}})",
                "{{space}} · {{learner}}, behind",
            ),
            unit="s",
            runbook="KinstreamSearchModelStale",
        ),
        lines(
            "Models and updates left out",
            "0. “updates”: 1 while update records cannot be read, and announced models are followed instead.",
            "the reason says what is wrong with the model's file; unreachable: the checkpoint store.",
            Query(_rate("model_failures_total", "reason", _MODEL), "{{reason}}"),
            Query(f"max(kinstream_search_updates_trouble{{{_JOB}}})", "updates"),
            Query(_rate("update_records_total", "fate", f'{_JOB}, fate="unreadable"'), "updates, {{fate}}"),
            unit="short",
            runbook="KinstreamSearchModelStale",
        ),
        lines(
            "Indexes",
            "swapped follows builds; adopted and stepped in place of both for indexes that follow the metric.",
            "failed or abandoned: the log has the reason; builds without swapped: one takes very long.",
            Query(_rate("index_events_total", "space, event", _SPACE), "{{space}} · {{event}}"),
            unit="cps",
            runbook="KinstreamSearchModelStale",
        ),
        lines(
            "Duration of a build",
            "shorter than the time between two checkpoints of the learner.",
            "it grows with the catalogue: an index that follows the metric in place, or more cores.",
            Query(f"max by (space) (kinstream_search_index_build_seconds{{{_SPACE}}})", "{{space}}"),
            unit="s",
            runbook="KinstreamSearchModelStale",
        ),
        lines(
            "Vectors and indexes",
            "grows with the catalogue, and twice as high for moments while an index is built.",
            "near the memory that the agent was given: more of it, or fewer spaces for each agent.",
            Query(f"max by (space) (kinstream_search_memory_bytes{{{_MODEL}}})", "{{space}}"),
            unit="bytes",
        ),
        lines(
            "Catalogue records",
            "“applied” as items come in; “passed_over” is of spaces that are not served.",
            "records that are refused are in the dead letters of the builders, with their reasons.",
            Query(_rate("records_total", "fate", _JOB), "{{fate}}"),
            Query(_rate("records_refused_total", "reason", _JOB), "refused: {{reason}}"),
            unit="cps",
            runbook="KinstreamDeadLettersRising",
        ),
        lines(
            "Left to read at the start",
            "falls to 0 and stays there; the agent is ready after that.",
            "it does not fall: the brokers do not answer, or the agent lacks memory.",
            Query(f"sum by (instance) (kinstream_search_catch_up_records{{{_JOB}}})", "{{instance}}"),
            unit="short",
            runbook="KinstreamSearchDown",
        ),
        lines(
            "Records lost",
            "0: offsets of the catalogue that were deleted before they were read.",
            "above 0 items are missing: send the catalogue again, and lengthen the retention.",
            Query(f"sum by (instance) (kinstream_search_records_lost_total{{{_JOB}}})", "{{instance}}"),
            unit="short",
        ),
    ),
)
