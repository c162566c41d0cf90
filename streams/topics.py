"""The topics: names, keys, partitions, retention, replication. All code reads them here, including deploy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Topic:
    """The purpose of one topic and how its records are kept.

    Parameters
    ----------
    role : short name, also the end of the topic's full name.
    key : the content of the message key.
    retention_ms : -1 keeps for ever; None for a compacted topic.
    """

    role: str
    holds: str
    key: str
    retention_ms: int | None
    compacted: bool = False

    def name(self, prefix: str = "kinstream") -> str:
        return f"{prefix}.{self.role}"

    def config(self, replication: int) -> dict[str, str]:
        """Broker configuration of the topic. `min.insync.replicas` is 2 from three replicas on.

        The brokers stamp the records: a worker whose clock is ahead would be refused, and what one stamps whose clock
        is behind would be past its retention at once.
        """
        values = {
            "cleanup.policy": "compact" if self.compacted else "delete",
            "min.insync.replicas": "2" if replication >= 3 else "1",
            "unclean.leader.election.enable": "false",
            "message.timestamp.type": "LogAppendTime",
            "max.message.bytes": "1048588",
        }
        if self.retention_ms is not None:
            values["retention.ms"] = str(self.retention_ms)
        return values


EVENTS: Final = Topic(
    "events",
    "all events",
    "space",
    30 * DAY_MS,
)
CONSTRAINTS: Final = Topic("constraints", "constraint blocks of all builders", "space", 30 * DAY_MS)
OUTCOMES: Final = Topic(
    "outcomes", "the outcomes of each learner on each constraint block", "space", 7 * DAY_MS
)
MODELS: Final = Topic("models", "newest model of a space", "space/learner/generation", None, compacted=True)
UPDATES: Final = Topic("updates", "the change of a space's map by a constraint block", "space", DAY_MS)
VECTORS: Final = Topic(
    "vectors", "versions of catalogues, re-embedded by an item map, and tombstones", "space", 30 * DAY_MS
)
FEEDBACK: Final = Topic(
    "feedback", "lists that the service has shown, and what was done with them", "space", 7 * DAY_MS
)
DEAD_LETTERS: Final = Topic(
    "dead-letters", "records that could not be used, in their original bytes", "original", 30 * DAY_MS
)

CATALOGUE: Final = (EVENTS, CONSTRAINTS, OUTCOMES, MODELS, UPDATES, VECTORS, FEEDBACK, DEAD_LETTERS)

#: Recommended; with fewer brokers `kinstream topics create` uses those available and warns.
REPLICATION: Final = 3
PARTITIONS: Final = 6

#: The partitioner of faust and of the Java clients; confluent-kafka has another default.
PARTITIONER: Final = "murmur2_random"


def murmur2(key: bytes) -> int:
    """Kafka's 32-bit murmur2 hash, as the Java client computes it (unsigned here)."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(key)) & mask
    whole = len(key) & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(key[i : i + 4], "little") * m & mask
        k = (k ^ (k >> 24)) * m & mask
        h = (h * m & mask) ^ k
    if tail := key[whole:]:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return h ^ (h >> 15)


@lru_cache(10_000)
def partition_of(space: str, partitions: int) -> int:
    """The partition of a space: an emitter computes it from the birth record's count."""
    return (murmur2(space.encode()) & 0x7FFFFFFF) % partitions


def replication_warning(brokers: int, replication: int) -> str | None:
    """The warning for a cluster that is too small for the replication of the settings."""
    if brokers >= replication:
        return None
    return f"{brokers} broker(s): topics get replication {brokers}, not {replication}"
