"""Whether a generation has ended: its final marks, the check of the marks against the outputs, and the messages of a
refusal.

A final mark records that nothing was emitted past a checkpoint. A worker writes it at an orderly stop, after its
machine has applied everything that a killed run before it can have applied: all records that the log held when the
partition was taken over. A mark can still be wrong: a process may continue after the group has given its partitions
away, and a store may be restored from a copy. So a mark is compared with the outputs themselves before a generation
begins there.
"""

from __future__ import annotations

import logging
import statistics
from collections.abc import Iterable, Mapping
from typing import Final

from kinstream.streams.agents.generations.generation import Generation
from kinstream.streams.errors import AccessDenied, BadRecord, GenerationMismatch
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.reader import ends, read_range
from kinstream.streams.records.identity import read_identity
from kinstream.streams.records.message import SKEW_MS

log = logging.getLogger("kinstream.generation")

#: Records before one by whose times it is seen that its own is of a clock that was ahead.
BEFORE: Final = 20


def final_offsets(
    generation: Generation, cluster: Cluster, partitions: Iterable[int], otherwise: str
) -> dict[int, int]:
    """The final end of each partition.

    Parameters
    ----------
    otherwise : what else the operator can do, after "or".

    Raises
    ------
    GenerationMismatch : some have not ended; names each, and the number of records left.
    """
    found: dict[int, int] = {}
    left: list[str] = []
    for partition in partitions:
        final = generation.final_offset(partition)
        if final is None:
            left.append(not_ended(generation, cluster, partition))
        else:
            found[partition] = final
    for partition, text in marked_too_early(generation, cluster, found).items():
        # The next start then catches up with its outputs, and reports when it has.
        generation.mark_started(partition)
        left.append(text)
    if left:
        raise GenerationMismatch("\n".join([*left, f"{what_to_do(generation)}; or {otherwise}"]))
    return found


def not_ended(generation: Generation, cluster: Cluster, partition: int) -> str:
    """The number of records left in a partition without a credible final mark, as a sentence."""
    topic = generation.birth.input_topic
    parked = generation.parking.parked_offset(topic, partition)
    if parked is not None:
        return (
            f"{_name(generation)} did not end cleanly on partition {partition}, which is parked at offset {parked}: "
            f"kinstream skip {generation.spec.application} --partition {partition} --offset {parked}"
        )
    covered, end = generation.covered_offset(partition), cluster.bounds(topic, partition)[1]
    return (
        f"{_name(generation)} did not end cleanly on partition {partition}: it may have emitted more than its last "
        f"checkpoint covers, which is at offset {covered}. The log ends at {end}: {_records(end - covered)} left"
    )


def marked_too_early(generation: Generation, cluster: Cluster, finals: Mapping[int, int]) -> dict[int, str]:
    """Outputs of each partition past its final mark, as sentences."""
    try:
        reached = emitted_past(generation, cluster, finals)
    except AccessDenied as error:
        log.warning("%s: its outputs were not compared with its final marks: %s", _name(generation), error)
        return {}
    return {
        p: (
            f"{_name(generation)} did not end cleanly on partition {p}: it has emitted outputs of records up to offset "
            f"{end}, and its last checkpoint is at offset {finals[p]}: {_records(end - finals[p])} left"
        )
        for p, end in reached.items()
    }


def what_to_do(generation: Generation) -> str:
    """Instructions to end a generation, for an operator."""
    return (
        f"Start it once more with its old settings ({generation.spec.command}), wait until its /readyz answers 200 "
        "(until then it reports how many records are left), and stop it with SIGTERM"
    )


def emitted_past(generation: Generation, cluster: Cluster, offsets: Mapping[int, int]) -> dict[int, int]:
    """The input offset that the outputs of a generation have reached past a given one, by partition. Others are
    omitted.

    Reads only outputs written since the record at that offset, by the clocks of brokers and of most writers.

    Returns
    -------
    The input offset after the last one that an output names.

    Raises
    ------
    AccessDenied : this principal may not read the output topic.
    """
    spec, birth = generation.spec, generation.birth
    if spec.output_role is None:
        return {}
    topic = generation.settings.topic(spec.output_role)
    times = {p: _written_ms(generation, cluster, p, offset) for p, offset in offsets.items()}
    past = {p: time for p, time in times.items() if time is not None}
    if not past:
        return {}
    since = max(0, min(past.values()) - SKEW_MS)
    ranges: dict[int, tuple[int, int]] = {}
    for p, (_, end) in ends(cluster, topic).items():
        start = cluster.offset_at(topic, p, since)
        if start is not None:
            ranges[p] = (start, end)
    found: dict[int, int] = {}
    for message in read_range(generation.settings.kafka, topic, ranges):
        try:
            identity = read_identity(message.headers)
        except BadRecord:
            # Not one of our outputs.
            continue
        p, offset = identity.partition, identity.position.offset
        ours = (identity.emitter, identity.position.generation, identity.topic)
        if ours == (spec.name, birth.generation, birth.input_topic) and p in past and offset >= offsets[p]:
            found[p] = max(found.get(p, 0), offset + 1)
    return dict(sorted(found.items()))


def _written_ms(generation: Generation, cluster: Cluster, partition: int, offset: int) -> int | None:
    """When the first record of the input at or past an offset was written; None without one: it has no output.

    The record's time may be that of one writer whose clock was ahead. If it is far ahead of the median of those before
    it, that median counts: then an idle topic was written to again, and few outputs lie between.
    """
    topic = generation.birth.input_topic
    start, end = cluster.bounds(topic, partition)
    before: list[int] = []
    for message in read_range(
        generation.settings.kafka, topic, {partition: (max(offset - BEFORE, start), end)}
    ):
        if message.offset >= offset:
            usual = statistics.median_low(before) if before else message.timestamp_ms
            ahead = message.timestamp_ms > usual + SKEW_MS
            return usual if ahead else message.timestamp_ms
        before.append(message.timestamp_ms)
    return None


def _name(generation: Generation) -> str:
    return f"{generation.spec.application} generation {generation.number}"


def _records(number: int) -> str:
    return f"{number:,} record is" if number == 1 else f"{max(0, number):,} records are"
