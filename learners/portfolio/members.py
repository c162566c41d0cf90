"""The members of a portfolio: learners by name with their settings, and the un-learned metrics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from kinstream.learners.baselines.euclidean import Euclidean
from kinstream.learners.shared.one_modality import SingleModal
from kinstream.learners.shared.scaler import PUBLISHED
from kinstream.streams.errors import SettingsError

Members = Mapping[str, Mapping[str, Any]]
Settings = dict[str, dict[str, Any]]

#: The default members. Step sizes are for vectors whose mean squared length is 1.
USUAL: Final[Settings] = {
    "oahu": {"kind": "oahu", "anchors": []},
    "opml": {"kind": "opml", "gamma": 0.03, "scaler": "unit"},
    "oasis": {"kind": "oasis", "aggressiveness": 0.03, "scaler": "unit"},
    "lego": {"kind": "lego", "eta": 0.01},
}
#: Euclidean distance, and that of directions, which ranks as cosine does.
UNLEARNED: Final = ("euclidean", "cosine")
#: Errors that arithmetic raises if a member's numbers are out of range.
BROKEN: Final = ArithmeticError, np.linalg.LinAlgError
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]*")
#: Made of others, or of several modalities.
_COMPOSED: Final = ("fusion", "portfolio")


@dataclass(slots=True)
class Member:
    """One metric of a portfolio.

    Parameters
    ----------
    name : in settings, weights and states.
    learner : of one modality; it gets the portfolio's scaled vectors.
    learns : false for an un-learned metric.
    """

    name: str
    learner: SingleModal
    learns: bool = True


def settings_of(members: Members | None) -> Settings:
    """Kind and hyper-parameters of each member by name.

    Raises
    ------
    SettingsError
        It is not a table of tables, names no member, or has an invalid name.
    """
    if members is None:
        return {name: dict(own) for name, own in USUAL.items()}
    if not isinstance(members, Mapping) or not members:
        raise SettingsError(f"members must be a table with a table for each of them, not {members!r}")
    found: Settings = {}
    for name, own in members.items():
        if not isinstance(own, Mapping):
            raise SettingsError(f"members.{name} must be a table of settings, not {own!r}")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise SettingsError(f"members.{name}: a name is of the characters a-z, 0-9 and -")
        if name in UNLEARNED:
            raise SettingsError(f"members.{name}: {', '.join(UNLEARNED)} are in every portfolio")
        found[name] = {"kind": name} | dict(own)
    return found


def made(members: Members, *, dtype: str, warm_up: int, seed: int) -> tuple[Member, ...]:
    """Fresh learners by their settings, then the un-learned metrics.

    Parameters
    ----------
    members : of `settings_of`.
    dtype, warm_up, seed : for members that have such a setting and do not set it.

    Raises
    ------
    SettingsError
        An unknown kind or setting, or one that a portfolio does not allow; the error names the member.
    """
    usual = {"dtype": dtype, "warm_up": warm_up, "seed": seed, "unit": PUBLISHED}
    found = [Member(name, _learner(name, own, usual)) for name, own in members.items()]
    found += [
        Member(name, Euclidean(dtype=dtype, warm_up=warm_up, scaler=scaler), learns=False)
        for name, scaler in zip(UNLEARNED, (None, "unit"), strict=True)
    ]
    return tuple(found)


def _learner(name: str, own: Mapping[str, Any], usual: Mapping[str, Any]) -> SingleModal:
    from kinstream.learners.registry import create, has

    settings = dict(own)
    kind = settings.pop("kind")
    try:
        if kind in _COMPOSED:
            raise SettingsError(f"a {kind} is made of others and cannot be a member")
        if settings.get("scaler") not in (None, "none", "unit"):
            raise SettingsError(
                f'scaler is "none" or "unit", because the portfolio scales: not {settings["scaler"]!r}'
            )
        if settings.get("unit", PUBLISHED) != PUBLISHED:
            raise SettingsError(
                f'unit is "{PUBLISHED}", because the portfolio scales: not {settings["unit"]!r}'
            )
        if not isinstance(kind, str):
            raise SettingsError(f"kind must be the name of one, not {kind!r}")
        open_ = {key: value for key, value in usual.items() if has(kind, key) and key not in settings}
        learner = create(kind, **open_, **settings)
        if not isinstance(learner, SingleModal):
            raise SettingsError(f"a member learns from one modality, and {kind} from several")
    except SettingsError as error:
        raise SettingsError(f"members.{name}: {error}") from None
    return learner
