"""The address of a click event, mapped from a field of a company's own records."""

from __future__ import annotations

import random

from kinstream.streams.records.codec.codec import decode_event
from tests.producers.block_contents import lists_of
from tests.sources.shop import SEARCH, machine, message, search


def test_an_address_is_mapped_and_may_be_missing() -> None:
    rng = random.Random(1)
    records = [search(number, rng, tenants=1) for number in range(3)]
    records[0]["payload"]["network"] = "9c1d"
    records[2]["payload"]["network"] = None
    source = machine(SEARCH | {"fields": SEARCH["fields"] | {"address": "payload.network"}})
    outputs = [out for n, record in enumerate(records) for out in source.step(message(record, n))]
    outputs += source.flush()
    found = [one for out in outputs for one in lists_of(decode_event(out.value))]
    assert [one.address for one in found] == ["9c1d", None, None]
    assert [one.user for one in found] == ["u-0", "u-1", "u-2"]
