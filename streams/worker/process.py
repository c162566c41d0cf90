"""The worker process: the workers of one agent, or of several, on one event loop.

Workers share the loop, the page, and the clients that ask the brokers for positions and topics. Everything else is each
one's own: membership and consumer, producer, threads, watchdog, checkpoints. A fault of one ends the process, and with
it all of them: the supervisor starts them again from their checkpoints.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from typing import Final

from kinstream.streams.agents.generations.generation import Generation
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.processes.supervisor import RESTART
from kinstream.streams.settings import Settings
from kinstream.streams.worker.page.view import WorkerPage
from kinstream.streams.worker.worker import Clusters, Worker

#: Seconds for which a thread may hold the interpreter while another waits for it.
SWITCH_SECONDS: Final = 0.0005

log = logging.getLogger("kinstream.worker")


class WorkerProcess:
    """A process and its workers. To be made on the event loop that runs it.

    Parameters
    ----------
    agents : each agent and its opened generation.
    listener : a socket that is already bound to the address of the page.
    """

    def __init__(
        self,
        agents: Sequence[tuple[AgentSpec, Generation]],
        settings: Settings,
        listener: socket.socket | None = None,
    ) -> None:
        self._seconds = settings.worker.shutdown_seconds
        clusters = Clusters(*(Cluster(settings.kafka) for _ in range(3)))
        self._workers = [Worker(spec, settings, generation, clusters) for spec, generation in agents]
        self._page = WorkerPage(self._workers, settings, listener)
        for worker, view in zip(self._workers, self._page.views, strict=True):
            worker.view, worker.url = view, self._page.url

    async def run(self) -> int:
        """Serve until stopped; returns the exit status."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop_soon)
        # A kernel that is done waits this long for the event loop to hand it the interpreter; 5 ms is Python's own.
        sys.setswitchinterval(SWITCH_SECONDS)
        await asyncio.gather(*(worker.run() for worker in self._workers))
        self._page.close()
        return 0

    def _stop_soon(self) -> None:
        if any([worker.life.stop() for worker in self._workers]):
            log.info("stopping")
            timer = threading.Timer(self._seconds, self._stop_hard)
            timer.daemon = True
            timer.start()

    def _stop_hard(self) -> None:
        log.critical("not stopped within %.0f s; ending hard", self._seconds)
        sys.stderr.flush()
        os._exit(RESTART)
