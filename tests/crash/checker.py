"""An independent reader of what a run has left: topics, checkpoints, metrics pages.

It shares no code with the product. The rules of the design are written down here a second time, from the documents:
the form of identities, the rule by which duplicates are left out, the one-pass rule, the form of checkpoints.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import numpy as np
from confluent_kafka import Consumer, TopicPartition
from fastavro.schema import fingerprint, to_parsing_canonical_form
from numpy.typing import NDArray

SCHEMAS = Path(__file__).resolve().parents[2] / "streams" / "schemas"
COUNTS = ("seen", "scored", "mistakes", "utilised", "clipped", "rejected", "degenerate", "ignored")
#: Counts that an outcome in which they are 0 may leave out.
SPLIT_COUNTS = ("split_scored", "split_mistakes", "held_out")

#: Epochs are offsets of control records; a space that came by itself, with its first event, has had none.
OWN_EPOCH = 0


class Broken(AssertionError):
    """A promise does not hold; says where."""


def require(holds: bool, *what: object) -> None:
    if not holds:
        raise Broken(" ".join(str(part) for part in what))


# ---- reading topics ---------------------------------------------------------------------------------------------


class Record(NamedTuple):
    """One record of a log."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes
    headers: dict[str, bytes]


def read_topic(bootstrap: str, topic: str) -> list[Record]:
    """Every record of a topic, partition by partition in the order of the log."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "checker", "enable.auto.commit": False, "log_level": 0}
    )
    try:
        partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=20) for p in partitions}
        require(all(low == 0 for low, _ in ends.values()), topic, "does not begin at 0:", ends)
        left = {p: high for p, (_, high) in ends.items() if high}
        consumer.assign([TopicPartition(topic, p, 0) for p in left])
        found: dict[int, list[Record]] = {p: [] for p in partitions}
        silent = 0.0
        while left:
            messages: list[Any] = consumer.consume(1000, timeout=0.2)
            silent = 0.0 if messages else silent + 0.2
            require(silent < 20, topic, "gives no more records; missing:", left)
            for m in messages:
                require(m.error() is None, topic, m.error())
                headers = dict(m.headers() or [])
                record = Record(topic, m.partition(), m.offset(), m.key(), m.value(), headers)
                found[record.partition].append(record)
                if record.offset >= left.get(record.partition, 0) - 1:
                    left.pop(record.partition, None)
    finally:
        consumer.close()
    return [record for p in sorted(found) for record in found[p]]


@cache
def _schemas() -> dict[bytes, tuple[str, Any]]:
    found = {}
    for path in SCHEMAS.glob("*.avsc"):
        raw = json.loads(path.read_text(encoding="utf-8"))
        digest = int(fingerprint(to_parsing_canonical_form(raw), "CRC-64-AVRO"), 16)
        found[struct.pack("<Q", digest)] = raw["name"], fastavro.parse_schema(raw)
    return found


def decode(value: bytes) -> tuple[str, dict[str, Any]]:
    """An Avro single object: name of the record, and its fields."""
    require(value[:2] == b"\xc3\x01", "no Avro single object:", value[:20])
    name, schema = _schemas()[value[2:10]]
    stream = io.BytesIO(value[10:])
    body: Any = fastavro.schemaless_reader(stream, schema, None)
    require(stream.tell() == len(value) - 10, name, "has bytes left over")
    return name, body


def tables(body: Mapping[str, Any]) -> list[NDArray[np.float32]]:
    return [np.frombuffer(t["data"], "<f4").reshape(t["rows"], t["columns"]) for t in body["tables"]]


# ---- identities and chains --------------------------------------------------------------------------------------


class Position(NamedTuple):
    """The order of a chain."""

    generation: int
    epoch: int
    offset: int
    part: int


@dataclass(frozen=True, slots=True)
class Output:
    """A record with an identity: headers kinstream-emitter, -generation, -epoch, -origin, -previous."""

    record: Record
    emitter: str
    position: Position
    origin: tuple[str, int]
    previous: Position | None

    @property
    def space(self) -> str:
        return (self.record.key or b"").decode()

    @property
    def place(self) -> str:
        r = self.record
        return f"{r.topic}/{r.partition}/{r.offset} ({self.emitter} {tuple(self.position)})"


def output(record: Record) -> Output:
    text = {name.removeprefix("kinstream-"): value.decode() for name, value in record.headers.items()}
    topic, partition, offset, part = text["origin"].rsplit("/", 3)
    position = Position(int(text["generation"]), int(text["epoch"]), int(offset), int(part))
    previous = None
    if "previous" in text:
        generation, epoch, before, its_part = map(int, text["previous"].split("/"))
        previous = Position(generation, epoch, before, its_part)
    return Output(record, text["emitter"], position, (topic, int(partition)), previous)


@dataclass(slots=True)
class Chains:
    """A topic without its duplicates.

    Parameters
    ----------
    taken : first appearances by (emitter, space), in the order of the log.
    duplicates : how many records each emitter wrote again.
    """

    taken: dict[tuple[str, str], list[Output]] = field(default_factory=dict)
    duplicates: Counter[str] = field(default_factory=Counter)


def chains(records: Iterable[Record]) -> Chains:
    """Leave out duplicates by the design's rule, with one mark for each (emitter, space).

    Raises
    ------
    Broken : a chain begins in its middle or has a hole, an output does not name the one before it, or a duplicate
        is not what was written first.
    """
    found = Chains()
    values: dict[tuple[str, str, Position], tuple[bytes, Position | None, int]] = {}
    for record in records:
        made = output(record)
        key = made.emitter, made.space
        known = found.taken.setdefault(key, [])
        mark = known[-1] if known else None
        what = record.value, made.previous, record.partition
        if mark is not None and made.position <= mark.position:
            first = values.get((*key, made.position))
            require(first is not None, made.place, "comes late: later ones of its chain stand before it")
            require(first == what, made.place, "is not what was written under this identity before")
            found.duplicates[made.emitter] += 1
            continue
        same = mark is not None and mark.position[:2] == made.position[:2]
        before = mark.position if mark is not None and same else None
        require(made.previous == before, made.place, "follows", made.previous, "and not", before)
        values[*key, made.position] = what
        known.append(made)
    return found


def digest(outputs: Iterable[Output], identities: bool) -> str:
    """A canonical digest of a sequence: the values, with or without their identities."""
    sha = hashlib.sha256()
    for made in outputs:
        told = [list(made.position), made.previous and list(made.previous), made.origin[1]]
        sha.update(json.dumps(told).encode() if identities else b"-")
        sha.update(hashlib.sha256(made.record.value).digest())
    return sha.hexdigest()


# ---- events -----------------------------------------------------------------------------------------------------


class Event(NamedTuple):
    """The first appearance of a sequence of a load."""

    partition: int
    offset: int
    sequence: int
    first_row: int
    rows: int
    time_ms: int


def check_events(
    records: Iterable[Record], sent: Mapping[tuple[str, str], tuple[NDArray[np.float32], list[int | str]]]
) -> tuple[dict[str, list[Event]], int]:
    """Every row of every load is there, in order; what was sent twice is the same.

    Parameters
    ----------
    sent : per (space, load), the vectors and labels of all rows.

    Returns
    -------
    First appearances by space, and the number of blocks that were sent again.
    """
    first: dict[tuple[str, str], list[Event]] = {key: [] for key in sent}
    blocks: dict[tuple[str, str, int], tuple[bytes, list[int | str]]] = {}
    again = 0
    for record in records:
        name, body = decode(record.value)
        place = f"{record.topic}/{record.partition}/{record.offset}"
        require(name == "SampleBlock" and (record.key or b"").decode() == body["space"], place, name)
        key = body["space"], body["load"]["load_id"]
        sequence = body["load"]["sequence"]
        (vectors,) = tables(body)
        raw = body["integer_labels"]
        labels = body["string_labels"] if raw is None else np.frombuffer(raw, "<i8").tolist()
        content = vectors.tobytes(), labels
        known = first[key]
        if sequence < len(known):
            require(blocks[*key, sequence] == content, place, "is not the block that was sent before")
            again += 1
            continue
        require(sequence == len(known), place, "sequence", sequence, "comes after", len(known) - 1)
        blocks[*key, sequence] = content
        begin = known[-1].first_row + known[-1].rows if known else 0
        all_vectors, all_labels = sent[key]
        end = begin + len(labels)
        require(np.array_equal(vectors, all_vectors[begin:end]), place, "holds other vectors than were given")
        require(labels == all_labels[begin:end], place, "holds other labels than were given")
        known.append(Event(record.partition, record.offset, sequence, begin, len(labels), body["time_ms"]))
    for key, events in first.items():
        rows = sum(event.rows for event in events)
        require(
            rows == len(sent[key][1]), key, f"has {rows} rows in the log, and {len(sent[key][1])} were given"
        )
    return {space: events for (space, _), events in first.items()}, again


# ---- the one-pass rule --------------------------------------------------------------------------------------------


def one_pass(
    labels: list[int | str], events: list[Event], draw: Any
) -> Iterator[tuple[Event, list[tuple[int, int]], list[tuple[int, int, int]]]]:
    """The rule of the OPML paper: for each event the pairs and triplets, as row numbers of the load.

    H holds the latest sample of each class. A sample of a known class gives a triplet (x, H[k], negative) once two
    classes are known; while one class is known, the pair (previous sample, x); the first of a class gives nothing.

    Parameters
    ----------
    draw : of an event, its random numbers; None for the negatives of the released code: the previous sample where it
        is of another class, else the latest of the class that appeared last (or of the one before it, if that is k).
    """
    order: dict[int | str, int] = {}
    latest: list[int] = []
    before = -1
    for event in events:
        pairs: list[tuple[int, int]] = []
        triplets: list[tuple[int, int, int]] = []
        numbers = None if draw is None else draw(event)
        for row in range(event.first_row, event.first_row + event.rows):
            own = order.get(labels[row])
            if own is None:
                own = order[labels[row]] = len(latest)
                latest.append(row)
            elif len(latest) == 1:
                pairs.append((latest[0], row))
            else:
                if numbers is not None:
                    other = int(numbers[row - event.first_row]) * (len(latest) - 1) >> 64
                    other += other >= own
                elif before != own:
                    other = before
                else:
                    other = len(latest) - 1 if own != len(latest) - 1 else len(latest) - 2
                triplets.append((row, latest[own], latest[other]))
            latest[own] = row
            before = own
        yield event, pairs, triplets


def philox(seed: int, space: str, load: str) -> Any:
    """The draws of the builder "one-pass/1": Philox, keyed by seed, space, load and sequence."""

    def draw(event: Event) -> list[int]:
        text = json.dumps(["one-pass/1", seed, space, load, event.sequence], separators=(",", ":"))
        key = np.frombuffer(hashlib.blake2b(text.encode(), digest_size=16).digest(), "<u8")
        numbers: list[int] = np.random.Philox(key=key.astype(np.uint64)).random_raw(event.rows).tolist()
        return numbers

    return draw


def check_constraints(
    taken: list[Output],
    events: list[Event],
    vectors: NDArray[np.float32],
    labels: list[int | str],
    draw: Any,
) -> int:
    """A builder's outputs of one space are what the one-pass rule makes of the rows. Returns how many constraints."""
    outputs = iter(taken)
    made = next(outputs, None)
    total = 0
    for event, pairs, triplets in one_pass(labels, events, draw):
        found: dict[str, list[NDArray[np.float32]]] = {"pair": [], "triplet": []}
        part = 0
        while made is not None and made.position.offset == event.offset:
            name, body = decode(made.record.value)
            require(name == "ConstraintBlock" and body["space"] == made.space, made.place, name)
            wanted = Position(1, OWN_EPOCH, event.offset, part)
            require(made.position == wanted, made.place, "should be", wanted)
            require(made.origin[1] == event.partition, made.place, "comes from", made.origin)
            require(body["epoch"] == OWN_EPOCH, made.place, "says epoch", body["epoch"])
            require(body["time_ms"] == event.time_ms, made.place, "has another time than its event")
            (table,) = tables(body)
            index = np.frombuffer(body["index"], "<i4").reshape(-1, 2 if body["kind"] == "pair" else 3)
            found[body["kind"]].append(table[index])
            part += 1
            made = next(outputs, None)
        for kind, made_of in (("pair", pairs), ("triplet", triplets)):
            rows = np.array(made_of, np.int64).reshape(-1, 2 if kind == "pair" else 3)
            got = np.concatenate([vectors[rows][:0], *found[kind]])
            where = f"event {event}, {kind}s:"
            require(len(got) == len(rows), where, len(got), "and not", len(rows))
            require(np.array_equal(got, vectors[rows]), where, "other vectors than the rule gives")
        total += len(pairs) + len(triplets)
    require(made is None, made and made.place, "comes from no event")
    return total


