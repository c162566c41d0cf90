"""Replays the constraints of a run through the learners' machines, in one process and without any group.

`python -m tests.crash.replays SETTINGS FOLDER FROM TO`: reads the topic FROM.constraints, writes TO.outcomes, and
leaves a checkpoint of every partition in FOLDER.
"""

from __future__ import annotations

import sys
from functools import partial

from kinstream.learners.agent import learner_spec
from kinstream.streams.agents.machine import Place
from kinstream.streams.agents.partition import PartitionRunner
from kinstream.streams.checkpoints.store import CheckpointStore
from kinstream.streams.kafka.clients import confluent_producer
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.emitter import Emitter
from kinstream.streams.kafka.reader import ends, read_range
from kinstream.streams.settings import Settings, load


def replay(settings: Settings, name: str, folder: str, source: str, target: str) -> None:
    """One learner over every partition."""
    spec = learner_spec(settings, name)
    cluster = Cluster(settings.kafka)
    emitter = Emitter(confluent_producer(settings.kafka))
    ranges = ends(cluster, f"{source}.constraints")
    for partition, (start, end) in ranges.items():
        place = Place(
            name=name,
            generation=1,
            topic=f"{source}.constraints",
            partition=partition,
            input_partitions=len(ranges),
            output_topic=f"{target}.outcomes",
            output_partitions=len(ranges),
            dead_letters=f"{target}.dead-letters",
        )
        store = CheckpointStore(folder, spec.application, 1, place.topic, partition)
        runner = PartitionRunner(partial(spec.make_machine, place), store, emitter)
        runner.restore(start, start, end)
        runner.work(read_range(settings.kafka, place.topic, {partition: (start, end)}))
        runner.checkpoint()
    emitter.close()
    cluster.close()


def main(path: str, folder: str, source: str, target: str) -> None:
    settings = load(path)
    for name in settings.learners:
        replay(settings, name, folder, source, target)


if __name__ == "__main__":
    main(*sys.argv[1:])
