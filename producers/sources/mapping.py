"""The mapping of a source: records of a topic to events. Pure: the same record gives the same events."""

from __future__ import annotations

from typing import Protocol

from kinstream.producers.sources.feedback import shown
from kinstream.producers.sources.lists import ClickLists
from kinstream.producers.sources.rows import Items, Maker, Relations, Samples
from kinstream.producers.sources.schemas.registry import Registry, SchemaFiles
from kinstream.producers.sources.ubi import ubi
from kinstream.producers.sources.values.fields import Fields
from kinstream.producers.sources.values.formats import Avro, Format, Json
from kinstream.producers.sources.values.reader import Reader
from kinstream.streams.configuration.sources import FEEDBACK, SourceSettings
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.message import Message
from kinstream.streams.records.state import State
from kinstream.streams.records.values import Loaded


class Mapper(Protocol):
    """Maps records of one partition, in the order of its log."""

    def events(self, message: Message) -> list[Loaded] | None:
        """The events that a record causes, without load positions; None where the settings leave it out.

        Raises
        ------
        BadRecord : it does not fit the mapping; the state is untouched.
        Unchanged : a value that it needs is not in it, because it has not changed; the state is untouched.
        OutsideUnavailable : another system, which knows how to read it, does not answer; the state is untouched.
        """

    def held_back(self) -> list[Loaded]:
        """Events that later records of the partition will complete."""

    def counts(self) -> dict[str, int]:
        """Numbers of what became of parts of records, by fate; they never decrease."""

    def state(self) -> State:
        """What later results depend on, besides the settings."""

    def restore(self, state: State) -> None:
        """Continue from what `state` returned."""

    def inherit(self, state: State) -> None:
        """Take over what the state of an older generation holds back; its settings may have been others."""


class Direct:
    """Every record by itself: no state besides the schemas of its format."""

    def __init__(self, reader: Reader, fields: Fields, make: Maker) -> None:
        self._reader = reader
        self._fields = fields
        self._make = make

    def events(self, message: Message) -> list[Loaded] | None:
        record = self._reader.read(message)
        if record is None:
            return None
        self._fields.check_changed(record)
        return self._make(record)

    def held_back(self) -> list[Loaded]:
        return []

    def counts(self) -> dict[str, int]:
        return {}

    def state(self) -> State:
        return self._reader.format.state()

    def restore(self, state: State) -> None:
        self._reader.format.restore(state)

    def inherit(self, state: State) -> None:
        """Nothing is held back. A schema of another generation may have changed under its id."""


def format_of(settings: SourceSettings) -> Format:
    """The format of a source.

    Raises
    ------
    SettingsError : a file of a schema or of the password cannot be read, or the registry's address is not one.
    """
    if settings.format == "json":
        return Json()
    files = SchemaFiles(settings.schemas)
    if not settings.registry:
        return Avro(files)
    try:
        password = settings.registry_password()
    except ValueError as error:
        raise SettingsError(f"registry_password_file must be readable: {error}") from error
    return Avro(Registry(settings.registry, settings.registry_username, password, files))


def mapper(settings: SourceSettings, format_: Format | None = None, *, sending: bool = False) -> Mapper:
    """The mapper of a partition of a source, or of a file.

    Parameters
    ----------
    format_ : parses values, instead of the format of the settings.
    sending : records without a time have that of sending, -1.

    Raises
    ------
    SettingsError : the settings do not fit together. The message begins with the name of the setting.
    """
    if settings.preset == FEEDBACK:
        return shown(settings)
    format_ = format_ or format_of(settings)
    if settings.preset == "ubi":
        return ubi(settings, format_)
    kind = settings.kind or ""
    fields = Fields(kind, settings.fields, settings.space, settings.unavailable_value, sending=sending)
    make: Maker
    match kind:
        case "samples":
            make = Samples(fields)
        case "items":
            make = Items(fields)
        case "relations":
            make = Relations(fields)
        case _:
            make = ClickLists(fields, settings.first_position)
    reader = Reader(format_, settings.when, needs_value=kind != "items")
    return Direct(reader, fields, make)
