"""The forms in which User Behavior Insights are written: names of fields by version, records in arrays and exports.

The names are those of the schema (1.0 to 1.3), of the plugin's Java records, which are written in camel case with the
hits in an object of their own, and of the data generator.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from kinstream.producers.sources.values.convert import name_of, numbers_or_nothing, refused, whole
from kinstream.producers.sources.values.fields import Fields
from kinstream.producers.sources.values.foreign_record import Incoming
from kinstream.producers.sources.values.paths import Path, compile_path
from kinstream.streams.records.checks import scores_of
from kinstream.streams.records.scores import Scores

#: Field -> paths, the usual one first. Each is also known in camel case.
_FORMS: Final = {
    "action": ("action_name",),
    "query_id": ("query_id",),
    "items": (
        "query_response_hit_ids",
        "query_response_object_ids",
        "query_response_objects_ids",
        "query_response.query_response_hit_ids",
        "query_response.query_response_object_ids",
    ),
    "item": (
        "event_attributes.object.object_id",
        "event_attributes.object[*].object_id",
        "object_id",
    ),
    "position": (
        "event_attributes.position.ordinal",
        "event_attributes.position.index",
        "event_attributes.position",
        "event_attributes.rank",
        "position.ordinal",
        "position",
        "rank",
    ),
    "time": ("timestamp", "['@timestamp']"),
    "session": ("session_id", "event_attributes.session_id"),
    "user": ("client_id", "user_id"),
}
_WORD: Final = re.compile("_([a-z])")
#: Keys of the lines between the documents of a bulk request.
_BULK: Final = frozenset({"index", "create", "update", "delete"})
_SOURCE: Final = "_source"
_MAX_ORDINAL: Final = 2**31 - 1


def documents(value: Any) -> list[Any]:
    """The records in the value of a Kafka record: itself, or those of its array; each also as an export wraps it."""
    each = value if type(value) is list else [value]
    return [one[_SOURCE] if type(one) is dict and type(one.get(_SOURCE)) is dict else one for one in each]


def is_bulk_line(value: Any) -> bool:
    """Whether it is a line that says what to do with the document after it."""
    if type(value) is not dict or len(value) != 1:
        return False
    ((name, what),) = value.items()
    return name in _BULK and type(what) is dict


class Forms:
    """Reads the fields of records, whichever form they have.

    Parameters
    ----------
    given : paths of the settings; such a field has no other form.
    space : as of `Fields`.

    Raises
    ------
    SettingsError : a field is unknown, or a path is not one. The message begins with the name of the setting.
    """

    def __init__(self, given: Mapping[str, Any], space: str) -> None:
        self.fields = Fields("ubi", {**{name: paths[0] for name, paths in _FORMS.items()}, **given}, space)
        self._paths: dict[str, tuple[Path, ...]] = {}
        for name, paths in _FORMS.items():
            if name in given:
                self._paths[name] = (self.fields[name].path,)
            else:
                both = [form for path in paths for form in (path, _WORD.sub(_upper, path))]
                self._paths[name] = tuple(map(compile_path, dict.fromkeys(both)))

    def where(self, name: str) -> str:
        """Begins the refusals that concern a field."""
        return self.fields[name].where

    def value(self, record: Incoming, name: str) -> Any:
        """The value of a field; None where there is none."""
        for path in self._paths[name]:
            found = record.at(path)
            if found is not None:
                return found
        return None

    def name(self, record: Incoming, name: str) -> str | None:
        """A name in a field; None where there is none.

        Raises
        ------
        BadRecord : it is no name.
        """
        if name not in self._paths and name not in self.fields:
            return None
        value = self.value(record, name) if name in self._paths else record.at(self.fields[name].path)
        found = _only(value)
        return None if found is None or found == "" else name_of(found, self.where(name))

    def items(self, record: Incoming) -> list[str | None]:
        """The items that an event is about, usually one; None for an object without an id, or where it has none.

        Raises
        ------
        BadRecord : one is no name.
        """
        found = self.value(record, "item")
        each = found if type(found) is list else [found]
        where = self.where("item")
        return [None if one is None else name_of(one, where) for one in each]

    def scores(self, record: Incoming, count: int) -> Scores | None:
        """Scores of so many items of a query, or of an impression, from the paths that it has; None without any.

        Raises
        ------
        BadRecord : a path has no list of that length, or something that is no number.
        """
        found: dict[str, list[int | float | None]] = {}
        for field in self.fields.scores:
            value = record.at(field.path)
            if value is not None:
                each = value if type(value) is list else [value]
                found[field.name] = numbers_or_nothing(each, count, field.where)
        return scores_of(found, count)

    def ordinal(self, record: Incoming) -> int | None:
        """The rank that an event names, from 0 or from 1; None where it has none.

        Raises
        ------
        BadRecord : it is no whole number from 0 on.
        """
        for path in self._paths["position"]:
            found = _only(record.at(path))
            if found is None or type(found) is dict:
                continue
            where = self.where("position")
            ordinal = whole(found, where)
            if not 0 <= ordinal < _MAX_ORDINAL:
                raise refused(where, f"{ordinal} is no rank")
            return ordinal
        return None

    def hits(self, record: Incoming) -> list[str | None] | None:
        """The hits of a query in their order, None for one without an id; None in all where it names none.

        Raises
        ------
        BadRecord : one is no name.
        """
        found = self.value(record, "items")
        if found is None:
            return None
        where = self.where("items")
        each = found if type(found) is list else [found]
        return [None if one is None else name_of(one, where) for one in each]


def _upper(found: re.Match[str]) -> str:
    return found[1].upper()


def _only(value: Any) -> Any:
    """The value in a list of one: the store makes no difference between the two."""
    return value[0] if type(value) is list and len(value) == 1 else value
