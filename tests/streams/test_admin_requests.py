"""Administrative requests to a broker that stands still, and answers later."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from tests.kafka.broker import KafkaBroker
from tests.support.processes import until

_SCRIPT = """
import sys
from kinstream.streams.errors import BrokerUnavailable
from kinstream.streams.kafka import cluster as module
from kinstream.streams.settings import KafkaSettings

module.ANSWER_SECONDS = 1.0
asked = module.Cluster(KafkaSettings(bootstrap_servers=sys.argv[1]))
asked.wait(60)
print("known", flush=True)
sys.stdin.readline()
for group in ("a", "b", "c"):
    try:
        asked.member_ids(group)
    except BrokerUnavailable as error:
        print(f"{type(error).__name__}: {error}", flush=True)
sys.stdin.readline()
print(asked.member_ids("a"), flush=True)
asked.close()
"""


def test_a_process_survives_answers_that_it_no_longer_waits_for(own_kafka: KafkaBroker) -> None:
    """librdkafka aborts if a request ended before its coordinator was known, and the broker answers after that."""
    process = subprocess.Popen(
        [sys.executable, "-c", _SCRIPT, own_kafka.bootstrap],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        assert process.stdout.readline() == "known\n"
        os.kill(own_kafka.pid, signal.SIGSTOP)
        try:
            process.stdin.write("\n")
            process.stdin.flush()
            told = [process.stdout.readline() for _ in range(3)]
        finally:
            os.kill(own_kafka.pid, signal.SIGCONT)
        assert all(line.startswith("BrokerUnavailable: No broker answers") for line in told), told
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "[]\n"
        until(lambda: process.poll() is not None, "the process ends")
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()
