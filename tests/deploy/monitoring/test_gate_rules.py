"""The alerts of the gate, firing and not firing, in a system that is healthy otherwise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.deploy.monitoring.world import EVENT, Alert, World, healthy

WHERE: Final[dict[str, str]] = {"instance": "gate:9120", "space": "docs"}
LISTS: Final = "kinstream_exposure_lists_total"
CREDITED: Final = "kinstream_gate_lists_total"
#: Lists of a space in a minute: a fifth is drafted.
RANKED: Final = 40
DRAFTED: Final = 10
DOCS: Final[dict[str, Any]] = {"space": "docs"}
AGAINST: Final[Alert] = ("KinstreamGateEvidenceAgainstServing", "warning", DOCS)
STOPPED: Final[Alert] = ("KinstreamGateRandomisationStopped", "warning", DOCS)
MISSING: Final[Alert] = ("KinstreamGatePropensitiesMissing", "warning", DOCS)
LEFT_OUT: Final[Alert] = ("KinstreamGateListsLeftOut", "warning", DOCS)


def with_gate() -> World:
    """A healthy system with a gate: a learned model serves, a challenger is compared, and one list in 50 is forged."""
    world = healthy()
    world.put("up", 1, instance=WHERE["instance"])
    for name, value in (("adapted", 1), ("pinned", 0), ("share", 0.2)):
        world.put(f"kinstream_gate_{name}", value, **WHERE)
    for winner in ("challenger", "serving"):
        world.put("kinstream_gate_log_e_value", 0.5, **WHERE, winner=winner)
    for kind, each in (
        ("ranked", RANKED),
        ("drafted", DRAFTED),
        ("unreadable", DRAFTED / 50),
        ("changed", 0),
        ("invalid", 0),
    ):
        world.count(LISTS, each, **WHERE, kind=kind)
    for fate, each in (("won", 3), ("lost", 2), ("tied", 1), ("capped_user", 0.1), ("burst_item", 0)):
        world.count(CREDITED, each, **WHERE, fate=fate)
    return world


def users_prefer_the_challenger(world: World) -> None:
    world.set("kinstream_gate_log_e_value", 3.0, winner="challenger")


def users_prefer_it_to_the_unadapted_features(world: World) -> None:
    users_prefer_the_challenger(world)
    world.set("kinstream_gate_adapted", 0, since=0)


def users_prefer_the_serving_model(world: World) -> None:
    world.set("kinstream_gate_log_e_value", 3.6, winner="serving")


def the_evidence_leads_to_a_decision(world: World) -> None:
    world.set("kinstream_gate_log_e_value", 3.0, until=EVENT + 20, winner="challenger")


def drafting_stops(world: World) -> None:
    for kind in ("drafted", "unreadable"):
        world.grow(LISTS, 0, kind=kind)


def drafting_stops_for_ten_minutes(world: World) -> None:
    for kind, each in (("drafted", float(DRAFTED)), ("unreadable", DRAFTED / 50)):
        for values in world.find(LISTS, kind=kind):
            base = values[EVENT - 1] or 0.0
            for minute in range(EVENT, world.minutes):
                values[minute] = base + each * max(0, minute - EVENT - 10)


def nothing_was_ever_drafted(world: World) -> None:
    for kind in ("drafted", "unreadable"):
        world.set(LISTS, 0, since=0, kind=kind)


def nothing_is_to_be_drafted(world: World) -> None:
    nothing_was_ever_drafted(world)
    world.set("kinstream_gate_share", 0, since=0)


def a_model_is_pinned_and_drafting_stops(world: World) -> None:
    drafting_stops(world)
    world.set("kinstream_gate_pinned", 1)


def nobody_searches(world: World) -> None:
    for kind in ("ranked", "drafted", "unreadable"):
        world.grow(LISTS, 0, kind=kind)


def services_get_another_key(world: World) -> None:
    world.grow(LISTS, 0, kind="drafted")
    world.grow(LISTS, DRAFTED, kind="unreadable")


def a_client_adds_adverts_to_a_tenth(world: World) -> None:
    world.grow(LISTS, DRAFTED * 0.9, kind="drafted")
    world.grow(LISTS, DRAFTED * 0.1, kind="changed")


def half_of_very_few_are_forged(world: World) -> None:
    world.set(LISTS, lambda minute: minute // 2, since=0, kind="drafted")
    world.set(LISTS, lambda minute: minute // 2, since=0, kind="unreadable")


def somebody_buys_clicks(world: World) -> None:
    world.grow(CREDITED, 3, fate="burst_item")


def a_few_of_few_are_in_a_burst(world: World) -> None:
    for fate in ("won", "lost", "tied", "burst_item"):
        world.set(CREDITED, lambda minute: minute // 10, since=0, fate=fate)


CASES: Final[tuple[tuple[Callable[[World], None], dict[int, list[Alert]]], ...]] = (
    (users_prefer_the_challenger, {28: [], 31: [AGAINST], 49: [AGAINST]}),
    (users_prefer_it_to_the_unadapted_features, {31: [], 49: []}),
    (users_prefer_the_serving_model, {31: [], 49: []}),
    (the_evidence_leads_to_a_decision, {31: [], 49: []}),
    (drafting_stops, {30: [], 42: [], 48: [STOPPED]}),
    (drafting_stops_for_ten_minutes, {20: [], 35: [], 49: []}),
    (nothing_is_to_be_drafted, {20: [], 49: []}),
    (a_model_is_pinned_and_drafting_stops, {48: [], 49: []}),
    (nobody_searches, {40: [], 49: []}),
    (services_get_another_key, {10: [], 20: [MISSING], 49: [MISSING]}),
    (a_client_adds_adverts_to_a_tenth, {20: [], 40: [MISSING], 49: [MISSING]}),
    (half_of_very_few_are_forged, {20: [], 49: []}),
    (somebody_buys_clicks, {10: [], 30: [LEFT_OUT], 49: [LEFT_OUT]}),
    (a_few_of_few_are_in_a_burst, {20: [], 49: []}),
)


@pytest.mark.parametrize(("change", "after"), CASES, ids=[change.__name__ for change, _ in CASES])
def test_what_fires_when(
    change: Callable[[World], None], after: dict[int, list[Alert]], tmp_path: Path
) -> None:
    world = with_gate()
    change(world)
    world.check(tmp_path, {EVENT - 2: []} | {EVENT + minutes: alerts for minutes, alerts in after.items()})


def test_a_gate_for_which_nothing_was_ever_drafted_is_reported(tmp_path: Path) -> None:
    world = with_gate()
    nothing_was_ever_drafted(world)
    world.check(tmp_path, {10: [], 20: [STOPPED], EVENT + 40: [STOPPED]})
