"""Our arithmetic of partitions is that of the Java clients and of aiokafka."""

from __future__ import annotations

from aiokafka.partitioner import murmur2 as theirs
from hypothesis import given
from hypothesis import strategies as st

from kinstream.streams.topics import CATALOGUE, murmur2, partition_of


@given(st.binary(max_size=64))
def test_murmur2_is_kafkas(key: bytes) -> None:
    assert murmur2(key) == theirs(key) & 0xFFFFFFFF


def test_partitions_are_those_of_the_java_client() -> None:
    # From Kafka's own tests of murmur2.
    for key, value in (("21", -973932308), ("foobar", -790332482), ("abc", 479470107)):
        assert murmur2(key.encode()) == value & 0xFFFFFFFF
        assert partition_of(key, 7) == (value & 0x7FFFFFFF) % 7


def test_events_carry_the_time_of_the_log() -> None:
    configs = {topic.role: topic.config(3) for topic in CATALOGUE}
    assert configs["events"]["message.timestamp.type"] == "LogAppendTime"
    assert configs["models"]["cleanup.policy"] == "compact"
    assert all(c["unclean.leader.election.enable"] == "false" for c in configs.values())
    assert all(c["min.insync.replicas"] == "2" for c in configs.values())
