"""Drafts are fair, evidence keeps its error whenever it is looked at, and both agree with independent computations."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from kinstream.search.interleaving.draft import Draft, Side, credit, team_draft
from kinstream.search.interleaving.evidence import ADVANTAGES, Evidence, interval, log_e_value

RANKINGS = st.lists(st.integers(0, 30), max_size=25)


@given(RANKINGS, RANKINGS, st.integers(0, 30), st.integers(-5, 5), st.text(max_size=8))
def test_a_draft_shows_no_item_twice_and_keeps_the_order_of_both(
    serving: list[int], candidate: list[int], size: int, seed: int, impression: str
) -> None:
    draft = team_draft(serving, candidate, size, seed=seed, impression=impression)
    assert len(set(draft.items)) == len(draft.items) == len(draft.picks)
    assert len(draft.items) == min(size, len({*serving, *candidate}))
    for side, ranking in ((Side.SERVING, serving), (Side.CANDIDATE, candidate)):
        picked = [
            item for item, pick in zip(draft.items, draft.picks, strict=True) if pick in (side, Side.BOTH)
        ]
        assert picked == sorted(picked, key=ranking.index)
        for n, (item, pick) in enumerate(zip(draft.items, draft.picks, strict=True)):
            if pick in (side, Side.BOTH):
                better = ranking[: ranking.index(item)]
                assert set(better) <= set(draft.items[:n])
    assert draft == team_draft(serving, candidate, size, seed=seed, impression=impression)


@given(st.permutations(range(20)), st.permutations(range(20)), st.integers(1, 20))
def test_sides_pick_equally_often_to_one_item(serving: list[int], candidate: list[int], size: int) -> None:
    picks = team_draft(serving, candidate, size, seed=3, impression="q").picks
    assert abs(picks.count(Side.CANDIDATE) - picks.count(Side.SERVING)) <= 1


def all_drafts(serving: str, candidate: str, size: int) -> Iterator[tuple[float, str, tuple[Side, ...]]]:
    """Every draft with its probability, by the rules as docs/gate.md has them, over all coins."""

    def drafts(shown: str, picks: tuple[Side, ...]) -> Iterator[tuple[float, str, tuple[Side, ...]]]:
        left = {
            Side.SERVING: [item for item in serving if item not in shown],
            Side.CANDIDATE: [item for item in candidate if item not in shown],
        }
        if len(shown) == size or not any(left.values()):
            yield 1.0, shown, picks
        elif all(left.values()) and left[Side.SERVING][0] == left[Side.CANDIDATE][0]:
            yield from drafts(shown + left[Side.SERVING][0], (*picks, Side.BOTH))
        else:
            for order in ((Side.SERVING, Side.CANDIDATE), (Side.CANDIDATE, Side.SERVING)):
                now, sides = shown, picks
                for side in order:
                    mine = [item for item in left[side] if item not in now]
                    if mine and len(now) < size:
                        now, sides = now + mine[0], (*sides, side)
                for probability, items, owners in drafts(now, sides):
                    yield probability / 2, items, owners

    return drafts("", ())


SIMILAR = st.tuples(st.permutations("abcdefg"), st.lists(st.integers(0, 5), max_size=3))


@given(SIMILAR, st.integers(1, 7))
def test_at_each_place_the_pick_is_as_often_of_one_side_as_of_the_other(
    of: tuple[list[str], list[int]], size: int
) -> None:
    serving, swaps = of
    candidate = list(serving)
    for n in swaps:
        candidate[n], candidate[n + 1] = candidate[n + 1], candidate[n]
    found = list(all_drafts("".join(serving), "".join(candidate), size))
    assert sum(probability for probability, _, _ in found) == 1.0
    for place in range(size):
        share = {side: sum(p for p, _, picks in found if picks[place] is side) for side in Side}
        assert share[Side.SERVING] == share[Side.CANDIDATE]
    drawn = team_draft(serving, candidate, size, seed=4, impression="i")
    assert ("".join(drawn.items), drawn.picks) in {(items, picks) for _, items, picks in found}


def test_equal_rankings_leave_nothing_to_credit() -> None:
    draft = team_draft("abcdef", "abcdef", 4, seed=1, impression="i")
    assert draft == Draft(tuple("abcd"), (Side.BOTH,) * 4)
    assert credit(draft, "abcd") == 0


def test_each_side_picks_first_half_of_the_time_in_every_round() -> None:
    n = 4_000
    serving, candidate = list(range(10)), list(range(100, 110))
    drafts = [team_draft(serving, candidate, 10, seed=7, impression=f"i-{k}") for k in range(n)]
    for place in range(0, 10, 2):
        first = sum(draft.picks[place] for draft in drafts)
        assert stats.binomtest(first, n).pvalue > 1e-4
    # Coins of different rounds are independent.
    table = np.zeros((2, 2))
    for draft in drafts:
        table[draft.picks[0], draft.picks[2]] += 1
    assert stats.chi2_contingency(table).pvalue > 1e-4


@pytest.mark.parametrize(
    ("clicked", "winner"),
    [("", 0), ("ab", 0), ("acb", -1), ("bd", 1), ("bb?", 1), ("?", 0), ("e", 0), ("be", 1)],
)
def test_the_side_wins_whose_picks_were_clicked_more(clicked: str, winner: int) -> None:
    picks = (Side.SERVING, Side.CANDIDATE, Side.SERVING, Side.CANDIDATE, Side.BOTH)
    draft = Draft(tuple("abcde"), picks)
    assert credit(draft, clicked) == winner


def test_clicks_at_random_by_position_favour_nobody() -> None:
    draw = np.random.default_rng(5)
    won = [0, 0, 0]
    for k in range(4_000):
        serving, candidate = draw.permutation(30).tolist(), draw.permutation(30).tolist()
        draft = team_draft(serving, candidate, 10, seed=1, impression=str(k))
        looked = draw.random(10) < 1.0 / np.arange(1, 11)
        won[credit(draft, [item for item, at in zip(draft.items, looked, strict=True) if at])] += 1
    assert stats.binomtest(won[1], won[1] + won[-1]).pvalue > 1e-4


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (1, 0), (0, 1), (40, 25), (700, 610), (3, 90)])
def test_the_e_value_is_the_mean_of_likelihood_ratios(wins: int, losses: int) -> None:
    ratios = [
        stats.binom.pmf(wins, wins + losses, 0.5 + a) / stats.binom.pmf(wins, wins + losses, 0.5)
        for a in ADVANTAGES
    ]
    assert log_e_value(wins, losses) == pytest.approx(float(np.log(np.mean(ratios))), abs=1e-8)


@pytest.mark.parametrize("n", [1, 5, 12])
def test_under_equal_chances_its_mean_is_one(n: int) -> None:
    mean = sum(stats.binom.pmf(w, n, 0.5) * np.exp(log_e_value(w, n - w)) for w in range(n + 1))
    assert mean == pytest.approx(1.0)


def test_equal_rankings_are_told_apart_in_few_runs_although_it_is_looked_at_after_every_impression() -> None:
    draw = np.random.default_rng(11)
    wrong = 0
    for _ in range(400):
        steps = np.where(draw.random(3_000) < 0.5, 1, -1)
        wins = np.cumsum(steps > 0)
        losses = np.arange(1, len(steps) + 1) - wins
        wrong += _crossed(wins, losses, 25) or _crossed(losses, wins, 100)
    assert stats.binomtest(wrong, 400, 0.05, alternative="greater").pvalue > 0.01


def _crossed(wins: np.ndarray, losses: np.ndarray, limit: float) -> bool:
    """Whether the e-process ever reached a limit, by its definition over all times at once."""
    logs = np.outer(wins, np.log(1 + 2 * ADVANTAGES)) + np.outer(losses, np.log(1 - 2 * ADVANTAGES))
    return bool(np.logaddexp.reduce(logs, axis=1).max() - np.log(len(ADVANTAGES)) >= np.log(limit))


def test_a_ranking_that_wins_more_often_is_found_and_the_other_way_round() -> None:
    draw = np.random.default_rng(2)
    evidence = mirrored = Evidence()
    looks = 0
    while not mirrored.worse():
        outcome = int(draw.choice([-1, 0, 1], p=[0.2, 0.5, 0.3]))
        evidence, mirrored = evidence.after(outcome), mirrored.after(-outcome)
        assert evidence.for_peak == mirrored.against_peak and not evidence.worse()
        assert evidence.better() == (math.exp(evidence.for_peak) >= 25)
        assert mirrored.worse() == (math.exp(mirrored.against_peak) >= 100)
        looks += 1
        assert looks < 2_000
    assert evidence.better()
    assert evidence.wins + evidence.losses + evidence.ties == looks
    # What was shown once stays shown.
    for _ in range(500):
        evidence = evidence.after(-1)
    assert evidence.better()


@pytest.mark.parametrize(
    ("wins", "losses", "lists", "most", "hopeless"),
    [
        # 180 of 200 lists to come are decided, and .60 of them won: 60 + 108 of 300.
        (60, 40, 111, 311, False),
        # .50 + 2 * .05 of them: 50 + 108 of 280 do not decide; of 900 they do.
        (50, 50, 111, 311, True),
        (50, 50, 111, 1_000, False),
        (40, 60, 111, 311, True),
        (50, 50, 300, 311, True),
        (0, 0, 20, 3_000, False),
        (0, 0, 600, 3_000, True),
        (0, 9, 9, 3_000, True),
    ],
)
def test_hopeless_is_what_good_luck_would_not_save(
    wins: int, losses: int, lists: int, most: int, hopeless: bool
) -> None:
    share = (wins + 1) / (wins + losses + 2)
    luck = min(1.0, share + 2 * math.sqrt(share * (1 - share) / (wins + losses + 2)))
    more = (wins + losses + 1) / (lists + 1) * (most - lists)
    then = np.array([wins + luck * more, losses + (1 - luck) * more])
    ratios = [(2 * (0.5 + a)) ** then[0] * (2 * (0.5 - a)) ** then[1] for a in ADVANTAGES]
    assert (float(np.mean(ratios)) < 25) is hopeless
    assert Evidence(wins, losses).hopeless(lists, most) is hopeless


@pytest.mark.parametrize(("wins", "losses"), [(3, 1), (60, 40), (900, 1_100)])
def test_bounds_are_where_the_mixture_says(wins: int, losses: int) -> None:
    mixture, _ = integrate.quad(
        lambda p: stats.binom.pmf(wins, wins + losses, p), 0, 1, limit=200, points=[wins / (wins + losses)]
    )
    low, high = interval(wins, losses)
    for bound in (low, high):
        ratio = mixture / stats.binom.pmf(wins, wins + losses, bound)
        assert ratio == pytest.approx(20.0, rel=0.15)
    assert interval(0, 0) == (0.0, 1.0)
    assert interval(losses, wins) == pytest.approx((1.0 - high, 1.0 - low))


def test_the_interval_holds_at_all_looks_together() -> None:
    draw = np.random.default_rng(8)
    missed = 0
    for _ in range(200):
        won = np.cumsum(draw.random(400) < 0.6)
        missed += any(
            not low <= 0.6 <= high
            for low, high in (interval(int(won[n]), n + 1 - int(won[n])) for n in range(0, 400, 7))
        )
    assert missed <= 14
