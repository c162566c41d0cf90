"""The fields of each kind of event, and the settings' paths to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kinstream.producers.sources.values.convert import name_of, time_ms
from kinstream.producers.sources.values.foreign_record import Incoming
from kinstream.producers.sources.values.partition_time import not_ahead
from kinstream.producers.sources.values.paths import Path, compile_path
from kinstream.producers.sources.values.placeholder import Placeholder, Unchanged
from kinstream.streams.configuration.sources import UNAVAILABLE
from kinstream.streams.errors import BadRecord, Reason, SettingsError
from kinstream.streams.records.checks import check_space
from kinstream.streams.records.scores import name_fault
from kinstream.streams.records.values import DEFAULT_MODALITY
from kinstream.streams.signals import MOST_NAMES
from kinstream.streams.spelling import meant

#: Kind of event -> (fields that it needs, fields that it may have). `space` and `time` belong to all.
FIELDS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "samples": (("vector", "label"), ("id",)),
    "items": (("id", "vector"), ("deleted",)),
    "clicks": (
        ("items",),
        (
            *("clicks", "clicked", "clicked_at", "dwell_ms", "positions", "list_id", "session", "user"),
            *("address", "query_item", "query_vector", "action", "scores"),
        ),
    ),
    "relations": (("left", "right"), ("similar", "source")),
    # The fields of the preset, which has a path for each.
    "ubi": (
        ("action", "query_id", "items", "item", "position", "session", "user"),
        ("query_item", "query_vector", "scores"),
    ),
}
_SHARED: Final = ("space", "time")
#: Fields that may name a path for each modality.
VECTORS: Final = frozenset({"vector", "query_vector"})
#: The field with a path for each name.
SCORES: Final = "scores"


@dataclass(frozen=True, slots=True)
class MappedField:
    """A field and its path. `where` begins the refusals that concern it."""

    name: str
    path: Path
    where: str


def _field(name: str, path: Path) -> MappedField:
    return MappedField(name, path, f"{name} ({path.text})")


class Fields:
    """The fields that the settings name, compiled.

    Parameters
    ----------
    kind : a key of `FIELDS`.
    paths : field -> path; of `vector` and `query_vector` also modality -> path, of `scores` name -> path.
    space : the space of every record; empty where `fields.space` leads to it.
    unavailable : what the writer has for a value that has not changed.
    sending : records without a time have that of sending, -1.

    Raises
    ------
    SettingsError : a field is missing or unknown, a path is not one, or the space is set twice or not at all. The
        message begins with the name of the setting.
    """

    def __init__(
        self,
        kind: str,
        paths: Mapping[str, Any],
        space: str,
        unavailable: str = UNAVAILABLE,
        *,
        sending: bool = False,
    ) -> None:
        needed, optional = FIELDS[kind]
        known = (*needed, *optional, *_SHARED)
        for name in paths:
            if name not in known:
                hint = meant([name], known) or f"; there are {', '.join(known)}"
                raise SettingsError(f"fields.{name}: {kind} have no such field{hint}")
        for name in needed:
            if name not in paths:
                raise SettingsError(f"fields.{name} is missing: {kind} need {' and '.join(needed)}")
        if bool(space) == ("space" in paths):
            raise SettingsError("space must be set once: the name of the space, or its path in fields.space")
        if space:
            try:
                check_space(space)
            except BadRecord as error:
                raise SettingsError(f"space must be valid: {error.detail}") from error
        self._space = space
        self._sending = sending
        self._placeholder = Placeholder(unavailable)
        self._fields: dict[str, MappedField] = {}
        self.vectors: dict[str, tuple[MappedField, ...]] = {}
        #: Named as the scores are.
        self.scores: tuple[MappedField, ...] = ()
        for name, given in paths.items():
            if name == SCORES:
                self.scores = _scores(given)
            elif isinstance(given, Mapping):
                if name not in VECTORS or not given:
                    raise SettingsError(f"fields.{name} must be one path")
                self.vectors[name] = tuple(
                    _field(modality, compiled(f"fields.{name}.{modality}", path))
                    for modality, path in sorted(given.items())
                )
            elif name in VECTORS:
                self.vectors[name] = (_field(DEFAULT_MODALITY, compiled(f"fields.{name}", given)),)
            else:
                self._fields[name] = _field(name, compiled(f"fields.{name}", given))

    def check_changed(self, record: Incoming) -> None:
        """Raise Unchanged if a field other than a vector holds the placeholder.

        Vectors are checked where they are read: the removal of an item needs none.
        """
        value = record.message.value
        if value and not self._placeholder.may_be_in(value):
            return
        for field in (*self._fields.values(), *self.scores):
            self.changed(record.at(field.path), many=field.path.many)

    def changed(self, value: Any, *, many: bool = False) -> Any:
        """A value that is not the placeholder. Raises Unchanged for one that is, or holds it among `many`."""
        if self._placeholder == value or (many and value and any(self._placeholder == one for one in value)):
            raise Unchanged
        return value

    def find(self, name: str) -> MappedField | None:
        """The field of that name, if the settings have it."""
        return self._fields.get(name)

    def __getitem__(self, name: str) -> MappedField:
        return self._fields[name]

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def space(self, record: Incoming) -> str:
        """The space of a record.

        Raises
        ------
        BadRecord : it is missing, or no name of a space.
        """
        if self._space:
            return self._space
        field = self._fields["space"]
        return check_space(name_of(record.at(field.path), field.where))

    def time(self, record: Incoming) -> int:
        """The time of a record: its field, or the time of the Kafka record where no field is named.

        Raises
        ------
        BadRecord : it is missing, not a time, or ahead of the log.
        """
        field = self._fields.get("time")
        if field is None:
            if record.message.timestamp_ms < 0 and not self._sending:
                raise BadRecord(Reason.BAD_SHAPE, "the Kafka record has no time; name one in fields.time")
            return record.message.timestamp_ms
        return not_ahead(time_ms(record.at(field.path), field.where), record.message, field.where)


def _scores(given: Any) -> tuple[MappedField, ...]:
    if not isinstance(given, Mapping) or not 1 <= len(given) <= MOST_NAMES:
        raise SettingsError(f"fields.scores must have a path for each name, for 1 to {MOST_NAMES} names")
    for name in given:
        if fault := name_fault(name):
            raise SettingsError(f"fields.scores.{name}: {fault}")
    paths = {name: compiled(f"fields.scores.{name}", given[name]) for name in sorted(given)}
    return tuple(MappedField(name, path, f"scores.{name} ({path.text})") for name, path in paths.items())


def compiled(setting: str, text: Any) -> Path:
    if not isinstance(text, str):
        raise SettingsError(f"{setting} must be a path, not {text!r}")
    try:
        return compile_path(text)
    except SettingsError as error:
        raise SettingsError(f"{setting} must be a path: {error}") from error
