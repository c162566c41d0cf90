"""Bad records: each goes to dead letters as it was, is counted, and the stream goes on without it."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from kinstream.streams.records.codec.codec import decode_outcome, encode
from kinstream.streams.records.identity import Headers
from kinstream.streams.records.message import Message
from kinstream.streams.records.values import LoadPosition, Outcome, SampleBlock, Table
from tests.faults.conftest import MakeSystem
from tests.faults.poison import Poison, bad_constraints, bad_events, constraints, declare, identity, samples
from tests.faults.processes import System, patched
from tests.faults.reference import blocks, expected
from tests.kafka.broker import KafkaBroker
from tests.support.processes import Process, until

BUILDER = "builder-one-pass"
LEARNER = "learner-opml"
HEADERS: Headers = (("trace", b"\x00\x01"), ("source", b"a test"))


def headers_of(message: Message) -> dict[str, bytes]:
    return {name: value or b"" for name, value in message.headers}


def letters(system: System, consumer: str) -> dict[str, Message]:
    """Dead letters of a consumer, by the place of what it refused."""
    found = {}
    for letter in system.read("dead-letters"):
        said = headers_of(letter)
        if said["kinstream-dead-consumer"] == consumer.encode():
            place = said["kinstream-dead-refused"].decode()
            assert place not in found, f"two letters for {place}"
            found[place] = letter
    return found


def check(system: System, role: str, consumer: str, sent: list[tuple[Poison, int, int]]) -> None:
    """Each bad record has one dead letter, with its bytes, key, headers, reason and rows."""
    found = letters(system, consumer)
    originals = {(m.partition, m.offset): m for m in system.read(role)}
    assert len(found) == len(sent)
    for poison, partition, offset in sent:
        letter = found[f"{system.topic(role)}/{partition}/{offset}"]
        original = originals[partition, offset]
        said = headers_of(letter)
        assert said["kinstream-dead-reason"] == poison.reason.value.encode(), (poison.what, said)
        assert said["kinstream-dead-rows"] == poison.rows.encode(), poison.what
        assert said["kinstream-dead-detail"], poison.what
        assert (letter.key, letter.value) == (poison.key, poison.value) == (original.key, original.value)
        assert letter.headers[: len(original.headers)] == original.headers, poison.what


def check_counters(system: System, worker: Process, application: str, reasons: Counter[str]) -> None:
    """The worker's page and the machines' own counts agree with what was sent."""

    def shown() -> Counter[str]:
        names = {name: worker.metric("kinstream_dead_letters_total", reason=name) for name in reasons}
        return Counter({name: int(value) for name, value in names.items() if value})

    until(lambda: shown() == reasons, f"the page of {application} shows {reasons}")
    assert worker.metric("kinstream_dead_letters_total") == sum(reasons.values())
    own: Counter[str] = Counter()
    for partition in (0, 1):
        if system.checkpoints(application)[partition]:
            state = system.partition_state(application, partition)
            own.update({n.removeprefix("dead."): int(v) for n, v in state.items() if n.startswith("dead.")})
    assert own == reasons


@pytest.mark.kafka
def test_every_bad_event_becomes_a_dead_letter_and_the_stream_goes_on(
    make_system: MakeSystem, kafka: KafkaBroker
) -> None:
    system = make_system(kafka)
    workers = [system.worker(BUILDER, "--create"), system.worker(LEARNER, "--create")]
    system.send([("declared", declare("declared")), *blocks("a", 5)])
    sent = []
    for poison in bad_events("a", "declared"):
        ((partition, offset),) = system.send([(poison.key, poison.value)], headers=HEADERS)
        sent.append((poison, partition, offset))
    # What is strange but can be used is used.
    system.send([("a", encode(samples("a", np.zeros((4, 8)))))], headers=HEADERS)
    # A space on a partition that is not its own.
    misplaced = Poison("another partition", b"a", encode(samples("a", np.ones((2, 8)))), sent[0][0].reason)
    ((partition, offset),) = system.send([(misplaced.key, misplaced.value)], headers=HEADERS, partition=1)
    wrong_key = next(p.reason for p, _, _ in sent if p.what == "no key")
    sent.append((misplaced._replace(reason=wrong_key), partition, offset))
    system.send(blocks("a", 5, start=5))
    system.settle()
    check(system, "events", "one-pass", sent)
    check_counters(system, workers[0], BUILDER, Counter(p.reason.value for p, _, _ in sent))
    system.check_exact()
    assert not any(worker.said("starting it again") for worker in workers)
    assert [worker.stop() for worker in workers] == [0, 0]


@pytest.mark.kafka
def test_every_bad_constraint_block_becomes_a_dead_letter_and_its_chain_goes_on(
    make_system: MakeSystem, kafka: KafkaBroker
) -> None:
    system = make_system(kafka)
    learner = system.worker(LEARNER, "--create")
    number = 0
    sent = []

    def send(key: bytes | None, value: bytes | None) -> tuple[int, int]:
        nonlocal number
        chained = (*HEADERS, *identity("px", number, system.topic("events")))
        number += 1
        ((partition, offset),) = system.send([(key, value)], "constraints", chained)
        return partition, offset

    send(b"px", encode(constraints("px")))
    for poison in bad_constraints("px"):
        sent.append((poison, *send(poison.key, poison.value)))
    for what, headers in (
        ("without an identity", HEADERS),
        ("with an identity that cannot be read", (*HEADERS, ("kinstream-emitter", b"one-pass"))),
    ):
        value = encode(constraints("px"))
        ((partition, offset),) = system.send([(b"px", value)], "constraints", headers)
        reason = next(p.reason for p, _, _ in sent if p.what.startswith("another epoch"))
        sent.append((Poison(what, b"px", value, reason), partition, offset))
    send(b"px", encode(constraints("px")))
    system.settle_learner()
    check(system, "constraints", "opml", sent)
    check_counters(system, learner, LEARNER, Counter(p.reason.value for p, _, _ in sent))
    outcomes = system.chain("outcomes")
    assert not outcomes.breaks
    steps = [decode_outcome(value) for value in outcomes.values["opml", "px"]]
    assert [outcome.step for outcome in steps if isinstance(outcome, Outcome)] == [1, 2]
    assert not learner.said("starting it again")
    assert learner.stop() == 0


@pytest.mark.kafka
@pytest.mark.long
def test_a_legal_record_of_the_largest_size_passes_and_a_bad_one_is_kept_as_its_beginning_and_digest(
    make_system: MakeSystem, kafka: KafkaBroker
) -> None:
    system = make_system(kafka)
    builder = system.worker(BUILDER, "--create")
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(3_900, 64)).astype(np.float32)
    labels = np.arange(3_900) % 7
    large = encode(SampleBlock("a", (Table("x", vectors),), labels, 1_000, None, LoadPosition("load", 0)))
    assert 1_020_000 < len(large) < 1_048_000
    garbage = b"\x00" + os.urandom(1_040_000)
    whole = b"\x00" + os.urandom(959_000)
    many = tuple((f"header-{n}", b"h" * 1_000) for n in range(20))
    system.send([("a", large)])
    ((p1, o1),) = system.send([("a", garbage)], headers=HEADERS)
    ((p2, o2),) = system.send([(b"a" * 8_000, whole)], headers=many)
    system.send(blocks("a", 3, start=1, d=64))
    system.settle(upto=BUILDER)
    found = letters(system, "one-pass")
    assert len(found) == 2
    cut = found[f"{system.topic('events')}/{p1}/{o1}"]
    said = headers_of(cut)
    assert cut.value == garbage[: 64 * 1024]
    assert said["kinstream-dead-size"] == str(len(garbage)).encode()
    assert said["kinstream-dead-sha256"] == hashlib.sha256(garbage).hexdigest().encode()
    assert said["trace"] == b"\x00\x01"
    kept = found[f"{system.topic('events')}/{p2}/{o2}"]
    assert (kept.key, kept.value) == (b"a" * 8_000, whole)
    assert kept.headers[: len(many)] == many
    system.check_exact(upto=BUILDER)
    assert builder.stop() == 0


# ---- a record that ends the worker ----------------------------------------------------------------------------------

FAILING_KERNEL = """
    from kinstream.processors.samples.one_pass import OnePass

    process = OnePass.process

    def failing(self, block, offset):
        if (block.space, block.time_ms) == ("a", 1_007):
            raise RuntimeError("the kernel fails")
        return process(self, block, offset)

    OnePass.process = failing
