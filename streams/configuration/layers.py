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
        if _deepest(self.environment, path) == path:
            return _variable(path)
        here = place(path, section=section or _is_section(self.in_file, path))
        if len(path) > 1 and _deepest(self.in_file, path[:-1]) == path[:-1]:
            return f"{self.file}, {here}"
        # A setting is missing in a section that only another layer has.
        for name in self.overrides:
            if _covers(path[:-1], tuple(name.split("."))):
                return f"--set {name}: {here}"
        if len(path) > 1 and _deepest(self.environment, path[:-1]) == path[:-1]:
            return f"{_variable(path[:-1])}: {here}"
        return f"{self.file}, {here}"


def _covers(above: Path, below: Path) -> bool:
    return below[: len(above)] == above


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
    for length in range(len(path), 0, -1):
        name = PREFIX + _BETWEEN.join(path[:length]).upper()
        if name in present:
            return name
    if path[0] == "kafka" and len(path) > 1:
        return BROKERS + path[1].upper()
    return PREFIX + _BETWEEN.join(path).upper()


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