# ---- outcomes -----------------------------------------------------------------------------------------------------


def followed(constraints: Chains, space: str, emitters: Iterable[str]) -> list[Output]:
    """What a learner takes of a space: first appearances of the builders that it follows, in the log's order."""
    found = [made for emitter in emitters for made in constraints.taken.get((emitter, space), [])]
    return sorted(found, key=lambda made: made.record.offset)


def check_outcomes(taken: list[Output], inputs: list[Output]) -> dict[str, int | float]:
    """One outcome for each constraint block, made from its first appearance. Returns the exact sums of one space."""
    where = f"{inputs[0].space}: " if inputs else ""
    require(len(taken) == len(inputs), where, len(taken), "outcomes of", len(inputs), "constraint blocks")
    totals: dict[str, int | float] = dict.fromkeys((*COUNTS, *SPLIT_COUNTS), 0) | {"loss_sum": 0.0}
    for made, cause in zip(taken, inputs, strict=True):
        name, body = decode(made.record.value)
        _, block = decode(cause.record.value)
        require(name == "Outcome" and body["learner"] == made.emitter, made.place, name)
        place = cause.record.topic, cause.record.partition, cause.record.offset, 0
        require((*made.origin, *made.position[2:]) == place, made.place, "should come from", place)
        require((body["emitter"], body["epoch"]) == (cause.emitter, cause.position.epoch), made.place, body)
        require((body["kind"], body["time_ms"]) == (block["kind"], block["time_ms"]), made.place, body)
        rows = len(block["index"]) // (8 if block["kind"] == "pair" else 12)
        counts = body["counts"]
        told = counts["seen"] + counts["rejected"] + counts["ignored"] + counts.get("held_out", 0)
        require(told == rows, made.place, f"counts {told} of {rows} constraints")
        for count in totals:
            totals[count] += counts.get(count, 0) if count in SPLIT_COUNTS else counts[count]
        require(body["step"] == totals["seen"], made.place, "step", body["step"], "and not", totals["seen"])
    return totals


