"""Reads and selects dead letters, and finds which of them a redrive can still apply."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import Any

import numpy as np

from kinstream.streams.agents import letter as dead_letter
from kinstream.streams.agents.refusals import Refusals, Rows, parse_rows, read_moved, rows_text
from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.operations.checkpoints import (
    INPUT_ROLES,
    Agent,
    agents,
    birth_of,
    folder_of,
    input_topic,
    newest,
)
from kinstream.streams.operations.letter_lists import has_all
from kinstream.streams.records.message import Message, Output
from kinstream.streams.settings import Settings
from kinstream.streams.topics import partition_of


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter without its bytes.

    Parameters
    ----------
    partition, offset : of the letter, in the dead-letter topic.
    topic, from_partition, from_offset, rows : the refused identity, in the consumer's input topic.
    space : the original key, as text.
    size : bytes of the original value.
    """

    partition: int
    offset: int
    time_ms: int
    consumer: str
    reason: str
    detail: str
    topic: str
    from_partition: int
    from_offset: int
    rows: Rows
    space: str
    size: int
    truncated: bool

    @property
    def place(self) -> str:
        """The name of the letter for `show` and `redrive`."""
        return f"{self.partition}/{self.offset}"

    @property
    def identity(self) -> tuple[str, str, int, int, Rows]:
        """The identity of a letter: a worker that runs again after a crash writes the same letter again."""
        return self.consumer, self.topic, self.from_partition, self.from_offset, self.rows

    def as_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return {
            "place": self.place,
            "time_ms": self.time_ms,
            "consumer": self.consumer,
            "reason": self.reason,
            "detail": self.detail,
            "refused": f"{self.topic}/{self.from_partition}/{self.from_offset}",
            "rows": rows_text(self.rows),
            "space": self.space,
            "size": self.size,
            "truncated": self.truncated,
        }


def read_letter(message: Message) -> Letter:
    """Read the headers of a dead letter.

    Raises
    ------
    BadRecord : it is not a dead letter.
    """
    found = {name: (value or b"").decode("utf-8", "replace") for name, value in message.headers}
    try:
        topic, partition, offset = found[dead_letter.REFUSED].rsplit("/", 2)
        return Letter(
            message.partition,
            message.offset,
            message.timestamp_ms,
            found[dead_letter.CONSUMER],
            found[dead_letter.REASON],
            found.get(dead_letter.DETAIL, ""),
            topic,
            int(partition),
            int(offset),
            parse_rows(found[dead_letter.ROWS]),
            (message.key or b"").decode("utf-8", "backslashreplace"),
            int(found.get(dead_letter.SIZE, len(message.value or b""))),
            dead_letter.SIZE in found,
        )
    except (KeyError, ValueError) as error:
        place = f"{message.topic} partition {message.partition} offset {message.offset}"
        raise BadRecord(Reason.BAD_IDENTITY, f"{place} is not a dead letter: {error!r}") from error


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """A selection of letters; None matches everything.

    Parameters
    ----------
    reason : may hold * and ?, as in `burst-*`.
    places : (partition, offset) of letters.
    sought : names of the users, sessions, addresses or clicked items of their lists, by `letter_lists.SOUGHT`.
    """

    reason: str | None = None
    consumer: str | None = None
    space: str | None = None
    since_ms: int | None = None
    places: frozenset[tuple[int, int]] | None = None
    sought: Mapping[str, str] = field(default_factory=dict)

    def takes(self, letter: Letter) -> bool:
        return (
            (self.reason is None or fnmatchcase(letter.reason, self.reason))
            and self.consumer in (None, letter.consumer)
            and self.space in (None, letter.space)
            and (self.since_ms is None or letter.time_ms >= self.since_ms)
            and (self.places is None or (letter.partition, letter.offset) in self.places)
        )


@dataclass(slots=True)
class FoundLetters:
    """The selected letters, each once; the number of repeats; the number of records that are not letters."""

    letters: list[Letter]
    repeated: int = 0
    unreadable: int = 0


def choose(messages: Iterable[Message], choice: LetterFilter) -> FoundLetters:
    """Read dead letters and keep the selected ones, and the first of equal ones."""
    found = FoundLetters([])
    known = set()
    for message in messages:
        try:
            letter = read_letter(message)
        except BadRecord:
            found.unreadable += 1
            continue
        if not choice.takes(letter) or not has_all(message.value, letter.rows, choice.sought):
            continue
        if letter.identity in known:
            found.repeated += 1
            continue
        known.add(letter.identity)
        found.letters.append(letter)
    return found


def keys_of(
    messages: Iterable[Message], wanted: Set[tuple[str, str, int, int]]
) -> dict[tuple[str, str, int, int], str]:
    """The original keys of refused records, by (consumer, topic, partition, offset); those that are text.

    Parameters
    ----------
    messages : dead letters.
    """
    found = {}
    for message in messages:
        try:
            letter = read_letter(message)
            key = (message.key or b"").decode()
        except (BadRecord, UnicodeDecodeError):
            continue
        place = letter.consumer, letter.topic, letter.from_partition, letter.from_offset
        if key and place in wanted:
            found[place] = key
    return found


# ---- redrive ----------------------------------------------------------------------------------------

#: Whether the consumer still holds a letter's parts as refused; None if its checkpoints do not show it.
Holds = Callable[[Letter], bool | None]


