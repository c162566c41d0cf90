"""The service as a process: HTTP server, signals, the watch over both."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from kinstream.search.service.clients import clients_of
from kinstream.streams.extras import INDEX, SERVE, require
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.rights.access import check_role
from kinstream.streams.processes.listening import bound, cannot_listen
from kinstream.streams.processes.supervisor import RESTART
from kinstream.streams.settings import ServeSettings, Settings
from kinstream.streams.traces.exporter import Exporter, open_exporter

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

_BACKLOG: Final = 128
_LOOK_SECONDS: Final = 1.0


def require_packages(settings: Settings) -> None:
    """Refuse to start without the packages of the service, and of our own index if a space has it.

    Raises
    ------
    PackageMissing : the message says what to install.
    """
    require(*SERVE, *(INDEX if settings.serve.indexed else ()), who="serve", extra="serve")


def role_of(limits: ServeSettings) -> str | None:
    """The role that the service's principal needs with the brokers; None if it does not read from them."""
    if any(space.record for space in limits.spaces.values()):
        return "serve-record"
    if limits.indexed:
        return "serve"
    return "models" if any(space.learner for space in limits.spaces.values()) else None


class Server:
    """The service: `begin` opens the socket, `run` serves until SIGTERM or SIGINT.

    It reads from the brokers only if a space follows a learner.

    Raises
    ------
    SettingsError : a setting is wrong, or a package is missing.
    """

    def __init__(self, settings: Settings) -> None:
        require_packages(settings)
        from kinstream.search.service.service import Service

        self._settings = settings
        self._limits = settings.serve
        self._socket: socket.socket | None = None
        self._traces: Exporter | None = None
        self._log = logging.getLogger("kinstream.serve")
        self.service = Service(settings)

    @property
    def url(self) -> str:
        """Address without a path, once `begin` has returned."""
        assert self._socket is not None
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def begin(self) -> None:
        """Listen, and wait for the brokers.

        Raises
        ------
        CannotListen : it cannot listen on the address.
        SettingsError : the file of the clients' tokens is not valid.
        PackageMissing : traces are exported, and their extra is not installed.
        BrokerUnavailable, LoginRefused, AccessDenied : no broker answers, accepts the login, or allows reading.
        """
        clients_of(self._limits)
        self._socket = listening(self._limits)
        self._traces = open_exporter(self._settings, "kinstream-serve")
        role = role_of(self._limits)
        if role is None:
            return
        cluster = Cluster(self._settings.kafka)
        try:
            cluster.wait(self._settings.worker.startup_seconds)
            check_role(cluster, self._settings, role, needed=["events"] if self._limits.indexed else [])
        finally:
            cluster.close()

    def run(self) -> int:
        """Serve; returns the exit status."""
        from threadpoolctl import threadpool_limits

        from kinstream.search.service.routes import make_app

        # Requests run in parallel, so each has one core.
        threadpool_limits(limits=1)
        app = make_app(self.service)
        if self._traces is not None:
            trace(app, self._traces)
        seconds = self._settings.worker.shutdown_seconds
        server = web_server(app, max(1, int(seconds) - 5))
        assert self._socket is not None
        self.service.start()
        self._log.info("serve: %s, spaces %s", self.url, ", ".join(self.service.spaces))
        watch = threading.Thread(target=self._watch, args=(server, seconds), daemon=True)
        watch.start()

        def end(number: int, frame: object) -> None:
            """Used before the server has its own handlers, and after its end, when it raises the signal again."""
            server.should_exit = True

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, end)
        server.run(sockets=[self._socket])
        app.state.desk.close()
        self.service.stop()
        if self._traces is not None:
            self._traces.close()
        return 0 if self.service.failure is None else RESTART

    def _watch(self, server: Any, seconds: float) -> None:
        """End the server if the service has failed, and the process if the server does not end in time."""
        reported, known = False, ""
        while not server.should_exit:
            if self.service.failure is not None:
                server.should_exit = True
            if not reported and self.service.ready:
                self._log.info("serve: ready")
                reported = True
            # The probes, which are open to all, do not say why.
            why = "; ".join(str(one) for one in self.service.waiting_for() if one.why is not None)
            if why != known and why:
                self._log.warning("serve: waits for %s", why)
            elif why != known:
                self._log.info("serve: what it waited for is there")
            known = why
            time.sleep(_LOOK_SECONDS)
        time.sleep(seconds)
        self._log.error("not ended within %.0f s; ending hard", seconds)
        os._exit(RESTART if self.service.failure is not None else 128 + signal.SIGTERM)


def trace(app: FastAPI, exporter: Exporter) -> None:
    """Record the traced requests of an application."""
    from kinstream.search.service.traces import Traced
    from kinstream.streams.worker.page.traces import TraceCollector

    app.add_middleware(Traced, spans=exporter)
    app.state.metrics.registry.register(TraceCollector(exporter))


def web_server(app: FastAPI, stop_seconds: int) -> uvicorn.Server:
    """The server for the application of `kinstream.search.service.routes`, with limits on connections.

    Parameters
    ----------
    stop_seconds : in which requests have to end after a stop signal.
    """
    import uvicorn

    from kinstream.search.service.connections import IDLE_SECONDS, MAX_HEADER_BYTES, protocol

    class Server(uvicorn.Server):
        """Wakes once a second, and for a signal to stop; uvicorn's own wakes ten times a second."""

        _wake: Callable[[], object] | None = None

        async def main_loop(self) -> None:
            asked = asyncio.Event()
            self._wake = partial(asyncio.get_running_loop().call_soon_threadsafe, asked.set)
            # Each call with 0 renews the header Date.
            while not await self.on_tick(0):
                with suppress(TimeoutError):
                    await asyncio.wait_for(asked.wait(), _LOOK_SECONDS)

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            super().handle_exit(sig, frame)
            if self._wake is not None:
                self._wake()

    connections = app.state.connections
    return Server(
        uvicorn.Config(
            app,
            http=protocol(connections),
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=stop_seconds,
        )
    )


def listening(limits: ServeSettings) -> socket.socket:
    """A socket that listens on the address of the service; port 0 stands for any free one.

    Raises
    ------
    CannotListen : it cannot listen on the address.
    """
    host, port = limits.http_host, limits.http_port
    made = bound(host, port, "serve")
    try:
        made.listen(_BACKLOG)
    except OSError as error:
        made.close()
        raise cannot_listen(host, port, "serve", error) from error
    return made
