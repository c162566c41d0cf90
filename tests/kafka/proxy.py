"""A TCP proxy that can stop forwarding without closing anything: a connection that is frozen, not broken."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

#: Kafka's API keys of the requests that tell connections apart.
PRODUCE: Final = frozenset({0})
FETCH: Final = frozenset({1})
GROUP: Final = frozenset({11, 12, 14})  # JoinGroup, Heartbeat, SyncGroup


@dataclass(eq=False)
class _Connection:
    """A client's socket, the broker's, and the kinds of requests that have come by."""

    client: socket.socket
    server: socket.socket
    kinds: set[int] = field(default_factory=set)
    cut: bool = False

    def close(self) -> None:
        self.cut = True
        for one in (self.client, self.server):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class FreezingProxy:
    """Forwards connections on `port` to `target`.

    A client stays on the proxy if it bootstraps there and the broker advertises the proxy's port:

        with FreezingProxy() as proxy, KafkaBroker(folder, advertised_port=proxy.port) as broker:
            proxy.target = broker.proxied_port

    Parameters
    ----------
    target : port on loopback; may be set before the first connection.
    """

    def __init__(self, target: int = 0) -> None:
        self.target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._changed = threading.Condition()
        self._frozen = False
        self._frozen_kinds: frozenset[int] = frozenset()
        self._connections: set[_Connection] = set()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def freeze(self, kinds: Collection[int] = ()) -> None:
        """Forward nothing more, in neither direction; connections stay open.

        Parameters
        ----------
        kinds : only connections that carry one of these requests (PRODUCE, FETCH, GROUP) freeze; none: all.
        """
        with self._changed:
            self._frozen = not kinds
            self._frozen_kinds = frozenset(kinds)

    def thaw(self) -> None:
        """Forward again, first what has waited."""
        with self._changed:
            self._frozen = False
            self._frozen_kinds = frozenset()
            self._changed.notify_all()

    def cut(self) -> None:
        """Close every connection; new ones are taken."""
        with self._changed:
            for connection in self._connections:
                connection.close()
            self._changed.notify_all()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)
        self.cut()

    def __enter__(self) -> FreezingProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target), timeout=5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            connection = _Connection(client, server)
            with self._changed:
                self._connections.add(connection)
            threading.Thread(target=self._carry, args=(connection,), daemon=True).start()

    def _carry(self, connection: _Connection) -> None:
        answers = threading.Thread(
            target=self._pump, args=(connection, connection.server, connection.client, None), daemon=True
        )
        answers.start()
        self._pump(connection, connection.client, connection.server, _RequestKinds())
        answers.join()
        with self._changed:
            self._connections.discard(connection)
        connection.client.close()
        connection.server.close()

    def _pump(
        self, connection: _Connection, source: socket.socket, sink: socket.socket, kinds: _RequestKinds | None
    ) -> None:
        """Forward until one side ends. An end waits like any other byte while the connection is frozen."""
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if kinds is not None:
                    connection.kinds |= kinds.feed(data)
                self._wait_while_frozen(connection)
                sink.sendall(data)
        self._wait_while_frozen(connection)
        connection.close()

    def _wait_while_frozen(self, connection: _Connection) -> None:
        with self._changed:
            self._changed.wait_for(
                lambda: connection.cut or not (self._frozen or self._frozen_kinds & connection.kinds)
            )


class _RequestKinds:
    """Reads the API keys off a stream of requests: four bytes of size, two of key, the rest."""

    def __init__(self) -> None:
        self._head = b""
        self._rest = 0

    def feed(self, data: bytes) -> set[int]:
        """The keys of the requests that begin in `data`."""
        found = set()
        while data:
            passed, data = data[: self._rest], data[self._rest :]
            self._rest -= len(passed)
            wanted = 6 - len(self._head)
            self._head, data = self._head + data[:wanted], data[wanted:]
            if len(self._head) == 6:
                size, key = struct.unpack(">ih", self._head)
                found.add(key)
                self._head, self._rest = b"", max(0, size - 2)
        return found