"""


@pytest.mark.kafka
@pytest.mark.long
def test_a_record_that_ends_the_worker_three_times_parks_its_partition_until_it_is_skipped(
    make_system: MakeSystem, kafka: KafkaBroker, tmp_path: Path
) -> None:
    system = make_system(kafka, worker__stall_seconds=5.0)
    system.send([*blocks("d", 5), *blocks("a", 5)])
    builder = system.worker(BUILDER, "--create", environment=patched(tmp_path / "patch", FAILING_KERNEL))
    system.settle(upto=BUILDER)
    system.send(blocks("a", 5, start=5))
    for count in (1, 2, 3):
        builder.expect(rf"partition 0 offset 7 has ended the worker \({count} of 3\)")
    builder.expect(r"partition 0 is parked: the record at offset 7 has ended the worker three times")
    until(
        lambda: builder.metric("kinstream_partition_parked", partition="0") == 1, "the page shows it parked"
    )
    # The other partition goes on, beside the parked one and its lag.
    began = builder.log().count("generation 1 serves")
    for start in (5, 6):
        system.send(blocks("d", 1, start=start) if start == 5 else blocks("d", 2, start=6))
        system.wait_for(BUILDER, {1: system.ends("events")[1]})
        assert builder.metric("kinstream_partition_parked", partition="1") == 0
    assert system.checkpoints(BUILDER)[0][-1] <= 7
    said = re.search(r"kinstream (skip builder-one-pass --partition 0 --offset 7)", builder.log())
    assert said
    status, output = system.run(*said[1].split())
    assert status == 0, output
    system.settle(upto=BUILDER)
    assert builder.log().count("generation 1 serves") == began + 1
    (letter,) = letters(system, "one-pass").values()
    assert headers_of(letter)["kinstream-dead-reason"] == b"skipped"
    until(lambda: builder.metric("kinstream_partition_parked", partition="0") == 0, "the page shows it free")
    # The page follows the partition by a moment, and until it does the partition shows no letters.
    until(
        lambda: builder.metric("kinstream_dead_letters_total", reason="skipped") == 1,
        "the page shows the letter",
    )
    rest = [event for event in system.read("events") if (event.partition, event.offset) != (0, 7)]
    wanted = expected(system.settings, rest, system.folder / "rest")
    assert system.states(BUILDER) == wanted.builder
    assert system.chain("constraints").values == wanted.constraints
    assert not builder.said("Stalled")
    assert builder.stop() == 0
