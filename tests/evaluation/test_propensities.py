"""Randomised lists tell how often users look at each place: known users are found again, within the intervals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from kinstream.cli.main import cli
from kinstream.evaluation.propensities.lists import compared
from kinstream.evaluation.propensities.places import Compared, estimated
from kinstream.gate.lists.randomisation import randomise
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.gate import UNADAPTED
from kinstream.streams.records.randomised_id import DrawKind
from kinstream.streams.records.values import Click, ItemClick
from tests.evaluation.drafted_log import DraftedLog
from tests.gate.gates import KEYS

SIZE = 6
#: Users look at place k with this probability: 1/k.
LOOKED = 1.0 / np.arange(1, SIZE + 1)
RELEVANCE = np.array([0.9, 0.7, 0.5, 0.4, 0.3, 0.2])


def simulated(kind: DrawKind, lists: int, seed: int) -> Compared:
    """Pairs of lists of known users, drawn here: ranks that the coin exchanges, and clicks under the position bias."""
    draw = np.random.default_rng(seed)
    rows = []
    for number in range(lists):
        if kind is DrawKind.SWAPS:
            pairs = [(0, int(draw.integers(1, SIZE)))]
        else:
            pairs = [(n, n + 1) for n in range(int(draw.integers(0, 2)), SIZE - 1, 2)]
        order = np.arange(SIZE)
        for upper, lower in pairs:
            if draw.random() < 0.5:
                order[[upper, lower]] = order[[lower, upper]]
        clicked = draw.random(SIZE) < LOOKED * RELEVANCE[order]
        rows += [(u, low, clicked[u], clicked[low], number // 2) for u, low in pairs]
    table = np.array(rows, np.int64)
    return Compared(table[:, 0], table[:, 1], table[:, 2:4], table[:, 4])


@pytest.mark.long
@pytest.mark.parametrize("kind", DrawKind)
def test_intervals_cover_the_propensities_of_known_users(kind: DrawKind) -> None:
    runs = 60
    inside = np.zeros(SIZE - 1)
    right = 0
    for seed in range(runs):
        found = estimated(simulated(kind, 1_500, seed))
        for place, one in enumerate(found.propensities[1:], 1):
            assert one is not None
            inside[place - 1] += one.low <= LOOKED[place] <= one.high
        right += found.exponent.low <= 1.0 <= found.exponent.high
    # 60 times 95 %, less four standard deviations.
    assert inside.min() >= 50 and right >= 50, (inside, right)


def test_swaps_alone_give_the_ratio_of_the_clicks() -> None:
    pairs = simulated(DrawKind.SWAPS, 2_000, 7)
    found = estimated(pairs)
    for place in range(1, SIZE):
        of = pairs.lower == place
        first, other = pairs.clicks[of].sum(axis=0)
        one = found.propensities[place]
        assert one is not None and one.value == pytest.approx(other / first, rel=1e-6)
    assert found.propensities[0] == (1.0, 1.0, 1.0)


def test_places_without_clicks_are_not_known_and_too_few_clicks_are_refused() -> None:
    clicks = np.array([[1, 0], [0, 1], [1, 1], [1, 0]])
    pairs = Compared(np.zeros(4, np.int64), np.array([1, 1, 1, 2]), clicks, np.arange(4))
    found = estimated(pairs)
    assert found.propensities[1] is not None and found.propensities[2] is None
    with pytest.raises(ValueError, match="too few clicks"):
        estimated(Compared(pairs.upper, pairs.lower, clicks * [1, 0], pairs.people))
    with pytest.raises(ValueError, match="two people"):
        estimated(Compared(pairs.upper, pairs.lower, clicks, np.zeros(4, np.int64)))


def lists_of(log_space: str, count: int) -> list[Click]:
    draw = np.random.default_rng(2)
    made = []
    for number in range(count):
        shown = randomise(
            KEYS,
            log_space,
            UNADAPTED,
            [f"doc {n}" for n in range(SIZE)],
            SIZE,
            kind=DrawKind.SWAPS,
            depth=SIZE,
            time_ms=1,
            nonce=number.to_bytes(6, "big"),
        )
        chances = [LOOKED[k] * RELEVANCE[int(item[4:])] for k, item in enumerate(shown.items)]
        clicks = [
            ItemClick(item, 2) for item, p in zip(shown.items, chances, strict=True) if draw.random() < p
        ]
        places = tuple(range(SIZE))
        made.append(
            Click(log_space, shown.list_id, shown.items, places, tuple(clicks), 1, None, f"u{number}")
        )
    return made


def test_lists_that_do_not_count_are_named_by_their_reason() -> None:
    first, second, third = lists_of("docs", 3)
    other = Click("docs", first.list_id, first.items[::-1], first.positions, (), 1)
    forged = Click("docs", third.list_id[:-1] + "_", third.items, third.positions, (), 1)
    ranked = Click("docs", "q-1", first.items, first.positions, (), 1)
    late = Click("docs", second.list_id, second.items, second.positions, (ItemClick(second.items[0], 9),), 1)
    found = compared([other, forged, ranked, second, late], "docs", KEYS)
    wanted = {"changed": 1, "unreadable": 1, "ranked": 1, "used": 1}
    assert {use: count for use, count in found.uses.items() if count} == wanted
    # The click that came later is of the same list.
    assert found.pairs.clicks[0, 0] == 1


def test_the_command_prints_places_and_the_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = DraftedLog(tmp_path)
    for click in lists_of("docs", 1_500):
        log.log.append("kinstream.events", b"docs", encode(click))
    log.connect(monkeypatch)
    monkeypatch.chdir(tmp_path)
    told = CliRunner().invoke(cli, ["evaluate", "propensities", "--space", "docs", "--json"])
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)
    assert found["lists"]["used"] == 1_500 and found["lists"]["drafted"] == 300
    assert found["exponent"]["low"] < 1.0 < found["exponent"]["high"]
    text = CliRunner().invoke(cli, ["evaluate", "propensities", "--space", "docs"])
    assert text.exit_code == 0 and f"bias_exponent = {found['exponent']['value']:.2f}" in text.stdout
    assert "left out: 300 drafted" in text.stdout
    # Without randomised lists there is no estimate, and the message says which lists there are.
    told = CliRunner().invoke(cli, ["evaluate", "propensities", "--space", "docs", "--end", "301"])
    assert told.exit_code != 0 and "300 drafted" in str(told.exception)
