"""A value that has not changed is not in a writer's log: the record is left out and counted, in every form it has."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from kinstream.streams.errors import SettingsError
from tests.sources.rows import rows_of_event
from tests.sources.shop import machine, message

PLACEHOLDER = "__debezium_unavailable_value"
ITEMS: dict[str, Any] = {
    "topic": "pg.products",
    "kind": "items",
    "space": "shop",
    "fields": {"id": "sku", "vector": "embedding", "deleted": "__deleted"},
}


def forms(text: str) -> dict[str, Any]:
    """The placeholder in the types that a connector's settings give a column."""
    data = text.encode()
    return {
        "text": text,
        "base64": base64.b64encode(data).decode(),
        "base64 for addresses": base64.urlsafe_b64encode(data).decode(),
        "hexadecimal": data.hex(),
        "a list of it": [text],
        "letters": list(text),
        "numbers of the bytes": list(data),
        "the same as floats": [float(byte) for byte in data],
        "bytes as Java has them": [byte - 256 if byte > 127 else byte for byte in data],
        "a map": {text: text},
    }


@pytest.mark.parametrize("form", forms(PLACEHOLDER))
def test_an_unchanged_vector_is_left_out(form: str) -> None:
    agent = machine(ITEMS)
    agent.step(message({"sku": "a", "embedding": [0.5, 0.25]}, 0))
    agent.step(message({"sku": "a", "embedding": forms(PLACEHOLDER)[form]}, 1))
    assert not agent.dead and agent.counts["fate.unchanged"] == 1
    (made,) = agent.flush()
    assert rows_of_event(made.value) == [("a", [0.5, 0.25])]


@pytest.mark.parametrize("text", ["not here", 'n\u00e4 und "so"', "hex:fffe"])
def test_the_placeholder_is_that_of_the_connector(text: str) -> None:
    if text == "hex:fffe":
        with pytest.raises(SettingsError, match="unavailable_value"):
            machine({**ITEMS, "unavailable_value": text})
        return
    written = [text, f"hex:{text.encode().hex()}"]
    for setting in written:
        agent = machine({**ITEMS, "unavailable_value": setting})
        for offset, value in enumerate(forms(text).values()):
            agent.step(message({"sku": "a", "embedding": value}, offset))
        assert not agent.dead and agent.counts["fate.unchanged"] == len(forms(text))


def test_an_unchanged_value_of_another_field_is_no_name() -> None:
    samples = {
        "topic": "t",
        "kind": "samples",
        "space": "s",
        "fields": {"label": "genre", "vector": "v", "id": "id"},
    }
    relations = {"topic": "t", "kind": "relations", "space": "s", "fields": {"left": "a", "right": "b[*]"}}
    clicks = {
        "topic": "t",
        "kind": "clicks",
        "space": "s",
        "fields": {"items": "shown", "clicks": "clicked", "query_vector": "q", "user": "user"},
    }
    lists = {"shown": ["a", "b"], "clicked": ["a"], "user": "u"}
    for source, record in (
        (samples, {"genre": PLACEHOLDER, "v": [0.5], "id": "1"}),
        (samples, {"genre": "noir", "v": list(PLACEHOLDER.encode()), "id": "1"}),
        (relations, {"a": "x", "b": ["y", PLACEHOLDER]}),
        (relations, {"a": PLACEHOLDER, "b": ["y"]}),
        (clicks, {**lists, "q": PLACEHOLDER}),
        (clicks, {**lists, "shown": PLACEHOLDER}),
        (clicks, {**lists, "user": PLACEHOLDER}),
    ):
        agent = machine(source)
        agent.step(message(record))
        assert (agent.counts["fate.unchanged"], agent.flush(), dict(agent.dead)) == (1, [], {}), record


def test_a_deletion_needs_no_vector_and_the_count_survives_a_restart() -> None:
    agent = machine(ITEMS)
    agent.step(message({"sku": "a", "embedding": PLACEHOLDER, "__deleted": "true"}, 0))
    agent.step(message({"sku": "b", "embedding": PLACEHOLDER, "__deleted": "false"}, 1))
    (made,) = agent.flush()
    assert rows_of_event(made.value) == [("a", None)]
    later = machine(ITEMS)
    later.restore(2, None, agent.partition_state(), ())
    assert later.counts["fate.unchanged"] == 1


def test_a_text_that_holds_the_placeholder_is_a_name() -> None:
    agent = machine(ITEMS)
    agent.step(message({"sku": f"{PLACEHOLDER}-2", "embedding": [0.5]}))
    (made,) = agent.flush()
    assert rows_of_event(made.value) == [(f"{PLACEHOLDER}-2", [0.5])]
