"""A service as its HTTP side sees it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from kinstream.search.models.subscription import Subscription
from kinstream.streams.settings import ServiceSettings
from kinstream.streams.worker.page.server import Health


class Waiting(NamedTuple):
    """What a service is waiting for, and why it is not there: an error may name hosts, files and tables.

    Its text is for clients that may ask; probes, which are open to all, show `what` alone.
    """

    what: str
    why: str | None = None

    def __str__(self) -> str:
        return self.what if self.why is None else f"{self.what}: {self.why}"


class Service(Protocol):
    """Spaces that are kept up to date from the topics, and answered for.

    Attributes
    ----------
    health : what `/healthz` and `/readyz` answer.
    """

    health: Health

    @property
    def limits(self) -> ServiceSettings:
        """Where it listens, and its limits."""

    @property
    def served(self) -> Iterable[str]:
        """The names of its spaces."""

    @property
    def failure(self) -> BaseException | None:
        """Why the service cannot continue and must be restarted."""

    @property
    def ready(self) -> bool:
        """Whether every space can be answered for."""

    def waiting_for(self) -> list[Waiting]:
        """What the service is waiting for; empty once it is ready."""

    def start(self) -> None:
        """Begin to read."""

    def stop(self, seconds: float = 5.0) -> None:
        """End the threads; wait up to that long for them."""


def notes_on(subscriptions: Iterable[Subscription]) -> list[str]:
    """What `/readyz` says of models that are withheld. It is open to all: it names spaces and models, and no file."""
    found = ((one, one.choice.withheld) for one in subscriptions)
    return [
        f"space {one.space!r}: the newest model of {one.learner} is withheld, {withheld}"
        for one, withheld in found
        if withheld is not None
    ]


def threads_of(limits: ServiceSettings) -> int:
    """How many requests are processed at the same time."""
    return limits.threads or os.cpu_count() or 1
