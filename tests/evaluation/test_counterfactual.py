"""Estimates from drafted lists against users whose clicks follow known probabilities, and against plain loops."""

from __future__ import annotations

import itertools
import math
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from kinstream.evaluation.counterfactual.catalogue import LogCatalogue
from kinstream.evaluation.counterfactual.drafted_log import Event, Recorded, recorded
from kinstream.evaluation.counterfactual.draws import MOST_PLACES, place_probabilities, was_drafted
from kinstream.evaluation.counterfactual.estimates import Estimates, Ranked, ShownList, class_of, estimated
from kinstream.gate.lists.draft import Side, team_draft
from kinstream.gate.lists.list_id import NONCE_BYTES, show
from kinstream.streams.records.gate import UNADAPTED, Version
from kinstream.streams.records.scores import Scores
from kinstream.streams.records.values import Action, Click, Control, ItemBlock, ItemClick, Table
from tests.gate.gates import KEYS

#: Of a drafted list, and of the list of a model that is evaluated.
PLACES, DEPTH = 6, 3
SERVING, CANDIDATE, OTHER = UNADAPTED, Version(1, 0, 100), Version(1, 0, 200)


# ---- the draws --------------------------------------------------------------------------------------------------


def by_all_coins(
    serving: Sequence[str], candidate: Sequence[str], size: int, shared: bool = True
) -> dict[str, list[float]]:
    """The same probabilities by playing the draft once for every sequence of coins."""
    found: dict[str, list[float]] = defaultdict(lambda: [0.0] * size)
    for coins in itertools.product((0, 1), repeat=size):
        left = [list(serving), list(candidate)]
        shown: list[str] = []
        for first in coins:
            rests = [[item for item in one if item not in shown] for one in left]
            while shared and len(shown) < size and all(rests) and rests[0][0] == rests[1][0]:
                shown.append(rests[0][0])
                rests = [rest[1:] for rest in rests]
            for side in (first, 1 - first):
                rest = [item for item in left[side] if item not in shown]
                if rest and len(shown) < size:
                    shown.append(rest[0])
        for place, item in enumerate(shown):
            found[item][place] += 0.5**size
    return dict(found)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_the_probabilities_are_those_of_all_coins(seed: int, shared: bool) -> None:
    rng = random.Random(seed)
    one, two = (rng.sample("abcdefghij", rng.randint(0, 7)) for _ in range(2))
    size = rng.randint(1, 6)
    # Similar ones begin with the same items.
    two = one[: seed % 3] + [item for item in two if item not in one[: seed % 3]]
    mine, theirs = place_probabilities(one, two, size, shared=shared), by_all_coins(one, two, size, shared)
    assert mine.keys() == theirs.keys()
    for item, places in theirs.items():
        assert mine[item].tolist() == pytest.approx(places, abs=1e-12)
    draft = team_draft(one, two, size, seed=seed, impression="one")
    assert was_drafted(one, two, draft.items, draft.picks)
    if len(draft.items) > 1:
        assert not was_drafted(one, two, draft.items[::-1], draft.picks)


def test_a_long_draft_is_followed_to_the_last_place() -> None:
    rng = random.Random(1)
    one, two = ([str(n) for n in rng.sample(range(40), 30)] for _ in range(2))
    found = place_probabilities(one, two, MOST_PLACES)
    assert sum(found.values()).tolist() == pytest.approx([1.0] * MOST_PLACES)  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="at most 20 places"):
        place_probabilities("abc", "cba", MOST_PLACES + 1)


# ---- users whose truth is known ---------------------------------------------------------------------------------


@dataclass
class Town:
    """Queries with two rankings, a third model that is to be evaluated, and what users find relevant."""

    rankings: list[dict[Version, list[str]]]
    relevant: list[dict[str, float]]
    looked: NDArray[np.float64]

    def truth(self, model: Version) -> float:
        """Expected clicks a list, over all queries alike."""
        clicks = [
            sum(self.looked[k] * relevant[item] for k, item in enumerate(rankings[model][:DEPTH]))
            for rankings, relevant in zip(self.rankings, self.relevant, strict=True)
        ]
        return float(np.mean(clicks))