# ---- the whole run --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """What the topics of a run hold, once everything about them was checked.

    Parameters
    ----------
    constraints : by (builder, space), digest of identities and values.
    outcomes, contents : by (learner, space), digest of identities and values, and of values alone.
    totals : exact sums by (space, learner).
    numbers : how many constraints by builder.
    again : records that appear more than once, by topic and emitter.
    """

    constraints: dict[tuple[str, str], str]
    outcomes: dict[tuple[str, str], str]
    contents: dict[tuple[str, str], str]
    totals: dict[tuple[str, str], dict[str, int | float]]
    numbers: dict[str, int]
    again: dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was given to a run.

    Parameters
    ----------
    sent : vectors and labels by space; the load of a space is called load-SPACE.
    builders : the seed of each for random negatives, None for the official ones.
    learners : which builders each follows.
    """

    sent: Mapping[str, tuple[NDArray[np.float32], list[int | str]]]
    builders: Mapping[str, int | None]
    learners: Mapping[str, tuple[str, ...]]


def check_run(bootstrap: str, prefix: str, wanted: Wanted) -> Found:
    """Read all topics of a run and check them.

    Raises
    ------
    Broken : a row, an output or an order is lost, something counts twice, or there is a dead letter.
    """
    loads = {(space, f"load-{space}"): rows for space, rows in wanted.sent.items()}
    events, sent_again = check_events(read_topic(bootstrap, f"{prefix}.events"), loads)
    constraints = chains(read_topic(bootstrap, f"{prefix}.constraints"))
    outcomes = chains(read_topic(bootstrap, f"{prefix}.outcomes"))
    letters = read_topic(bootstrap, f"{prefix}.dead-letters")
    require(not letters, len(letters), "dead letters:", [letter.headers for letter in letters[:3]])
    made_by = {(builder, space) for builder in wanted.builders for space in wanted.sent}
    require(constraints.taken.keys() == made_by, "constraints of", sorted(constraints.taken))
    learned = {(learner, space) for learner in wanted.learners for space in wanted.sent}
    require(outcomes.taken.keys() == learned, "outcomes of", sorted(outcomes.taken))
    numbers: dict[str, int] = Counter()
    for (builder, space), taken in constraints.taken.items():
        seed = wanted.builders[builder]
        draw = None if seed is None else philox(seed, space, f"load-{space}")
        numbers[builder] += check_constraints(taken, events[space], *wanted.sent[space], draw)
    totals = {}
    for (learner, space), taken in outcomes.taken.items():
        totals[space, learner] = check_outcomes(taken, followed(constraints, space, wanted.learners[learner]))
    return Found(
        constraints={key: digest(taken, True) for key, taken in constraints.taken.items()},
        outcomes={key: digest(taken, True) for key, taken in outcomes.taken.items()},
        contents={key: digest(taken, False) for key, taken in outcomes.taken.items()},
        totals=totals,
        numbers=dict(numbers),
        again={
            "events": {"loads": sent_again},
            "constraints": dict(constraints.duplicates),
            "outcomes": dict(outcomes.duplicates),
        },
    )


