"""Avro schemas by id: from files, or from a Confluent schema registry."""

from __future__ import annotations

import base64
import io
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException, IncompleteRead
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote, urlsplit
from uuid import UUID

import fastavro

from kinstream.producers.sources.schemas.size import MAX_VALUES, SchemaSize, UnboundedSchema, schema_size
from kinstream.streams.configuration.section import start_of
from kinstream.streams.errors import OutsideUnavailable, SettingsError
from kinstream.streams.records.foreign.names import shown
from kinstream.streams.redirects import NoRedirect
from kinstream.streams.secrets import hide, without_secret

#: Seconds that a registry has for an answer.
_PATIENCE: Final = 10.0
_MAX_BYTES: Final = 4_000_000
_NOT_FOUND: Final = 404
_REDIRECTS: Final = range(300, 400)
#: Schemas that one schema may refer to, directly or not.
_MAX_REFERENCES: Final = 100
#: A schema beside those that it refers to, in the order of their definitions.
_REFERENCES: Final = "references"
_SCHEMA: Final = "schema"
_WHOLE: Final = "value"
#: Characters of an error in a refusal.
_SHOWN: Final = 200


class UnknownSchema(Exception):
    """No schema of that id is known, or it cannot be used to read records."""


class RegistryUnavailable(OutsideUnavailable):
    """The schema registry does not answer, or refuses this client. The record waits."""


class Schemas(Protocol):
    """Looks schemas up by id: a number, or a UUID, as text."""

    def text(self, schema_id: str) -> str:
        """The schema of that id as JSON.

        Raises
        ------
        UnknownSchema : there is none.
        RegistryUnavailable : it is not known whether there is one.
        """

    def files(self) -> Mapping[str, str]:
        """The schemas that need no registry."""


class SchemaFiles:
    """Schemas in files.

    Parameters
    ----------
    paths : id -> file.

    Raises
    ------
    SettingsError : an id is none, or a file cannot be read or is no schema. The message begins with the setting.
    """

    def __init__(self, paths: Mapping[str, str]) -> None:
        self._texts: dict[str, str] = {}
        for given, path in paths.items():
            schema_id = _id_of(given)
            if schema_id is None:
                raise SettingsError(
                    f'schemas must be files by schema id, such as {{ 12 = "click.avsc" }}, not {given!r}'
                )
            try:
                text = start_of(Path(path), _MAX_BYTES).decode()
            except (OSError, UnicodeDecodeError, SettingsError) as error:
                raise SettingsError(f"schemas must be readable files: {path}: {error}") from error
            try:
                _plain(_loaded(text, "the file"), "the file")
                parsed(text)
            except UnknownSchema as error:
                raise SettingsError(f"schemas must be Avro schemas: {path}: {error}") from error
            self._texts[schema_id] = text

    def text(self, schema_id: str) -> str:
        try:
            return self._texts[schema_id]
        except KeyError:
            known = ", ".join(sorted(self._texts)) or "none"
            raise UnknownSchema(
                f"schema {schema_id} has no file in schemas (there are {known}), and no registry is set"
            ) from None

    def files(self) -> Mapping[str, str]:
        return self._texts


def _id_of(given: str) -> str | None:
    """An id as records have it; None if no record can have it."""
    if given.isdecimal() and given.isascii():
        return str(int(given)) if len(given) < 12 and int(given) < 2**32 else None
    try:
        return str(UUID(given))
    except ValueError:
        return None


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
        self._opener = urllib.request.build_opener(NoRedirect)

    def files(self) -> Mapping[str, str]:
        return self._files.files()

    def text(self, schema_id: str) -> str:
        if schema_id in self.files():
            return self.files()[schema_id]
        place = f"/schemas/ids/{schema_id}" if schema_id.isdecimal() else f"/schemas/guids/{schema_id}"
        found = self._ask(place, f"schema {schema_id}")
        kind = found.get("schemaType") or "AVRO"
        if kind != "AVRO":
            raise UnknownSchema(f"schema {schema_id} is {shown(kind)}, not Avro")
        referred: dict[str, Any] = {}
        self._collect(found.get("references"), referred, set())
        own = _plain(_loaded(found.get("schema"), f"schema {schema_id}"), f"schema {schema_id}")
        try:
            return json.dumps({_REFERENCES: list(referred.values()), _SCHEMA: own} if referred else own)
        except RecursionError as error:
            raise UnknownSchema(f"schema {schema_id} is nested too deep") from error

    def _collect(self, references: Any, found: dict[str, Any], begun: set[str]) -> None:
        """Find the schemas that others refer to; those that they refer to themselves come first."""
        for name, subject, version in _references(references):
            if name in found:
                continue
            if name in begun:
                raise UnknownSchema(f"{shown(name)} refers to itself")
            if len(begun) >= _MAX_REFERENCES:
                raise UnknownSchema(f"it refers to more than {_MAX_REFERENCES} schemas")
            begun.add(name)
            place = f"/subjects/{quote(subject, safe='')}/versions/{version}"
            answer = self._ask(place, f"schema {shown(name)}, which it refers to")
            self._collect(answer.get("references"), found, begun)
            found[name] = _loaded(answer.get("schema"), shown(name))

    def _ask(self, path: str, what: str) -> dict[str, Any]:
        request = urllib.request.Request(self._url + path, headers=self._headers)
        at = f"the schema registry at {without_secret(self._url)}"
        try:
            with self._opener.open(request, timeout=_PATIENCE) as answer:
                body = _read(answer)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == _NOT_FOUND:
                    raise UnknownSchema(f"{what} is not in the registry at {self._url}") from error
                text = f"{at} answers {error.code} for {what}"
                if error.code in _REDIRECTS:
                    text += ": redirects are not followed; set registry to the address that answers itself"
                raise RegistryUnavailable(text) from error
        except (OSError, ValueError, HTTPException) as error:
            raise RegistryUnavailable(f"{at} does not answer: {hide(_brief(error))}") from error
        if len(body) > _MAX_BYTES:
            raise UnknownSchema(f"{what} is larger than {_MAX_BYTES} bytes")
        try:
            found = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise RegistryUnavailable(f"{at} answers with no JSON for {what}") from error
        if not isinstance(found, dict):
            raise RegistryUnavailable(f"{at} answers with no JSON object for {what}")
        return found


