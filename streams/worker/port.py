"""The port between the transport and the worker that it serves: the calls of the transport, and how it finds the
worker.

faust makes transport and consumer itself and passes them only the app; so the app carries the port.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import faust
from faust.types import TP

from kinstream.streams.records.message import Message

#: Consecutive records of a partition.
Run = list[Message]


class Port(Protocol):
    """The calls of the transport to its worker."""

    async def restore(self, assigned: set[TP]) -> Mapping[TP, int] | None:
        """Take over newly assigned partitions.

        Returns
        -------
        The offset at which to continue each; None if they are to be given back.
        """

    def fail_in_client(self, error: BaseException) -> None:
        """End the process for an error that the client library has raised."""


class PortedApp(faust.App):
    """A faust app whose transport serves a worker.

    Parameters
    ----------
    fetch_wait_ms : how long brokers may keep a fetch that finds no records.
    """

    def __init__(self, name: str, *, port: Port, fetch_wait_ms: int, **options: Any) -> None:
        self.port = port
        self.fetch_wait_ms = fetch_wait_ms
        super().__init__(name, **options)

    def _create_directories(self) -> None:
        """faust makes folders for tables at its start; there are none."""


class Client(Protocol):
    """The calls of a worker to the transport's consumer."""

    @property
    def polled_at(self) -> float | None:
        """Monotonic time at which the client last asked for records."""

    def client_position(self, topic: str, partition: int) -> int | None:
        """The client's own next offset, transaction markers passed; None if the partition is not assigned."""

    def last_returned(self, topic: str, partition: int) -> int:
        """Offset of the last record that the client has returned, or that of the seek position less one."""

    def pause_partitions(self, tps: set[TP]) -> None:
        """Read these no further."""

    async def seek_back(self, tp: TP, offset: int) -> None:
        """Read a partition again from `offset`."""

    async def commit_for_tools(self, offsets: Mapping[TP, int]) -> bool:
        """Write the group's offsets, so that lag tools see them; returns whether the brokers accepted them."""
