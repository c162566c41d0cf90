"""What the demonstration sends: the catalogue, a query log with clicks, labels, and the clicks of a visitor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.cli.demo.search.material import SEED, Material
from kinstream.cli.produce.sending import agent_groups
from kinstream.producers.loads.pacing import Backpressure
from kinstream.producers.simulated.searchers import Searchers, Searches, catalogue, click_blocks, searches
from kinstream.streams.kafka.backlog import Backlog
from kinstream.streams.kafka.clients import confluent_producer
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.emitter import Emitter
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.values import DEFAULT_MODALITY, Event, SampleBlock, Table
from kinstream.streams.settings import Settings
from kinstream.streams.signals import TEXT

Numbers = NDArray[np.int64]

SPACE: Final = "documentation"
#: Lists of the query log, two of each query that is learned from, and items in each.
LISTS: Final = 6_128
SHOWN: Final = 10
#: Lists of a block: their vectors must fit the few megabytes that the embedded broker keeps.
LISTS_OF_BLOCK: Final = 32
LABELS_OF_BLOCK: Final = 64
#: Records that an agent may have to read.
BEHIND: Final = 8
#: A click on the page is sent as that of so many people, between as many searches of others: one list among ten
#: thousand would change too little to see.
PEOPLE: Final = 64


class Traffic:
    """Sends events, no faster than the agents read them."""

    def __init__(self, settings: Settings, material: Material) -> None:
        self._cluster = Cluster(settings.kafka)
        self._cluster.wait(settings.worker.startup_seconds)
        self._emitter = Emitter(confluent_producer(settings.kafka))
        self._backlog = Backlog(self._cluster, agent_groups(settings))
        self._topic = settings.topic("events")
        self._material = material
        self._visits = 0

    def close(self) -> None:
        self._emitter.close()
        self._cluster.close()

    @property
    def read(self) -> bool:
        """Whether all agents have read and checkpointed all."""
        return self._backlog.records() == 0

    def send(self, events: Iterable[Event]) -> Iterator[Event]:
        """Send events, and give each one after it was sent."""
        pacing = Backpressure(self._backlog.records, BEHIND)
        for event in events:
            value = encode(event)
            if not pacing.admit(len(value)):
                self._emitter.confirm(60.0)
                pacing.wait(len(value))
            self._emitter.send(self._topic, SPACE.encode(), value)
            yield event
        self._emitter.confirm(60.0)

    def catalogue(self) -> Iterator[Event]:
        """Every function as an item; its row is its name."""
        return catalogue(SPACE, self._material.items)

    def clicks(self) -> Iterator[Event]:
        """The log of people who were shown the best by embedding and BM25, half and half, and clicked by position."""
        made = self._material
        best, scores = made.signals.shown(made.learned, SHOWN)
        queries = made.queries[made.learned]
        found = searches(queries, made.items, made.learned, Searchers(shown=SHOWN), LISTS, SEED, best)
        return click_blocks(SPACE, found, queries, LISTS_OF_BLOCK, scores={TEXT: scores[TEXT][found.query]})

    def labels(self) -> Iterator[Event]:
        """Every learned query as a labelled sample behind its item: both are of one class."""
        made = self._material
        for rows in np.array_split(made.learned, -(-len(made.learned) // LABELS_OF_BLOCK)):
            pairs = np.stack([made.items[rows], made.queries[rows]], axis=1).reshape(2 * len(rows), -1)
            names = np.repeat(rows, 2)
            yield SampleBlock(SPACE, (Table(DEFAULT_MODALITY, pairs),), names, time_ms=0)

    def visit(self, text: str, query: NDArray[np.float32], shown: list[int], clicked: int) -> None:
        """Clicks on row `clicked` of the items `shown` for a query (d,), between searches of other people."""
        self._visits += 1
        made = self._material
        asked = np.random.default_rng([SEED, self._visits]).permutation(made.learned)[:PEOPLE]
        best, scores = made.signals.shown(asked, len(shown))
        people = Searchers(shown=len(shown))
        of: Any = (made.queries[asked], made.items, asked, people, PEOPLE, SEED + self._visits, best)
        others = searches(*of)
        lists = np.tile(np.asarray(shown, np.int64), (PEOPLE, 1))
        both = Searches(
            np.stack([np.full(PEOPLE, len(asked)), others.query], axis=1).reshape(-1),
            np.stack([lists, others.items], axis=1).reshape(2 * PEOPLE, -1),
            np.stack([lists == clicked, others.clicked], axis=1).reshape(2 * PEOPLE, -1),
            np.full(2 * PEOPLE, -1, np.int64),
        )
        queries = np.concatenate([made.queries[asked], query[None]])
        words = np.concatenate([scores[TEXT], made.text([text])[:, shown]])[both.query]
        first = LISTS + 2 * PEOPLE * self._visits
        for _ in self.send(
            click_blocks(SPACE, both, queries, LISTS_OF_BLOCK, first=first, scores={TEXT: words})
        ):
            pass