@dataclass(frozen=True, slots=True)
class RedrivePlan:
    """The letters that a redrive sends, and the number that it leaves out, by reason."""

    send: list[Letter]
    left_out: dict[str, int]


def plan(
    letters: Iterable[Letter], inputs: Iterable[str], holds: Holds, compacted: Set[str] = frozenset()
) -> RedrivePlan:
    """Leave out letters that no consumer could apply, or whose redrive would do harm.

    Parameters
    ----------
    inputs : the topics that our agents read.
    compacted : those of them in which a record that is sent again replaces the newest one of its key.
    """
    known = set(inputs)
    send: list[Letter] = []
    left_out: Counter[str] = Counter()
    for letter in letters:
        if letter.truncated:
            left_out["only their first part was kept; send them again from their source"] += 1
        elif letter.topic not in known:
            left_out["refused on a topic that is not ours"] += 1
        elif letter.topic in compacted:
            left_out[
                "on a compacted topic, where they would replace newer records; correct them at their source"
            ] += 1
        elif holds(letter) is False:
            left_out["applied already, or of an ended generation"] += 1
        else:
            send.append(letter)
    return RedrivePlan(send, dict(left_out))


def redrives(
    messages: Iterable[Message],
    letters: Iterable[Letter],
    place: Callable[[Letter], int] = attrgetter("from_partition"),
) -> Iterator[Output]:
    """The redrive of each of these letters, in the order of the messages.

    Parameters
    ----------
    place : the partition on which the consumer holds a letter as refused.
    """
    wanted = {(letter.partition, letter.offset): letter for letter in letters}
    for message in messages:
        letter = wanted.get((message.partition, message.offset))
        if letter is not None:
            yield replace(dead_letter.redrive(message), partition=place(letter))


def ranges(letters: Iterable[Letter]) -> dict[int, tuple[int, int]]:
    """The smallest range of each partition of dead letters that holds these."""
    found: dict[int, tuple[int, int]] = {}
    for letter in letters:
        start, stop = found.get(letter.partition, (letter.offset, 0))
        found[letter.partition] = min(start, letter.offset), max(stop, letter.offset + 1)
    return found


class StandingRefusals:
    """The refusals in the consumers' newest checkpoints.

    A part that a consumer does not hold at a later offset will never be held again, so a checkpoint that is behind
    only misses newer refusals and is never wrong.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._agents = {(a.name, input_topic(settings, a)): a for a in agents(settings)}
        self._read: dict[tuple[str, str, int], _Held | None] = {}

    @property
    def topics(self) -> set[str]:
        """The topics that our agents read."""
        ours = {self._settings.topic(role) for role in INPUT_ROLES.values()}
        return ours | {source.topic for source in self._settings.sources.values()}

    def holds(self, letter: Letter) -> bool | None:
        """Whether the letter's consumer still holds it as refused; None if that is not known.

        Raises
        ------
        CheckpointError : the checkpoint store cannot be read.
        """
        known = self._held(letter, letter.from_partition)
        if known is None or letter.from_offset >= known.offset:
            return None
        if known.own.holds(letter.from_offset, letter.rows):
            return True
        return self._moved(letter, known.partitions)

    def place(self, letter: Letter) -> int:
        """The input partition on which the letter's consumer can apply it: after a repartition, the partition of its
        space.

        Raises
        ------
        CheckpointError : the checkpoint store cannot be read.
        """
        known = self._held(letter, letter.from_partition)
        if known is None or known.own.holds(letter.from_offset, letter.rows):
            return letter.from_partition
        if self._moved(letter, known.partitions):
            return partition_of(letter.space, known.partitions)
        return letter.from_partition

    def _moved(self, letter: Letter, partitions: int) -> bool | None:
        """Whether the partition of its space after a repartition holds it."""
        home = partition_of(letter.space, partitions)
        if home == letter.from_partition:
            return False
        known = self._held(letter, home)
        if known is None:
            # A generation that continues another one may have taken it over and not recorded it yet.
            return None if self._inherits(letter) else False
        refusals = known.moved.get(letter.from_partition)
        return refusals is not None and refusals.holds(letter.from_offset, letter.rows)

    def _held(self, letter: Letter, partition: int) -> _Held | None:
        key = letter.consumer, letter.topic, partition
        if key not in self._read:
            agent = self._agents.get(key[:2])
            self._read[key] = None if agent is None else self._refusals(agent, letter.topic, partition)
        return self._read[key]

    def _inherits(self, letter: Letter) -> bool:
        agent = self._agents.get((letter.consumer, letter.topic))
        birth = None if agent is None else birth_of(self._settings, agent)
        return birth is not None and birth.inherits is not None

    def _refusals(self, agent: Agent, topic: str, partition: int) -> _Held | None:
        birth = birth_of(self._settings, agent)
        if birth is None or birth.input_topic != topic:
            return None
        seen = newest(folder_of(self._settings, agent.application, birth.generation, topic, partition))
        if seen is None:
            return None
        state = seen.state(seen.manifest.partition_state)
        refusals = Refusals()
        refusals.restore(np.asarray(state["refused_runs"]), np.asarray(state["refused_rows"]))
        return _Held(seen.manifest.offset, birth.input_partitions, refusals, read_moved(state))


@dataclass(frozen=True, slots=True)
class _Held:
    """The refusals in the newest checkpoint of a partition, of its own records and of moved spaces."""

    offset: int
    partitions: int
    own: Refusals
    moved: Mapping[int, Refusals]
