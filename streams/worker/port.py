"""The port between a membership in the group and the worker that it serves: the calls of each to the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from kinstream.streams.records.message import Message

#: Consecutive records of a partition.
Run = list[Message]
#: Most records of a run, and the bytes of their values that end it.
RUN: Final = 256
RUN_BYTES: Final = 1_000_000
#: How long the embedded broker keeps a fetch that finds no records. It keeps it for all of this time, even if records
#: come meanwhile.
EMBEDDED_FETCH_WAIT_MS: Final = 50


class TP(NamedTuple):
    """A partition of a topic; equal to a `PartitionName`, and to faust's type of the same name."""

    topic: str
    partition: int


class Reading(NamedTuple):
    """A fact about the log of a partition: between the two offsets there is no record.

    What is between them was never committed, is a marker of a transaction, or was compacted away.

    Parameters
    ----------
    returned : offset of the last record that the client has returned, or that of the seek position less one.
    position : the client's own next offset at that moment.
    """

    returned: int
    position: int


class Port(Protocol):
    """The calls of a membership to its worker, all on the worker's event loop."""

    async def restore(self, assigned: set[TP]) -> Mapping[TP, int] | None:
        """Take over newly assigned partitions.

        Returns
        -------
        The offset at which to continue each; None if they are to be given back.
        """

    async def revoke(self, revoked: set[TP]) -> None:
        """Give back partitions that the group takes away. It is taken for rebalancing until the next `restore`."""

    def rebalanced(self) -> None:
        """Note that the group has shared out its partitions."""

    async def deliver(self, run: Run) -> None:
        """Take the next records of a partition; waits while its queue is full."""

    def fail_in_client(self, error: BaseException) -> None:
        """End the process for an error that the client library has raised."""


class Client(Protocol):
    """The calls of a worker to the consumer of its membership."""

    @property
    def polled_at(self) -> float | None:
        """Monotonic time at which the client last asked for records."""

    def reading(self, topic: str, partition: int) -> Reading | None:
        """How far the client has read a partition; None before it has. Both values are of the same moment."""

    def pause_partitions(self, tps: set[TP]) -> None:
        """Read these no further."""

    async def seek_back(self, tp: TP, offset: int) -> None:
        """Read a partition again from `offset`."""

    async def commit_for_tools(self, offsets: Mapping[TP, int]) -> bool:
        """Write the group's offsets, so that lag tools see them; returns whether the brokers accepted them."""


class Membership(Protocol):
    """One worker's membership in its group. Nothing is done before `start`."""

    @property
    def client(self) -> Client:
        """The consumer. To be asked for on the event loop only."""

    @property
    def failure(self) -> BaseException | None:
        """Why it has ended by itself."""

    async def start(self) -> None:
        """Join, and return after the first take-over."""

    def stop_flow(self) -> None:
        """Deliver no more records."""

    async def leave(self) -> None:
        """Leave the group; may wait for brokers without a limit."""
