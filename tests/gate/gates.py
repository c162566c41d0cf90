"""Drafted lists as a service shows them and as clicks bring them back, for tests of the gate."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kinstream.gate.core import SpaceGate
from kinstream.gate.lists.draft import Draft, Side, team_draft
from kinstream.gate.lists.list_id import Impression, Keys, list_id_of, mark_of
from kinstream.gate.values import List
from kinstream.streams.records.gate import UNADAPTED, GateDecision, Verdict, Version
from kinstream.streams.records.values import Click, ClickBlock, ItemClick
from tests.support.pipeline import Agent

SECRET = "a secret of the tests"
KEYS = Keys(SECRET)
MODEL = Version(1, 0, 100)
#: Who has picked the items of `drafted` in turn.
ITEMS = tuple(f"i{n}" for n in range(10))


def drafted(
    number: int,
    candidate: Version = MODEL,
    serving: Version = UNADAPTED,
    *,
    space: str = "docs",
    time_ms: int = 0,
    fresh: frozenset[int] = frozenset(),
    empty: frozenset[Side] = frozenset(),
    items: Sequence[str] = ITEMS,
    keys: Keys = KEYS,
) -> str:
    """The id of a list whose even places the serving model has picked."""
    picks = tuple(Side(n % 2) for n in range(len(items)))
    marks = tuple(mark_of(space, item) for item in items)
    one = Impression(time_ms, serving, candidate, marks, picks, fresh, empty)
    return list_id_of(keys, space, one, number.to_bytes(6, "big"))


def back(
    list_id: str,
    *places: int,
    session: str | None = None,
    user: str | None = None,
    address: str | None = None,
) -> List:
    """The list with clicks at those places."""
    return List(list_id, tuple(ITEMS[n] for n in places), session, user, address)


def click(
    list_id: str, *places: int, space: str = "docs", user: str | None = None, address: str | None = None
) -> Click:
    """The same as a record."""
    clicks = tuple(ItemClick(ITEMS[n], 5) for n in places)
    return Click(space, list_id, ITEMS, tuple(range(len(ITEMS))), clicks, 5, None, user, address=address)


def block(lists: Sequence[tuple[str, tuple[int, ...]]], space: str = "docs") -> ClickBlock:
    """Several lists as one record, each with its user."""
    n, width = len(lists), len(ITEMS)
    clicked = [k * width + place for k, (_, places) in enumerate(lists) for place in places]

    def whole(values: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        return np.array(values, np.int32)

    times = np.full(len(clicked), 5, np.int64)
    return ClickBlock(
        space=space,
        ids=ITEMS,
        list_ids=tuple(list_id for list_id, _ in lists),
        actors=tuple(f"u{k}" for k in range(n)),
        session=whole([-1] * n),
        user=whole(range(n)),
        query=whole([-1] * n),
        query_row=whole([-1] * n),
        query_vectors=(),
        shown_at_ms=np.full(n, 5, np.int64),
        starts=whole([k * width for k in range(n + 1)]),
        item=whole(list(range(width)) * n),
        position=whole(list(range(width)) * n),
        clicked=whole(clicked),
        click_ms=times,
        dwell_ms=np.full(len(clicked), -1, np.int64),
    )


def decision(number: int, serving: Version, challenger: Version | None = None, **more: Any) -> GateDecision:
    """A decision that names these models."""
    plain: dict[str, Any] = {
        "verdict": Verdict.CHALLENGE if challenger else Verdict.PROMOTE,
        "before": UNADAPTED,
        **more,
    }
    return GateDecision(
        space=plain.pop("space", "docs"),
        reason="a test",
        generation=plain.pop("generation", 1),
        epoch=plain.pop("epoch", 0),
        number=number,
        topic="kinstream.events",
        partition=0,
        offset=number,
        time_ms=1,
        serving=serving,
        challenger=challenger,
        **plain,
    )


def head_of(list_id: str) -> bytes:
    """Time and nonce, which are not encrypted."""
    text = list_id.removeprefix("ki1.")
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))[:12]


def draft_of(space: str, list_id: str, first: Sequence[str], second: Sequence[str], size: int) -> Draft[str]:
    """What a list with that id must be, if these are the rankings of the serving model and of the candidate."""
    impression = f"{space}/{head_of(list_id).hex()}"
    return team_draft(first, second, size, seed=KEYS.seed, impression=impression)


def damaged(list_id: str, prefix: str) -> Iterator[str]:
    """The id with each of its bits changed, and each of its beginnings."""
    text = list_id.removeprefix(prefix)
    raw = bytearray(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    for bit in range(len(raw) * 8):
        raw[bit >> 3] ^= 1 << (bit & 7)
        yield prefix + base64.urlsafe_b64encode(bytes(raw)).rstrip(b"=").decode()
        raw[bit >> 3] ^= 1 << (bit & 7)
    for length in range(len(list_id)):
        yield list_id[:length]


def respelled(list_id: str, prefix: str) -> set[str]:
    """Other texts that a lenient reader takes for the same id: alphabet, padding, spare bits, white space, case."""
    text = list_id.removeprefix(prefix)
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    places = [n for n, character in enumerate(text) if character in "-_"]
    other = str.maketrans("-_", "+/")
    found = {text.translate(other), *(text[:n] + text[n].translate(other) + text[n + 1 :] for n in places)}
    found |= {one + "=" * count for one in (text, text.translate(other)) for count in (1, 2, 3, 4)}
    spare = {0: 0, 1: 4, 2: 2}[len(raw) % 3]
    last = alphabet.index(text[-1])
    found |= {text[:-1] + alphabet[last ^ bits] for bits in range(1, 1 << spare)}
    for space in (" ", "\n", "\t", "\r\n", "\u00a0", "\u200b", "%20"):
        found |= {space + text, text + space, text[:9] + space + text[9:]}
    # Digits and letters of other scripts.
    found |= {text.replace(one, chr(ord(one) + 0xFEE0)) for one in set(text) - set("-_")}
    found |= {text.replace("-", "%2D"), text.replace("_", "%5F"), text + ".", prefix + text}
    return {prefix + one for one in found if one != text}


def gate_of(agent: Agent) -> SpaceGate:
    """The gate of the space docs."""
    space = agent.runners[0].machine.find("docs")
    assert space is not None and isinstance(space.core, SpaceGate)
    return space.core
