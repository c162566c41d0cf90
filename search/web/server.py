"""The query agent as a process: service, HTTP server, signals."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from kinstream.streams.extras import require
from kinstream.streams.kafka.access import check_role
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.processes.listening import bound, cannot_listen
from kinstream.streams.processes.supervisor import RESTART, hold_on_to_supervisor
from kinstream.streams.settings import Settings

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

    from kinstream.search.agent.service import SearchService

log = logging.getLogger("kinstream.search")

_BACKLOG: Final = 128
_LOOK_SECONDS: Final = 0.2


def require_packages() -> None:
    """Refuse to start without the packages of the extra.

    Raises
    ------
    SettingsError : a package is missing; the message says what to install.
    """
    require("fastapi", "uvicorn", "numba", "scipy", "prometheus_client", who="search", extra="search")


class Server:
    """A query agent: `begin` opens the socket, `run` serves until SIGTERM or SIGINT.

    Raises
    ------
    SettingsError : a setting is wrong, or a package is missing.
    """

    def __init__(self, settings: Settings) -> None:
        require_packages()
        from kinstream.search.agent.service import SearchService

        self._settings = settings
        self.service: SearchService = SearchService(settings)
        self._socket: socket.socket | None = None

    @property
    def url(self) -> str:
        """Address without a path, once `begin` has returned."""
        assert self._socket is not None
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def begin(self) -> None:
        """Wait for the brokers, and listen.

        Raises
        ------
        CannotListen : it cannot listen on the address.
        BrokerUnavailable, LoginRefused, AccessDenied : no broker answers, accepts the login, or allows reading.
        """
        limits = self._settings.search
        self._socket = listening(limits.http_host, limits.http_port)
        cluster = Cluster(self._settings.kafka)
        try:
            cluster.wait(self._settings.worker.startup_seconds)
            check_role(cluster, self._settings, "search")
        finally:
            cluster.close()

    def run(self) -> int:
        """Serve; returns the exit status."""
        from threadpoolctl import threadpool_limits

        from kinstream.search.web.http import make_app

        # Requests run in parallel, so each has one core.
        threadpool_limits(limits=1)
        app = make_app(self.service)
        seconds = self._settings.worker.shutdown_seconds
        server = web_server(app, max(1, int(seconds) - 5))
        assert self._socket is not None
        self.service.start()
        log.info("query agent: %s, spaces %s", self.url, ", ".join(self.service.spaces))
        watch = threading.Thread(target=self._watch, args=(server, seconds), daemon=True)
        watch.start()

        def end(number: int, frame: object) -> None:
            """Used before the server has its own handlers, and after its end, when it raises the signal again."""
            server.should_exit = True

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, end)
        hold_on_to_supervisor()
        server.run(sockets=[self._socket])
        app.state.desk.close()
        self.service.stop()
        return 0 if self.service.failure is None else RESTART

    def _watch(self, server: Any, seconds: float) -> None:
        """End the server if the service has failed, and the process if the server does not end in time."""
        reported = False
        while not server.should_exit:
            if self.service.failure is not None:
                server.should_exit = True
            if not reported and self.service.ready:
                log.info("query agent: ready")
                reported = True
            time.sleep(_LOOK_SECONDS)
        time.sleep(seconds)
        log.error("not ended within %.0f s; ending hard", seconds)
        os._exit(RESTART if self.service.failure is not None else 128 + signal.SIGTERM)


def web_server(app: FastAPI, stop_seconds: int) -> uvicorn.Server:
    """The server for the application of `kinstream.search.web.http.make_app`, with limits on connections.

    Parameters
    ----------
    stop_seconds : in which requests have to end after a stop signal.
    """
    import uvicorn

    from kinstream.search.web.connections import MAX_HEADER_BYTES, protocol

    connections = app.state.connections
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=protocol(connections),
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            timeout_keep_alive=connections.limits.idle_seconds,
            timeout_graceful_shutdown=stop_seconds,
        )
    )


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 stands for any free one.

    Raises
    ------
    CannotListen : it cannot listen on the address.
    """
    made = bound(host, port, "search")
    try:
        made.listen(_BACKLOG)
    except OSError as error:
        made.close()
        raise cannot_listen(host, port, "search", error) from error
    return made