def town(seed: int = 0, queries: int = 8) -> Town:
    """The third model shows the same items as the others, the relevant ones first; all are supported."""
    rng = random.Random(seed)
    made, relevance = [], []
    for _ in range(queries):
        relevant = {f"i{n}": rng.choice((0.05, 0.1, 0.7)) for n in range(PLACES + 3)}
        names = list(relevant)
        serving = rng.sample(names, len(names))[:PLACES]
        # The candidate likes the others, and the list holds what either has.
        candidate = [n for n in names if n not in serving] + rng.sample(serving, len(serving))
        draws = place_probabilities(serving, candidate[:PLACES], PLACES)
        best = sorted(draws, key=lambda item: -relevant[item])[:PLACES]
        made.append({SERVING: serving, CANDIDATE: candidate[:PLACES], OTHER: best[:DEPTH]})
        relevance.append(relevant)
    return Town(made, relevance, np.arange(1.0, PLACES + 1.0) ** -1.0)


def lived(place: Town, seed: int, lists: int, per_person: int = 1) -> tuple[Any, ...]:
    """Drafted lists of people, their clicks, and what the three models would have shown, in the estimators' terms."""
    rng = random.Random(seed)
    shown, people = [], []
    models: dict[Version, list[Ranked]] = {version: [] for version in (SERVING, CANDIDATE, OTHER)}
    for number in range(lists):
        query = rng.randrange(len(place.rankings))
        rankings, relevant = place.rankings[query], place.relevant[query]
        draft = team_draft(
            rankings[SERVING], rankings[CANDIDATE], PLACES, seed=seed, impression=f"{seed}/{number}"
        )
        where = DRAWS(place, query)
        clicked = [
            float(rng.random() < place.looked[k] and rng.random() < relevant[item])
            for k, item in enumerate(draft.items)
        ]
        kinds = {item: k % 4 for k, item in enumerate(sorted(relevant))}
        shown.append(
            ShownList(
                np.array(clicked),
                place.looked,
                np.array([float(np.dot(where[item], place.looked)) for item in draft.items]),
                np.array([kinds[item] for item in draft.items]),
            )
        )
        for version, whole in rankings.items():
            ranking = whole[:DEPTH]
            gain = {item: place.looked[k] for k, item in enumerate(ranking)}
            models[version].append(
                Ranked(
                    np.array([gain.get(item, 0.0) for item in draft.items]),
                    np.array([gain[item] for item in ranking]),
                    np.array([kinds[item] for item in ranking]),
                    np.array([item in where for item in ranking]),
                )
            )
        people.append(f"p{number // per_person}")
    return shown, models, people


_DRAWS: dict[tuple[int, int], dict[str, list[float]]] = {}


def DRAWS(place: Town, query: int) -> dict[str, list[float]]:
    key = (id(place), query)
    if key not in _DRAWS:
        rankings = place.rankings[query]
        _DRAWS[key] = by_all_coins(rankings[SERVING], rankings[CANDIDATE], PLACES)
    return _DRAWS[key]


def runs(place: Town, seeds: range, lists: int) -> list[dict[Version, Estimates]]:
    found = []
    for seed in seeds:
        shown, models, people = lived(place, seed, lists)
        found.append(dict(zip(models, estimated(shown, list(models.values()), people), strict=True)))
    return found


TOWN = town()


def check_runs(seeds: range, lists: int, least: float, most: float) -> None:
    found = runs(TOWN, seeds, lists)
    for version in (SERVING, CANDIDATE, OTHER):
        truth = TOWN.truth(version)
        for name in ("ips", "snips", "dr"):
            made = [getattr(one[version], name) for one in found]
            values = np.array([one.value for one in made])
            error = values.std(ddof=1) / math.sqrt(len(values))
            # SNIPS is not unbiased; its bias is of the order of 1 / n, far below its error.
            assert abs(values.mean() - truth) < 3.5 * error, (version, name, values.mean(), truth)
            covered = np.mean([one.low <= truth <= one.high for one in made])
            assert least <= covered <= most, (version, name, covered)
    changes = [one[OTHER].change for one in found]
    change = TOWN.truth(OTHER) - TOWN.truth(SERVING)
    assert least <= np.mean([one.low <= change <= one.high for one in changes]) <= most
    naive = np.array([one[OTHER].naive for one in found])
    off = abs(naive.mean() - TOWN.truth(OTHER))
    assert off > 20 * naive.std(ddof=1) / math.sqrt(len(naive))
    assert off > 0.1 * TOWN.truth(OTHER)
    spread = {name: np.std([getattr(one[OTHER], name).value for one in found]) for name in ("ips", "dr")}
    assert spread["dr"] < spread["ips"]