def _read(answer: Any) -> bytes:
    """The body of an answer, or its first bytes if it is too large. Raises TimeoutError for one that does not end."""
    until = time.monotonic() + 3 * _PATIENCE
    found = bytearray()
    while part := answer.read1(65_536):
        found += part
        if len(found) > _MAX_BYTES:
            break
        if time.monotonic() > until:
            raise TimeoutError("its answer does not end")
    if len(found) <= _MAX_BYTES and answer.length:
        raise IncompleteRead(bytes(found), answer.length)
    return bytes(found)


def _references(found: Any) -> Iterator[tuple[str, str, int]]:
    """Name, subject and version of each reference of an answer."""
    if not isinstance(found, list | None):
        raise UnknownSchema(f"its references are {shown(found)}, no list")
    for one in found or ():
        name, subject, version = (
            (one.get(key) for key in ("name", "subject", "version")) if isinstance(one, dict) else (None,) * 3
        )
        if not (isinstance(name, str) and isinstance(subject, str) and type(version) is int):
            raise UnknownSchema("one of its references has no name, no subject or no version")
        try:
            yield name, subject.encode().decode(), version
        except UnicodeEncodeError as error:
            raise UnknownSchema("the subject of one of its references is no text") from error


def _loaded(text: Any, what: str) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise UnknownSchema(f"{what} is not JSON") from error


def _with_references(raw: Any) -> bool:
    """Whether it is a schema beside those that it refers to: no Avro schema is an object without a type."""
    return isinstance(raw, dict) and "type" not in raw


def _plain(raw: Any, what: str) -> Any:
    """A schema of another system. Raises UnknownSchema for an object that only Kinstream writes."""
    if _with_references(raw):
        raise UnknownSchema(f"{what} is no Avro schema: it has no type")
    return raw


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema for reading records."""

    _whole: Any
    _size: SchemaSize

    def read(self, body: bytes) -> Any:
        """The value of a record.

        Raises
        ------
        ValueError : the bytes are of another schema, or could hold too many values.
        """
        if self._size.most_values(len(body)) > MAX_VALUES:
            raise ValueError(f"{len(body)} bytes that could hold more than {MAX_VALUES} values")
        source = io.BytesIO(body)
        try:
            found: Any = fastavro.schemaless_reader(source, self._whole, None)
        except Exception as error:
            # Bytes that are not of the schema make the library fail in many ways; none of them is the stream's fault.
            raise ValueError(f"{type(error).__name__} while decoding: {_brief(error)}") from error
        if source.tell() != len(body):
            raise ValueError(f"{len(body) - source.tell()} bytes left over")
        return found[_WHOLE]


def parsed(text: str) -> Schema:
    """A schema for reading.

    Raises
    ------
    UnknownSchema : it is no Avro schema, or records of it could take any amount of time or memory.
    """
    named: dict[str, Any] = {}
    try:
        own = json.loads(text)
        if _with_references(own):
            for one in own[_REFERENCES]:
                fastavro.parse_schema(_in_record(one), named)
            own = own[_SCHEMA]
        whole: Any = fastavro.parse_schema(_in_record(own), named)
        return Schema(whole, schema_size(whole["fields"][0]["type"], named))
    except UnboundedSchema as error:
        raise UnknownSchema(str(error)) from error
    except Exception as error:
        raise UnknownSchema(f"it is no Avro schema: {_brief(error)}") from error


def _in_record(schema: Any) -> Any:
    """A record with that one field: its bytes are those of the field, and the library knows all types by their names.

    No Avro schema can have its name.
    """
    return {"type": "record", "name": "", "fields": [{"name": _WHOLE, "type": schema}]}


def _brief(error: Exception) -> str:
    """The text of an error, bounded: it may quote all of a schema."""
    text = str(error) or type(error).__name__
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
