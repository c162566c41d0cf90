"""The pages of a worker are for this machine unless somebody says otherwise."""

from __future__ import annotations

import socket

import psutil
import pytest
from prometheus_client import CollectorRegistry

from kinstream.streams.settings import WorkerSettings, load
from kinstream.streams.worker.page.server import Health, HttpServer


def _listeners(port: int) -> set[str]:
    found = psutil.Process().net_connections("tcp")
    return {c.laddr.ip for c in found if c.status == psutil.CONN_LISTEN and c.laddr.port == port}


def test_the_default_is_loopback() -> None:
    settings = WorkerSettings()
    with HttpServer(Health(), CollectorRegistry()) as server:
        assert _listeners(server.port) == {"127.0.0.1"}
    with HttpServer(
        Health(), CollectorRegistry(), host=settings.http_host, port=settings.http_port
    ) as server:
        assert _listeners(server.port) == {"127.0.0.1"}


def test_another_address_is_listened_on_when_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINSTREAM_WORKER__HTTP_HOST", "0.0.0.0")
    settings = load().worker
    with HttpServer(
        Health(), CollectorRegistry(), host=settings.http_host, port=settings.http_port
    ) as server:
        assert _listeners(server.port) == {"0.0.0.0"}
        socket.create_connection(("127.0.0.1", server.port), 5).close()
