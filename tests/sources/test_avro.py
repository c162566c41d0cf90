"""Avro: schemas of files and of a registry, kept in the checkpoint, and refused where a record could claim any size."""

from __future__ import annotations

import base64
import json
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import fastavro
import pytest

from kinstream.producers.sources.schemas.registry import RegistryUnavailable, UnknownSchema, parsed
from kinstream.streams.configuration.sources import SourceSettings
from kinstream.streams.errors import GenerationMismatch, SettingsError
from tests.sources.rows import rows_of_event
from tests.sources.shop import machine, message

PRICE = {"type": "record", "name": "shop.Price", "fields": [{"name": "amount", "type": "double"}]}
PRODUCT = {
    "type": "record",
    "name": "shop.Product",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "vector", "type": {"type": "array", "items": "float"}},
        {"name": "price", "type": "shop.Price"},
    ],
}
SOURCE: dict[str, Any] = {
    "topic": "shop.items",
    "kind": "items",
    "space": "shop",
    "format": "avro",
    "fields": {"id": "id", "vector": "vector"},
}


class _Registry(BaseHTTPRequestHandler):
    """A schema registry of two schemas, one of which refers to the other."""

    answers: ClassVar[dict[str, Any]] = {
        "/schemas/ids/5": {
            "schema": json.dumps(PRODUCT),
            "references": [{"name": "shop.Price", "subject": "price value", "version": 2}],
        },
        "/subjects/price%20value/versions/2": {"schema": json.dumps(PRICE)},
        "/schemas/ids/6": {"schema": "{}", "schemaType": "PROTOBUF"},
    }
    login = "Basic " + base64.b64encode(b"kinstream:secret").decode()

    def do_GET(self) -> None:
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        status = 401 if self.headers.get("Authorization") != self.login else 200
        found = self.answers.get(self.path)
        body = json.dumps(found or {}).encode()
        self.send_response(status if status != 200 or found else 404)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), _Registry) as server:
        server.asked = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def _record(number: int) -> bytes:
    schema = fastavro.parse_schema([PRICE, PRODUCT])
    out = BytesIO()
    out.write(struct.pack(">BI", 0, number))
    body = {"id": "sku-1", "vector": [0.5, 0.25], "price": {"amount": 1.0}}
    fastavro.schemaless_writer(out, schema, ("shop.Product", body))
    # A union is written with the number of its branch; the record alone is not.
    return out.getvalue()[:5] + out.getvalue()[6:]


def _source(registry: HTTPServer, folder: Path, password: str = "secret") -> dict[str, Any]:
    (folder / "password").write_text(f"{password}\n")
    return {
        **SOURCE,
        "registry": f"http://127.0.0.1:{registry.server_port}",
        "registry_username": "kinstream",
        "registry_password_file": str(folder / "password"),
    }


def test_a_schema_is_asked_for_once_and_then_kept(registry: HTTPServer, tmp_path: Path) -> None:
    agent = machine(_source(registry, tmp_path))
    for number in range(3):
        agent.step(message(_record(5), number))
    (made,) = agent.flush()
    assert rows_of_event(made.value)[0] == ("sku-1", [0.5, 0.25])
    assert registry.asked == ["/schemas/ids/5", "/subjects/price%20value/versions/2"]  # type: ignore[attr-defined]
    # From a checkpoint the same records are read without a registry.
    registry.shutdown()
    later = machine({**_source(registry, tmp_path), "registry": "http://127.0.0.1:9"})
    later.restore(3, None, agent.partition_state(), ())
    later.step(message(_record(5), 3))
    assert len(later.flush()) == 1 and not later.dead
    with pytest.raises(RegistryUnavailable, match="does not answer"):
        later.step(message(_record(7), 4))


def test_what_the_registry_does_not_know_is_a_dead_letter(registry: HTTPServer, tmp_path: Path) -> None:
    agent = machine(_source(registry, tmp_path))
    agent.step(message(_record(99), 0))
    agent.step(message(_record(6), 1))
    agent.step(message(b"\x01" + _record(5), 2))
    agent.step(message(_record(5) + b"\x00", 3))
    assert agent.dead == {"unknown-schema": 2, "undecodable": 2}


def test_a_registry_that_refuses_the_login_ends_the_worker(registry: HTTPServer, tmp_path: Path) -> None:
    agent = machine(_source(registry, tmp_path, password="wrong"))
    with pytest.raises(RegistryUnavailable, match="answers 401 for schema 5") as caught:
        agent.step(message(_record(5)))
    assert "wrong" not in str(caught.value)
    assert agent.next_offset == 0 and not agent.dead


def test_a_file_that_changed_under_its_id_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "product.avsc"
    file.write_text(json.dumps({**PRODUCT, "fields": PRODUCT["fields"][:2]}))
    source = {**SOURCE, "schemas": {"5": str(file)}}
    agent = machine(source)
    agent.step(message(struct.pack(">BI", 0, 5) + b"\x02a\x02\x00\x00\x80\x3f\x00", 0))
    assert agent.counts["applied"] == 1
    state = agent.partition_state()
    machine(source).restore(1, None, state, ())
    file.write_text(json.dumps({**PRODUCT, "fields": [{"name": "id", "type": "string"}]}))
    with pytest.raises(GenerationMismatch, match="schema 5 is not the one that records were read with"):
        machine(source).restore(1, None, state, ())


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "array", "items": "null"}, "take no bytes"),
        ({"type": "array", "items": {"type": "record", "name": "E", "fields": []}}, "take no bytes"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, "take no bytes"),
        (
            {"type": "record", "name": "n.L", "fields": [{"name": "next", "type": ["null", "n.L"]}]},
            "holds itself",
        ),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "unheard-of"}]}, "no Avro schema"),
        ("{", "no Avro schema"),
    ],
)
def test_schemas_of_records_that_could_claim_any_size_are_refused(schema: Any, text: str) -> None:
    with pytest.raises(UnknownSchema, match=text):
        parsed(schema if isinstance(schema, str) else json.dumps(schema))


