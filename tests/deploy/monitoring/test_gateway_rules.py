"""The alerts of the gateway, firing and not firing, in a system that is healthy otherwise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.deploy.monitoring.world import END, EVENT, REQUESTS, Alert, World, healthy

WHERE: Final = {"instance": "gateway:8089", "space": "digits", "learner": "opml"}
ANSWERS: Final = "kinstream_serve_request_duration_seconds_count"
DOWN: Final[Alert] = ("KinstreamGatewayDown", "critical", {})
FAILING: Final[Alert] = ("KinstreamGatewayFailing", "critical", {})
STALE: Final[Alert] = ("KinstreamGatewayModelStale", "warning", {"space": "digits", "learner": "opml"})


def with_gateway(minutes: int = END) -> World:
    """A healthy system with a gateway that is asked, and takes a new model every minute."""
    world = healthy(minutes)
    world.put("up", 1, instance=WHERE["instance"])
    world.put("kinstream_serve_ready", 1, instance=WHERE["instance"])
    world.put("kinstream_serve_store_up", 1, **WHERE)
    world.count("kinstream_serve_model_step", 1, **WHERE)
    for name, value in (("epoch", 0), ("generation", 1), ("behind", 1)):
        world.put(f"kinstream_serve_model_{name}", value, **WHERE)
    for status, each in (("200", REQUESTS), ("503", 0)):
        world.count(ANSWERS, each, instance=WHERE["instance"], route="/search", status=status)
    world.count(ANSWERS, 30, instance=WHERE["instance"], route="/readyz", status="503")
    return world


def gone(world: World) -> None:
    world.gone(instance=WHERE["instance"])


def not_ready(world: World) -> None:
    world.set("kinstream_serve_ready", 0)


def replaced(world: World) -> None:
    world.gone(until=EVENT + 3, instance=WHERE["instance"])


def a_tenth_fails(world: World) -> None:
    world.grow(ANSWERS, REQUESTS / 10, route="/search", status="503")


def one_in_fifty_fails(world: World) -> None:
    world.grow(ANSWERS, REQUESTS / 50, route="/search", status="503")


def half_of_very_few_fail(world: World) -> None:
    for status in ("200", "503"):
        world.grow(ANSWERS, 1, route="/search", status=status)


def no_model_is_taken_over(world: World) -> None:
    world.grow("kinstream_serve_model_step", 0)


def nothing_new_is_learned(world: World) -> None:
    world.grow("kinstream_serve_model_step", 0)
    world.set("kinstream_serve_model_behind", 0)


CASES: Final[tuple[tuple[Callable[[World], None], dict[int, list[Alert]]], ...]] = (
    (gone, {3: [], 20: [DOWN], 45: [DOWN]}),
    (not_ready, {3: [], 7: [DOWN], 45: [DOWN]}),
    (replaced, {2: [], 6: [], 30: []}),
    (a_tenth_fails, {3: [], 12: [FAILING], 30: [FAILING]}),
    (one_in_fifty_fails, {12: [], 30: []}),
    (half_of_very_few_fail, {12: [], 30: []}),
    (no_model_is_taken_over, {10: [], 20: [], 30: [STALE], 49: [STALE]}),
    (nothing_new_is_learned, {30: [], 49: []}),
)


@pytest.mark.parametrize(("change", "after"), CASES, ids=[change.__name__ for change, _ in CASES])
def test_what_fires_when(
    change: Callable[[World], None], after: dict[int, list[Alert]], tmp_path: Path
) -> None:
    world = with_gateway()
    change(world)
    world.check(tmp_path, {EVENT - 2: []} | {EVENT + minutes: alerts for minutes, alerts in after.items()})


def test_a_gateway_that_was_removed_is_forgotten_after_an_hour(tmp_path: Path) -> None:
    world = with_gateway(180)
    world.gone(until=180, instance=WHERE["instance"])
    world.check(tmp_path, {EVENT + 30: [DOWN], EVENT + 75: [], 170: []})


def test_workers_that_are_gone_are_reported_although_a_gateway_answers(tmp_path: Path) -> None:
    world = with_gateway()
    kept = {key: list(values) for key, values in world.series.items() if WHERE["instance"] in key}
    world.gone()
    world.series |= kept
    world.check(tmp_path, {EVENT - 2: [], EVENT + 3: [("KinstreamDown", "critical", {})]})
