"""The result lists of a partition that still take clicks, and when each of them closes."""

from __future__ import annotations

import base64
import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np

from kinstream.producers.loads.click_rows import KIND_BYTES
from kinstream.producers.sources.packing import MAX_SPACES, ROOM, list_bytes
from kinstream.producers.sources.used import Entry, clicks_of
from kinstream.producers.sources.values.partition_time import MAX_AHEAD_MS
from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.scores import MOST_NAMES, Scores
from kinstream.streams.records.values import Click, ItemClick, Table

#: Lists that are open at a time, and bytes of their events; above it those that would close first are closed.
MAX_OPEN: Final = 100_000
MAX_BYTES: Final = 128 * 1024 * 1024
#: Bytes that an item, a click, and names that may come later, add to an event at most.
_ITEM_BYTES: Final = 16
_CLICK_BYTES: Final = 20
_WEIGHT_BYTES: Final = 4
_KIND_TEXT_BYTES: Final = 8
_LATER_BYTES: Final = 50_000


class Part(NamedTuple):
    """What a record of any type says of its list.

    Parameters
    ----------
    own_ms, log_ms : times of the record and of its Kafka record.
    placed_ms : when it was written, which is not before what came before it in the log.
    """

    own_ms: int
    log_ms: int
    placed_ms: int
    session: str | None
    user: str | None


@dataclass(slots=True)
class OpenList:
    """A list whose window has not ended.

    Parameters
    ----------
    shown_at_ms, last_ms : times in the records of its first and of its last part.
    opened_ms : time of the partition's log at the last part.
    hits : position of each hit that a query names.
    seen : ordinal of each further item that impressions name; None where one has none.
    scores : name -> item -> number, the first that a query or an impression gives.
    clicks : item and time of each, and the kind of an action that is no click.
    feedback : actions and outcomes that have a weight and can be taken back, by what tells them apart.
    places : number of the next hit.
    number : counts lists in the order of the log.
    size : upper bound of the bytes of its event, but for names that may come later.
    """

    space: str
    list_id: str
    shown_at_ms: int
    last_ms: int
    opened_ms: int
    session: str | None = None
    user: str | None = None
    query_item: str | None = None
    query_vector: tuple[Table, ...] = ()
    hits: dict[str, int] = field(default_factory=dict)
    seen: dict[str, int | None] = field(default_factory=dict)
    places: int = 0
    clicks: list[tuple[str, int] | tuple[str, int, str]] = field(default_factory=list)
    number: int = 0
    size: int = 0
    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    feedback: dict[str, Entry] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.hits) + len(self.seen)

    def shows(self, item: str) -> bool:
        """Whether the list holds an item."""
        return item in self.hits or item in self.seen

    def takes(self, time_ms: int, window_ms: int) -> bool:
        """Whether a click at a time in its record comes within the window.

        It may be a time by the list's clock, or by that of the log: the one of the list may be behind.
        """
        return time_ms <= self.last_ms + window_ms or self.opened_ms <= time_ms <= self.opened_ms + window_ms

    def click(self) -> Click:
        """The event: hits first, then what only impressions name, by their ordinals.

        Of several items with one ordinal, each is on a further page.
        """
        items, positions = list(self.hits), list(self.hits.values())
        # Ordinals count from 0 or from 1.
        first = 0 if 0 in self.seen.values() else 1
        pages: Counter[int] = Counter()
        ranked, last = [], []
        for name, ordinal in self.seen.items():
            if ordinal is None:
                last.append(name)
            else:
                ranked.append((pages[ordinal], ordinal, name))
                pages[ordinal] += 1
        # Names do not decide: no two have page and ordinal alike.
        for _, ordinal, name in sorted(ranked):
            positions.append(max(positions[-1] + 1 if positions else 0, ordinal - first))
            items.append(name)
        begin = positions[-1] + 1 if positions else 0
        items += last
        positions += range(begin, begin + len(last))
        return Click(
            self.space,
            self.list_id,
            tuple(items),
            tuple(positions),
            (
                *(ItemClick(item, at, None, kind[0] if kind else None) for item, at, *kind in self.clicks),
                *clicks_of(self.feedback.values(), self.hits),
            ),
            self.shown_at_ms,
            self.session,
            self.user,
            self.query_item,
            self.query_vector,
            scores=self._scores(items),
        )

    def _scores(self, items: Sequence[str]) -> Scores | None:
        if not self.scores:
            return None
        return Scores.of({name: [known.get(one) for one in items] for name, known in self.scores.items()})

    def copy(self) -> OpenList:
        """Another one that shares nothing that changes."""
        scores = {name: dict(known) for name, known in self.scores.items()}
        return replace(
            self,
            hits=dict(self.hits),
            seen=dict(self.seen),
            clicks=list(self.clicks),
            scores=scores,
            feedback=dict(self.feedback),
        )


