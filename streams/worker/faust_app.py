"""The faust app of a worker: membership in the group and the stream of its records; everything else is switched off."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from kinstream.streams.kafka.clients import faust_broker
from kinstream.streams.settings import Settings
from kinstream.streams.worker.partition_task import QUEUE_RUNS
from kinstream.streams.worker.port import Port, PortedApp, Run
from kinstream.streams.worker.recovery import TableManager

#: How long a broker may keep a fetch that finds no records. The embedded broker keeps it for all of this time, even if
#: records come meanwhile.
FETCH_WAIT_MS: Final = 1_500
EMBEDDED_FETCH_WAIT_MS: Final = 50

Handler = Callable[..., Awaitable[None]]


def make_app(
    group: str,
    input_topic: str,
    settings: Settings,
    port: Port,
    *,
    embedded: bool,
    deliver: Callable[[Run], Awaitable[None]],
    on_revoked: Handler,
    on_rebalance_complete: Handler,
) -> PortedApp:
    """An app that is not started yet.

    Parameters
    ----------
    embedded : the broker is the embedded one.
    deliver : awaited with every run of records of the input topic, in the order of each partition.
    on_revoked, on_rebalance_complete : faust's signal handlers, `(app, revoked, **)` and `(app, **)`.
    """
    w = settings.worker
    app = PortedApp(
        group,
        port=port,
        fetch_wait_ms=EMBEDDED_FETCH_WAIT_MS if embedded else FETCH_WAIT_MS,
        **faust_broker(settings.kafka),
        autodiscover=False,
        store="memory://",
        web_enabled=False,
        topic_allow_declare=False,
        topic_disable_leader=True,
        TableManager=TableManager,
        table_standby_replicas=0,
        consumer_auto_offset_reset="none",
        stream_wait_empty=False,
        stream_buffer_maxsize=QUEUE_RUNS,
        consumer_max_fetch_size=4 * 1024 * 1024,
        broker_session_timeout=w.session_timeout_seconds,
        broker_heartbeat_interval=w.heartbeat_interval_seconds,
    )
    app.on_partitions_revoked.connect(on_revoked, weak=False)
    app.on_rebalance_complete.connect(on_rebalance_complete, weak=False)
    topic = app.topic(
        input_topic,
        key_type=bytes,
        value_type=bytes,
        key_serializer="raw",
        value_serializer="raw",
        acks=False,
    )

    async def deliver_runs(stream: Any) -> None:
        async for event in stream.events():
            await deliver(event.message.run)

    app.agent(topic, name=group)(deliver_runs)
    return app
