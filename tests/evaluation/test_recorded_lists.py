"""Recorded lists with scores: every ranking before it learns a list, weighed by examination; the command on a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from kinstream.cli.main import cli
from kinstream.evaluation.queries.compare import FUSED, HINDSIGHT
from kinstream.evaluation.queries.recommendation import recommended
from kinstream.evaluation.queries.recorded import AS_SHOWN, EQUAL, RecordedLists, gain, recorded
from kinstream.evaluation.queries.sources import lines_of
from kinstream.streams.errors import SettingsError, SourceError

SHOWN = 8


def log(path: Path, lists: int = 400, *, says: float = 2.0, queries: int = 150, seed: int = 0) -> Path:
    """Lists in random order, of which one item answers: `rank` says which by so many deviations, `noise` nothing."""
    draw = np.random.default_rng(seed)
    vectors = draw.normal(size=(60, 4)).round(3)
    asked = draw.normal(size=(queries, 4)).round(3)
    lines = [
        {
            "kind": "items",
            "space": "s",
            "ids": [f"i{n}" for n in range(60)],
            "vectors": vectors.tolist(),
            "time_ms": 0,
        }
    ]
    for number in range(lists):
        shown = draw.permutation(60)[:SHOWN]
        answer = int(draw.integers(SHOWN))
        rank = draw.normal(size=SHOWN) + says * (np.arange(SHOWN) == answer)
        looked = draw.random(SHOWN) < np.arange(1.0, SHOWN + 1.0) ** -0.5
        clicked = [
            place for place in range(SHOWN) if looked[place] and (place == answer or draw.random() < 0.02)
        ]
        at = 1_000 * (number + 1)
        scores: dict[str, list[float | None]] = {
            "rank": rank.round(3).tolist(),
            "noise": draw.normal(size=SHOWN).round(3).tolist(),
        }
        if number % 5 == 0:
            scores["rank"][int(draw.integers(SHOWN))] = None
        lines.append(
            {
                "kind": "click",
                "space": "s",
                "list_id": f"l{number}",
                "items": [f"i{n}" for n in shown],
                "clicks": [{"item": f"i{shown[place]}", "time_ms": at + 1 + place} for place in clicked],
                "shown_at_ms": at,
                "user": f"u{number}",
                "query_vector": asked[number % queries].tolist(),
                "scores": scores,
            }
        )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def rows_of(path: Path, *kinds: str) -> dict[str, dict[str, Any]]:
    rows, number = recorded(lines_of(path), {kind: (kind, {}) for kind in kinds}, 0.5)
    assert number > 100
    return {row["metric"]: row for row in rows}


def test_a_gain_counts_clicks_by_their_worth_and_loses_ties() -> None:
    worth = np.array([1.0, 0.0, 3.0, 0.0])
    values = np.array([4.0, 3.0, 2.0, 2.0])
    assert gain(values, worth) == pytest.approx((1.0 + 3.0 / np.log2(5.0)) / 4.0)
    # An item without a value is the last.
    assert gain(np.array([np.nan, 3.0, 2.0, 1.0]), np.array([1.0, 0, 0, 0])) == pytest.approx(
        1.0 / np.log2(5.0)
    )


def test_a_score_that_says_what_is_sought_is_found_and_noise_is_not(tmp_path: Path) -> None:
    found = rows_of(log(tmp_path / "log"), "adapter")
    order = [AS_SHOWN, "similarity", "noise", "rank", FUSED, EQUAL, HINDSIGHT, "adapter"]
    assert [*found] == order and [name for name, row in found.items() if row["had"]] == [AS_SHOWN]
    gains = {name: row["ndcg_at_10"] for name, row in found.items()}
    assert gains[HINDSIGHT] >= gains["rank"] - 0.01
    assert gains["rank"] > 1.2 * gains[EQUAL] > 1.2 * gains["noise"]
    # A random order is as good as noise: the place's examination is taken out of it.
    assert abs(gains[AS_SHOWN] - gains["noise"]) < 0.06
    assert recommended([*found.values()], ["adapter"]).startswith("Recommended: rank, +")


def test_what_was_shown_is_kept_where_no_score_says_more(tmp_path: Path) -> None:
    found = rows_of(log(tmp_path / "log", says=0.0), "adapter")
    assert recommended([*found.values()], ["adapter"]).startswith(f"Keep {AS_SHOWN}")


def test_a_ranking_is_judged_on_a_list_before_it_learns_it(tmp_path: Path) -> None:
    whole, first = (RecordedLists({"adapter": ("adapter", {})}) for _ in range(2))
    events = [*lines_of(log(tmp_path / "log", 300))]
    for event in events:
        whole.take(event)
    for event in events[:200]:
        first.take(event)
    every, some = whole.result(), first.result()
    assert 100 < len(some.new) < len(every.new)
    for name in (AS_SHOWN, "similarity", "adapter"):
        np.testing.assert_array_equal(every.gains[name][: len(some.new)], some.gains[name])


def test_the_command_reads_a_file_of_events(tmp_path: Path) -> None:
    path = log(tmp_path / "log.jsonl")
    arguments = ["evaluate", "queries", "--from", f"events:{path}"]
    shown = CliRunner().invoke(cli, arguments)
    assert shown.exit_code == 0, shown.output
    assert "changes against what was shown" in shown.output and "Recommended: " in shown.output
    rows = json.loads(CliRunner().invoke(cli, [*arguments, "--json"]).output)["rows"]
    assert {"rank", "noise", "similarity", "adapter", "ranking"} <= {row["metric"] for row in rows}
    wrong = CliRunner().invoke(cli, [*arguments, "--learner", "lda"])
    assert wrong.exit_code != 0 and "no similarity of queries to items" in str(wrong.exception) + wrong.output


def test_a_file_that_is_none_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text('\n{"kind": "items"\n')
    with pytest.raises(SourceError, match="log: line 2: "):
        [*lines_of(path)]
    with pytest.raises(SourceError, match="nowhere: No such file"):
        [*lines_of(tmp_path / "nowhere")]
    path.write_text('{"kind": "items", "space": "s", "ids": ["a"], "vectors": [[1, 2]], "time_ms": 0}\n')
    with pytest.raises(SettingsError, match="no list of the space has a click"):
        recorded(lines_of(path), {})
