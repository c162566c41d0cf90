"""Paths into a record: `payload.results[*].sku`. A small part of JSONPath, compiled once.

    path  = ["$."] step { "." name | "[" number "]" | "[*]" | "['" name "']" }

`@key` is the key of the Kafka record as text, `@key.id` a field of a key that is JSON, `@timestamp` the record's time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from kinstream.streams.errors import SettingsError

KEY: Final = "@key"
TIMESTAMP: Final = "@timestamp"
_STEP: Final = re.compile(
    r"""\.?(?P<name>[^.\[\]'"@$\s][^.\[\]'"\s]*)|\[(?P<number>-?[0-9]{1,9})\]|(?P<all>\[\*\])|\['(?P<quoted>[^']+)'\]"""
)
_EXAMPLE: Final = "write one such as payload.user.id, results[0].id, results[*].id or ['a.b'].c"

Get = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Path:
    """A compiled path.

    Parameters
    ----------
    text : as the settings have it.
    root : "" for the value of the record, `KEY` or `TIMESTAMP`.
    many : it holds `[*]`, so that `get` returns a list with one entry for each element.
    get : the value at the path, from the root's; None where there is none.
    steps : names and numbers, from the root on; None for `[*]`.
    """

    text: str
    root: str
    many: bool
    get: Get
    steps: tuple[str | int | None, ...]

    @property
    def plain_key(self) -> bool:
        """Whether it is the whole key, as text."""
        return self.text == KEY


def compile_path(text: str) -> Path:
    """Compile a path.

    Raises
    ------
    SettingsError : it is not one.

    Examples
    --------
    >>> compile_path("results[*].id").get({"results": [{"id": "a"}, {"id": "b"}, {}]})
    ['a', 'b', None]
    """
    root, rest = "", text.removeprefix("$").removeprefix(".") if text.startswith("$") else text
    for special in (KEY, TIMESTAMP):
        if text == special or text.startswith((f"{special}.", f"{special}[")):
            root, rest = special, text[len(special) :]
    if root == TIMESTAMP and rest:
        raise SettingsError(f"{text!r}: {TIMESTAMP} is a number and has no parts")
    steps: list[str | int | None] = []
    at = 0
    while at < len(rest):
        found = _STEP.match(rest, at)
        if found is None or (at == 0 and not root and rest.startswith(".")):
            raise SettingsError(
                f"{text!r} is not a path at character {len(text) - len(rest) + at + 1}; {_EXAMPLE}"
            )
        if found["number"] is not None:
            steps.append(int(found["number"]))
        else:
            steps.append(found["name"] or found["quoted"])  # None for [*]
        at = found.end()
    if not steps and not root:
        raise SettingsError(f"a path is empty; {_EXAMPLE}")
    return Path(text, root, None in steps, walk(tuple(steps)), tuple(steps))


def quoted(name: str) -> str:
    """The path of a field of that name.

    Examples
    --------
    >>> quoted("sku"), quoted("the sku")
    ('sku', "['the sku']")
    """
    found = _STEP.fullmatch(name)
    return name if found is not None and found["name"] == name else f"['{name}']"


def walk(steps: tuple[str | int | None, ...]) -> Get:
    """The function of the steps, from the last to the first."""
    if None in steps:
        at = steps.index(None)
        outer, rest = walk(steps[:at]), steps[at + 1 :]
        if len(rest) == 1 and isinstance(rest[0], str):
            return _each_name(outer, rest[0])
        return _each(outer, walk(rest), flat=None in rest)
    if len(steps) == 1 and isinstance(steps[0], str):
        return _name(steps[0])
    if len(steps) == 2 and isinstance(steps[0], str) and isinstance(steps[1], str):
        return _two_names(steps[0], steps[1])
    return _steps(steps)


def _name(name: str) -> Get:
    def get(value: Any) -> Any:
        return value.get(name) if type(value) is dict else None

    return get


def _two_names(first: str, second: str) -> Get:
    def get(value: Any) -> Any:
        if type(value) is not dict:
            return None
        inner = value.get(first)
        return inner.get(second) if type(inner) is dict else None

    return get


def _steps(steps: tuple[str | int | None, ...]) -> Get:
    def get(value: Any) -> Any:
        for step in steps:
            if type(step) is str:
                if type(value) is not dict:
                    return None
                value = value.get(step)
            elif type(value) is list and -len(value) <= step < len(value):  # type: ignore[operator]
                value = value[step]  # type: ignore[index]
            else:
                return None
        return value

    return get


def _each_name(outer: Get, name: str) -> Get:
    take = itemgetter(name)

    def get(value: Any) -> Any:
        found = outer(value)
        return each_of(found, name, take) if type(found) is list else None

    return get


def each_of(found: list[Any], name: str, take: Get) -> list[Any]:
    """The value of that name in each element; None where there is none. `take` is `itemgetter(name)`."""
    try:
        return list(map(take, found))
    except (KeyError, TypeError):
        return [one.get(name) if type(one) is dict else None for one in found]


def _each(outer: Get, inner: Get, *, flat: bool) -> Get:
    def get(value: Any) -> Any:
        found = outer(value)
        if type(found) is not list:
            return None
        if not flat:
            return [inner(one) for one in found]
        return [entry for one in found for entry in (inner(one) or ())]

    return get
