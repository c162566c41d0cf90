"""How old what serves is, and why nothing newer does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from kinstream.search.models.model import Name


class Failure(StrEnum):
    """Why a record or a model was left out; the keys of `Staleness.failures`."""

    UNREADABLE = "unreadable"  #: a record of the topic that is no model announcement; of any space
    MISSING = "missing"  #: the data file is not there
    DAMAGED = "damaged"  #: the data file is not what was announced
    UNREACHABLE = "unreachable"  #: the checkpoint store fails, or does not answer in time
    REFUSED = "refused"  #: the file does not fit the learner, or lies where none is read
    FAULT = "fault"  #: loading it raised what nobody expects; the log has the traceback


@dataclass(frozen=True, slots=True)
class Staleness:
    """What a service shows beside its answers.

    Parameters
    ----------
    serving : name of the model that serves.
    announced : the highest name that was announced. A model is stale where it is above `serving`.
    written_seconds : since the model that serves was written; None before the first one. It grows, too, where nothing
        new is learned.
    contact_seconds : since the brokers, or the checkpoint store that is polled, last answered; None before they did.
    caught_up : whether all that was announced before the start is known, and was tried.
    failures : by reason, how often something was left out; attempts on one file are counted each.
    trouble : what goes wrong now, in one sentence; None where nothing does.
    """

    serving: Name
    announced: Name
    written_seconds: float | None
    contact_seconds: float | None
    caught_up: bool
    failures: Mapping[Failure, int]
    trouble: str | None

    @property
    def behind(self) -> bool:
        """Whether a newer model was announced than the one that serves."""
        return self.announced > self.serving
