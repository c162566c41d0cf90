"""The gate agent: events in, decisions out. It decodes, calls the gate of the space, encodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final, cast

import numpy as np

from kinstream.gate.core import ALGORITHM, SpaceGate
from kinstream.gate.exposure.lists import served
from kinstream.gate.limits import LEFT_OUT
from kinstream.gate.lists.hashing import hash_of, hash_of_bytes
from kinstream.gate.lists.list_id import PREFIX, Keys, keys_of
from kinstream.gate.metrics import Board, GateCollector
from kinstream.gate.values import Decision, List, Options
from kinstream.streams.agents.letter import redriven_reason
from kinstream.streams.agents.machine import Machine, Place
from kinstream.streams.agents.refusals import Rows
from kinstream.streams.agents.space import Space, Status
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.errors import BadRecord, Reason, SettingsError
from kinstream.streams.records.codec.codec import CODEC_VERSION, decode_event, encode
from kinstream.streams.records.gate import GateDecision, GateOrder
from kinstream.streams.records.message import Message
from kinstream.streams.records.state import State
from kinstream.streams.records.values import Action, Click, ClickBlock, Control, ItemBlock
from kinstream.streams.settings import GateSettings, Settings

NAME: Final = "gate"
#: Names in the detail of a dead letter.
_NAMED: Final = 3
_CAUSES: Final = {
    Reason.FORGED_LIST: "their ids were not made with a key of this gate for this space, or were changed",
    Reason.AHEAD_OF_LOG: "they were shown more than five minutes after the time of the log: the clock of a service is "
    "ahead, or that of a broker behind",
    Reason.LATE_LIST: "they came back later than late_minutes, by the time of the log",
}


def gate_spec(settings: Settings) -> AgentSpec:
    """The gate of the spaces of `[gate.SPACE]`.

    Raises
    ------
    SettingsError : there is none.
    """
    if not settings.gate:
        raise SettingsError("the settings have no [gate.SPACE], so there is nothing to decide")
    keys = keys_of(settings)
    options = {space: options_of(section) for space, section in sorted(settings.gate.items())}
    shares = {space: section.share for space, section in settings.gate.items()}
    board = Board(shares)

    def machine(place: Place, load_space: Callable[[str], State]) -> Machine:
        return GateMachine(place, keys, options, board, load_space)

    return AgentSpec(
        application=NAME,
        name=NAME,
        prefix=settings.topics.prefix,
        input_role="events",
        output_role="models",
        shaping={
            "algorithm": ALGORITHM,
            "spaces": {space: asdict(one) for space, one in options.items()},
            "codec": CODEC_VERSION,
        },
        make_machine=machine,
        collectors=(GateCollector(board),),
    )


def options_of(section: GateSettings) -> Options:
    """The part of the settings that shapes decisions."""
    return Options(**{name: getattr(section, name) for name in Options.__dataclass_fields__})


def decision_key(space: str) -> bytes:
    """The message key of a space's decisions on `models`: no learner has an empty name, so no model has this key."""
    return f"{space}//{NAME}".encode()


