"""The layers of settings: file, environment, command line; later ones override. Also finds which layer set a value."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kinstream.streams.configuration.faults import Fault, Path, place
from kinstream.streams.spelling import nearest

PREFIX: Final = "KINSTREAM_"
BROKERS: Final = "KAFKA_"
_BETWEEN: Final = "__"


@dataclass(frozen=True, slots=True)
class Layers:
    """Settings as each layer has them.

    Parameters
    ----------
    file : its path.
    in_file, environment : nested.
    overrides : dotted names of the command line.
    """

    file: str
    in_file: dict[str, Any]
    environment: dict[str, Any]
    overrides: dict[str, Any]

    def merged(self, faults: list[Fault]) -> dict[str, Any]:
        """All layers merged. A command-line value that does not fit the structure becomes a fault."""
        data = merged(self.in_file, self.environment)
        for name, value in self.overrides.items():
            *sections, last = name.split(".")
            inner = data
            for number, section in enumerate(sections, 1):
                below = inner.setdefault(section, {})
                if not isinstance(below, dict):
                    above = ".".join(sections[:number])
                    faults.append(Fault(f"--set {name}", f"{above} is not a section, and has no settings"))
                    break
                inner[section] = inner = dict(below)
            else:
                inner[last] = value
        return data

    def where(self, path: Path, *, section: bool = False) -> str:
        """The place that set a faulty value: file and place in it, an environment variable, or an option."""
        if not path:
            return self.file
        for name in self.overrides:
            if _covers(tuple(name.split(".")), path):
                return f"--set {name}"
        in_environment = _is_section(self.environment, path)
        if _deepest(self.environment, path) == path and not in_environment:
            return _variable(path)
        section = section or in_environment or _is_section(self.in_file, path)
        here = place(path, section=section)
        # A setting that is missing has no place of its own: its section has.
        around = path if section else path[:-1]
        setters = [_variable(one) for one in _leaves(self.environment) if one and _covers(around, one)]
        setters += [f"--set {name}" for name in self.overrides if _covers(around, tuple(name.split(".")))]
        others = ", ".join(sorted(set(setters)))
        if others and _deepest(self.in_file, around) != around:
            return f"{others}: {here}"
        return f"{self.file}, {here}{f' with {others}' if others and section else ''}"


def _covers(above: Path, below: Path) -> bool:
    return below[: len(above)] == above


def _leaves(data: Any, path: Path = ()) -> Iterator[Path]:
    """The path of each value that is not a section with something in it."""
    if isinstance(data, dict) and data:
        for name, value in data.items():
            yield from _leaves(value, (*path, name))
    else:
        yield path


def _deepest(data: Any, path: Path) -> Path:
    """As much of a path as the data has."""
    found = []
    for part in path:
        if not isinstance(data, dict) or part not in data:
            break
        found.append(part)
        data = data[part]
    return tuple(found)


def _is_section(data: Any, path: Path) -> bool:
    for part in path:
        data = data.get(part) if isinstance(data, dict) else None
    return isinstance(data, dict)


def _variable(path: Path) -> str:
    """The variable that set it: one of its own, or one with a whole section in it as JSON."""
    present = {name.upper() for name in os.environ}
    candidates = [PREFIX + _BETWEEN.join(path[:length]).upper() for length in range(len(path), 0, -1)]
    if path[0] == "kafka" and len(path) > 1:
        # Kafka's own variables override ours.
        candidates.insert(0, BROKERS + path[1].upper())
    return next((name for name in candidates if name in present), candidates[0])


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Nested tables as one; if both have a value, that of `above`."""
    both = {
        n: merged(below[n], v)
        for n, v in above.items()
        if isinstance(v, dict) and isinstance(below.get(n), dict)
    }
    return {**below, **above, **both}


def environment_faults(
    environment: Mapping[str, str], sections: Iterable[str], brokers: Iterable[str], keys: Iterable[str]
) -> Iterator[Fault]:
    """Variables that look like settings and set nothing.

    Other programs may use our prefixes too: clusters name variables after services, and Kafka's own tools have theirs.
    So only variables with our separator are refused, and those that are similar to an unset one of ours.

    Parameters
    ----------
    keys : every setting with a name of its own, dotted.
    """
    found = {name.upper() for name in environment}
    ours = {BROKERS + key.upper() for key in brokers}
    tops = {f"{PREFIX}{section.upper()}": section for section in sections}
    flat = {f"{PREFIX}{key.replace('.', '_').upper()}": key for key in keys}
    for name in sorted(found):
        if name.startswith(PREFIX):
            top = name.split(_BETWEEN)[0]
            if name in flat and name not in tops:
                yield Fault(name, f"sets nothing; did you mean {PREFIX}{_flat(flat[name])}?")
            elif _BETWEEN in name and top not in tops:
                close = nearest(top, tops)
                whole = close + name.removeprefix(top) if close else ""
                hint = f"did you mean {whole}?" if close else f"there are {', '.join(sorted(tops))}"
                yield Fault(name, f"there is no such section; {hint}")
        elif name.startswith(BROKERS) and name not in ours and (close := nearest(name, ours - found)):
            yield Fault(name, f"sets nothing; did you mean {close}?")


def _flat(key: str) -> str:
    return key.replace(".", _BETWEEN).upper()


def broken_json(environment: Mapping[str, str], sections: Iterable[str]) -> Iterator[str]:
    """Our variables that begin as JSON does, or have to be JSON, but are not JSON."""
    whole = {f"{PREFIX}{section.upper()}" for section in sections}
    for name, text in sorted(environment.items()):
        variable = name.upper()
        within = variable.split(_BETWEEN)[0] in whole and text.lstrip()[:1] in ("{", "[")
        if (within or variable in whole) and not _is_json(text):
            yield variable


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
