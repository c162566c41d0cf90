"""The worker of one agent, as a member of its consumer group.

A membership, that of faust, gives it a place in the group and the records of the assigned partitions. Everything else
of faust is switched off (by `faust_app` and the transport): its acks and commits, its positions, tables, web server,
topic creation and waiting for empty streams. Positions come from checkpoints, and faust also acks failed events, so no
guarantee can rest on its acks.

The event loop only moves messages; machines, kernels and checkpoints run on threads. An error that is not the fault of
a record ends the process at once, and the supervisor restarts it from the checkpoints.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from kinstream.streams.agents.generations.generation import Generation
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.compute.memory import memory_left, written
from kinstream.streams.errors import (
    AccessDenied,
    BatchTooLarge,
    CheckpointError,
    ClockWrong,
    DeliveryDenied,
    DeliveryError,
    GenerationMismatch,
    KinstreamError,
    LogGap,
    LoginRefused,
    MemoryShort,
    PartitionTaken,
    SettingsError,
)
from kinstream.streams.kafka.client_errors import explained
from kinstream.streams.kafka.clients import confluent_producer
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.emitter import Emitter
from kinstream.streams.processes.json_lines import fields
from kinstream.streams.processes.supervisor import REFUSED, RESTART
from kinstream.streams.records.message import PartitionName
from kinstream.streams.settings import Settings
from kinstream.streams.traces.exporter import open_exporter
from kinstream.streams.worker.life import Life, LifeCycle
from kinstream.streams.worker.page.view import WorkerView
from kinstream.streams.worker.partition_task import Owned, aligned
from kinstream.streams.worker.partitions import Partitions
from kinstream.streams.worker.port import TP, Client, Membership, Run
from kinstream.streams.worker.topic_watch import WatchedSink, topic_watch
from kinstream.streams.worker.watchdog import PartitionProgress, Watchdog

#: Seconds between two looks at faults and numbers, and between two signs of life of the event loop.
LOOK_SECONDS: Final = 1.0
BEAT_SECONDS: Final = 1.0
#: Errors that a new process would meet as well: an operator has to change something.
FOR_PEOPLE: Final = (
    AccessDenied,
    BatchTooLarge,
    ClockWrong,
    DeliveryDenied,
    GenerationMismatch,
    LogGap,
    LoginRefused,
    MemoryShort,
    SettingsError,
)

log = logging.getLogger("kinstream.worker")


@dataclass(frozen=True, slots=True)
class Clusters:
    """Clients of their own, so that neither a stuck event loop nor a request without an answer delays the watchdog."""

    partitions: Cluster
    watchdog: Cluster
    topics: Cluster


class Worker:
    """The worker of one agent. Its state is `life`, see `kinstream.streams.worker.life.Life`.

    Parameters
    ----------
    spec : which agent.
    generation : its opened generation: birth record and checkpoint stores.
    clusters : for its partitions, its watchdog and the watch of its topics; workers of one process share them.
    """

    #: Shows it on the page of the process, at that address; set before `run`.
    view: WorkerView
    url: str

    def __init__(
        self, spec: AgentSpec, settings: Settings, generation: Generation, clusters: Clusters
    ) -> None:
        self.spec = spec
        self.settings = settings
        self.generation = generation
        self.input_topic = spec.input_topic(settings)
        self.life = LifeCycle(on_illegal=self.fail)
        self.emitter = Emitter(
            confluent_producer(settings.kafka), deadline_seconds=settings.worker.delivery_deadline_seconds
        )
        self.traces = open_exporter(settings, f"kinstream-{spec.application}")
        self.topics = topic_watch(spec, settings, generation.birth, clusters.topics, self.fail)
        self.partitions = Partitions(
            generation,
            settings,
            clusters.partitions,
            WatchedSink(self.emitter, self.topics),
            self.life,
            client=self._client,
            check_topics=self.topics.check,
            fail=self.fail,
            on_assign=lambda place, owned: self.view.assign(place, owned),
            on_revoke=lambda place: self.view.revoke(place),
            spans=self.traces,
        )
        self._loop_seen_at = time.monotonic()
        self._failure: BaseException | None = None
        self.watchdog = Watchdog(
            self,
            clusters.watchdog,
            stall_seconds=settings.worker.stall_seconds,
            rebalance_seconds=settings.worker.rebalance_limit_seconds,
            restore_seconds=settings.worker.restore_limit_seconds,
            on_stall=self._on_stall,
            group=(generation.group, self.input_topic, generation.birth.input_partitions)
            if generation.birth.cluster_id
            else None,
        )
        self.membership = self._make_membership()

    def _make_membership(self) -> Membership:
        # The embedded broker alone gives no id.
        embedded = not self.generation.birth.cluster_id
        # faust takes long to import, and other parts of this file are used without it.
        from kinstream.streams.worker.web_types import import_web_types

        import_web_types()
        from kinstream.streams.worker.faust_app import FaustMembership

        return FaustMembership(
            self.generation.group, self.input_topic, self.settings, self, embedded=embedded
        )

    def _client(self) -> Client:
        return self.membership.client

    # ---- calls of the membership: see `kinstream.streams.worker.port.Port` --------------------------------------

    async def restore(self, assigned: set[TP]) -> Mapping[TP, int] | None:
        """Take over the assigned partitions."""
        return await self.partitions.restore(assigned)

    async def revoke(self, revoked: set[TP]) -> None:
        """Give back partitions."""
        self.life.revoked()
        await self.partitions.revoke(revoked)

    def rebalanced(self) -> None:
        """Note that the group has shared out its partitions."""
        self.life.rebalanced()

    async def deliver(self, run: Run) -> None:
        """Take the next records of a partition."""
        await self.partitions.deliver(run)

    def fail_in_client(self, error: BaseException) -> None:
        """End the process for an error of the client library, with a message of ours if there is one."""
        self.fail(explained(self.settings.kafka, error) or error)

    # ---- ending -------------------------------------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """End the process without another send."""
        if self._failure is None:
            self._failure = error
            self.life.enter(Life.FAILED)
            # A partition that was taken is what a freeze leads to, not a fault.
            level = logging.WARNING if isinstance(error, PartitionTaken) else logging.CRITICAL
            if not isinstance(error, Exception):
                log.critical(
                    "a library has panicked; this process may take %s more memory", written(memory_left())
                )
            with self._fields():
                log.log(
                    level, "%s: %s", type(error).__name__, error, exc_info=None if _expected(error) else error
                )
            sys.stderr.flush()
            os._exit(REFUSED if isinstance(error, FOR_PEOPLE) else RESTART)

    async def _fail_explained(self, error: BaseException) -> None:
        """End the process; if login or permission is its cause, name what is missing."""
        self.fail(await self.partitions.run_in_thread(explained, self.settings.kafka, error) or error)

    def _on_stall(self, verdict: str) -> None:
        try:
            # The group of a topic that is being re-created looks stalled, too: the refusal names the cause.
            self.topics.settle()
        except GenerationMismatch as error:
            self.fail(error)
        except Exception:
            log.exception("the topics could not be compared")
        log.critical("Stalled: %s; ending the process", verdict)
        sys.stderr.flush()
        os._exit(RESTART)

    def _fields(self) -> AbstractContextManager[None]:
        """The body's lines of the log name the agent, on whichever thread it runs."""
        return fields(application=self.spec.application, generation=self.generation.number)

    # ---- what the watchdog and the page read --------------------------------------------------------------------

    @property
    def generation_number(self) -> int:
        return self.generation.number

    @property
    def owned(self) -> Mapping[PartitionName, Owned]:
        return self.partitions.owned

    @property
    def parked(self) -> Mapping[PartitionName, int]:
        return self.partitions.parked

    @property
    def assigned(self) -> bool:
        """Whether all partitions of the last assignment have been taken over."""
        return self.life.state is Life.SERVING

    def progress(self) -> Mapping[PartitionName, PartitionProgress]:
        return self.partitions.progress()

    def position(self, place: PartitionName, applied: int) -> int:
        return self.partitions.position(place, applied)

    def polled_at(self) -> float | None:
        """Monotonic time at which the client last asked for records."""
        # Asked on the page's thread: the consumer is there by then.
        return self._client().polled_at if self.assigned else None

    def rebalancing_since(self) -> float | None:
        return self.life.since(Life.REBALANCING)

    def restoring_since(self) -> float | None:
        return self.life.since(Life.RESTORING)

    def loop_seen_at(self) -> float:
        return self._loop_seen_at

    # ---- running ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until `life` is stopping. An error ends the process."""
        with self._fields():
            try:
                await self._run()
            except Exception as error:
                self.fail(error)

    async def _run(self) -> None:
        beat = asyncio.create_task(self._beat())
        self.watchdog.start()
        self.topics.start()
        log.info(
            "%s generation %d serves %s/metrics", self.spec.application, self.generation.number, self.url
        )
        await self._start()
        # What the libraries have made stays as long as the process: the collector need not search it again and again.
        gc.freeze()
        while not self.life.stopping:
            if (failure := self.membership.failure) is not None:
                await self._fail_explained(failure)
            try:
                self.emitter.check()
            except DeliveryError as error:
                self.fail(error)
            self.partitions.check_parked()
            self.view.refresh()
            try:
                async with asyncio.timeout_at(aligned(asyncio.get_running_loop().time(), LOOK_SECONDS)):
                    await self.life.stopped()
            except TimeoutError:
                continue
        await self._shut_down()
        beat.cancel()

    async def _start(self) -> None:
        """Join, which waits for the first take-over; or until a request to stop."""
        starting = asyncio.create_task(self.membership.start())
        stopped = asyncio.create_task(self.life.stopped())
        await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not starting.done():
            starting.cancel()
            return
        error = starting.exception()
        if error is not None:
            await self._fail_explained(error)

    async def _beat(self) -> None:
        """Heartbeat of the event loop, also while it joins the group."""
        period = min(BEAT_SECONDS, self.settings.worker.stall_seconds / 4)
        while True:
            self._loop_seen_at = now = time.monotonic()
            await asyncio.sleep(aligned(now, period) - now)

    async def _shut_down(self) -> None:
        self.watchdog.stop()
        self.topics.stop()
        self.membership.stop_flow()
        limit = self.settings.worker.shutdown_seconds
        await self.partitions.give_back_all(limit)
        try:
            # Without brokers, a client may never finish closing; all important work is done.
            await asyncio.wait_for(self.membership.leave(), limit / 2)
        except TimeoutError:
            log.warning("the worker could not leave the group cleanly; the brokers will notice")
        self.emitter.close(1.0)
        if self.traces is not None:
            self.traces.close()


def _expected(error: BaseException) -> bool:
    return isinstance(error, (KinstreamError, DeliveryError, CheckpointError, TimeoutError))
