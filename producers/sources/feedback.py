"""`kinstream.feedback`: lists that the service has shown, joined with what was done with them.

A record is a list as it was shown (a `Click` without clicks), or one action on it (`Feedback`). A list takes feedback
until the time of the partition's log is later by the window, as a list of `kinstream.producers.sources.ubi` takes
clicks; then it is one event. Feedback may come first: several services write, and the list of one may wait for the
brokers while another has the answer of a user. It then waits for its list, as long as a list waits for feedback.

An action on an item that is taken back later than that becomes an event of its own: the list is one already.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import orjson

from kinstream.producers.sources.join import Join
from kinstream.producers.sources.ubi_lists import OpenList, Part
from kinstream.producers.sources.used import Entry
from kinstream.producers.sources.values.partition_time import not_ahead, stamp_of
from kinstream.streams.configuration.sources import SourceSettings
from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.codec.codec import decode_feedback
from kinstream.streams.records.lists.feedback import Feedback
from kinstream.streams.records.message import Message
from kinstream.streams.records.randomised_id import time_of
from kinstream.streams.records.values import Click, Loaded


class Fate(StrEnum):
    """What becomes of lists and of feedback."""

    LIST_CLOSED = "list-closed"
    CLOSED_EARLY = "list-closed-early"
    LIST_REPEATED = "list-repeated"
    JOINED = "feedback-joined"
    REPEATED = "feedback-repeated"
    RETRACTED = "feedback-retracted"
    RETRACTED_LATE = "feedback-retracted-late"
    WITHOUT_LIST = "feedback-without-list"
    UNKNOWN_ITEM = "feedback-unknown-item"


class Shown(Join):
    """The join of one partition.

    Parameters
    ----------
    window_ms : how long after it was shown a list takes feedback.
    """

    fates = Fate

    def __init__(self, window_ms: int) -> None:
        super().__init__(window_ms, None)

    def events(self, message: Message) -> list[Loaded] | None:
        record = decode_feedback(message.value)
        late: list[Loaded] = []
        self._lists.begin(copies=False)
        try:
            match record:
                case Click():
                    said = self._list(record, message)
                case Feedback() if self._is_late_retraction(record, message):
                    said, late = self._part(record.time_ms, message).log_ms, [record]
                    self._counts[Fate.RETRACTED_LATE] += 1
                case Feedback():
                    said = self._feedback(record, message)
        except BadRecord:
            self._lists.undo()
            raise
        self._time.take(record.list_id, said, appended=message.appended and stamp_of(message) is not None)
        return self._due() + late

    def _part(
        self, own_ms: int, message: Message, session: str | None = None, user: str | None = None
    ) -> Part:
        return self._placed(not_ahead(own_ms, message, "time_ms"), message, session, user)

    def _list(self, shown: Click, message: Message) -> int:
        """Take a list as it was shown; returns the time that its record says for the log.

        Raises
        ------
        BadRecord : it does not fit, or is too late; nothing has changed.
        """
        if shown.clicks or len(set(shown.items)) < len(shown.items):
            raise BadRecord(Reason.BAD_SHAPE, "a shown list has no clicks, and each item once")
        part = self._part(shown.shown_at_ms, message, shown.session, shown.user)
        one = self._lists.find(shown.list_id)
        if one is None:
            self._check_time(shown.list_id, shown.shown_at_ms, part)
            one = self._lists.open(shown.space, shown.list_id, part)
        elif len(one) or one.space != shown.space:
            self._counts[Fate.LIST_REPEATED] += 1
            return part.log_ms
        ranked = sorted(zip(shown.positions, shown.items, strict=True))
        self._lists.add_query(one, part, [item for _, item in ranked], shown.query_item, shown.query_vector)
        one.shown_at_ms = part.own_ms
        if shown.scores is not None:
            self._lists.add_scores(one, part, shown.items, shown.scores)
        return part.log_ms

    def _feedback(self, given: Feedback, message: Message) -> int:
        """Take feedback; returns the time that its record says for the log.

        Raises
        ------
        BadRecord : it does not fit, is too late, or is of an item that was not shown; nothing has changed.
        """
        part = self._part(given.time_ms, message)
        one = self._lists.find(given.list_id)
        if one is None:
            shown_ms = time_of(given.list_id)
            if shown_ms is None:
                raise BadRecord(Reason.UNKNOWN_LIST, f"no list {given.list_id!r} is open on this partition")
            self._check_time(given.list_id, shown_ms, part)
            one = self._lists.open(given.space, given.list_id, part)
        if one.space != given.space:
            raise BadRecord(Reason.UNKNOWN_LIST, f"the list {given.list_id!r} is not of {given.space!r}")
        if given.item is not None and len(one) and not one.shows(given.item):
            raise BadRecord(
                Reason.UNKNOWN_ITEM, f"{given.item!r} is not among the items of list {given.list_id!r}"
            )
        identity = orjson.dumps([given.item, given.action, given.key]).decode()
        entry = Entry(given.item, given.action, given.time_ms, given.weight, not given.retract)
        if not self._lists.add_feedback(one, part, identity, entry):
            self._counts[Fate.REPEATED] += 1
        else:
            self._counts[Fate.RETRACTED if given.retract else Fate.JOINED] += 1
        return part.log_ms

    def _is_late_retraction(self, given: Feedback, message: Message) -> bool:
        """Whether an action is taken back whose list is an event already."""
        if not given.retract or given.item is None or self._lists.find(given.list_id) is not None:
            return False
        shown_ms = time_of(given.list_id)
        return shown_ms is not None and self._late_ms(shown_ms, self._part(given.time_ms, message)) > 0

    def _late_ms(self, shown_ms: int, part: Part) -> int:
        return part.placed_ms - shown_ms - self._window_ms

    def _check_time(self, list_id: str, shown_ms: int, part: Part) -> None:
        late_ms = self._late_ms(shown_ms, part)
        if late_ms > 0:
            raise BadRecord(
                Reason.LATE_LIST, f"the list {list_id!r} was shown {late_ms} ms more than the window ago"
            )

    # ---- closing ------------------------------------------------------------------------------------------------

    def _closed(self, lists: Iterable[OpenList], fate: StrEnum) -> list[Loaded]:
        made: list[Loaded] = []
        for one in lists:
            if not len(one):
                self._counts[Fate.WITHOUT_LIST] += len(one.feedback)
                continue
            made.append(one.click())
            self._counts[fate] += 1
            strange = (entry.item for entry in one.feedback.values())
            self._counts[Fate.UNKNOWN_ITEM] += sum(
                item is not None and not one.shows(item) for item in strange
            )
        return made


def shown(settings: SourceSettings) -> Shown:
    """The join of a source with `preset = "feedback"`."""
    return Shown(settings.window_ms)
