"""Writes the golden checkpoint: `python tests/golden/write_checkpoint.py tests/golden/checkpoint-v1`.

Run once for each format. What it wrote stays as it is, and every later version has to read it.
"""

from __future__ import annotations

import sys

import numpy as np

from kinstream.streams.agents.generations.birth import Birth, TopicIdentity, settings_digest, write_birth
from kinstream.streams.agents.generations.parking import Parking
from kinstream.streams.checkpoints.state_bytes import State
from kinstream.streams.checkpoints.store import CheckpointStore, LastRecord

APPLICATION, GENERATION, TOPIC, PARTITION = "learner-opml", 1, "kinstream.constraints", 0


def clock() -> float:
    return 1_700_000_000.5


def digits(step: int) -> State:
    return {
        "map": np.arange(6, dtype=np.float64).reshape(2, 3) * step / 8,
        "seen": np.array([True, False]),
        "step": step,
        "loss": 0.1 * step,
        "guard": "clip",
        "frozen": False,
    }


def shop() -> State:
    return {
        "map": np.eye(2, dtype=np.float32),
        "names": "[" + ", ".join(f'"article {number}"' for number in range(200)) + "]",
        "largest": 2**80,
        "bound": float("inf"),
    }


def main(root: str) -> None:
    settings = {"kind": "opml", "gamma": 0.25, "scaler": None}
    topics = {
        "kinstream.outcomes": TopicIdentity("Wm9vVG9waWM", 3),
        "kinstream.models": TopicIdentity(None, 1),
    }
    write_birth(
        root,
        Birth(
            application=APPLICATION,
            generation=GENERATION,
            settings_digest=settings_digest(settings),
            settings=settings,
            start_offsets={0: 7, 1: 0, 2: 12},
            cluster_id="golden-cluster",
            input_topic=TOPIC,
            input_topic_id="Q29uc3RyYWludHM",
            input_partitions=3,
            output_topics=topics,
            created_ms=int(clock() * 1000),
        ),
    )
    store = CheckpointStore(root, APPLICATION, GENERATION, TOPIC, PARTITION, clock=clock)
    first = store.save(
        42,
        changed={"digits": digits(1), "shop/été": shop()},
        unchanged={},
        partition={"refused": "[]"},
        last_record=LastRecord(41, 0xDEADBEEF),
        topic_id="Q29uc3RyYWludHM",
    )
    store.save(
        97,
        changed={"digits": digits(2)},
        labels={"digits": "opml, step 2"},
        unchanged={"shop/été": first.spaces["shop/été"]},
        partition={"refused": "[[50, 51]]"},
        last_record=LastRecord(95, 0x00C0FFEE),
        topic_id="Q29uc3RyYWludHM",
    )
    parking = Parking(root, APPLICATION, GENERATION, clock=clock)
    parking.record_fault(TOPIC, PARTITION, 98, "ValueError: golden")
    parking.skip(TOPIC, 1, 30)


if __name__ == "__main__":
    main(sys.argv[1])
