"""Formats numbers and names for readers."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence


def number(value: float | None, digits: int = 3) -> str:
    """A measure, or a dash if there is none."""
    return "\N{EN DASH}" if value is None else f"{value:.{digits}f}"


def spread(mean: float, std: float | None) -> str:
    """A mean with the standard deviation, if there is one."""
    return number(mean) if std is None else f"{number(mean)} ± {number(std)}"


def chance(p: float | None) -> str:
    """A p-value."""
    if p is None:
        return "no test"
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}" if p < 0.1 else f"p = {p:.2f}"


def listed(names: Sequence[str], most: int = 8) -> str:
    """Names in a sentence; of many, the first ones and the number of others."""
    if len(names) > most + 1:
        return f"{', '.join(names[:most])} and {len(names) - most} others"
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def several(count: int, one: str, many: str | None = None) -> str:
    """A number with its noun."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def shortened(name: str, most: float = 26) -> str:
    """A name that fits a chart, in small letters, without what no font has a glyph for."""
    plain = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name)
    room = most
    for i, letter in enumerate(plain):
        room -= _width(letter)
        if room < 0:
            # The dots take the place of one more letter.
            return plain[: max(i - 1, 1)] + "…"
    return plain


def _width(letter: str) -> float:
    """About how many small letters a letter takes."""
    if letter in "MWmw@%" or unicodedata.east_asian_width(letter) in "WF":
        return 1.6
    return 1.25 if letter.isupper() else 1.0


def capital(text: str) -> str:
    """With a capital letter, as the first word of a heading; k-NN stays as it is."""
    return text if text.startswith("k-") else text[:1].upper() + text[1:]