@pytest.mark.long
def test_the_intervals_cover_the_truth_and_the_naive_figure_is_wrong() -> None:
    check_runs(range(120), 120, 0.88, 1.0)


@pytest.mark.long
def test_the_intervals_cover_the_truth_in_95_of_100_runs() -> None:
    check_runs(range(1_000, 1_600), 300, 0.93, 0.97)


def test_the_estimates_are_those_of_plain_loops() -> None:
    shown, models, people = lived(TOWN, 7, 60, per_person=3)
    names = list(dict.fromkeys(people))
    for version, one in zip(models, estimated(shown, list(models.values()), people), strict=True):
        ips, looks, whole, naive = [], [], [], []
        for a, b in zip(shown, models[version], strict=True):
            ips.append(sum(g / p * c for g, p, c in zip(b.gain, a.propensity, a.clicked, strict=True)))
            looks.append(sum(g / p * t for g, p, t in zip(b.gain, a.propensity, a.looked, strict=True)))
            naive.append(sum(c for g, c in zip(b.gain, a.clicked, strict=True) if g))
            whole.append(sum(b.own_gain))
        n = len(shown)
        assert one.naive == pytest.approx(sum(naive) / n)
        assert one.ips.value == pytest.approx(sum(ips) / n)
        assert one.snips.value == pytest.approx(sum(ips) / sum(looks) * sum(whole) / n)
        ratios = [x / w for x, w in zip(looks, whole, strict=True)]
        assert one.effective_lists == pytest.approx(sum(ratios) ** 2 / sum(r * r for r in ratios))
        # A person's lists stand together; 20 people, so 19 degrees of freedom: 2.093 of Student's table.
        sums = [
            sum(x - sum(ips) / n for x, who in zip(ips, people, strict=True) if who == name) for name in names
        ]
        error = math.sqrt(sum(s * s for s in sums) * 20 / 19) / n
        assert len(names) == 20
        assert one.ips.high - one.ips.value == pytest.approx(2.0930 * error, rel=1e-4)
        assert one.unsupported == 0.0


def test_the_relevance_of_a_list_is_never_guessed_from_the_person_of_the_list() -> None:
    shown, models, people = lived(TOWN, 3, 40, per_person=2)
    numbers = {name: k for k, name in enumerate(dict.fromkeys(people))}
    guess: dict[int, dict[int, float]] = {}
    for fold in (0, 1):
        clicks: dict[int, float] = defaultdict(float)
        looks: dict[int, float] = defaultdict(float)
        for one, name in zip(shown, people, strict=True):
            if numbers[name] % 2 != fold:
                for kind, c, t in zip(one.kind, one.clicked, one.looked, strict=True):
                    clicks[int(kind)] += c
                    looks[int(kind)] += t
        mean = sum(clicks.values()) / sum(looks.values())
        guess[fold] = {k: min(1.0, (clicks[k] + 5 * mean) / (looks[k] + 5)) for k in range(4)}
    values = []
    for one, b, name in zip(shown, models[OTHER], people, strict=True):
        r = guess[numbers[name] % 2]
        own = sum(g * r[int(k)] for g, k in zip(b.own_gain, b.own_kind, strict=True))
        rest = zip(b.gain, one.propensity, one.clicked, one.looked, one.kind, strict=True)
        values.append(own + sum(g / p * (c - t * r[int(k)]) for g, p, c, t, k in rest))
    (found,) = estimated(shown, [models[OTHER]], people)
    assert found.dr.value == pytest.approx(sum(values) / len(values))


def test_what_was_never_shown_is_reported() -> None:
    shown, models, people = lived(TOWN, 3, 20)
    lists = [
        Ranked(one.gain * 0, one.own_gain, one.own_kind, np.zeros(DEPTH, np.bool_)) for one in models[OTHER]
    ]
    (found,) = estimated(shown, [lists], people)
    assert (found.unsupported, found.effective_lists, found.ips.value, found.snips.value) == (
        1.0,
        0.0,
        0.0,
        0.0,
    )
    with pytest.raises(ValueError, match="two people"):
        estimated(shown[:1], [lists[:1]], ["one"])


# ---- from a log -------------------------------------------------------------------------------------------------


