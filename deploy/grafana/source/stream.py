"""The dashboard "Is the stream healthy?"."""

from __future__ import annotations

from typing import Final

from deploy.grafana.source.dashboard import AGENT, JOB, LEARNER, SPACE, dashboard
from deploy.grafana.source.panels import Column, Query, Row, lines, number, table
from deploy.grafana.source.serve import SERVE

_AGENT: Final = 'job=~"$job", agent=~"$agent"'
_WHO: Final = 'job=~"$job", space=~"$space", learner=~"$learner"'
_DELAY: Final = 'kinstream_event_to_metric_delay_seconds_bucket{job=~"$job", learner=~"$learner"}'
_PLACE: Final = "{{agent}} · {{topic}}/{{partition}}"

_GLANCE = Row(
    "At a glance",
    (
        number(
            "Alerts firing",
            "0.",
            "the runbook of each alert lists the steps; begin with the alert that is not a consequence.",
            Query('count(ALERTS{job=~"$job", alertname=~"Kinstream.+", alertstate="firing"}) or vector(0)'),
            unit="short",
            steps=((None, "green"), (1, "red")),
        ),
        number(
            "Workers that do not answer",
            "0.",
            "a process is gone or hangs, or Prometheus has an outdated address.",
            Query('count(up{job=~"$job"} == 0) or vector(0)'),
            unit="short",
            steps=((None, "green"), (1, "red")),
            runbook="KinstreamDown",
        ),
        number(
            "Agents without a worker",
            "0: every builder and learner of the settings runs.",
            "start the worker of the agent, or remove it from the settings of the metrics agent.",
            Query(
                '(count((max by (job, agent) (kinstream_builder_info{job=~"$job"})'
                ' or max by (job, agent) (kinstream_learner_info{job=~"$job"}))'
                " unless on (job, agent) job_agent:kinstream_workers_present:count)) or vector(0)"
            ),
            unit="short",
            steps=((None, "green"), (1, "red")),
            runbook="KinstreamLearnerStalled",
        ),
        number(
            "Parked partitions",
            "0.",
            "one record ends its worker again and again: use kinstream skip.",
            Query('sum(kinstream_partition_parked{job=~"$job"}) or vector(0)'),
            unit="short",
            steps=((None, "green"), (1, "red")),
            runbook="KinstreamPartitionParked",
        ),
        number(
            "Farthest behind",
            "seconds.",
            "minutes, and rising: the agent needs more workers, or has stalled.",
            Query(
                'max by (agent) (job_agent:kinstream_consumer_lag_seconds:estimate{job=~"$job"})', "{{agent}}"
            ),
            unit="s",
            steps=((None, "green"), (60, "orange"), (300, "red")),
            runbook="KinstreamLagGrowing",
        ),
        number(
            "Dead letters, last hour",
            "0, or as few as usual.",
            "see the reasons and agents below.",
            Query(
                'sum(increase(kinstream_dead_letters_total{job=~"$job", '
                'reason!~"skipped|capped-.*|burst-.*|late-list|forged-list"}[1h]))'
            ),
            unit="short",
            steps=((None, "green"), (1, "orange"), (100, "red")),
            runbook="KinstreamDeadLettersRising",
        ),
    ),
)

