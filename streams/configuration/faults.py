"""Faults of settings, each with its place, as the settings file names it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from kinstream.streams.spelling import meant

Path = tuple[str, ...]

#: Values of these, and under them, are not shown: one of them may be a secret.
_HIDDEN: Final = ("kafka", "connection", "gate_key", "endpoint", "registry")
#: A wrong word for one of a few is shown there too.
_WORD: Final = re.compile(r"[A-Z_]{0,16}|[a-z_]{0,16}")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
#: Settings of earlier versions.
_GONE: Final[dict[Path, str]] = {
    ("worker", "group_protocol"): "it was removed: workers join by Kafka's classic protocol; leave it out",
    ("serve", "rebuild_seconds"): "it was removed: an index is built at most once a second; leave it out",
    ("search",): "there is no such section: the service is [serve], and its spaces are [serve.spaces.NAME]",
    (
        "gateway",
    ): "there is no such section: the service is [serve], and its spaces are [serve.spaces.NAME] with "
    "backend as the kind of their store",
}
#: Longest text of a value that is repeated.
_SHOWN: Final = 60


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Parameters
    ----------
    where : file, section and key; or the variable, or the option of the command line, that set it.
    """

    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


def as_text(faults: Sequence[Fault]) -> str:
    """All faults as text: one fault on one line, several with a line each."""
    unique = list(dict.fromkeys(map(str, faults)))
    if len(unique) == 1:
        return unique[0]
    return f"the settings have {len(unique)} faults:" + "".join(f"\n  - {fault}" for fault in unique)


def place(path: Path, *, section: bool = False) -> str:
    """A setting as the settings file writes it: `[checkpoints] keep`, or `[checkpoints]` for a whole section."""
    if section:
        return f"[{dotted(path)}]"
    *sections, key = path
    return f"[{dotted(tuple(sections))}] {_key(key)}" if sections else _key(key)


def dotted(path: Path) -> str:
    """A setting as `--set` writes it: `checkpoints.keep`."""
    return ".".join(map(_key, path))


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def shown(value: Any) -> str:
    """A value in an error, as the settings file writes it; a long or nested value is named by its type."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str() if len(value) <= _SHOWN:
            return json.dumps(value, ensure_ascii=False)
        case None:
            return "nothing"
    return _kind(value)


def _kind(value: Any) -> str:
    match value:
        case str():
            return "text"
        case dict():
            return "a table"
        case list() | tuple():
            return "a list"
    return shown(value)


def faults_of(
    error: ValidationError, model: type[BaseModel], above: Path = ()
) -> Iterator[tuple[Path, bool, str]]:
    """Path, whether it is a section, and a message of ours for the fault.

    Parameters
    ----------
    above : where `model` lies in the settings.
    """
    for found in error.errors(include_url=False):
        where = [part for part in found["loc"] if isinstance(part, str)]  # without the number of an entry
        if where and where[-1] == "[key]":
            where.pop()
            yield (*above, *where), True, f"a name {_patterns(model)[found['ctx']['pattern']]}"
            continue
        around, kind = _types(model, where)
        path = (*above, *where)
        if found["type"] == "extra_forbidden":
            value = found["input"]
            known = sorted(names(around))
            section = isinstance(value, dict) and not isinstance(around, NoneType)
            what = "section" if section else "setting"
            yield path, section, _GONE.get(path) or f"there is no such {what}{_known(where[-1], known)}"
            continue
        hidden = not set(_HIDDEN).isdisjoint(path)
        if found["type"] == "string_pattern_mismatch":
            value = found["input"]
            given = "" if hidden or len(value) > _SHOWN else f"; {shown(value)} is not"
            yield path, False, f"{_patterns(model)[found['ctx']['pattern']]}{given}"
            continue
        # A `KeyFault`, of a whole section.
        if key := getattr(found.get("ctx", {}).get("error"), "key", None):
            yield (*path, key), False, str(found["ctx"]["error"])
            continue
        yield path, bool(names(_bare(kind))), _words(found, kind, hidden=hidden)


def _patterns(model: type[BaseModel]) -> dict[str, str]:
    """The description of each pattern of the settings."""
    found: dict[str, str] = {}
    left: list[Any] = [model.model_json_schema()]
    while left:
        match left.pop():
            case {"pattern": str(pattern), "description": str(text)}:
                found[pattern] = text
            case dict() as table:
                left += table.values()
            case list() as entries:
                left += entries
    return found


def _known(word: str, known: Sequence[str]) -> str:
    return meant([word], known) or f"; there are {', '.join(known) or 'none'}"


def names(kind: Any) -> list[str]:
    """The keys that a section of that type has."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [field.alias or name for name, field in kind.model_fields.items()]
    return []


def _types(model: Any, where: Sequence[str]) -> tuple[Any, Any]:
    """The types of the section that holds a setting, and of the setting; None where there is none."""
    around, kind = None, model
    for part in where:
        around, kind = kind, _inside(kind, part)
    return around, kind


def _inside(kind: Any, part: str) -> Any:
    kind = _bare(kind)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            if part in (name, field.alias):
                return field.annotation
        return None
    if get_origin(kind) is dict:
        return _bare(get_args(kind)[1])
    return None


def _bare(kind: Any) -> Any:
    """A type without its constraints, and without the None of a setting that is left out."""
    if get_origin(kind) is Annotated:
        return _bare(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        kinds = [one for one in get_args(kind) if one is not NoneType]
        return _bare(kinds[0]) if len(kinds) == 1 else kind
    return kind


def _words(found: Any, kind: Any, *, hidden: bool) -> str:
    value, kind = found["input"], _bare(kind)
    limits = found.get("ctx", {})
    given = _kind(value) if hidden or isinstance(value, str) else shown(value)
    match found["type"]:
        case "missing":
            return "is missing"
        case "value_error":
            return str(limits["error"])
        case "greater_than":
            return f"must be above {limits['gt']:g}, not {given}"
        case "greater_than_equal":
            return f"must be at least {limits['ge']}, not {given}"
        case "less_than":
            return f"must be below {limits['lt']:g}, not {given}"
        case "less_than_equal":
            return f"must be at most {limits['le']}, not {given}"
        case "literal_error":
            known = [str(one) for one in get_args(kind)] if get_origin(kind) is Literal else []
            close = meant([value], known) if isinstance(value, str) else ""
            if isinstance(value, str) and hidden and not close and not _WORD.fullmatch(value):
                return f"must be one of {', '.join(known)}; the value may be a secret, and is not shown"
            given = shown(value) if isinstance(value, str) else given
            return f"must be one of {', '.join(known)}, not {given}{close}"
        case "too_short":
            return "must name at least one"
        case "string_too_short":
            return "must not be empty"
        case "string_too_long":
            return f"must have at most {limits['max_length']} characters"
        case "string_unicode" | "string_sub_type":
            return "must be text in UTF-8"
    return f"must be {_wanted(kind)}, not {given}"


def _wanted(kind: Any) -> str:
    if kind is bool:
        return "true or false"
    if kind is int:
        return "a whole number"
    if kind is float:
        return "a number"
    if get_origin(kind) is tuple:
        return "a list of names"
    if get_origin(kind) is dict or (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return "a section"
    return "text"