class Linear:
    """A query map that multiplies by a matrix."""

    def __init__(self, W: NDArray[np.float32]) -> None:
        self.W = W

    def map(self, Q: ArrayLike) -> NDArray[np.float32]:
        return np.asarray(Q, np.float32) @ self.W


RNG = np.random.default_rng(4)
ITEMS = RNG.normal(size=(60, 8)).astype(np.float32)
NAMES = tuple(f"doc {n}" for n in range(60))
MODELS = {
    version: Linear((np.eye(8) + scale * RNG.normal(size=(8, 8))).astype(np.float32))
    for version, scale in ((UNADAPTED, 0.0), (CANDIDATE, 0.5), (OTHER, 0.5))
}


def ranking(version: Version, query: NDArray[np.float32], rows: Sequence[int], size: int) -> list[str]:
    mapped = MODELS[version].map(query)
    lengths = {row: float(mapped @ ITEMS[row]) / float(np.linalg.norm(ITEMS[row])) for row in rows}
    return [NAMES[row] for row in sorted(rows, key=lambda row: -lengths[row])[:size]]


def one_list(number: int, rows: Sequence[int], size: int = PLACES, **changes: Any) -> Click:
    rng = np.random.default_rng([9, number])
    query = rng.normal(size=8).astype(np.float32)
    sides = (
        (UNADAPTED, ranking(UNADAPTED, query, rows, size)),
        (CANDIDATE, ranking(CANDIDATE, query, rows, size)),
    )
    nonce = number.to_bytes(NONCE_BYTES, "big")
    made = show(KEYS, "docs", sides, size, time_ms=5, nonce=nonce)
    clicks = tuple(ItemClick(item, 6) for item in made.items if rng.random() < 0.3)
    plain: dict[str, Any] = {
        "list_id": made.list_id,
        "items": made.items,
        "positions": tuple(range(size)),
        "clicks": clicks,
        "user": f"u{number}",
        "query_vector": (Table("x", query[None]),),
        **changes,
    }
    return Click(space="docs", shown_at_ms=5, **plain)


def catalogue(rows: Sequence[int], tombstones: tuple[str, ...] = ()) -> ItemBlock:
    names = tuple(NAMES[row] for row in rows)
    return ItemBlock("docs", names, (Table("x", ITEMS[list(rows)]),), 0, tombstones)


def of(*records: Any, models: Any = MODELS) -> Recorded:
    return recorded([Event(one, True) for one in records], "docs", KEYS, models)


def test_a_log_gives_propensities_and_rankings_of_the_items_that_it_held_then() -> None:
    early, late = list(range(50)), [*range(10, 60)]
    lists = [one_list(n, early) for n in range(6)] + [one_list(n, late) for n in range(6, 12)]
    moved = catalogue(late[-10:], tombstones=NAMES[:10])
    found = of(catalogue(early), *lists[:6], moved, *lists[6:])
    assert found.uses == dict.fromkeys(found.uses, 0) | {"used": 12}
    assert found.people == [f"u{n}" for n in range(12)]
    looked = [1 / (k + 1) for k in range(PLACES)]
    for number, one in enumerate(lists):
        rows, query = early if number < 6 else late, one.query_vector[0].vectors[0]
        own = {version: ranking(version, query, rows, PLACES) for version in MODELS}
        where = by_all_coins(own[UNADAPTED], own[CANDIDATE], PLACES)
        shown = found.shown[number]
        assert shown.propensity.tolist() == pytest.approx(
            [sum(p * t for p, t in zip(where[item], looked, strict=True)) for item in one.items]
        )
        chosen = {click.item for click in one.clicks}
        assert shown.clicked.tolist() == [float(item in chosen) for item in one.items]
        whole = ranking(UNADAPTED, query, rows, len(rows))
        ranks = np.array([whole.index(item) + 1 for item in one.items])
        assert shown.kind.tolist() == class_of(ranks).tolist()
        for version, mine in own.items():
            ranked = found.models[version][number]
            top = mine[:DEPTH]
            places = [top.index(item) if item in top else None for item in one.items]
            assert ranked.gain.tolist() == pytest.approx([0.0 if k is None else looked[k] for k in places])
            assert ranked.own_gain.tolist() == pytest.approx(looked[:DEPTH])
            assert ranked.supported.tolist() == [item in where for item in top]
            # What the two models rank first always had a chance.
            assert ranked.supported.all() or version == OTHER