_FLOW = Row(
    "Lag, rates and delay",
    (
        lines(
            "Lag",
            "near 0, with short peaks at bursts: waiting records, by agent.",
            "it rises for a quarter of an hour and more: more workers (up to one for each partition), or a "
            "faster learner.",
            Query(f"job_agent:kinstream_consumer_lag_records:sum{{{_AGENT}}}", "{{agent}}"),
            unit="short",
            runbook="KinstreamLagGrowing",
        ),
        lines(
            "Lag in time",
            "seconds: approximate age of the next record to be read.",
            "above 300 s and rising, an alert opens a ticket; find the first late agent of the chain.",
            Query(f"job_agent:kinstream_consumer_lag_seconds:estimate{{{_AGENT}}}", "{{agent}}"),
            unit="s",
            steps=((None, "green"), (300, "red")),
            runbook="KinstreamLagGrowing",
        ),
        lines(
            "From event to metric",
            "half below a second, 99% below a few: from an event's own time to the count of its outcome.",
            "it rises with the lag of one agent. Only events that are sent as they happen are measured.",
            Query(f"histogram_quantile(0.5, sum by (learner, le) (rate({_DELAY}[5m])))", "{{learner}} p50"),
            Query(f"histogram_quantile(0.99, sum by (learner, le) (rate({_DELAY}[5m])))", "{{learner}} p99"),
            unit="s",
            runbook="KinstreamLagGrowing",
        ),
        lines(
            "Records applied",
            "the usual rate of the time of day.",
            "one agent at 0 while the one before it is not: it has stalled.",
            Query(f"job_agent:kinstream_records_applied:rate5m{{{_AGENT}}}", "{{agent}}"),
            unit="cps",
            runbook="KinstreamLearnerStalled",
        ),
        lines(
            "Constraints by learner",
            "the usual rate; the same for learners that follow the same builders.",
            "0 while builders apply records: the builder makes no constraints from them, see evidence below.",
            Query(
                f"sum by (learner) (job_space_learner:kinstream_constraints_seen:rate5m{{{_WHO}}})",
                "{{learner}}",
            ),
            unit="cps",
            runbook="KinstreamBuilderStalled",
        ),
        lines(
            "Bytes read",
            "the usual rate.",
            "a jump without more records: blocks or vectors have become larger.",
            Query(f"sum by (agent) (rate(kinstream_read_bytes_total{{{_AGENT}}}[5m]))", "{{agent}}"),
            unit="Bps",
        ),
        lines(
            "Busy",
            "below 70% for each partition: the share of time in which records are applied. One partition cannot use "
            "more than one core.",
            "near 100%: this partition is the bottleneck. More workers help only while one works on several "
            "partitions; otherwise use a faster learner, or spaces on other partitions.",
            Query(
                f"max by (agent, partition) (rate(kinstream_kernel_busy_seconds_total{{{_AGENT}}}[5m]))",
                "{{agent}} · {{partition}}",
            ),
            unit="percentunit",
            high=1,
            steps=((None, "green"), (0.7, "orange")),
            runbook="KinstreamLagGrowing",
        ),
        lines(
            "Evidence of the builders",
            "most evidence has the fate that makes constraints: received evidence of the builders, by fate.",
            "a fate that names a loss has risen: docs/building.md explains it.",
            Query(
                f"sum by (agent, fate) (rate(kinstream_evidence_total{{{_AGENT}}}[5m]))",
                "{{agent}} · {{fate}}",
            ),
            unit="cps",
        ),
        lines(
            "Outcomes left out of the delay",
            "0, except after a start (replay) and while history is loaded (backfill).",
            "“future”: the clock of a producer is ahead of this one; set the clocks.",
            Query(
                'sum by (reason) (rate(kinstream_event_to_metric_delay_skipped_total{job=~"$job"}[5m]))',
                "{{reason}}",
            ),
            unit="cps",
        ),
    ),
)

_LEFT_OUT = Row(
    "Records that were not applied",
    (
        lines(
            "Dead letters by reason",
            "0.",
            "kinstream dead-letters list --since 1h --reason ... shows them; most often a producer has changed.",
            Query(
                f"sum by (reason) (rate(kinstream_dead_letters_total{{{_AGENT}}}[5m]))",
                "{{reason}}",
            ),
            unit="cps",
            stacked=True,
            runbook="KinstreamDeadLettersRising",
        ),
        lines(
            "Share refused",
            "0: the share of an agent's records that it refused, in a quarter of an hour.",
            "above 5% an alert pages on-call: refused records are kept, but not learned.",
            Query(f"job_agent:kinstream_dead_letters:ratio_increase15m{{{_AGENT}}}", "{{agent}}"),
            unit="percentunit",
            steps=((None, "green"), (0.05, "red")),
            runbook="KinstreamDeadLettersRising",
        ),
        lines(
            "Records left out as designed",
            "0, except after restarts (duplicates), resets (stale epochs) and redrives.",
            "duplicates without restarts: two workers own the same partition, or a generation was begun "
            "from the start.",
            Query(
                f"sum by (agent) (rate(kinstream_records_duplicate_total{{{_AGENT}}}[5m]))",
                "{{agent}}, duplicates",
            ),
            Query(
                f"sum by (agent) (rate(kinstream_records_stale_epoch_total{{{_AGENT}}}[5m]))",
                "{{agent}}, stale epoch",
            ),
            Query(
                f"sum by (agent) (rate(kinstream_records_adopted_total{{{_AGENT}}}[5m]))",
                "{{agent}}, adopted",
            ),
            Query(
                f"sum by (agent) (rate(kinstream_redrives_ignored_total{{{_AGENT}}}[5m]))",
                "{{agent}}, redrives ignored",
            ),
            unit="cps",
        ),
    ),
)

