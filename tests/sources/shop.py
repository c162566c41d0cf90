"""Records of an invented shop, nested as shops' records are, and what they mean, written without product code."""

from __future__ import annotations

import json
import random
from typing import Any

from kinstream.streams.agents.machine import Machine, Place
from kinstream.streams.configuration.sources import SourceSettings
from kinstream.streams.records.message import Message
from kinstream.streams.settings import Settings

SEARCH: dict[str, Any] = {
    "topic": "shop.search",
    "kind": "clicks",
    "fields": {
        "space": "meta.tenant",
        "time": "meta.ts",
        "list_id": "meta.event_id",
        "items": "payload.results[*].sku",
        "positions": "payload.results[*].rank",
        "clicks": "payload.clicks[*].sku",
        "clicked_at": "payload.clicks[*].at",
        "session": "payload.user.session",
        "user": "payload.user.id",
        "query_item": "payload.query.sku",
    },
}


def search(number: int, rng: random.Random, tenants: int = 2, shown: int = 10) -> dict[str, Any]:
    """A result list of ten with up to three clicks; about 1 kB."""
    skus = rng.sample(range(1_000), shown)
    clicked = sorted(rng.sample(range(shown), rng.randint(0, min(3, shown))))
    at = 1_777_636_800_000 + number * 1_000
    return {
        "meta": {
            "event_id": f"e-{number}",
            "schema": "search.v3",
            "tenant": f"shop-{number % tenants}",
            "ts": at,
            "trace": {"id": f"{number:032x}", "span": f"{number:016x}"},
        },
        "payload": {
            "query": {
                "text": "red shoes",
                "sku": f"sku-{skus[0]}",
                "filters": {"brand": ["a", "b"], "max": 90},
            },
            "user": {"id": f"u-{number % 50}", "session": f"s-{number % 200}", "segments": ["x", "y"]},
            "results": [
                {"sku": f"sku-{sku}", "rank": rank, "price": {"amount": 10.5 + rank, "currency": "EUR"}}
                for rank, sku in enumerate(skus)
            ],
            "clicks": [{"sku": f"sku-{skus[place]}", "at": at + 1_000 * place} for place in clicked],
        },
    }


def meaning(record: dict[str, Any]) -> dict[str, Any]:
    """The list that a record stands for, in words of our own JSON events."""
    payload, meta = record["payload"], record["meta"]
    return {
        "space": meta["tenant"],
        "list_id": meta["event_id"],
        "items": [one["sku"] for one in payload["results"]],
        "positions": [one["rank"] for one in payload["results"]],
        "clicks": [(one["sku"], one["at"]) for one in payload["clicks"]],
        "shown_at_ms": meta["ts"],
        "session": payload["user"]["session"],
        "user": payload["user"]["id"],
        "query_item": payload["query"]["sku"],
    }


def message(
    value: Any, offset: int = 0, key: bytes | None = None, time_ms: int = 1_777_636_800_000
) -> Message:
    """A record of a source's topic."""
    data = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
    return Message("shop.search", 0, offset, time_ms, key, data, (), offset - 1)


def machine(source: dict[str, Any], partitions: int = 2) -> Machine:
    """The machine of a source on one partition."""
    from kinstream.producers.sources.agent import source_spec

    settings = Settings(sources={"shop": SourceSettings(**source)})
    place = Place("shop", 1, source["topic"], 0, 1, "kinstream.events", partitions, "kinstream.dead-letters")
    return source_spec(settings, "shop").make_machine(place, lambda name: {})
