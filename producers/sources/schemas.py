"""Avro schemas by id: from files, or from a Confluent schema registry."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote, urlsplit

import fastavro

from kinstream.streams.errors import KinstreamError, SettingsError
from kinstream.streams.secrets import without_secret

#: Seconds that a registry has for an answer.
_PATIENCE: Final = 10.0
_MAX_BYTES: Final = 4_000_000
_NOT_FOUND: Final = 404
#: Schemas that one schema may refer to, directly or not.
_MAX_REFERENCES: Final = 100


class UnknownSchema(Exception):
    """No schema of that id is known, or it cannot be used to read records."""


class RegistryUnavailable(KinstreamError):
    """The schema registry does not answer, or refuses this client. The worker ends, and is started again."""


class Schemas(Protocol):
    """Looks schemas up."""

    def text(self, number: int) -> str:
        """The schema of that id as JSON.

        Raises
        ------
        UnknownSchema : there is none.
        RegistryUnavailable : it is not known whether there is one.
        """

    def files(self) -> Mapping[int, str]:
        """The schemas that need no registry."""


class SchemaFiles:
    """Schemas in files.

    Parameters
    ----------
    paths : id -> file.

    Raises
    ------
    SettingsError : an id is no number, or a file cannot be read or is no schema. The message begins with the setting.
    """

    def __init__(self, paths: Mapping[str, str]) -> None:
        self._texts: dict[int, str] = {}
        for number, path in paths.items():
            if not number.isdecimal() or not number.isascii() or int(number) >= 2**32:
                raise SettingsError(
                    f'schemas must be files by schema id, such as {{ 12 = "click.avsc" }}, not {number!r}'
                )
            try:
                text = Path(path).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise SettingsError(f"schemas must be readable files: {path}: {error}") from error
            try:
                parsed(text)
            except UnknownSchema as error:
                raise SettingsError(f"schemas must be Avro schemas: {path}: {error}") from error
            self._texts[int(number)] = text

    def text(self, number: int) -> str:
        try:
            return self._texts[number]
        except KeyError:
            known = ", ".join(map(str, sorted(self._texts))) or "none"
            raise UnknownSchema(
                f"schema {number} has no file in schemas (there are {known}), and no registry is set"
            ) from None

    def files(self) -> Mapping[int, str]:
        return self._texts


class Registry:
    """A schema registry, asked once for each id that no file has.

    Parameters
    ----------
    url : its address, such as https://registry:8081.
    username, password : for HTTP basic authentication; empty for none.
    files : schemas that need no registry.
    """

    def __init__(self, url: str, username: str, password: str, files: SchemaFiles) -> None:
        if urlsplit(url).scheme not in ("http", "https"):
            raise SettingsError(
                f"registry must be an address such as http://registry:8081, not {without_secret(url)!r}"
            )
        self._url = url.rstrip("/")
        self._files = files
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
        if username:
            token = base64.b64encode(f"{username}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"

    def files(self) -> Mapping[int, str]:
        return self._files.files()

    def text(self, number: int) -> str:
        if number in self.files():
            return self.files()[number]
        found = self._ask(f"/schemas/ids/{number}", f"schema {number}")
        kind = found.get("schemaType", "AVRO")
        if kind != "AVRO":
            raise UnknownSchema(f"schema {number} is {kind}, not Avro")
        referred: dict[str, Any] = {}
        self._collect(found.get("references") or [], referred)
        own = _loaded(found.get("schema"), f"schema {number}")
        # Those that others refer to come first. A union of named types is itself a schema.
        return json.dumps([*referred.values(), own] if referred else own)

    def _collect(self, references: Any, found: dict[str, Any]) -> None:
        for one in references:
            name = str(one["name"])
            if name in found:
                continue
            if len(found) >= _MAX_REFERENCES:
                raise UnknownSchema(f"it refers to more than {_MAX_REFERENCES} schemas")
            place = f"/subjects/{quote(str(one['subject']), safe='')}/versions/{int(one['version'])}"
            answer = self._ask(place, f"schema {name}, which it refers to")
            self._collect(answer.get("references") or [], found)
            found[name] = _loaded(answer.get("schema"), name)

    def _ask(self, path: str, what: str) -> dict[str, Any]:
        request = urllib.request.Request(self._url + path, headers=self._headers)
        shown = without_secret(self._url)
        try:
            with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
                found = json.loads(answer.read(_MAX_BYTES))
        except urllib.error.HTTPError as error:
            if error.code == _NOT_FOUND:
                raise UnknownSchema(f"{what} is not in the registry at {shown}") from error
            raise RegistryUnavailable(
                f"the schema registry at {shown} answers {error.code} for {what}"
            ) from error
        except (OSError, ValueError) as error:
            raise RegistryUnavailable(f"the schema registry at {shown} does not answer: {error}") from error
        if not isinstance(found, dict):
            raise RegistryUnavailable(
                f"the schema registry at {shown} answers with no JSON object for {what}"
            )
        return found


def _loaded(text: Any, what: str) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError) as error:
        raise UnknownSchema(f"{what} is not JSON") from error


def parsed(text: str) -> Any:
    """A schema for reading.

    Raises
    ------
    UnknownSchema : it is no Avro schema, or records of it could take any amount of time or memory.
    """
    try:
        raw = json.loads(text)
        found = fastavro.parse_schema(raw)
    except Exception as error:
        raise UnknownSchema(f"it is no Avro schema: {error}") from error
    if isinstance(raw, list) and len(raw) > 1 and all(isinstance(one, dict) for one in raw):
        # The types that the last one refers to; records are of that one.
        found = found[-1]
    return _checked(found)


def _checked(schema: Any) -> Any:
    """Refuse types of no size within lists, and types that hold themselves: a short record could claim any number."""
    _walk(schema, {}, ())
    return schema


def _walk(schema: Any, named: dict[str, bool], above: tuple[str, ...]) -> bool:
    """Check a type; returns whether its values can take no bytes."""
    if isinstance(schema, str):
        if schema in above:
            raise UnknownSchema(f"the type {schema} holds itself, which is not supported")
        return schema == "null" or named.get(schema, False)
    if isinstance(schema, list):
        for one in schema:
            _walk(one, named, above)
        return False
    kind = schema["type"]
    if kind in ("record", "error"):
        name = str(schema["name"])
        empty = all([_walk(field["type"], named, (*above, name)) for field in schema["fields"]])
        named[name] = empty
        return empty
    if kind == "array":
        if _walk(schema["items"], named, above):
            raise UnknownSchema("a list of values that take no bytes is not supported")
        return False
    if kind == "map":
        _walk(schema["values"], named, above)
        return False
    if kind == "fixed":
        named[str(schema["name"])] = schema["size"] == 0
        return bool(schema["size"] == 0)
    if kind == "enum":
        named[str(schema["name"])] = False
        return False
    return _walk(kind, named, above)