_SAFETY = Row(
    "Checkpoints and retention",
    (
        lines(
            "Age of the checkpoint",
            "below the limit, six intervals and 30 s, which is the line “limit”. An idle partition is not old.",
            "above it a restart repeats much work: the store is full, slow or unreachable, or the brokers do not "
            "confirm the outputs.",
            Query(f"max by (agent) (kinstream_checkpoint_age_seconds{{{_AGENT}}})", "{{agent}}"),
            Query(f"max by (agent) (kinstream_checkpoint_age_limit_seconds{{{_AGENT}}})", "{{agent}}, limit"),
            unit="s",
            runbook="KinstreamCheckpointTooOld",
        ),
        lines(
            "Size of the checkpoint",
            "grows with the spaces and items, and then stays flat.",
            "it grows without end: more spaces than expected, or items that are never deleted.",
            Query(f"sum by (agent) (kinstream_checkpoint_size_bytes{{{_AGENT}}})", "{{agent}}"),
            unit="bytes",
        ),
        lines(
            "Repeated after a crash",
            "the records of one checkpoint interval: those between checkpoint and position.",
            "it grows: no checkpoint is written.",
            Query(
                f"max by (agent, topic, partition) (kinstream_consumer_position{{{_AGENT}}})"
                f" - max by (agent, topic, partition) (kinstream_checkpoint_offset{{{_AGENT}}})",
                _PLACE,
            ),
            unit="short",
            runbook="KinstreamCheckpointTooOld",
        ),
        lines(
            "Retention headroom",
            "the whole retention while the agent keeps up: time until records that it has not read may be deleted.",
            "below 10% of the retention an alert pages on-call: lengthen retention.ms first, then find out why the "
            "agent is late.",
            Query(f"min by (agent) (kinstream_retention_headroom_seconds{{{_AGENT}}})", "{{agent}}"),
            Query(f"0.1 * max by (agent) (kinstream_retention_seconds{{{_AGENT}}})", "{{agent}}, a tenth"),
            unit="s",
            logarithmic=True,
            runbook="KinstreamRetentionOvertakes",
        ),
        lines(
            "Records until the log's start",
            "far above 0: the number of records from the log's start to the position.",
            "it falls towards 0: the log's start overtakes the agent.",
            Query(
                f"min by (agent) (kinstream_consumer_position{{{_AGENT}}} - kinstream_log_start_offset{{{_AGENT}}})",
                "{{agent}}",
            ),
            unit="short",
            runbook="KinstreamRetentionOvertakes",
        ),
        lines(
            "Silence of the brokers",
            "0.",
            "above 0: the brokers do not answer this worker. Workers survive it; producers must wait.",
            Query(f"max by (agent) (kinstream_broker_silence_seconds{{{_AGENT}}})", "{{agent}}"),
            unit="s",
            steps=((None, "green"), (60, "red")),
            runbook="KinstreamDown",
        ),
        lines(
            "Loads forgotten",
            "0.",
            "above 0: a space has had over 10,000 loads; a repeated event of a forgotten load counts again.",
            Query(f"sum by (agent) (increase(kinstream_loads_forgotten_total{{{_AGENT}}}[1h]))", "{{agent}}"),
            unit="short",
        ),
        lines(
            "Partitions that were added",
            "0.",
            "above 0: producers write into partitions that no agent uses; run kinstream topics repartition.",
            Query(f"max by (topic) (kinstream_topic_partitions_added{{{_AGENT}}})", "{{topic}}"),
            unit="short",
            steps=((None, "green"), (1, "red")),
            runbook="KinstreamPartitionsAdded",
        ),
    ),
)

_WORKERS = Row(
    "Workers",
    (
        lines(
            "Restarts",
            "0.",
            "every restart is safe; the worker's log before it ends with the cause.",
            Query(
                f"max by (agent) (increase(kinstream_worker_restarts_total{{{_AGENT}}}[15m]))", "{{agent}}"
            ),
            unit="short",
            steps=((None, "green"), (3, "orange")),
            runbook="KinstreamWorkerRestarting",
        ),
        lines(
            "Memory",
            "flat, or growing with the spaces up to worker.max_resident_bytes for each partition.",
            "it grows without end: lower worker.max_resident_bytes, and report it.",
            Query(
                f"sum by (agent, instance) (kinstream_worker_restarts_total{{{_AGENT}}} ^ 0"
                ' * on (job, instance) group_left () process_resident_memory_bytes{job=~"$job"})',
                "{{agent}} · {{instance}}",
            ),
            unit="bytes",
        ),
        lines(
            "Processors",
            "below the CPU limit of the worker.",
            "at that limit the worker is throttled: raise it, or add workers.",
            Query(
                f"sum by (agent, instance) (kinstream_worker_restarts_total{{{_AGENT}}} ^ 0"
                ' * on (job, instance) group_left () rate(process_cpu_seconds_total{job=~"$job"}[5m]))',
                "{{agent}} · {{instance}}",
            ),
            unit="short",
        ),
        lines(
            "Traces",
            "dropped stays at 0; empty where traces.endpoint is not set.",
            "dropped rises: the collector does not accept spans. Agents lose no time by it.",
            Query('sum (rate(kinstream_trace_spans_exported_total{job=~"$job"}[5m]))', "exported"),
            Query('sum (rate(kinstream_trace_spans_dropped_total{job=~"$job"}[5m]))', "dropped"),
            unit="short",
        ),
        table(
            "What runs",
            "one version of everything for all workers of an agent.",
            "different versions compute different last digits: run one version.",
            ("agent", "kinstream", "python", "numpy", "numba", "cpu"),
            (
                Column(
                    "workers",
                    "count by (agent, kinstream, python, numpy, numba, cpu)"
                    f" (kinstream_worker_restarts_total{{{_AGENT}}} ^ 0 * on (job, instance)"
                    ' group_left (kinstream, python, numpy, numba, cpu) kinstream_build_info{job=~"$job"})',
                    "short",
                ),
            ),
        ),
    ),
)

DASHBOARD: Final = dashboard(
    "kinstream-stream",
    "Kinstream · Is the stream healthy?",
    "Lag, delay, refused records, checkpoints, retention and workers of every agent; queries and their answers.",
    (_GLANCE, _FLOW, _LEFT_OUT, _SAFETY, _WORKERS, SERVE),
    JOB,
    AGENT,
    SPACE,
    LEARNER,
)
