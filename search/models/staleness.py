"""The age of the serving model, and why no newer one serves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from kinstream.search.models.model import Name
from kinstream.streams.records.withheld import Withheld


class Failure(StrEnum):
    """Why a record or a model was left out; the keys of `Staleness.failures`."""

    UNREADABLE = "unreadable"  #: a record of the topic that is not a model announcement; of any space
    MISSING = "missing"  #: the data file does not exist
    DAMAGED = "damaged"  #: the data file differs from the announced digest
    UNREACHABLE = "unreachable"  #: the checkpoint store fails, or does not answer in time
    REFUSED = "refused"  #: the file does not fit the learner, or its store is not allowed
    FAULT = "fault"  #: loading it raised an unexpected error; the log has the traceback


@dataclass(frozen=True, slots=True)
class Staleness:
    """The state that a service can show beside its answers.

    Parameters
    ----------
    serving : name of the serving model.
    announced : the highest name that was announced. The model is stale if it is above `serving`.
    written_seconds : age of the serving model; None before the first one. It also grows while nothing new is learned.
    contact_seconds : time since the brokers, or the polled checkpoint store, last answered; None before they did.
    caught_up : whether all announcements from before the start are known, and were tried.
    failures : by reason, how often a record or model was left out; each attempt on a file counts.
    trouble : the current error, in one sentence; None if there is none.
    withheld : a newer model that its learner withholds, since it is worse than none; None if it does not.
    """

    serving: Name
    announced: Name
    written_seconds: float | None
    contact_seconds: float | None
    caught_up: bool
    failures: Mapping[Failure, int]
    trouble: str | None
    withheld: Withheld | None = None

    @property
    def behind(self) -> bool:
        """Whether a newer model than the serving one was announced."""
        return self.announced > self.serving