def _pairs(depth: int) -> dict[str, Any]:
    """A record of two records of two records ..., the last of them empty."""
    made: dict[str, Any] = {"type": "record", "name": "R0", "fields": []}
    for level in range(1, depth + 1):
        fields = [{"name": "a", "type": made}, {"name": "b", "type": f"R{level - 1}"}]
        made = {"type": "record", "name": f"R{level}", "fields": fields}
    return made


@pytest.mark.parametrize("depth", [20, 26, 63, 100, 200])
def test_a_record_of_no_bytes_has_few_values(depth: int) -> None:
    with pytest.raises(UnknownSchema, match=r"not supported|no Avro schema"):
        parsed(json.dumps(_pairs(depth)))


@pytest.mark.parametrize("kind", ["array", "map"])
def test_a_short_element_has_few_values(kind: str) -> None:
    element = {"type": "record", "name": "E", "fields": [{"name": "n", "type": "int"}]}
    element["fields"] += [{"name": "p", "type": _pairs(10)}]  # type: ignore[operator]
    listed = {"type": kind, "items" if kind == "array" else "values": ["null", element]}
    with pytest.raises(UnknownSchema, match="almost none"):
        parsed(json.dumps(listed))
    # A record with one such branch is bounded.
    assert parsed(json.dumps(element)).read(b"\x02")["n"] == 1


def test_a_long_record_could_hold_too_many_values() -> None:
    body = b"\x80\x89\x7a" + bytes(1_000_000) + b"\x00"
    ones = parsed(json.dumps({"type": "array", "items": "int"}))
    assert sum(ones.read(body)) == 0
    deep: Any = "int"
    for level in range(6):
        deep = {"type": "record", "name": f"D{level}", "fields": [{"name": "x", "type": deep}]}
    with pytest.raises(ValueError, match="more than 5000000 values"):
        parsed(json.dumps({"type": "array", "items": deep})).read(body)


VIEWED = {"type": "record", "name": "Viewed", "fields": [{"name": "item", "type": "long"}]}
BOUGHT = {
    "type": "record",
    "name": "Bought",
    "fields": [{"name": "user", "type": "long"}, {"name": "item", "type": "long"}],
}


@pytest.mark.parametrize(
    ("schema", "data", "value"),
    [
        ([VIEWED, BOUGHT], b"\x00\x9a\x01", {"item": 77}),
        ([VIEWED, BOUGHT], b"\x02\x02\x9a\x01", {"user": 1, "item": 77}),
        ([BOUGHT, VIEWED], b"\x02\x9a\x01", {"item": 77}),
        ([VIEWED], b"\x00\x9a\x01", {"item": 77}),
        (["null", VIEWED], b"\x02\x9a\x01", {"item": 77}),
        ([{"type": "array", "items": "long"}, VIEWED], b"\x02\x9a\x01", {"item": 77}),
        ({"type": "array", "items": VIEWED}, b"\x02\x9a\x01\x00", [{"item": 77}]),
        ({**VIEWED, "__fastavro_parsed": True, "__named_schemas": {}}, b"\x9a\x01", {"item": 77}),
        ({**VIEWED, "references": [BOUGHT], "schema": BOUGHT}, b"\x9a\x01", {"item": 77}),
    ],
)
def test_every_schema_is_read_as_it_is_written(schema: Any, data: bytes, value: Any) -> None:
    assert parsed(json.dumps(schema)).read(data) == value


def test_a_union_of_schemas_that_it_refers_to(registry: HTTPServer, tmp_path: Path) -> None:
    own = [{"name": name, "subject": name, "version": 1} for name in ("Viewed", "Bought")]
    _Registry.answers |= {
        "/schemas/ids/8": {"schema": '["Viewed", "Bought"]', "references": own},
        "/subjects/Viewed/versions/1": {"schema": json.dumps(VIEWED)},
        "/subjects/Bought/versions/1": {"schema": json.dumps(BOUGHT)},
    }
    source = {**_source(registry, tmp_path), "kind": "relations"}
    agent = machine({**source, "fields": {"left": "user", "right": "item"}, "when": {"user": [3]}})
    agent.step(message(struct.pack(">BI", 0, 8) + b"\x00\x06", 0))
    agent.step(message(struct.pack(">BI", 0, 8) + b"\x02\x06\x9a\x01", 1))
    (made,) = agent.flush()
    assert [row[:2] for row in rows_of_event(made.value)] == [("3", "77")] and not agent.dead


def test_wrong_settings_name_what_to_correct(tmp_path: Path) -> None:
    for changes, text in (
        ({"schemas": {"x": "y"}}, "schemas must be files by schema id"),
        ({"schemas": {"5": str(tmp_path / "missing.avsc")}}, "schemas must be readable files"),
        ({"registry": "registry:8081"}, "registry must be an address"),
        (
            {
                "registry": "http://r",
                "registry_username": "u",
                "registry_password_file": str(tmp_path / "no"),
            },
            "registry_password_file must be readable",
        ),
    ):
        with pytest.raises(SettingsError, match=text):
            machine({**SOURCE, **changes})
    with pytest.raises(ValueError, match="registry must hold no password"):
        SourceSettings(**{**SOURCE, "registry": "http://u:p@r"})