# ---- checkpoints ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SavedSpace:
    """A space in the newest checkpoint of its partition.

    Parameters
    ----------
    whole : digest of the file, with marks and chain.
    core : what the algorithm keeps, bit for bit: tensors as (type, shape, bytes), scalars as (type, text).
    facts : epoch and step.
    segments : digest of each file of which the content never changes, by its name.
    """

    whole: str
    core: dict[str, tuple[Any, ...]]
    facts: dict[str, str]
    segments: Mapping[str, str]


def read_checkpoints(root: Path, application: str, topic: str, partitions: int) -> dict[str, SavedSpace]:
    """The spaces of an agent in its newest checkpoints, every digest compared.

    Raises
    ------
    Broken : a manifest or a data file is not what it should be.
    """
    found: dict[str, SavedSpace] = {}
    for partition in range(partitions):
        folder = root / application / "1" / f"{topic}-{partition}"
        manifests = sorted(folder.glob("*.manifest.json"))
        require(bool(manifests), folder, "holds no checkpoint")
        sealed = json.loads(manifests[-1].read_text())
        content = sealed["content"]
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        require(hashlib.sha256(text.encode()).hexdigest() == sealed["sha256"], manifests[-1], "is damaged")
        for space, file in content["spaces"].items():
            data = (folder / file["path"]).read_bytes()
            require(hashlib.sha256(data).hexdigest() == file["sha256"], file["path"], "is damaged")
            require(space not in found, space, "stands on two partitions of", application)
            segments = content.get("segments", {}).get(space, {})
            for part in segments.values():
                digest = hashlib.sha256((folder / part["path"]).read_bytes()).hexdigest()
                require(digest == part["sha256"], part["path"], "is damaged")
            found[space] = _saved(data, {name: part["sha256"] for name, part in segments.items()})
    return found


