"""What a space has shown, as records; and feedback on it, checked by the ids of its lists alone.

An id is signed with the key of the gate, and says when its list was shown and which items it had. So a forged, late or
strange one is refused at the door, by any service and after any restart, without a memory of what was shown.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from enum import StrEnum
from typing import Any, Final, NamedTuple

import numpy as np

from kinstream.gate.lists.list_id import NONCE_BYTES, Keys, keys_of, mark_of
from kinstream.gate.lists.plain_id import known, plain_id
from kinstream.search.feedback.writer import Writer
from kinstream.search.index.items import Modalities
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.gate import Version
from kinstream.streams.records.lists.feedback import Feedback
from kinstream.streams.records.scores import COMPUTED, Scores
from kinstream.streams.records.values import DEFAULT_MODALITY, Click, Table, Vectors
from kinstream.streams.settings import Settings

#: The header of a shown list that names its model.
MODEL: Final = "kinstream-model"
_NONCES: Final = 2.0 ** (8 * NONCE_BYTES)


class Fate(StrEnum):
    """What becomes of feedback at the door."""

    WRITTEN = "written"
    NOT_WRITTEN = "not-written"
    FORGED = "forged-list"
    LATE = "late-list"
    UNKNOWN_ITEM = "unknown-item"


class Strange(Exception):
    """Feedback that is refused.

    Parameters
    ----------
    number : of it in the request.
    """

    def __init__(self, number: int, fate: Fate, detail: str) -> None:
        super().__init__(detail)
        self.number, self.fate = number, fate


class Given(NamedTuple):
    """Feedback as a request has it: an action on an item, or without one an outcome of the list."""

    list_id: str
    item: str | None
    action: str | None
    weight: float
    key: str
    retract: bool


class Actor(NamedTuple):
    """Whom a list was shown to, as the request names them."""

    session: str | None = None
    user: str | None = None


class Recorder:
    """Records the lists of a space. Any thread may call it.

    Parameters
    ----------
    share : of the lists that are shown as they were found, 0 to 1; others are always recorded.
    window_ms : how long a list takes feedback.
    now_ms, nonce : the time, and `NONCE_BYTES` random bytes.

    Attributes
    ----------
    counted : receives the fate of feedback, and how much of it there is.
    """

    def __init__(
        self,
        space: str,
        keys: Keys,
        share: float,
        window_ms: int,
        writer: Writer,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        nonce: Callable[[], bytes] = lambda: secrets.token_bytes(NONCE_BYTES),
    ) -> None:
        self._space, self._keys, self._share, self._window_ms = space, keys, share, window_ms
        self._writer, self._now_ms, self._nonce = writer, now_ms, nonce
        self.counted: Callable[[Fate, int], None] = lambda *_: None

    # ---- what is shown ------------------------------------------------------------------------------------------

    def show(
        self,
        results: Sequence[dict[str, Any]],
        actor: Actor,
        model: Version,
        vectors: Sequence[tuple[Table, ...]],
        items: Sequence[str],
    ) -> None:
        """Give lists that have none an id, and write them, if they are of the share. Nothing waits for that.

        Parameters
        ----------
        results : as the answer has them, each with its `neighbours` and its `list_id`, which may be set.
        vectors, items : of the queries, one of each for a result, or none.
        """
        now_ms = self._now_ms()
        headers = ((MODEL, str(model).encode()),)
        for row, result in enumerate(results):
            names = tuple(one["id"] for one in result["neighbours"])
            if not names:
                continue
            if result["list_id"] is None:
                nonce = self._nonce()
                if int.from_bytes(nonce, "big") / _NONCES >= self._share:
                    continue
                made = plain_id(self._keys, self._space, names, time_ms=now_ms, nonce=nonce)
                result["list_id"] = made
            shown = Click(
                self._space,
                result["list_id"],
                names,
                tuple(range(len(names))),
                (),
                now_ms,
                actor.session,
                actor.user,
                items[row] if items else None,
                vectors[row] if vectors else (),
                scores=_scores([one.get("signals") or {} for one in result["neighbours"]]),
            )
            self._writer.show(self._space, encode(shown), headers)

    # ---- what was done with it ----------------------------------------------------------------------------------

    def send(self, given: Sequence[Given]) -> Future[None]:
        """Check feedback, and write it; the result is there once it is acknowledged.

        Raises
        ------
        Strange : the id of a list was not made here, or its window has ended and no action is taken back, or it had no
            such item. None is written.
        """
        now_ms = self._now_ms()
        for number, one in enumerate(given):
            self._check(number, one, now_ms)
        done = self._writer.send(
            self._space,
            [
                encode(
                    Feedback(
                        self._space,
                        one.list_id,
                        one.item,
                        one.action,
                        one.weight,
                        now_ms,
                        one.key,
                        one.retract,
                    )
                )
                for one in given
            ],
        )
        done.add_done_callback(
            lambda end: self.counted(Fate.NOT_WRITTEN if end.exception() else Fate.WRITTEN, len(given))
        )
        return done

    def _check(self, number: int, one: Given, now_ms: int) -> None:
        found = known(self._keys, self._space, one.list_id)
        if found is None:
            self._refuse(number, Fate.FORGED, "no list of this space has this id")
        elif now_ms > found.time_ms + self._window_ms and not (one.retract and one.item is not None):
            minutes = self._window_ms / 60_000
            self._refuse(number, Fate.LATE, f"the list was shown more than {minutes:g} minutes ago")
        elif (
            one.item is not None
            and found.marks is not None
            and mark_of(self._space, one.item) not in found.marks
        ):
            self._refuse(number, Fate.UNKNOWN_ITEM, f"the list did not have the item {one.item!r}")

    def _refuse(self, number: int, fate: Fate, detail: str) -> None:
        self.counted(fate, 1)
        raise Strange(number, fate, detail)


def recorder_of(settings: Settings, space: str, writer: Writer) -> Recorder:
    """The recorder of a space with `record`."""
    source = settings.feedback
    assert source is not None
    share = float(settings.serve.spaces[space].record)
    return Recorder(space, keys_of(settings), share, source.window_ms, writer)


def tables_of(rows: Vectors, modalities: Modalities | None) -> list[tuple[Table, ...]]:
    """The vectors of queries (n, D) by modality."""
    sizes = modalities or ((DEFAULT_MODALITY, rows.shape[1]),)
    ends = np.cumsum([size for _, size in sizes]).tolist()
    return [
        tuple(Table(name, row[None, end - size : end]) for (name, size), end in zip(sizes, ends, strict=True))
        for row in rows
    ]


def _scores(signals: Sequence[Mapping[str, float | None]]) -> Scores | None:
    """What the store has said of each item, but for what learners compute themselves."""
    names = sorted({name for one in signals for name in one} - set(COMPUTED))
    return Scores.of({name: [one.get(name) for one in signals] for name in names}) if names else None
