"""Topics of other systems that sources read in a crash run, written while it lasts, and what must come of them.

`searches` has a transactional writer that aborts, and that is replaced in the midst of transactions. `products` is
compacted. `insights` holds User Behavior Insights of clients whose clocks are hours ahead and behind. All go into one
space. The rules are written down here a second time, without product code.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from confluent_kafka import Producer

from kinstream.producers.sources.agent import source_spec
from kinstream.streams.agents.machine import Place
from kinstream.streams.records.message import Output
from tests.crash.checker import Record, decode, require
from tests.crash.processes import Agent, System
from tests.kafka.broker import KafkaBroker
from tests.sources.rows import numbered
from tests.support.kafka_system import transactional
from tests.support.processes import until

SPACE: Final = "bazaar"
SETTINGS: Final = f"""
[sources.searches]
topic = "{{prefix}}.searches"
kind = "clicks"
space = "{SPACE}"
[sources.searches.fields]
time = "at"
list_id = "id"
items = "shown[*]"
clicks = "clicks[*].item"
clicked_at = "clicks[*].at"
query_item = "q"
user = "u"

[sources.products]
topic = "{{prefix}}.products"
kind = "items"
space = "{SPACE}"
[sources.products.fields]
id = "@key"
vector = "v"

[sources.insights]
topic = "{{prefix}}.insights"
preset = "ubi"
space = "{SPACE}"
[sources.insights.fields]
query_item = "query_attributes.item"
"""
NAMES: Final = ("searches", "products", "insights")
SOURCES: Final = tuple(
    Agent("source", name, name, workers) for name, workers in zip(NAMES, (1, 1, 2), strict=True)
)
PARTITIONS: Final = 3
PRODUCTS: Final = 30
DIMENSION: Final = 6
SHOWN: Final = 6
#: Seconds between two turns of the writers.
TURN_SECONDS: Final = 0.5
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
#: How far the clocks of clients are from the true time. A record may be 5 minutes ahead of its Kafka record.
CLOCKS_MS: Final = (0, 0, -13 * HOUR_MS, -MINUTE_MS, 4 * MINUTE_MS, 13 * HOUR_MS, 2 * HOUR_MS)
AHEAD_MS: Final = 5 * MINUTE_MS
#: Time passes this much faster in the stamps of `insights` than it does.
FASTER: Final = 20
WINDOW_MS: Final = 30 * MINUTE_MS


class Foreign:
    """The writers of the three topics, and what they have written.

    Parameters
    ----------
    system : whose sources read the topics.
    """

    def __init__(self, broker: KafkaBroker, system: System, seed: int) -> None:
        self._system = system
        self._topics = {name: system.topic(name) for name in NAMES}
        self._rng = random.Random(f"{seed} foreign")
        self._begun = time.time()
        self._at_ms = int(self._begun * 1000) - 6 * HOUR_MS
        #: Committed lists, in the order of each partition.
        self._lists: dict[int, list[dict[str, Any]]] = {p: [] for p in range(PARTITIONS)}
        #: The versions of each product in the order of the log; None for a deletion.
        self._products: dict[str, list[list[float] | None]] = {}
        self._queries: dict[str, dict[str, Any]] = {}
        self._number = self.aborted = 0
        self._plain = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        broker.create_topic(self._topics["searches"], PARTITIONS)
        broker.create_topic(self._topics["insights"], PARTITIONS)
        broker.create_topic(
            self._topics["products"],
            PARTITIONS,
            cleanup_policy="compact",
            segment_ms="5000",
            min_cleanable_dirty_ratio="0.01",
        )
        self._transactional = self._writer()

    def _writer(self) -> Producer:
        return transactional(self._system.bootstrap, self._topics["searches"])

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Write as long as the body runs, and then what completes it."""
        stop, failures = threading.Event(), []

        def write() -> None:
            try:
                while not stop.wait(TURN_SECONDS):
                    self._turn()
                self._complete()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=write, name="foreign")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        if failures:
            raise failures[0]

    # ---- writing ------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        self._products_turn()
        self._insights_turn()
        self._searches_turn()

    def _products_turn(self) -> None:
        for _ in range(6):
            name = f"p{self._rng.randrange(PRODUCTS)}"
            vector = None
            if self._rng.random() > 0.05:
                vector = [round(self._rng.gauss(0, 1), 5) for _ in range(DIMENSION)]
            self._products.setdefault(name, []).append(vector)
            value = None if vector is None else json.dumps({"v": vector}).encode()
            self._plain.produce(self._topics["products"], value, name.encode())
        self._plain.poll(0)

    def _items(self) -> list[str]:
        return [f"p{n}" for n in self._rng.sample(range(PRODUCTS), SHOWN + 1)]

    def _now_ms(self) -> int:
        return self._at_ms + int((time.time() - self._begun) * 1000) * FASTER

    def _insights_turn(self) -> None:
        now = self._now_ms()
        open_ = [one for one in self._queries.values() if now - one["stamp"] < WINDOW_MS // 2]
        for one in self._rng.sample(open_, min(3, len(open_))):
            item = self._rng.choice(one["hits"])
            at = now + one["clock"]
            event = {
                "action_name": "click",
                "query_id": one["id"],
                "timestamp": at,
                "event_attributes": {"object": {"object_id": item}},
            }
            self._say(one["partition"], event, now)
            one["clicks"].append([item, at])
        for _ in range(3):
            self._number += 1
            query, *hits = self._items()
            clock = self._rng.choice(CLOCKS_MS)
            one = {
                "id": f"q{self._number}",
                "hits": hits,
                "stamp": now,
                "clock": clock,
                "clicks": [],
                "query": query,
                "partition": self._number % PARTITIONS,
            }
            self._queries[one["id"]] = one
            self._query(one)

    def _query(self, one: dict[str, Any]) -> None:
        record = {
            "query_id": one["id"],
            "client_id": f"c{one['clock']}",
            "timestamp": one["stamp"] + one["clock"],
            "query_response_hit_ids": one["hits"],
            "query_attributes": {"item": one["query"]},
        }
        self._say(one["partition"], record, one["stamp"])

    def _say(self, partition: int, record: dict[str, Any], stamp: int) -> None:
        self._plain.produce(
            self._topics["insights"], json.dumps(record).encode(), b"k", partition, timestamp=stamp
        )

    def _searches_turn(self) -> None:
        writer, made = self._transactional, []
        writer.begin_transaction()
        for _ in range(4):
            self._number += 1
            query, *shown = self._items()
            at = self._now_ms()
            clicks = [{"item": item, "at": at + 5} for item in self._rng.sample(shown, 2)]
            one = {
                "id": f"s{self._number}",
                "at": at,
                "q": query,
                "u": f"u{self._number % 50}",
                "shown": shown,
                "clicks": clicks,
            }
            partition = self._rng.randrange(PARTITIONS)
            writer.produce(self._topics["searches"], json.dumps(one).encode(), partition=partition)
            made.append((partition, one))
        writer.flush(60)
        fate = self._rng.random()
        if fate < 0.2:
            writer.abort_transaction(60)
        elif fate < 0.25:
            self._transactional = self._writer()
        else:
            writer.commit_transaction(60)
            for partition, one in made:
                self._lists[partition].append(one)
            return
        self.aborted += 1

    def _complete(self) -> None:
        """Let time pass until all lists have closed; the log of `searches` ends with markers."""
        stamp = self._now_ms() + 2 * WINDOW_MS
        for number in range(100 * PARTITIONS):
            hits = self._items()[1:]
            one = {
                "id": f"last{number}",
                "hits": hits,
                "stamp": stamp,
                "clock": 0,
                "query": hits[0],
                "partition": number % PARTITIONS,
            }
            self._query(one)
        require(self._plain.flush(60) == 0, "the writers are not answered")

    # ---- checking -----------------------------------------------------------------------------------------------

    def settled(self) -> None:
        """Wait until the sources have read everything."""
        for agent in SOURCES:
            until(lambda a=agent: self._system.settled(a), f"{agent.application} comes to the end")  # type: ignore[misc]

    def check(self, events: Sequence[Record]) -> None:
        """Every committed list, the newest version of every product, and every list of insights with its clicks."""
        mine: list[Any] = [r for r in events if _load(r).startswith("source/")]
        rows, repeated = numbered(mine)
        loads = {load: [some[n] for n in sorted(some)] for (_, load), some in rows.items()}
        for partition, wanted in self._lists.items():
            found = loads.pop(f"source/searches/1/{partition}")
            require(
                [_plain(one) for one in found] == wanted, "searches", partition, "are not those committed"
            )
        products, insights = (
            [one for load, some in loads.items() for one in some if load.startswith(f"source/{name}/")]
            for name in NAMES[1:]
        )
        self._check_products(products)
        self._check_insights(insights)
        self._check_again(rows)
        print(
            f"sources: {sum(map(len, self._lists.values()))} searches, {self.aborted} transactions aborted, "
            f"{sum(map(len, self._products.values()))} products, {len(insights)} insights; {repeated} rows again",
            flush=True,
        )
        require(repeated > 0, "no row was written again")
        require(self.aborted > 0, "no transaction was aborted")

    def _check_products(self, rows: Sequence[tuple[str, list[float] | None]]) -> None:
        found: dict[str, list[list[float] | None]] = {}
        for name, vector in rows:
            found.setdefault(name, []).append(vector)
        for name, written in self._products.items():
            versions = [None if v is None else np.array(v, np.float32).tolist() for v in written]
            taken = iter(versions)
            require(found[name][-1] == versions[-1], name, "is not the newest version")
            require(all(one in taken for one in found[name]), name, "has versions in another order")
        left = sum(1 for _ in self._system.read("products"))
        require(left < sum(map(len, self._products.values())), "nothing of the products was compacted")

    def _check_insights(self, rows: Sequence[dict[str, Any]]) -> None:
        wanted = {
            one["id"]: (one["hits"], one["stamp"] + one["clock"], sorted(one["clicks"]))
            for one in self._queries.values()
            if one["clock"] <= AHEAD_MS
        }
        found = {
            one["list_id"]: (one["items"], one["shown_at_ms"], sorted(map(list, one["clicks"])))
            for one in rows
            if not one["list_id"].startswith("last")
        }
        require(len(found) == sum(not r["list_id"].startswith("last") for r in rows), "a list came twice")
        wrong = [name for name in {*found, *wanted} if found.get(name) != wanted.get(name)]
        require(
            not wrong, len(wrong), "insights differ:", *((n, found.get(n), wanted.get(n)) for n in wrong[:3])
        )

    def _check_again(self, rows: dict[tuple[str, str], dict[int, Any]]) -> None:
        """What the topics hold now, through the machines in this process: the same rows under the same numbers."""
        settings = self._system.settings
        for name in NAMES:
            spec = source_spec(settings, name)
            outputs: dict[int, list[Output]] = {}
            machines: dict[int, Any] = {}
            for message in self._system.read(name):
                p = message.partition
                if p not in machines:
                    place = Place(name, 1, self._topics[name], p, PARTITIONS, "events", 1, "dead-letters")
                    machines[p] = spec.make_machine(place, lambda space: {})
                outputs.setdefault(p, []).extend([*machines[p].step(message), *machines[p].flush()])
            made = [one for some in outputs.values() for one in some if one.topic == "events"]
            for (space, load), again in numbered(made)[0].items():
                known = rows[space, load]
                require(all(known.get(n) == row for n, row in again.items()), load, "has other rows")
                require(name == "products" or len(again) == len(known), load, "has fewer rows")


def _load(record: Record) -> str:
    return str(decode(record.value)[1]["load"]["load_id"])


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """A list as its writer wrote it."""
    return {
        "id": row["list_id"],
        "at": row["shown_at_ms"],
        "q": row["query_item"],
        "u": row["user"],
        "shown": row["items"],
        "clicks": [{"item": item, "at": at} for item, at in row["clicks"]],
    }
