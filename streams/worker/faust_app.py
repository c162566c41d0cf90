"""Membership by faust: a place in the group and the stream of its records; everything else of faust is switched off."""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

from faust.sensors import Monitor
from mode import Service

from kinstream.streams.kafka.clients import faust_broker
from kinstream.streams.settings import Settings
from kinstream.streams.worker.partition_task import QUEUE_RUNS
from kinstream.streams.worker.port import EMBEDDED_FETCH_WAIT_MS, Client, Port
from kinstream.streams.worker.recovery import TableManager
from kinstream.streams.worker.transport import PortedApp

#: How long a broker may keep a fetch that finds no records.
FETCH_WAIT_MS: Final = 1_500
#: Seconds between faust's commits, of which each finds nothing: acks are off.
COMMIT_SECONDS: Final = 600.0


class Sensor(Monitor):
    """faust's sensor, without its averages a second, which nobody reads."""

    @Service.task
    async def _sampler(self) -> None:
        """Nothing."""


class FaustMembership:
    """See `kinstream.streams.worker.port.Membership`.

    Parameters
    ----------
    embedded : the broker is the embedded one.
    """

    def __init__(self, group: str, topic: str, settings: Settings, port: Port, *, embedded: bool) -> None:
        self._app = _make_app(group, topic, settings, port, embedded)

    @property
    def client(self) -> Client:
        # faust makes its consumer when it is first asked for, on the loop that asks.
        return cast(Client, self._app.consumer)

    @property
    def failure(self) -> BaseException | None:
        app = self._app
        return (app.crash_reason or RuntimeError("the faust app crashed")) if app.crashed else None

    async def start(self) -> None:
        self._app.loop = asyncio.get_running_loop()
        self._app.finalize()
        await self._app.start()

    def stop_flow(self) -> None:
        self._app.consumer.stop_flow()

    async def leave(self) -> None:
        await self._app.stop()


def _make_app(group: str, input_topic: str, settings: Settings, port: Port, embedded: bool) -> PortedApp:
    w = settings.worker
    app = PortedApp(
        group,
        port=port,
        fetch_wait_ms=EMBEDDED_FETCH_WAIT_MS if embedded else FETCH_WAIT_MS,
        **faust_broker(settings.kafka),
        autodiscover=False,
        store="memory://",
        web_enabled=False,
        # Never made. faust's own imports aiohttp.
        HttpClient=object,
        topic_allow_declare=False,
        topic_disable_leader=True,
        TableManager=TableManager,
        Monitor=Sensor,
        broker_commit_interval=COMMIT_SECONDS,
        table_standby_replicas=0,
        consumer_auto_offset_reset="none",
        stream_wait_empty=False,
        stream_buffer_maxsize=QUEUE_RUNS,
        consumer_max_fetch_size=4 * 1024 * 1024,
        broker_session_timeout=w.session_timeout_seconds,
        broker_heartbeat_interval=w.heartbeat_interval_seconds,
    )

    async def on_revoked(app: Any, /, *arguments: Any, **kwargs: Any) -> None:
        await port.revoke(*arguments)

    async def on_rebalance_complete(app: Any, /, *arguments: Any, **kwargs: Any) -> None:
        port.rebalanced()

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
            await port.deliver(event.message.run)

    app.agent(topic, name=group)(deliver_runs)
    return app