def test_every_list_that_does_not_count_has_its_reason() -> None:
    rows = list(range(50))
    good = one_list(1, rows)
    items = catalogue(rows)
    cases = {
        "ranked": one_list(1, rows, list_id="mine"),
        "unreadable": one_list(1, rows, list_id="ki1.made-up"),
        "changed": one_list(1, rows, items=good.items[::-1], clicks=()),
        "invalid": one_list(1, rows, positions=(0,) * PLACES),
        "no_query": one_list(1, rows, query_vector=()),
        "other_ranking": one_list(1, [row for row in rows if NAMES[row] != good.items[0]]),
    }
    for use, record in cases.items():
        assert of(items, record).uses[use] == 1, use
    assert of(items, good, models={UNADAPTED: MODELS[UNADAPTED]}).uses["other_model"] == 1
    assert of(good).uses["no_query"] == 1
    assert of(items, Control("docs", Action.RESET, 0), good).uses["no_query"] == 1
    assert of(items, one_list(1, rows, query_vector=(), query_item="doc 3")).uses["other_ranking"] == 1
    uncounted = recorded([Event(items, False), Event(good, False)], "docs", KEYS, MODELS)
    assert (uncounted.uses["used"], uncounted.shown) == (0, [])


def test_a_list_that_comes_back_later_has_all_its_clicks() -> None:
    rows = list(range(50))
    before = one_list(1, rows, clicks=())
    after = one_list(1, rows, clicks=(ItemClick(before.items[2], 9),))
    found = of(catalogue(rows), before, after, after)
    assert found.uses["used"] == 1
    assert found.shown[0].clicked.tolist() == [0, 0, 1, 0, 0, 0]


def test_scores_of_lists_change_no_estimate() -> None:
    rows = list(range(50))
    plain = [one_list(n, rows) for n in range(12)]
    scores = Scores.of({"bm25": [float(k) for k in range(PLACES)], "age": [None] * PLACES})
    scored = [replace(one, scores=scores if n % 3 else None) for n, one in enumerate(plain)]
    one, other = (of(catalogue(rows), *lists) for lists in (plain, scored))
    assert one.uses == other.uses and one.uses["used"] == 12
    for version in MODELS:
        first, second = (
            estimated(found.shown, [found.models[version]], found.people) for found in (one, other)
        )
        assert repr(first) == repr(second)


def test_a_list_of_which_only_the_top_was_seen_is_evaluated_at_the_top() -> None:
    rows = list(range(50))
    whole = one_list(1, rows)
    seen = one_list(1, rows, items=whole.items[:3], positions=(0, 1, 2), clicks=())
    found = of(catalogue(rows), seen)
    assert (found.uses["used"], len(found.shown[0].clicked)) == (1, 3)
    assert all(len(lists[0].own_gain) == 2 for lists in found.models.values())


def test_of_a_long_list_the_first_places_count() -> None:
    rows = list(range(60))
    one = one_list(1, rows, 30)
    found = of(catalogue(rows), one)
    assert (found.uses["used"], len(found.shown[0].clicked)) == (1, MOST_PLACES)


def test_the_catalogue_ranks_ties_by_name_and_leaves_other_dimensions_out() -> None:
    for product in ("cosine", "dot"):
        items = LogCatalogue(product)
        items.take(
            ItemBlock(
                "docs", ("b", "a", "c"), (Table("x", np.array([[2, 0], [2, 0], [0, 1]], np.float32)),), 0
            )
        )
        items.take(ItemBlock("docs", ("d",), (Table("x", np.ones((1, 3), np.float32)),), 0))
        query = np.array([1, 0.1], np.float32)
        assert items.best(items.similarities(query), 5) == ["a", "b", "c"]
        assert items.ranks(items.similarities(query), ["c", "a"]).tolist() == [3, 1]
        assert len(items) == 3


def test_picks_decide_whether_a_list_was_drafted() -> None:
    assert was_drafted("ab", "ba", "ab", (Side.SERVING, Side.CANDIDATE))
    assert not was_drafted("ab", "ba", "ab", (Side.CANDIDATE, Side.SERVING))
    assert was_drafted("ab", "ac", "ab", (Side.BOTH, Side.SERVING))
    assert not was_drafted("ab", "ba", "ab", (Side.BOTH, Side.SERVING))
