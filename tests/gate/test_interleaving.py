"""Drafts are fair, evidence keeps its error whenever it is looked at, and both agree with independent computations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import integrate, stats

from kinstream.gate.lists.draft import Draft, Side, credit, team_draft
from kinstream.gate.lists.evidence import Evidence, interval
from kinstream.streams.compute.betting import BETS

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


#: What the second pick of a side counts.
SECOND = 1 / math.log2(3)


@pytest.mark.parametrize(
    ("clicked", "wanted"),
    [
        ("", 0),
        ("ab", 0),
        ("acb", (-1 + 1 - SECOND) / 3),
        ("bd", (1 + SECOND) / 2),
        ("bb?", 1),
        ("?", 0),
        ("e", 0),
        ("be", 1 / 2),
        ("c", -SECOND),
        ("f", 1 / math.log2(5)),
    ],
)
def test_a_list_has_one_vote_that_clicked_items_share_by_their_places(clicked: str, wanted: float) -> None:
    # The item of both is the third of either side, so the last one is the fourth of the candidate.
    picks = (Side.SERVING, Side.CANDIDATE, Side.SERVING, Side.CANDIDATE, Side.BOTH, Side.CANDIDATE)
    draft = Draft(tuple("abcdef"), picks)
    assert credit(draft, clicked) == pytest.approx(wanted)
    other = {Side.SERVING: Side.CANDIDATE, Side.CANDIDATE: Side.SERVING, Side.BOTH: Side.BOTH}
    assert credit(Draft(draft.items, tuple(other[pick] for pick in picks)), clicked) == -credit(
        draft, clicked
    )


def test_clicks_at_random_by_position_favour_nobody() -> None:
    draw = np.random.default_rng(5)
    credits = []
    for k in range(4_000):
        serving, candidate = draw.permutation(30).tolist(), draw.permutation(30).tolist()
        draft = team_draft(serving, candidate, 10, seed=1, impression=str(k))
        looked = draw.random(10) < 1.0 / np.arange(1, 11)
        credits.append(credit(draft, [item for item, at in zip(draft.items, looked, strict=True) if at]))
    won = np.array(credits)
    assert stats.binomtest(int((won > 0).sum()), int((won != 0).sum())).pvalue > 1e-4
    assert stats.ttest_1samp(won, 0.0).pvalue > 1e-4


CREDITS = st.lists(st.sampled_from([1.0, SECOND, -SECOND, -1.0, 0.5, -0.25, 0.0]), max_size=60)


def evidence_of(credits: Sequence[float]) -> Evidence:
    found = Evidence()
    for one in credits:
        found = found.after(one)
    return found


def e_values(credits: Sequence[float]) -> list[float]:
    """After each impression, from the definition: six bets from .1 to .9, evenly spaced in their logs."""
    bets = [0.1 * 9 ** (k / 5) for k in range(6)]
    return [sum(math.prod(1 + b * x for x in credits[:n]) for b in bets) / 6 for n in range(len(credits) + 1)]


@given(CREDITS)
def test_the_e_value_is_the_mean_over_bets_of_what_they_have_become(credits: list[float]) -> None:
    found = evidence_of(credits)
    wins, against = e_values(credits), e_values([-one for one in credits])
    assert math.exp(found.log_e_for) == pytest.approx(wins[-1])
    assert math.exp(found.log_e_against) == pytest.approx(against[-1])
    assert found.votes == len(credits)
    signs = [(one > 0) - (one < 0) for one in credits]
    assert (found.wins, found.losses, found.ties) == (signs.count(1), signs.count(-1), signs.count(0))


@pytest.mark.parametrize("n", [1, 3, 6])
def test_between_equal_rankings_its_mean_is_one(n: int) -> None:
    every = list(itertools.product([1.0, -1.0, SECOND, -SECOND, 0.0], repeat=n))
    assert np.mean([math.exp(evidence_of(one).log_e_for) for one in every]) == pytest.approx(1.0)


def test_equal_rankings_are_told_apart_in_few_runs_although_it_is_looked_at_after_every_impression() -> None:
    draw = np.random.default_rng(11)
    wrong = 0
    for _ in range(400):
        credits = draw.choice([1.0, -1.0, SECOND, -SECOND], size=3_000)
        wrong += _crossed(credits, 49) or _crossed(-credits, 100)
    assert stats.binomtest(wrong, 400, 0.05, alternative="greater").pvalue > 0.01


def _crossed(credits: np.ndarray, limit: float) -> bool:
    """Whether the e-process ever reached a limit, by its definition over all times at once."""
    logs = np.cumsum(np.log1p(np.outer(credits, BETS)), axis=0)
    return bool(np.logaddexp.reduce(logs, axis=1).max() - np.log(len(BETS)) >= np.log(limit))


def test_comparisons_one_after_the_other_share_one_error() -> None:
    """Twenty models that are as good challenge; each comparison ends after 300 lists."""
    draw = np.random.default_rng(12)
    promoted = 0
    for _ in range(200):
        stake = 1.0
        for _ in range(20):
            credits = draw.choice([1.0, -1.0, SECOND, -SECOND], size=300)
            if _crossed(credits, (25 / stake - 0.5) / 0.5):
                promoted += 1
                break
            ended = np.mean(np.exp(np.log1p(np.outer(credits, BETS)).sum(axis=0)))
            stake = min(1.0, max(1 / 32, stake * (0.5 + 0.5 * ended)))
    assert stats.binomtest(promoted, 200, 0.05, alternative="greater").pvalue > 0.01


@given(CREDITS, st.floats(1 / 32, 1.0))
def test_a_comparison_bets_half_of_the_stake(credits: list[float], stake: float) -> None:
    found, ended = evidence_of(credits), e_values(credits)
    left = stake * (1 + ended[-1]) / 2
    assert found.stake_after(stake) == pytest.approx(min(1.0, max(1 / 32, left)))
    # It promotes when stake and winnings are 25.
    grown = stake * (1 + ended[-1]) / 2
    assume(abs(grown - 25) > 1e-6)
    assert found.better(0.05, stake) == (grown > 25)


@given(CREDITS, st.lists(st.floats(0.001, 1.0), max_size=12), st.integers(0, 10_000))
def test_bought_votes_cannot_say_more_than_is_taken_off_for_them(
    credits: list[float], weights: list[float], seed: int
) -> None:
    """Wherever they are: what is left is no more than what honest ones have said."""
    found, votes = Evidence(), sum(weights)
    lists = [(one, 1.0) for one in credits] + [(1.0, weight) for weight in weights]
    for n in np.random.default_rng(seed).permutation(len(lists)):
        found = found.after(*lists[n])
    assert found.votes == pytest.approx(len(credits) + votes)
    left, alone = found.log_e_without(votes), math.log(e_values(credits)[-1])
    assert left <= alone + 1e-9
    # And hardly less, where they are many small ones.
    many = evidence_of(credits)
    for _ in range(1_000):
        many = many.after(1.0, 0.001)
    assert many.log_e_without(1.0) == pytest.approx(alone, abs=1e-3)


@given(CREDITS, st.floats(0.0, 30.0))
def test_what_is_taken_off_is_taken_off_each_bet(credits: list[float], bought: float) -> None:
    bets = [0.1 * 9 ** (k / 5) for k in range(6)]
    wanted = sum(math.prod(1 + b * x for x in credits) / math.exp(b * bought) for b in bets) / 6
    found = evidence_of(credits)
    assert math.exp(found.log_e_without(bought)) == pytest.approx(wanted)
    assume(abs(wanted - 49) > 1e-6)
    assert found.better(0.05, 1.0, bought) == (wanted > 49)


def test_a_list_that_counts_less_bets_less() -> None:
    found = evidence_of([1.0, -SECOND]).after(SECOND, 0.25).after(0.0, 0.5)
    bets = [0.1 * 9 ** (k / 5) for k in range(6)]
    wanted = sum((1 + b) * (1 - SECOND * b) * (1 + SECOND * b / 4) for b in bets) / 6
    assert math.exp(found.log_e_for) == pytest.approx(wanted)
    assert (found.wins, found.losses, found.ties, found.votes) == (2, 1, 1, 2.75)


def test_a_ranking_that_is_better_is_found_and_the_other_way_round() -> None:
    draw = np.random.default_rng(2)
    evidence = mirrored = Evidence()
    looks = 0
    while not mirrored.worse():
        one = float(draw.choice([-1, -SECOND, 0, SECOND, 1], p=[0.1, 0.1, 0.5, 0.15, 0.15]))
        evidence, mirrored = evidence.after(one), mirrored.after(-one)
        assert evidence.log_e_for == mirrored.log_e_against and not evidence.worse()
        assert evidence.better() == (math.exp(evidence.log_e_for) >= 49)
        assert mirrored.worse() == (math.exp(mirrored.log_e_against) >= 100)
        looks += 1
        assert looks < 2_000
    assert evidence.better()
    assert evidence.wins + evidence.losses + evidence.ties == looks
    # What lists have said, others take back.
    assert evidence_of([1.0] * 20).better() and not evidence_of([1.0] * 20 + [-1.0] * 20).better()


@pytest.mark.parametrize(
    ("wins", "losses", "size", "lists", "most", "hopeless"),
    [
        # 180 of 200 lists to come are decided, with a mean of .20 + 2 * .10.
        (60, 40, 1.0, 111, 311, False),
        # 0 + 2 * .10: not in 180 lists; in 800 it is.
        (50, 50, 1.0, 111, 311, True),
        (50, 50, 1.0, 111, 1_000, False),
        (40, 60, 1.0, 111, 311, True),
        (50, 50, 1.0, 300, 311, True),
        (60, 40, 0.5, 111, 311, False),
        (50, 50, 0.5, 111, 311, True),
        (0, 0, 1.0, 20, 3_000, False),
        (0, 0, 1.0, 600, 3_000, True),
        (0, 9, 1.0, 9, 3_000, True),
    ],
)
def test_hopeless_is_what_good_luck_would_not_save(
    wins: int, losses: int, size: float, lists: int, most: int, hopeless: bool
) -> None:
    credits = [size] * wins + [-size] * losses
    supposed = np.array([*credits, 1.0, -1.0])
    square, mean = float(np.mean(supposed**2)), float(np.mean(supposed))
    luck = min(square**0.5, mean + 2 * math.sqrt((square - mean**2) / len(supposed)))
    more = (len(credits) + 1) / (lists + 1) * (most - lists)
    won = (1 + luck / square**0.5) / 2
    then = [
        math.prod(1 + b * x for x in credits)
        * (1 + b * square**0.5) ** (won * more)
        * (1 - b * square**0.5) ** ((1 - won) * more)
        for b in BETS
    ]
    assert (float(np.mean(then)) < 49) is hopeless
    without = float(np.mean([one / math.exp(10 * b) for one, b in zip(then, BETS, strict=True)]))
    assert evidence_of(credits).hopeless(lists, most, bought=10.0) is (without < 49)
    assert evidence_of(credits).hopeless(lists, most) is hopeless
    # With less of the stake left, or with votes that may be bought, it takes more.
    if hopeless:
        assert evidence_of(credits).hopeless(lists, most, bought=1.0)
        assert evidence_of(credits).hopeless(lists, most, stake=0.5)


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
