"""What Prometheus is shown of held-out events."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kinstream.monitoring.exposition import OwnedTallies, TallyCollector
from kinstream.monitoring.tallies import Tallies
from kinstream.streams.checkpoints.state_bytes import from_bytes, to_bytes
from tests.monitoring.outcomes import found, outcome

Values = dict[tuple[str, ...], float]


def shown(owned: OwnedTallies, **settings: object) -> Values:
    """By name and the label that is neither the partition, the space nor the learner."""
    values: Values = {}
    for metric in TallyCollector(owned, **settings).collect():  # type: ignore[arg-type]
        for sample in metric.samples:
            if sample.name.startswith("kinstream_held_out") or "withheld" in sample.name:
                more = set(sample.labels) - {"partition", "space", "learner"}
                if sample.labels["space"] == "s":
                    values[sample.name, *(sample.labels[name] for name in more)] = sample.value
    return values


def owned_by(tallies: Tallies) -> OwnedTallies:
    owned = OwnedTallies()
    owned.assign(0, tallies, live=True)
    return owned


def test_rates_are_of_the_newest_window_and_events_of_all_blocks() -> None:
    tallies = Tallies(window=10, top_spaces=1)
    assert shown(owned_by(tallies)) == {}
    tallies.apply(replace(outcome(), held_out=found(100, 0.5, 0.2, judged=7)))
    tallies.apply(outcome())
    tallies.apply(replace(outcome(), held_out=found(104, 0.4, 0.3)))
    values = shown(owned_by(tallies))
    error = 2.5758293 * 0.1 / 103**0.5
    assert values == pytest.approx(
        {
            ("kinstream_held_out_events_total",): 11.0,
            ("kinstream_held_out_mistake_rate", "learned"): 0.4,
            ("kinstream_held_out_mistake_rate", "best un-learned"): 0.3,
            ("kinstream_held_out_best_info", "cosine"): 1.0,
            ("kinstream_held_out_difference",): 0.1,
            ("kinstream_held_out_difference_low",): 0.1 - error,
            ("kinstream_held_out_difference_high",): 0.1 + error,
            ("kinstream_held_out_known_ratio",): 1.0,
            ("kinstream_model_withheld",): 1.0,
        }
    )
    assert shown(owned_by(tallies), withholds=lambda learner: False)["kinstream_model_withheld",] == 0.0


def test_a_few_events_have_rates_and_no_difference() -> None:
    tallies = Tallies(window=10, top_spaces=1)
    tallies.apply(replace(outcome(), held_out=found(49, 0.5, 0.2)))
    names = {name for name, *_ in shown(owned_by(tallies))}
    assert names == {
        "kinstream_held_out_events_total",
        "kinstream_held_out_mistake_rate",
        "kinstream_held_out_best_info",
        "kinstream_held_out_known_ratio",
        "kinstream_model_withheld",
    }
    assert shown(owned_by(tallies))["kinstream_held_out_known_ratio",] == 0.98
    assert shown(owned_by(tallies))["kinstream_model_withheld",] == 0.0


def test_lists_are_compared_with_what_a_store_ranks_by() -> None:
    events = found(400, 0.3, 0.32)
    window = replace(events.window, losses=dict(events.window.losses) | {"minmax": 0.2 * 400})
    lists = replace(events, window=window, queries=400)
    assert (replace(lists, queries=None).best, lists.best) == ("minmax", "cosine")
    assert lists.difference is not None and lists.difference.value == pytest.approx(-0.02)


def test_lists_of_few_queries_have_no_rates() -> None:
    tallies = Tallies(window=10, top_spaces=1)
    few = replace(found(70, 0.5, 0.2), queries=59, against=9.0)
    assert few.verdict == "not enough yet: 59 of 200" and not few.worse
    tallies.apply(replace(outcome(), held_out=few))
    assert shown(owned_by(tallies)) == {
        ("kinstream_held_out_events_total",): 4.0,
        ("kinstream_held_out_known_ratio",): 0.295,
        ("kinstream_held_out_best_info", "cosine"): 1.0,
        ("kinstream_model_withheld",): 0.0,
    }
    enough = replace(found(400, 0.5, 0.2), queries=200)
    assert [replace(enough, against=log).worse for log in (2.9, 3.0)] == [False, True]
    assert (enough.verdict, replace(found(400, 0.2, 0.5), queries=200).verdict) == ("worse", "better")
    assert replace(found(400, 0.3, 0.301), queries=200).verdict == "no difference shown"


@pytest.mark.parametrize(
    ("learned", "queries", "shown_too"),
    [(0.32, 200, True), (0.308, 499, False), (0.308, 500, True), (0.304, 5_000, False)],
)
def test_a_difference_of_lists_is_shown_only_if_its_sign_can_be_trusted(
    learned: float, queries: int, shown_too: bool
) -> None:
    # Its standard error is .005.
    lists = replace(found(401, learned, 0.3), queries=queries)
    tallies = Tallies(window=10, top_spaces=1)
    tallies.apply(replace(outcome(), held_out=lists))
    values = shown(owned_by(tallies))
    assert (("kinstream_held_out_difference",) in values) == shown_too
    assert (("kinstream_held_out_mistake_rate", "learned") in values) == shown_too
    assert values["kinstream_held_out_difference_low",] == pytest.approx(
        learned - 0.3 - 2.5758 * 0.005, abs=1e-5
    )
    assert replace(found(401, learned, 0.3)).published


def test_a_new_model_begins_without_a_window_and_events_go_on() -> None:
    tallies = Tallies(window=10, top_spaces=1)
    tallies.apply(replace(outcome(), held_out=found(100, 0.5, 0.2)))
    again = replace(outcome(), epoch=outcome().epoch + 1)
    tallies.apply(again)
    assert shown(owned_by(tallies)) == {("kinstream_held_out_events_total",): 4.0}
    tallies.apply(replace(again, held_out=found(60, 0.1, 0.2, judged=60)))
    values = shown(owned_by(tallies))
    assert values["kinstream_held_out_events_total",] == 64.0
    assert values["kinstream_held_out_difference",] == pytest.approx(-0.1)


def test_unlisted_spaces_count_events_and_show_no_window() -> None:
    tallies = Tallies(window=10, top_spaces=1)
    tallies.apply(outcome())
    tallies.apply(replace(outcome(), space="small", held_out=found(100, 0.5, 0.2)))
    rows = {row.space: row for row in tallies.snapshot().rows}
    assert rows["other"].held_out is not None and not rows["other"].stands
    assert rows["other"].held_out.block.weight == 4


def test_a_checkpoint_holds_them_bit_for_bit_and_an_older_one_has_none() -> None:
    tallies = Tallies(window=10, top_spaces=1)
    tallies.apply(replace(outcome(), held_out=found(100, 0.1 + 0.2, 1 / 3)))
    state = from_bytes(to_bytes(tallies.state()))
    again = Tallies(window=10, top_spaces=1)
    again.restore(state)
    assert again.snapshot() == tallies.snapshot()
    older = {name: value for name, value in state.items() if name not in ("held", "held_out", "rule_held")}
    again.restore(older)
    assert again.snapshot().rows[0].held_out is None