def _saved(data: bytes, segments: Mapping[str, str]) -> SavedSpace:
    """Read safetensors: the size of a JSON header, the header, the tensors."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    scalars = json.loads(header.pop("__metadata__")["kinstream"])["scalars"]
    core: dict[str, tuple[Any, ...]] = {}
    for name, tensor in header.items():
        begin, end = tensor["data_offsets"]
        if name.startswith("core."):
            core[name] = tensor["dtype"], tuple(tensor["shape"]), data[8 + size + begin : 8 + size + end]
    core |= {name: tuple(value) for name, value in scalars.items() if name.startswith("core.")}
    facts = {name: scalars[name][1] for name in ("epoch", "step")}
    return SavedSpace(hashlib.sha256(data).hexdigest(), core, facts, segments)


def check_models(records: Iterable[Record], learner: str, saved: Mapping[str, SavedSpace]) -> None:
    """The newest model that was announced for each space is the one in the newest checkpoint.

    Raises
    ------
    Broken : another one is, or none.
    """
    newest: dict[str, tuple[tuple[int, int, int], set[str]]] = {}
    for record in records:
        name, body = decode(record.value)
        key = f"{body['space']}/{body['learner']}/{body['generation']}"
        require(name == "ModelVersion" and (record.key or b"").decode() == key, record.key, name)
        if body["learner"] != learner:
            continue
        rank = body["generation"], body["epoch"], body["step"]
        before, digests = newest.get(body["space"], (rank, set()))
        if rank >= before:
            newest[body["space"]] = rank, (digests if rank == before else set()) | {body["sha256"]}
    require(newest.keys() == saved.keys(), learner, "announced models of", sorted(newest))
    for space, (rank, digests) in newest.items():
        facts = saved[space].facts
        require(rank == (1, int(facts["epoch"]), int(facts["step"])), learner, space, rank, "and not", facts)
        require(
            saved[space].whole in digests, learner, space, "the model in the checkpoint was not announced"
        )


# ---- metrics pages --------------------------------------------------------------------------------------------------

_LINE = re.compile(r"kinstream_(constraints_(?P<count>\w+)|loss)_total\{(?P<labels>[^}]*)\} (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def shown(pages: Iterable[str]) -> dict[tuple[str, str], dict[str, float]]:
    """The counters of all pages by (space, learner).

    Raises
    ------
    Broken : two workers show the same series.
    """
    found: dict[tuple[str, str], dict[str, float]] = {}
    for page in pages:
        for match in filter(None, map(_LINE.fullmatch, page.splitlines())):
            labels = dict(_LABEL.findall(match["labels"]))
            counts = found.setdefault((labels["space"], labels["learner"]), {})
            count = match["count"] or "loss_sum"
            require(count not in counts, match[0], "is shown twice")
            counts[count] = float(match["value"])
    return found
