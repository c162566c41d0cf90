"""Suggests the known name that a misspelt one was meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

#: Lowest ratio of difflib: one or two letters differ in a short word.
_CLOSE: Final = 0.65


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name that is most like `word`; None if no name is similar.

    Examples
    --------
    >>> nearest("gama", ["gamma", "guard"])
    'gamma'
    """
    plain = {_plain(name): name for name in known}
    found = get_close_matches(_plain(word), plain, n=1, cutoff=_CLOSE)
    return plain[found[0]] if found else None


def meant(words: Iterable[str], known: Iterable[str]) -> str:
    """ "; did you mean ...?", or nothing if no name is similar to one of the words.

    Examples
    --------
    >>> meant(["gama"], ["gamma", "guard"])
    '; did you mean gamma?'
    """
    names = list(known)
    found = [name for name in (nearest(word, names) for word in words) if name is not None]
    return f"; did you mean {', '.join(dict.fromkeys(found))}?" if found else ""


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")