class OpenLists:
    """The open lists of a partition.

    A list closes when the time of the log is later by the window than its last part: than its place in the log, or the
    time in its record, if that is ahead (up to `MAX_AHEAD_MS`). So lists close in the order of these times, and none
    waits for one that came before it.

    Parameters
    ----------
    window_ms : how long after its last part a list takes clicks.
    names : of the scores that lists have; None for any, up to `MOST_NAMES`.
    """

    def __init__(self, window_ms: int, names: Sequence[str] | None = ()) -> None:
        self.window_ms = window_ms
        self._names, self._any = tuple(names or ()), names is None
        #: Upper bound of the bytes of an item in an event, besides its name.
        self._item_bytes = _ITEM_BYTES + 4 * (MOST_NAMES if self._any else len(self._names))
        self._lists: dict[str, OpenList] = {}
        #: Closing times, numbers and ids; a list may have moved on since, or be gone.
        self._closing: list[tuple[int, int, str]] = []
        self._next = self._bytes = self._latest_ms = 0
        #: The lists before the changes that `undo` takes back; None for those that were not there.
        self._before: dict[str, OpenList | None] = {}
        self._copies = False
        #: Spaces that lists have, or have had: what closes has to find room for its space. Those of this record too.
        self._spaces: dict[str, None] = {}
        self._new_spaces: list[str] = []

    def find(self, list_id: str) -> OpenList | None:
        """The open list of that id."""
        return self._lists.get(list_id)

    def begin(self, *, copies: bool) -> None:
        """Remember the lists that are opened from now on, and with `copies` also those that change."""
        self._before, self._copies, self._new_spaces = {}, copies, []

    def undo(self) -> None:
        """Bring the lists back that have changed since `begin`."""
        for list_id, one in self._before.items():
            self._bytes -= self._lists[list_id].size
            if one is None:
                del self._lists[list_id]
            else:
                self._lists[list_id] = one
                self._bytes += one.size
        for space in self._new_spaces:
            del self._spaces[space]

    def open(self, space: str, list_id: str, part: Part) -> OpenList:
        """Add a list without items.

        Raises
        ------
        BadRecord : its space is one too many.
        """
        one = OpenList(space, list_id, part.own_ms, part.own_ms, part.placed_ms)
        one.scores = {name: {} for name in self._names}
        if one.space not in self._spaces:
            if len(self._spaces) >= MAX_SPACES:
                raise BadRecord(
                    Reason.SPACE_LIMIT,
                    f"space {one.space!r} would be one more than {MAX_SPACES} in this partition",
                )
            self._new_spaces.append(one.space)
        self._before.setdefault(one.list_id, None)
        self._keep(one)
        return one

    def _keep(self, one: OpenList) -> None:
        self._spaces[one.space] = None
        one.size = list_bytes(one.click())
        one.number = self._next
        self._next += 1
        self._lists[one.list_id] = one
        self._bytes += one.size
        self._push(one)

    def _grow(self, one: OpenList, part: Part, size: int) -> None:
        """Before a list changes: let its event have more bytes, and the names that it lacks.

        Raises
        ------
        BadRecord : it would not fit into a block.
        """
        if one.size + size + _LATER_BYTES > ROOM:
            raise BadRecord(
                Reason.TOO_LARGE,
                f"its list would take {one.size + size + _LATER_BYTES} bytes; {ROOM} are the limit",
            )
        if self._copies and one.list_id not in self._before:
            self._before[one.list_id] = one.copy()
        one.size += size
        self._bytes += size
        one.session, one.user = one.session or part.session, one.user or part.user

    def add_query(
        self,
        one: OpenList,
        part: Part,
        hits: Sequence[str | None],
        item: str | None,
        vector: tuple[Table, ...],
    ) -> bool:
        """Add the item and the vector of a query, if the list has none, and its hits that the list does not hold yet.

        A hit that is named twice has the first of its places, and one without an id leaves its place empty.

        Returns
        -------
        Whether there are further hits.

        Raises
        ------
        BadRecord : the event would not fit into a block.
        """
        new = [name for name in dict.fromkeys(hits) if name is not None and name not in one.hits]
        more = () if one.query_vector else vector
        self._grow(one, part, self._bytes_of(new) + sum(table.vectors.nbytes for table in more))
        one.query_item, one.query_vector = one.query_item or item, one.query_vector or more
        if not new:
            return False
        shown = new if one.places else hits
        for place, name in enumerate(shown, one.places):
            if name is not None:
                one.hits.setdefault(name, place)
                one.seen.pop(name, None)
        one.places += len(shown)
        self._go_on(one, part)
        return True

    def add_seen(self, one: OpenList, part: Part, items: Sequence[str], ordinal: int | None) -> bool:
        """Add items of an impression that the list does not hold yet; returns whether there are any.

        Raises
        ------
        BadRecord : the event would not fit into a block.
        """
        new = {
            name: None if ordinal is None else ordinal + place
            for place, name in enumerate(items)
            if not one.shows(name)
        }
        self._grow(one, part, self._bytes_of(new))
        if not new:
            return False
        one.seen |= new
        self._go_on(one, part)
        return True

    def add_scores(self, one: OpenList, part: Part, items: Sequence[str | None], scores: Scores) -> None:
        """Add the scores of items, where the list has none of that name and item yet.

        Raises
        ------
        BadRecord : the event would not fit into a block.
        """
        self._grow(one, part, 0)
        for name, values in zip(scores.names, scores.values.T.tolist(), strict=True):
            known = one.scores.setdefault(name, {})
            for item, value in zip(items, values, strict=True):
                if item is not None and value == value:
                    known.setdefault(item, value)

    def add_clicks(self, one: OpenList, part: Part, items: Sequence[str], kind: str | None = None) -> int:
        """Add clicks, or actions of another kind, that the list does not hold yet; returns their number.

        Raises
        ------
        BadRecord : the event would not fit into a block.
        """
        each = [(item, part.own_ms) if kind is None else (item, part.own_ms, kind) for item in items]
        new = [click for click in each if click not in one.clicks]
        more = 0 if kind is None else KIND_BYTES + 4 * len(kind) + _KIND_TEXT_BYTES
        self._grow(one, part, (_CLICK_BYTES + more) * len(new))
        one.clicks += new
        return len(new)

    def add_feedback(self, one: OpenList, part: Part, identity: str, entry: Entry) -> bool:
        """Add an action or an outcome, or take it back; returns whether that is new.

        One that was taken back stays so, whatever comes again.

        Raises
        ------
        BadRecord : the event would not fit into a block.
        """
        known = one.feedback.get(identity)
        if known is not None and (entry.live or not known.live):
            return False
        kind = 0 if entry.action is None else KIND_BYTES + 4 * len(entry.action) + _KIND_TEXT_BYTES
        self._grow(one, part, _CLICK_BYTES + _WEIGHT_BYTES + kind + 4 * len(identity))
        one.feedback[identity] = entry
        return True

    def _bytes_of(self, names: Iterable[str]) -> int:
        return sum(4 * len(name) + self._item_bytes for name in names)

    def _go_on(self, one: OpenList, part: Part) -> None:
        one.last_ms = max(one.last_ms, part.own_ms)
        one.opened_ms = max(one.opened_ms, part.placed_ms)
        self._latest_ms = max(self._latest_ms, one.opened_ms)

    # ---- closing ------------------------------------------------------------------------------------------------

    def _closes_ms(self, one: OpenList) -> int:
        ahead = min(max(one.last_ms - one.opened_ms, 0), MAX_AHEAD_MS)
        return one.opened_ms + ahead + self.window_ms

    def _push(self, one: OpenList) -> None:
        self._latest_ms = max(self._latest_ms, one.opened_ms)
        heapq.heappush(self._closing, (self._closes_ms(one), one.number, one.list_id))

    def correct(self, latest_ms: int) -> None:
        """Let no list count as later than this time of the log: the log said later ones, which were wrong."""
        if self._latest_ms <= latest_ms + MAX_AHEAD_MS:
            return
        self._closing, self._latest_ms = [], 0
        for one in self._lists.values():
            if one.opened_ms > latest_ms + MAX_AHEAD_MS:
                one.opened_ms = latest_ms
            self._push(one)

    def due(self, now_ms: int) -> Iterator[OpenList]:
        """Take out the lists whose window has ended."""
        while (one := self._first()) is not None and self._closes_ms(one) < now_ms:
            yield self._take_out(one)

    def surplus(self) -> Iterator[OpenList]:
        """Take out lists until there are not too many."""
        while len(self._lists) > MAX_OPEN or (self._bytes > MAX_BYTES and len(self._lists) > 1):
            one = self._first()
            assert one is not None
            yield self._take_out(one)

    def _first(self) -> OpenList | None:
        """The list that closes first."""
        while self._closing:
            closes_ms, number, list_id = self._closing[0]
            one = self._lists.get(list_id)
            if one is not None and one.number == number:
                if self._closes_ms(one) <= closes_ms:
                    return one
                heapq.heapreplace(self._closing, (self._closes_ms(one), number, list_id))
            else:
                heapq.heappop(self._closing)
        return None

    def _take_out(self, one: OpenList) -> OpenList:
        heapq.heappop(self._closing)
        del self._lists[one.list_id]
        self._bytes -= one.size
        return one

    def __iter__(self) -> Iterator[OpenList]:
        return iter(self._lists.values())

    # ---- state --------------------------------------------------------------------------------------------------

    def state(self) -> list[dict[str, Any]]:
        """The lists in the order of the log."""
        return [
            {
                "space": one.space,
                "list_id": one.list_id,
                "shown_at_ms": one.shown_at_ms,
                "last_ms": one.last_ms,
                "opened_ms": one.opened_ms,
                "session": one.session,
                "user": one.user,
                "query_item": one.query_item,
                "query_vector": [
                    (t.name, base64.b64encode(np.ascontiguousarray(t.vectors, "<f4").tobytes()).decode())
                    for t in one.query_vector
                ],
                "hits": one.hits,
                "seen": one.seen,
                "places": one.places,
                "clicks": one.clicks,
                **({"scores": one.scores} if one.scores else {}),
                **(
                    {"feedback": {key: list(entry) for key, entry in one.feedback.items()}}
                    if one.feedback
                    else {}
                ),
            }
            for one in self._lists.values()
        ]

    @property
    def spaces(self) -> list[str]:
        """The spaces that lists have, or have had."""
        return list(self._spaces)

    def restore(self, state: list[dict[str, Any]], spaces: Sequence[str]) -> None:
        """Continue from what `state` and `spaces` returned, in this version or in the first, which kept no spaces."""
        self._lists, self._closing = {}, []
        self._spaces = dict.fromkeys(spaces)
        self._next = self._bytes = self._latest_ms = 0
        for entry in state:
            found = dict(entry)
            found["clicks"] = [tuple(click) for click in found["clicks"]]
            given = found.pop("scores", {})
            entries = found.pop("feedback", {})
            found["feedback"] = {identity: Entry(*values) for identity, values in entries.items()}
            found["scores"] = {name: given.get(name, {}) for name in (given if self._any else self._names)}
            found["query_vector"] = tuple(
                Table(name, np.frombuffer(base64.b64decode(data), "<f4").reshape(1, -1))
                for name, data in found["query_vector"]
            )
            if "items" in found:
                # The first version kept the times of records alone.
                items = found.pop("items")
                found |= {"hits": {name: place for place, name in enumerate(items)}, "places": len(items)}
                found |= {"last_ms": found["shown_at_ms"], "opened_ms": found["shown_at_ms"]}
            self._keep(OpenList(**found))