class GateMachine(Machine):
    """One partition of `events` under the gates of some spaces. Records of other spaces are left out unread.

    Parameters
    ----------
    keys : of the ids of drafted lists.
    options : by space.
    board : what the worker's page shows.
    """

    def __init__(
        self,
        place: Place,
        keys: Keys,
        options: Mapping[str, Options],
        board: Board,
        load_space: Callable[[str], State] | None = None,
    ) -> None:
        super().__init__(place, load_space)
        self._keys = keys
        self._options = options
        self._board = board

    def make_core(self, name: str, space: Space) -> SpaceGate:
        # A generation with other settings may inherit a space that has no gate any more.
        return SpaceGate(name, self._keys, self._options.get(name, Options()), max(space.epoch, 0))

    def apply(self, message: Message) -> None:
        name = self.space_name(message)
        if name not in self._options:
            self.counts["not_followed"] += 1
            return
        record = decode_event(message.value)
        self.check_key(record, name)
        match record:
            case Control():
                self._control(name, record, message)
            case GateOrder():
                self._emit(name, message, self._gate(name).order(record, message.timestamp_ms))
            case Click() | ClickBlock():
                self._lists(name, record, message)
            case ItemBlock():
                if not self._deleted(name):
                    self._gate(name).exposure.catalogue(record, message.timestamp_ms)
            case _:
                self.counts["not_followed"] += 1
                return
        self.counts["applied"] += 1
        self._show(name)

    def apply_again(self, message: Message, rows: Rows) -> None:
        if rows is None:
            self.apply(message)
            return
        # Only lists that were left out are refused by their rows.
        name = self.space_name(message)
        record = decode_event(message.value)
        self.check_key(record, name)
        if not isinstance(record, Click | ClickBlock):
            raise BadRecord(Reason.BAD_SHAPE, f"{type(record).__name__} has no lists to send again")
        self._drafted(name, record, message, set(rows))
        self.counts["applied"] += 1
        self._show(name)

    def pass_over(self, message: Message) -> bool:
        return True

    def _gate(self, name: str) -> SpaceGate:
        """The gate of a space, for changing it."""
        fresh = self.find(name) is None
        space = self.open(name)
        if fresh:
            # As builders do, for a space that was created by its first event.
            space.begin(0, None)
        if space.core is None:
            space.core = self.make_core(name, space)
        return cast(SpaceGate, space.core)

    def _lists(self, name: str, record: Click | ClickBlock, message: Message) -> None:
        self._drafted(name, record, message)
        if not self._deleted(name):
            exposure = self._gate(name).exposure
            for shown in served(record):
                exposure.show(shown, shown.kind(self._keys, name), message.timestamp_ms)

    def _drafted(
        self, name: str, record: Click | ClickBlock, message: Message, rows: set[int] | None = None
    ) -> None:
        """Take the drafted lists of a record, or those of them with these rows, which come again. Note the others."""
        # What was refused for its time or its key has passed no limit yet.
        vouched = redriven_reason(message) in (None, *LEFT_OUT)
        left_out: dict[Reason, list[tuple[List, range]]] = {}
        deleted = self._deleted(name)
        for one, places in returned(record):
            if rows is not None and not rows.intersection(places):
                continue
            if not one.list_id.startswith(PREFIX):
                if rows is None and not deleted:
                    self._gate(name).tail.note(one)
                continue
            gate = self._gate(name)
            self._emit(name, message, gate.take(one, message.timestamp_ms, rows is not None, vouched))
            # A list of no items has no rows that could come again.
            if gate.left_out is not None and places:
                left_out.setdefault(gate.left_out, []).append((one, places))
        for reason, lists in left_out.items():
            numbers = tuple(row for _, places in lists for row in places)
            self.refuse(BadRecord(reason, _detail(reason, [one for one, _ in lists]), numbers))

    def _deleted(self, name: str) -> bool:
        """Whether events of the space count for nothing until it is created again."""
        space = self.find(name)
        return space is not None and space.status is Status.DELETED

    def _control(self, name: str, control: Control, message: Message) -> None:
        if control.action in (Action.PAUSE, Action.RESUME):
            return
        space = self.find(name)
        epoch = message.offset if space is None else max(message.offset, space.epoch + 1)
        deleted = control.action is Action.DELETE
        opened = self.open(name)
        opened.begin(epoch, None, Status.DELETED if deleted else Status.ACTIVE)
        gate = self._gate(name)
        self._emit(name, message, [gate.begin(message.timestamp_ms)])

    def _emit(self, name: str, message: Message, made: list[Decision]) -> None:
        space = self.open(name)
        for one in made:
            record = GateDecision(
                space=name,
                verdict=one.verdict,
                reason=one.reason,
                generation=self.place.generation,
                epoch=space.epoch,
                number=one.number,
                topic=message.topic,
                partition=message.partition,
                offset=message.offset,
                time_ms=message.timestamp_ms,
                serving=one.serving,
                before=one.before,
                challenger=one.challenger,
                pinned=one.pinned,
                impressions=one.impressions,
                wins=one.evidence.wins,
                losses=one.evidence.losses,
                ties=one.evidence.ties,
                log_e_for=one.log_e_for,
                log_e_against=one.evidence.log_e_against,
                checks=one.checks,
                floor=one.floor,
            )
            self.emit(name, space, encode(record), decision_key(name))

    # ---- values for the page ------------------------------------------------------------------------------------

    def _show(self, name: str) -> None:
        space = self.find(name)
        if space is not None and isinstance(space.core, SpaceGate):
            self._board.put(self.place.partition, name, space.core)

    def on_owned(self, live: bool) -> None:
        for name in list(self.names()):
            if name in self._options:
                self._show(name)

    def on_revoked(self) -> None:
        self._board.drop(self.place.partition)


def returned(record: Click | ClickBlock) -> Iterator[tuple[List, range]]:
    """The lists of a record, and the numbers of their impressions."""
    if isinstance(record, Click):
        clicked = tuple(c.item for c in record.clicks)
        query = _query([table.vectors.tobytes() for table in record.query_vector], record.query_item)
        yield (
            List(record.list_id, clicked, record.session, record.user, record.address, query),
            range(len(record.items)),
        )
        return
    of = np.searchsorted(record.starts, record.clicked, side="right") - 1
    order = np.argsort(of, kind="stable")
    bounds = np.searchsorted(of[order], np.arange(len(record.list_ids) + 1))
    for number, list_id in enumerate(record.list_ids):
        mine = record.clicked[order[bounds[number] : bounds[number + 1]]]
        row, item = int(record.query_row[number]), int(record.query[number])
        vectors = [table.vectors[row].tobytes() for table in record.query_vectors] if row >= 0 else []
        one = List(
            list_id,
            tuple(record.ids[record.item[n]] for n in mine),
            _actor(record, record.session[number]),
            _actor(record, record.user[number]),
            None if record.address is None else _actor(record, record.address[number]),
            _query(vectors, record.ids[item] if item >= 0 else None),
        )
        yield one, range(int(record.starts[number]), int(record.starts[number + 1]))


def _query(vectors: list[bytes], item: str | None) -> int | None:
    """What tells a query from others: its vectors, or its item; None if it has neither."""
    if vectors:
        return hash_of_bytes(b"".join(vectors))
    return None if item is None else hash_of(item)


def _detail(reason: Reason, lists: list[List]) -> str:
    """Why lists were left out, and whose they are if it is for that."""
    if reason in _CAUSES:
        return f"{len(lists)} drafted lists are no evidence: {_CAUSES[reason]}"
    kind = reason.value.rpartition("-")[2]
    if kind == "item":
        found = dict.fromkeys(item for one in lists for item in one.clicked)
    else:
        found = dict.fromkeys(str(getattr(one, kind)) for one in lists)
    names = ", ".join(repr(name[:40]) for name in list(found)[:_NAMED])
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return f"{len(lists)} drafted lists are no evidence; {kind} {names}{more}"


def _actor(record: ClickBlock, number: Any) -> str | None:
    return None if number < 0 else record.actors[number]
