"""What was done with a list: a click in its event, or feedback on it, which is a record of `kinstream.feedback`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from kinstream.streams.records.lists.load_position import LoadPosition

#: What one action can weigh at most.
HEAVIEST: Final = 100.0


class ItemClick(NamedTuple):
    """One click in a shown list, or another action on an item in it.

    `dwell_ms` is None if not measured, `action` (the kind, such as "purchase") for a click, `weight` (float32) for 1.
    """

    item: str
    time_ms: int
    dwell_ms: int | None = None
    action: str | None = None
    weight: float | None = None


@dataclass(frozen=True, slots=True)
class Feedback:
    """What was done with a list that the service has shown, or that it is taken back.

    On `events`, it is an action that is taken back after its list became an event.

    Parameters
    ----------
    item : of the list; None for an outcome of the whole list.
    action : the kind, such as "purchase"; None for a click, and of an outcome.
    weight : of an action how much it counts, from 0 to `HEAVIEST`; of an outcome 0 (failed) to 1. As float32.
    key : tells actions of one kind on one item apart: of several with the same key, the first counts.
    retract : takes back the action, or the outcome, with the same item, action and key.
    """

    space: str
    list_id: str
    item: str | None
    action: str | None
    weight: float
    time_ms: int
    key: str = ""
    retract: bool = False
    load: LoadPosition | None = None
