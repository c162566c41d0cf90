"""The recipe of the gate's page: a drafted list of the gateway, and the click event that comes back."""

from __future__ import annotations

import hmac
import json
from typing import Any

import numpy as np
import pytest

from kinstream.gate.agent import returned
from kinstream.gate.core import SpaceGate
from kinstream.gate.lists.list_id import PREFIX
from kinstream.gate.values import Fate, Options
from kinstream.streams.records.codec.codec import decode, encode
from kinstream.streams.records.gate import UNADAPTED
from kinstream.streams.records.values import Click
from tests.docs.pages import ROOT, blocks
from tests.gate.gates import KEYS
from tests.search.store_service import Gateway, Memory, bilinear, section, served

PAGE = ROOT / "docs" / "gate.md"
X = np.random.default_rng(4).normal(size=(60, 5)).astype(np.float32)


def test_the_address_of_the_recipe_is_a_keyed_hash_of_the_network() -> None:
    scope: dict[str, Any] = {}
    (recipe,) = [b.text for b in blocks(PAGE, "python") if b.before == "<!-- recipe: address -->"]
    exec(recipe, scope)
    address_of, key = scope["address_of"], b"a key of the shop"
    one = address_of("203.0.113.7", key)
    assert one == hmac.new(key, bytes([203, 0, 113, 7]), "sha256").hexdigest()[:24]
    assert address_of("::ffff:203.0.113.7", key) == one
    assert one not in (address_of("203.0.113.8", key), address_of("203.0.113.7", b"another key"))
    # A subscriber's prefix of IPv6 is one address.
    assert address_of("2001:db8:0:1200::1", key) == address_of("2001:db8:0:12ff::9", key)
    assert address_of("2001:db8:0:1200::1", key) != address_of("2001:db8:0:1300::1", key)
    event = {
        "kind": "click",
        "space": "docs",
        "list_id": "a",
        "items": ["x"],
        "clicks": [],
        "shown_at_ms": 1,
        "address": one,
    }
    click = decode(json.dumps(event).encode(), Click)
    assert isinstance(click, Click)
    back = decode(encode(click), Click)
    assert isinstance(back, Click)
    assert click.address == back.address == one


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_click_event_of_the_recipe_is_evidence_where_the_list_was_drafted(share: float) -> None:
    scope: dict[str, Any] = {}
    (recipe,) = [b.text for b in blocks(PAGE, "python") if b.before == "<!-- recipe: drafted -->"]
    exec(recipe, scope)
    store = Memory([f"doc-{n}" for n in range(60)], X)
    gateway = Gateway({"docs": section()}, create=lambda *_: store, gate={"docs": {"share": share}})
    gateway.service.start()
    try:
        gateway.wait(lambda: gateway.service.ready, "ready")
        gateway.announced.announce("docs", bilinear(5, 3), 3)
        gateway.wait(lambda: gateway.space("docs").newest.name.step == 3, "it is loaded")
        with served(gateway) as url:
            result = scope["ask"](url, X[0].tolist(), "s-1")
    finally:
        gateway.service.stop()
    event = scope["click_event"](result, X[0].tolist(), [result["neighbours"][0]["id"]], "s-1", "u-1")
    click = decode(event, Click)
    assert isinstance(click, Click)
    assert click.query_vector is not None
    np.testing.assert_array_equal(click.query_vector[0].vectors, X[:1])
    lists = [one for one, _ in returned(click) if one.list_id.startswith(PREFIX)]
    assert len(lists) == share
    gate = SpaceGate("docs", KEYS, Options(every_minutes=0.0, min_learned=0))
    for one in lists:
        (made,) = gate.take(one, click.shown_at_ms)
        assert made.serving == UNADAPTED and made.challenger is not None and made.challenger.step == 3
        assert gate.fates[Fate.WON] + gate.fates[Fate.LOST] == 1
