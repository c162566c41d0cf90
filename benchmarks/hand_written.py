"""Online metric learning as one writes it by hand: poll a message, parse its JSON, update the map with numpy.

It keeps nothing, emits nothing and survives nothing; it is what the learner worker is compared with. Run by
`benchmarks.drain`, in a process of its own.
"""

from __future__ import annotations

import json
import time
from typing import Any
from uuid import uuid4

import click
import numpy as np
from confluent_kafka import Consumer
from numpy.typing import NDArray


def message(anchor: NDArray[Any], positive: NDArray[Any], negative: NDArray[Any]) -> bytes:
    """One triplet as JSON."""
    found = {"anchor": anchor.tolist(), "positive": positive.tolist(), "negative": negative.tolist()}
    return json.dumps(found).encode()


def update(
    L: NDArray[Any], anchor: NDArray[Any], positive: NDArray[Any], negative: NDArray[Any], gamma: float
) -> bool:
    """OPML's closed form from the paper, in place; False where the margin holds already."""
    a, b = anchor - positive, anchor - negative
    p, q = L @ a, L @ b
    if 1.0 + p @ p - q @ q <= 0.0:
        return False
    aa, bb, ab = a @ a, b @ b, a @ b
    det = 1.0 + gamma * (aa - bb) + gamma * gamma * (ab * ab - aa * bb)
    L += np.outer(p, (-gamma / det) * ((1.0 - gamma * bb) * a + gamma * ab * b))
    L += np.outer(q, (gamma / det) * ((1.0 + gamma * aa) * b - gamma * ab * a))
    return True


@click.command()
@click.option("--bootstrap", required=True)
@click.option("--topic", required=True)
@click.option("--dimension", type=int, required=True)
@click.option("--count", type=int, required=True, help="Triplets to learn from.")
@click.option("--gamma", type=float, default=1e-3, show_default=True)
def main(bootstrap: str, topic: str, dimension: int, count: int, gamma: float) -> None:
    """Learn from a topic of triplets, and print seconds and updates as JSON.

    Example: python -m benchmarks.hand_written --bootstrap localhost:9092 --topic triplets --dimension 64 --count 1000
    """
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": str(uuid4()), "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    L: NDArray[Any] = np.eye(dimension)
    seen = updates = 0
    begun = time.perf_counter()
    while seen < count:
        record = consumer.poll(1.0)
        if record is None or record.error():
            continue
        if not seen:
            # Joining the group is not what is measured.
            begun = time.perf_counter()
        triplet = json.loads(record.value() or b"")
        anchor, positive, negative = (np.array(triplet[name]) for name in ("anchor", "positive", "negative"))
        updates += update(L, anchor, positive, negative, gamma)
        seen += 1
    seconds = time.perf_counter() - begun
    consumer.close()
    click.echo(json.dumps({"seconds": seconds, "triplets": seen, "updates": updates}))


if __name__ == "__main__":
    main()
