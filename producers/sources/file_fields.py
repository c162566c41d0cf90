"""Which columns of a file are the fields of a mapping: those that the user names, and others by their names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kinstream.producers.files.cells import CellFile, sequence
from kinstream.producers.files.columns import matching
from kinstream.producers.files.json_lines import JsonLines
from kinstream.producers.sources.values.fields import FIELDS, SCORES, VECTORS
from kinstream.producers.sources.values.paths import TIMESTAMP, compile_path, quoted
from kinstream.streams.configuration.sources import SourceSettings
from kinstream.streams.errors import SettingsError, SourceError
from kinstream.streams.spelling import meant

#: The rows of a list, in a record that is made of several rows.
IMPRESSIONS: Final = "impressions"
#: Fields of one impression a row, and the field of a list that they are the elements of.
_OF_LISTS: Final = {
    "item": "items",
    "position": "positions",
    "clicked": "clicked",
    "clicked_at": "clicked_at",
    "dwell_ms": "dwell_ms",
    "action": "action",
}
#: Fields that hold a list where one row is one list.
_LISTS: Final = ("items", "positions", "clicks", "clicked", "clicked_at", "dwell_ms", "action", SCORES)
_NAMES: Final = frozenset(
    {"id", "left", "right", "source", "items", "item", "clicks", "list_id", "session", "user"}
    | {"address", "query_item"}
)
#: Kind -> field -> names of columns that are taken for it. An address only in JSON lines: others may hold real ones.
_KNOWN: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "items": {"id": ("id", "ids", "item", "item_id")},
    "relations": {
        "left": ("left",),
        "right": ("right",),
        "similar": ("similar", "sign"),
        "time": ("time", "time_ms", "timestamp"),
        "source": ("source",),
    },
    "clicks": {
        "items": ("items",),
        "positions": ("positions",),
        "clicks": ("clicks",),
        "item": ("item", "item_id"),
        "position": ("position", "rank"),
        "clicked": ("clicked", "click"),
        "time": ("shown_at", "shown_at_ms", "timestamp", "time"),
        "clicked_at": ("clicked_at", "clicked_at_ms", "click_time"),
        "dwell_ms": ("dwell_ms",),
        "list_id": ("list_id",),
        "session": ("session", "session_id"),
        "user": ("user", "user_id"),
        "address": ("address",),
        "query_item": ("query_item", "query"),
        "query_vector": ("query_vector",),
    },
}


@dataclass(frozen=True, slots=True)
class FileFields:
    """The mapping of a file.

    Parameters
    ----------
    settings : as of a source, whose paths lead into the records that rows become.
    read : columns.
    joined : field of a record, as "shop,sku" -> the columns that its name is joined from.
    gathered : field of a record, as "q_*" -> the columns that its vector is gathered from.
    lists : columns whose text is a list.
    named : columns of names -> the field, for refusals.
    grouped : consecutive rows of one list, session and query are one record.
    spaced : rows may name their space.
    found : the fields were found by the columns; so no value stands for one that has not changed.
    """

    settings: SourceSettings
    read: tuple[str, ...]
    joined: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    gathered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lists: frozenset[str] = frozenset()
    named: Mapping[str, str] = field(default_factory=dict)
    grouped: bool = False
    spaced: bool = False
    found: bool = False

    def shaping(self) -> dict[str, Any]:
        """Everything besides the bytes of the file that its events depend on."""
        found = {name: getattr(self, name) for name in ("joined", "gathered", "grouped")}
        return {**found, "lists": sorted(self.lists), "settings": self.settings.shaping()}


def check_fields(kind: str, given: Iterable[str], known: Sequence[str] | None = None) -> None:
    """Refuse fields that a kind does not have.

    Parameters
    ----------
    known : those that it has, where they are not all of its fields.

    Raises
    ------
    SettingsError : one is not known, or has modalities and is neither a vector nor a score.
    """
    known = known or [*FIELDS[kind][0], *FIELDS[kind][1], "time"]
    for name in given:
        base, _, modality = name.partition(".")
        if base not in known or (modality and base not in {*VECTORS, SCORES}):
            hint = meant([base], known) or f"; there are: {', '.join(known)}"
            raise SettingsError(f"--field: there is no field {name!r}{hint}")


def columns_of(place: str, names: Sequence[str], text: str) -> tuple[str, ...]:
    """The columns that a text names: COL,COL, in which * and ? match; an existing name is used literally.

    Raises
    ------
    SourceError : there is no such column.
    """
    return (text,) if text in names else matching(place, names, [part.strip() for part in text.split(",")])


def guessed(place: str, names: Sequence[str], kind: str, name: str, taken: Iterable[str] = ()) -> str | None:
    """The column that is called as a field; None if there is none.

    Raises
    ------
    SourceError : several are.
    """
    known = _KNOWN[kind].get(name, ())
    likely = [one for one in names if one.strip().lower() in known and one not in taken]
    if len(likely) > 1:
        raise SourceError(
            f"{place}: the columns {', '.join(likely)} could all be {name}; choose one: --field {name}={likely[0]}"
        )
    return likely[0] if likely else None


def needed(place: str, names: Sequence[str], kind: str, name: str) -> str:
    """The column that is called as a field.

    Raises
    ------
    SourceError : there is none, or several are.
    """
    found = guessed(place, names, kind, name)
    if found is None:
        raise missing(place, names, name)
    return found


def missing(place: str, names: Sequence[str], name: str, hint: str = "") -> SourceError:
    """The error of a field that no column is called."""
    return SourceError(
        f"{place}: which column is {name}? Use --field {name}=COLUMN{hint}; there are: {', '.join(names)}"
    )


def by_source(file: CellFile, settings: SourceSettings) -> FileFields:
    """The mapping of a section `[sources.NAME]`. The columns that its paths begin with are read."""
    if settings.fields.get("time") == TIMESTAMP:
        # The time of sending, as without the field.
        fields = {name: given for name, given in settings.fields.items() if name != "time"}
        settings = settings.model_copy(update={"fields": fields})
    texts = {
        f"{name}.{modality}": text
        for name, given in settings.fields.items()
        for modality, text in (given.items() if isinstance(given, dict) else [("", given)])
    }
    firsts = {_first_of(text) for text in [*texts.values(), *settings.when]}
    read = tuple(name for name in file.names if settings.preset or name in firsts)
    return _made(file, settings, texts, read)


def by_columns(
    file: CellFile, kind: str, given: Mapping[str, str], space: str, first_position: int = 0
) -> FileFields:
    """The mapping that the user gives, completed by the names of the columns.

    Parameters
    ----------
    given : field, or field.MODALITY of a vector -> a column, a path, or several columns: COL,COL, in which * and ?
        match.

    Raises
    ------
    SettingsError : a field is not known, or takes one column only.
    SourceError : a column is missing, or several could be the field.
    """
    return _Choice(file, kind, dict(given)).made(space, first_position)


class _Choice:
    def __init__(self, file: CellFile, kind: str, given: dict[str, str]) -> None:
        self._file = file
        self._kind = kind
        self._place = str(file.path)
        self._read: dict[str, None] = {}
        self._joined: dict[str, tuple[str, ...]] = {}
        self._gathered: dict[str, tuple[str, ...]] = {}
        lower = [name.strip().lower() for name in file.names]
        self._in_lists = "items" in given or ("item" not in given and "items" in lower)
        self._given = given
        check_fields(kind, given, self._fields())
        if SCORES in given:
            # Columns that are called as their scores.
            columns = columns_of(self._place, file.names, given.pop(SCORES))
            given |= {f"{SCORES}.{column}": column for column in columns}

    def _fields(self) -> list[str]:
        known = [*FIELDS[self._kind][0], *FIELDS[self._kind][1], "time"]
        if self._kind != "clicks":
            return known
        wrong = ("item", "position") if self._in_lists else ("items", "positions", "clicks")
        return [name for name in (*known, "item", "position") if name not in wrong]

    def made(self, space: str, first_position: int) -> FileFields:
        timed = self._given.get("time") != TIMESTAMP
        if not timed:
            del self._given["time"]
        given = {name: self._path(name, text) for name, text in self._given.items()}
        given |= self._guessed({name.partition(".")[0] for name in given}, timed=timed)
        self._check_needed(given, timed=timed)
        fields: dict[str, Any] = {}
        for name, path in given.items():
            base, _, modality = name.partition(".")
            if base == SCORES:
                whole = path if self._in_lists else _under(f"{IMPRESSIONS}[*]", path)
                fields.setdefault(SCORES, {})[modality] = whole
            elif not self._in_lists and base in _OF_LISTS:
                fields[_OF_LISTS[base]] = _under(f"{IMPRESSIONS}[*]", path)
            elif modality:
                fields.setdefault(base, {})[modality] = path
            else:
                fields[base] = path
        if self._kind == "clicks":
            fields.setdefault("list_id", "list_id")
        settings = {"kind": self._kind, "space": space, "fields": fields, "first_position": first_position}
        return replace(
            _made(
                self._file,
                SourceSettings.model_validate({"topic": "file", **settings}),
                given,
                tuple(self._read),
            ),
            joined=self._joined,
            gathered=self._gathered,
            grouped=self._kind == "clicks" and not self._in_lists,
            spaced="space" in self._read,
            found=True,
        )

    def _path(self, name: str, text: str) -> str:
        """The path to a field in a record, of what the user gives."""
        base, names = name.partition(".")[0], self._file.names
        if text in names and base not in VECTORS:
            self._read[text] = None
            return quoted(text)
        if text in names or (any(mark in text for mark in ",*?") and "[*]" not in text):
            columns = columns_of(self._place, names, text)
            self._read |= dict.fromkeys(columns)
            if base in VECTORS:
                self._gathered[text] = columns
            elif base in _NAMES:
                self._joined[text] = columns
            else:
                raise SettingsError(f"--field: {name} takes one column, not {', '.join(columns)}")
            return quoted(text)
        first = _first_of(text)
        if first not in names:
            raise SourceError(f"{self._place}: there is no column {first!r}; there are: {', '.join(names)}")
        self._read[first] = None
        return text

    def _guessed(self, given: set[str], *, timed: bool) -> dict[str, str]:
        """The paths of fields that columns are named after."""
        taken = frozenset(self._read)
        names = self._file.names
        found: dict[str, str] = {}
        is_json = isinstance(self._file, JsonLines)
        if is_json and "space" in names:
            # As in JSON events: it must be that of the load.
            self._read["space"] = None
        for name in self._fields():
            if name in given or (not timed and name in ("time", "clicked_at")):
                continue
            if name == "address" and not is_json:
                continue
            column = guessed(self._place, names, self._kind, name, taken)
            if column is not None:
                found |= self._of_column(name, column, given, timed=timed)
        if is_json and SCORES in names and SCORES in self._fields() and SCORES not in given:
            scores = {name for value in self._values(SCORES) if isinstance(value, dict) for name in value}
            if scores:
                self._read[SCORES] = None
                found |= {f"{SCORES}.{name}": _under(SCORES, quoted(name)) for name in sorted(scores)}
        return found

    def _of_column(self, name: str, column: str, given: set[str], *, timed: bool) -> dict[str, str]:
        """The paths of a column that is called as a field. Its first value may be an object, as in JSON events."""
        example = self._first(column) if name in ("clicks", "query_vector") else None
        if not isinstance(example, dict):
            return {name: self._path(name, column)}
        self._read[column] = None
        if name == "query_vector":
            return {f"{name}.{one}": _under(quoted(column), quoted(one)) for one in example}
        parts = {"clicks": "item", "clicked_at": "time_ms", "dwell_ms": "dwell_ms"}
        lists = (value for value in self._values(column) if isinstance(value, list))
        if any(isinstance(one, dict) and "action" in one for value in lists for one in value):
            parts["action"] = "action"
        wanted = {of: part for of, part in parts.items() if of not in given and (timed or of != "clicked_at")}
        return {of: f"{quoted(column)}[*].{part}" for of, part in wanted.items()}

    def _first(self, column: str) -> Any:
        """The first value of a column that is no empty list; of a list its first element."""
        for _, (value,) in self._file.rows([column], 0):
            try:
                found = sequence(value)
            except ValueError:
                # The reading of the rows names it.
                return None
            if found not in (None, []):
                return found[0] if isinstance(found, list) else found
        return None

    def _values(self, column: str) -> Iterator[Any]:
        return (value for _, (value,) in self._file.rows([column], 0))

    def _check_needed(self, given: Iterable[str], *, timed: bool) -> None:
        needed: Sequence[str] = ("left", "right", "similar")
        if self._kind == "clicks":
            clicked = "clicked" if not self._in_lists or "clicked" in self._given else "clicks"
            needed = ("items" if self._in_lists else "item", clicked, *(["time"] if timed else []))
        for name in needed:
            if name not in given:
                now = f", or --field time={TIMESTAMP} for the time of sending" if name == "time" else ""
                raise missing(self._place, self._file.names, name, now)


def _made(
    file: CellFile, settings: SourceSettings, texts: Mapping[str, str], read: tuple[str, ...]
) -> FileFields:
    """A mapping with the columns of names and lists that these paths lead to."""
    bases = {name: name.partition(".")[0] for name in texts}
    firsts = {name: _first_of(text) for name, text in texts.items()}
    named = {firsts[name]: f"{base} ({texts[name]})" for name, base in bases.items() if base in _NAMES}
    lists = {firsts[name] for name, base in bases.items() if base in _LISTS}
    if isinstance(file, JsonLines) or "item" in bases.values():
        lists = set()
    return FileFields(settings, read, lists=frozenset(lists), named=named)


def _first_of(path: str) -> str:
    """The field of a record in which a path begins."""
    return path if path.startswith("@") else str(compile_path(path).steps[0])


def _under(outer: str, inner: str) -> str:
    """A path, and another one from there on."""
    return outer + ("" if inner.startswith("[") else ".") + inner
