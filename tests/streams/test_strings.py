"""What a string may do to a record, to its refusal and to a checkpoint."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kinstream.processors.agent
from kinstream.learners.agent import learner_spec
from kinstream.processors.base.id_table import hashes
from kinstream.streams.agents.letter import MAX_HEADER_BYTES, MAX_VALUE_BYTES, dead_letter
from kinstream.streams.agents.machine import Machine
from kinstream.streams.agents.space import restore_space
from kinstream.streams.checkpoints.state_bytes import from_bytes, to_bytes
from kinstream.streams.errors import BadRecord, Reason, SettingsError
from kinstream.streams.records.codec.codec import decode, decode_event, encode
from kinstream.streams.records.codec.json_text import MAX_DEPTH, depth
from kinstream.streams.records.message import Message
from kinstream.streams.records.values import (
    SCALERS,
    Action,
    ConstraintBlock,
    Control,
    Declaration,
    LoadPosition,
    ModelUpdate,
    ModelVersion,
    Outcome,
)
from kinstream.streams.settings import load
from tests.golden.write_records import records
from tests.streams.test_machine import SPACE, Chain, Feed, block, builder, learner, place, reasons
from tests.support.pipeline import settings

HALF = "\ud83d"
GOLDEN: dict[str, Any] = dict(records())


def relation(**changes: Any) -> bytes:
    event = {"kind": "relation", "space": "s", "left": "a", "right": "b", "similar": True, "time_ms": 5}
    return json.dumps(event | changes).encode()


def refusal(value: bytes) -> BadRecord:
    with pytest.raises(BadRecord) as error:
        decode_event(value)
    return error.value


# ---- JSON -------------------------------------------------------------------------------------------------------


def test_half_a_surrogate_pair_is_refused_with_its_place() -> None:
    click = {"kind": "click", "space": "s", "list_id": "l", "items": ["a", "b" + HALF], "clicks": []}
    error = refusal(json.dumps(click | {"shown_at_ms": 5}).encode())
    assert error.reason is Reason.UNDECODABLE
    assert "items[1]" in error.detail and "U+D83D" in error.detail and "character 1" in error.detail


def test_half_a_pair_in_the_name_of_a_field_is_refused() -> None:
    assert refusal(relation(**{HALF: 1})).reason is Reason.UNDECODABLE


def test_json_in_another_encoding_is_refused() -> None:
    for encoding in ("utf-16-le", "utf-32-le"):
        assert refusal(relation().decode().encode(encoding)).reason is Reason.UNDECODABLE


@pytest.mark.parametrize("text", ["[" * 200, '"[{' * 100, "\\" * 33 + '"' + "[" * 100, "]" * 40])
def test_brackets_inside_of_strings_are_no_nesting(text: str) -> None:
    found: Any = decode_event(relation(left=text))
    assert found.left == text


def test_nesting_is_counted_outside_of_strings_alone() -> None:
    assert depth(b'{"a": "[[[", "b": [[1], "]", [[2]]]}') == 4
    assert depth(b'{"a": "[[[[[[') == 1
    assert depth(b'{"a": "\\') == 1
    deep = b'{"kind": "relation", "left": ' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}"
    assert "nested" in refusal(deep).detail


def test_a_field_that_stands_twice_is_refused() -> None:
    twice = relation()[:-1] + b', "left": "c"}'
    assert "'left' appears twice" in refusal(twice).detail
    modalities = b'{"kind":"samples","space":"s","vectors":{"x":[[1]],"x":[[2]]},"labels":[1],"time_ms":1}'
    assert refusal(modalities).reason is Reason.BAD_SHAPE


def test_a_load_id_is_bounded() -> None:
    fit = {"load_id": "l" * 200, "sequence": 0}
    fine: Any = decode_event(relation(load=fit))
    assert fine.load == LoadPosition("l" * 200, 0)
    assert refusal(relation(load=fit | {"load_id": "l" * 201})).reason is Reason.BAD_SHAPE
    position = LoadPosition("l" * 201, 0)
    assert refusal(encode(block(load=position))).reason is Reason.BAD_SHAPE


# ---- memory is ours ---------------------------------------------------------------------------------------------


def test_a_lack_of_memory_is_not_the_records_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops the worker, which starts again at its checkpoint, instead of throwing a good record away."""

    def fails(*_: Any, **__: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr("fastavro.schemaless_reader", fails)
    feed = Feed(builder())
    with pytest.raises(MemoryError):
        feed(encode(block()))
    monkeypatch.setattr("json.loads", fails)
    other = Feed(builder())
    with pytest.raises(MemoryError):
        other(relation(space=SPACE))
    assert not feed.machine.dead and not other.machine.dead


# ---- other records ----------------------------------------------------------------------------------------------

LONG = "n" * 4097


@pytest.mark.parametrize(
    "record",
    [
        replace(GOLDEN["outcome"], learner=LONG),
        replace(GOLDEN["outcome"], emitter=LONG),
        replace(GOLDEN["outcome"], by_rule={LONG: GOLDEN["outcome"].counts}),
        replace(GOLDEN["outcome"], weights={LONG: 1.0}),
        replace(GOLDEN["model"], location=LONG),
        replace(GOLDEN["model"], learner=LONG),
        replace(GOLDEN["update"], topic=LONG),
        replace(GOLDEN["triplets"], rules=(LONG, "a")),
    ],
    ids=["learner", "emitter", "rule", "weight", "location", "of a model", "of an update", "of a block"],
)
def test_every_string_of_our_own_records_is_bounded(record: Any) -> None:
    with pytest.raises(BadRecord):
        decode(encode(record), ConstraintBlock, Outcome, ModelVersion, ModelUpdate)


def test_the_scalers_that_a_declaration_may_name_are_those_that_there_are() -> None:
    for name in SCALERS:
        declared = Control(SPACE, Action.CREATE, 5, Declaration((("x", 3),), "any", name))
        feed = Feed(builder())
        chain = Feed(learner(), "kinstream.constraints")
        for event in (encode(declared), encode(block())):
            for output in feed(event):
                chain(output.value, SPACE, output.headers)
        assert not feed.machine.dead and not chain.machine.dead
        space = chain.machine.find(SPACE)
        assert space is not None and space.core is not None


@pytest.mark.parametrize(
    "declaration",
    [
        Declaration((("x", 3),), "any", "nonsense"),
        Declaration((("x", 3),), "any", "z" * 10_000),
        Declaration((("x", 3), ("x", 4))),
        Declaration((("x", 2**31 - 1),)),
        Declaration((("x" * 5_000, 3),)),
    ],
    ids=["scaler", "long scaler", "twice", "dimension", "long name"],
)
def test_a_declaration_that_no_learner_could_follow_is_refused(declaration: Declaration) -> None:
    feed = Feed(builder())
    assert reasons(feed(encode(Control(SPACE, Action.CREATE, 5, declaration)))) == ["bad-shape"]
    assert feed.machine.find(SPACE) is None


def test_a_declaration_of_an_older_log_that_a_learner_cannot_follow_does_not_stop_it() -> None:
    spec = learner_spec(settings(), "opml")
    machine: Machine = spec.make_machine(place(spec), lambda name: {})
    chain = Chain(machine)
    machine.open(SPACE).begin(0, Declaration((("x", 3),), "any", "nonsense"))
    outputs = chain(0)
    assert reasons(outputs) == ["bad-shape"]
    assert "nonsense" in dict(outputs[0].headers)["kinstream-dead-detail"].decode()


# ---- refusals ---------------------------------------------------------------------------------------------------


def message(value: bytes = b"v", headers: Any = (), key: bytes = b"k") -> Message:
    return Message("kinstream.events", 0, 7, 0, key, value, tuple(headers), 6)


@pytest.mark.parametrize("detail", [HALF, "a\udc00" * 2_000, "\0", "\U0001f600" * 5_000, "\u202e" * 100])
def test_a_refusal_never_fails_because_of_what_it_quotes(detail: str) -> None:
    letter = dead_letter(message(), "b", Reason.BAD_SHAPE, detail, None, "kinstream.dead-letters")
    said = dict(letter.headers)["kinstream-dead-detail"]
    assert said.decode() and len(said) <= 6_000
    assert letter.value == b"v"


@pytest.mark.parametrize(
    "headers",
    [
        [("", b"")] * 40_000,
        [("\U0001f600" * 5_000, b"")] * 4,
        [(f"h{n}", None) for n in range(10_000)],
        [("h", b"v" * 79_000)],
    ],
    ids=["empty", "wide", "many", "long"],
)
def test_a_letter_about_a_record_with_odd_headers_is_no_larger_than_the_topic_takes(headers: Any) -> None:
    value = b"v" * MAX_VALUE_BYTES
    letter = dead_letter(message(value, headers, b"k" * 9_000), "b", Reason.BAD_SHAPE, "d", None, "dead")
    # Kafka writes two lengths beside each header, of at most three bytes each for these.
    names = sum(len(name.encode()) + len(content) + 6 for name, content in letter.headers)
    assert names <= MAX_HEADER_BYTES + 12_000
    assert len(letter.value or b"") + len(letter.key or b"") + names < 1_000_000


def test_any_string_has_a_hash() -> None:
    found = hashes([HALF, "\udc00", HALF + "\udc00", "\U0001f600", ""])
    assert len({tuple(row) for row in found.tolist()}) == 5


# ---- loads ------------------------------------------------------------------------------------------------------


def test_a_space_remembers_a_bounded_number_of_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was used last is forgotten last, also after a checkpoint."""
    monkeypatch.setattr(kinstream.processors.agent, "MAX_LOADS", 3)
    feed = Feed(builder())

    def send(load_id: str, sequence: int) -> None:
        feed(encode(block(load=LoadPosition(load_id, sequence))))

    send("that made the space", 0)
    send("first", 0)
    for load_id, sequence in (("z", 0), ("b", 0), ("z", 1), ("a", 0)):
        send(load_id, sequence)
    space = feed.machine.find(SPACE)
    assert space is not None
    assert space.loads == {"b": 0, "z": 1, "a": 0}
    assert feed.machine.counts["loads_forgotten"] == 1
    assert list(restore_space(from_bytes(to_bytes(space.state()))).loads) == ["b", "z", "a"]
    before = feed.machine.counts["duplicates"]
    send("z", 1)
    assert feed.machine.counts["duplicates"] == before + 1
    send("c", 0)
    assert list(space.loads) == ["z", "a", "c"]


# ---- settings ---------------------------------------------------------------------------------------------------


def test_settings_are_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kinstream.toml"
    file.write_text('[serve.spaces."half"]\nlearner = "opml"\n')
    load(file)
    monkeypatch.setenv("KINSTREAM_SERVE__SPACES", '{"\\ud83d": {"learner": "opml"}}')
    with pytest.raises(SettingsError, match="not valid UTF-8"):
        load(file)
    monkeypatch.delenv("KINSTREAM_SERVE__SPACES")
    with pytest.raises(SettingsError, match="not valid UTF-8"):
        load(file, {"checkpoints.url": "caf\udce9"})
