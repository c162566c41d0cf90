"""The study of the gate: its users click as it says, and its tables and its file hold what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.studies.gate import served
from benchmarks.studies.gate.comparison import STEP_MS, Answer, Series
from benchmarks.studies.gate.corpora import DEPTH, SHOWN, Ranking, ranked
from benchmarks.studies.gate.people import Flags, Users
from benchmarks.studies.gate.runs import Kept, asked, measured, table
from kinstream.gate.values import Options

ANSWERS = np.arange(SHOWN) == 3
NOTHING = np.zeros(SHOWN, np.bool_)


def rates(users: Users, only: np.ndarray[tuple[int], np.dtype[np.bool_]] = NOTHING) -> list[float]:
    draw = np.random.default_rng(1)
    return list(np.mean([users.clicks(ANSWERS, only, draw, n)[1] for n in range(4_000)], axis=0))


def test_users_look_by_place_and_click_by_relevance() -> None:
    expected = [(0.9 if place == 3 else 0.02) * (place + 1) ** -0.5 for place in range(SHOWN)]
    assert rates(Users()) == pytest.approx(expected, abs=0.03)
    assert rates(Users(random=True)) == pytest.approx([1 / (place + 1) for place in range(SHOWN)], abs=0.03)


def test_accounts_click_what_does_not_answer_or_what_the_candidate_alone_shows() -> None:
    poison = rates(Users(poisoned=1.0))
    assert poison[3] == 0.0 and np.delete(poison, 3).tolist() == pytest.approx([0.5] * 9, abs=0.03)
    only = np.isin(np.arange(SHOWN), (5, 7))
    assert rates(Users(knowing=1.0), only) == [float(place == 5) for place in range(SHOWN)]
    draw = np.random.default_rng(2)
    names = {Users(knowing=1.0).clicks(ANSWERS, only, draw, n)[0] for n in range(100)}
    assert names == {f"account {n}" for n in range(20)}


def test_a_ranking_is_of_the_largest_products() -> None:
    draw = np.random.default_rng(3)
    queries, items = draw.normal(size=(5, 4)), draw.normal(size=(60, 4))
    for query, found in zip(queries, ranked(queries, items, SHOWN), strict=True):
        assert found.tolist() == sorted(range(60), key=lambda row: -float(items[row] @ query))[:SHOWN]


def test_runs_that_have_ended_are_read_and_shown(tmp_path: Path) -> None:
    runs = list(asked(["comparison"], ["synthetic"], ["10 % better"], 7, 3, "{}"))
    assert [run.seed for run in runs] == [7, 8, 9]
    ends = [(120, {"promote": 1}), (300, {"hold": 1, "promote": 1}), (None, {"hold": 5, "retire": 2})]
    lines = [
        json.dumps([*run, {"promoted": lists, "ended": ended}])
        for run, (lists, ended) in zip(runs, ends, strict=True)
    ]
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join(lines) + "\n")
    kept = Kept(path, tmp_path / "unused.npz", measured)
    kept.measure(runs, 1, 60.0)
    assert path.read_text().splitlines() == lines
    assert table("comparison", runs, kept).splitlines()[-1] == (
        "| synthetic | 10 % better | 3 | 2 | 210 | 300 | 10 | 2 |"
    )


@pytest.mark.parametrize(("relevant", "wanted"), [(1, "promote"), (0, "retire")])
def test_challengers_come_one_after_the_other(relevant: int, wanted: str) -> None:
    """Everybody clicks the first item that one side alone shows."""
    serving, candidate = np.arange(DEPTH)[None], np.arange(DEPTH)[None] + DEPTH

    def answer(q: int, items: Ranking, only: Flags, draw: np.random.Generator, number: int) -> Answer:
        assert q == 0 and set(items) == {*range(5), *range(DEPTH, DEPTH + 5)}
        return Answer(
            only & (items == DEPTH) if relevant else items == 0, f"user {number}", f"session {number}"
        )

    series = Series(
        serving, candidate, answer, 1, Options(per_item=0, burst_minutes=0.0, min_learned=0), STEP_MS
    )
    verdicts = series.verdicts(1_000)
    # One query comes again and again: 433 lists show that new ones lose less than 1 % of the votes.
    assert next(verdicts) == wanted and series.lists == (433 if relevant else 100)
    # 300 lists of the pause, and 100 of the next model.
    assert list(verdicts) == ([] if relevant else [wanted] * 2)


def test_equally_good_rankings_are_different_ones() -> None:
    seen = set()

    def answer(q: int, items: Ranking, only: Flags, draw: np.random.Generator, number: int) -> Answer:
        seen.add(tuple(items.tolist()))
        return Answer(np.zeros(SHOWN, np.bool_), "user", "session")

    same = np.arange(DEPTH)[None]
    list(Series(same, same, answer, 1, Options(), STEP_MS, np.random.default_rng(2)).verdicts(50))
    assert len(seen) > 45


def test_other_options_of_the_gate_are_other_runs() -> None:
    one, other = (
        next(asked(["served"], ["documents"], ["good"], 0, 1, text))
        for text in ("{}", '{"max_sessions": 100}')
    )
    assert one != other and one._replace(options="") == other._replace(options="")
    assert json.loads(other.options)["max_sessions"] == 100


def test_a_row_of_served_changes() -> None:
    found = [
        {"served": [[0.0] * 3, [0.08, 0.14, 0.02]], "newest": [0.1, 0.2, 0.0], "promotions": 1},
        {"served": [[-0.01, 0.0, -0.02], [0.1, 0.16, 0.04]], "newest": [0.1, 0.1, 0.1], "promotions": 2},
    ]
    assert served.row(found) == [
        "2",
        "+15.0% / +5.0%",
        "+15.0% / +3.0%",
        "-1.00%",
        "-2.00%",
        "90%",
        "1.5",
    ]
