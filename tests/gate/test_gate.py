"""The gate of a space: un-adapted serves until a model has won, and what cannot be trusted is left out."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinstream.gate.core import SKEW_MS, SpaceGate
from kinstream.gate.lists.draft import Side
from kinstream.gate.lists.list_id import PREFIX, Keys, show
from kinstream.gate.memory import Cap, Entry, ListState, Seen
from kinstream.gate.values import Decision, Fate, Options
from kinstream.streams.errors import BadRecord
from kinstream.streams.records.gate import UNADAPTED, GateOrder, Order, Verdict, Version
from tests.gate.gates import KEYS, MODEL, back, drafted, respelled

WIN, LOSS = 1, 0
NEWER = Version(1, 0, 200)
MINUTE = 60_000


def chosen(**changes: Any) -> Options:
    """Options under which a few lists can decide."""
    free = {"bought_votes": 0.0, "user_votes": 0, "address_votes": 0}
    return Options(**{"min_sessions": 1, "min_learned": 0, "burst_minutes": 0.0, **free, **changes})


OPEN = chosen(every_minutes=60.0, per_user=0, per_session=0, per_item=0, max_sessions=1_000)


def gate(options: Options = OPEN, epoch: int = 0) -> SpaceGate:
    return SpaceGate("docs", KEYS, options, epoch)


def verdicts(made: list[Decision]) -> list[str]:
    return [one.verdict.value for one in made]


def play(
    one: SpaceGate, clicks: list[int], candidate: Version = MODEL, first: int = 0, now: int = 0
) -> list[Decision]:
    made = []
    for n, place in enumerate(clicks, first):
        list_id = drafted(n, candidate, one.serving, time_ms=now)
        made += one.take(back(list_id, place), now)
    return made


def wins_needed(error: float, limit: float = 2.5, past: int = 1) -> int:
    """How many wins in a row promote: half of a stake of 1, times the mean over 6 bets, reaches 1.25 / error - 1/2."""
    bets = [0.1 * 9 ** (k / 5) for k in range(6)]
    n = 0
    while sum((1 + b) ** n for b in bets) / 6 < limit / error - past:
        n += 1
    return n


@pytest.mark.parametrize("error", [0.05, 0.01])
def test_un_adapted_serves_until_the_challenger_has_won(error: float) -> None:
    one, needed = gate(chosen(error=error, per_item=0)), wins_needed(error)
    made = play(one, [WIN] * (needed - 1))
    assert verdicts(made) == ["challenge"]
    assert (one.serving, one.challenger) == (UNADAPTED, MODEL)
    last = play(one, [WIN], first=needed)
    assert verdicts(last) == ["promote"]
    assert (last[0].serving, last[0].before, last[0].challenger) == (MODEL, UNADAPTED, None)
    assert (last[0].evidence.wins, last[0].evidence.losses, last[0].impressions) == (needed, 0, needed)
    assert last[0].evidence.log_e_for == last[0].log_e_for >= math.log(2.5 / error - 1)
    assert (one.serving, one.evidence.wins) == (MODEL, 0)


def test_a_handful_of_lists_decides_nothing() -> None:
    one = gate(chosen(min_sessions=50, per_item=0))
    assert verdicts(play(one, [WIN] * 49)) == ["challenge"]
    assert one.evidence.better()
    assert verdicts(play(one, [WIN], first=49)) == ["promote"]


def test_a_model_that_loses_is_retired_and_never_comes_back() -> None:
    needed = wins_needed(0.05, limit=5, past=0)
    one = gate(chosen(every_minutes=60.0, per_user=0, per_session=0, per_item=0, min_sessions=needed))
    made = play(one, [LOSS] * needed)
    assert verdicts(made) == ["challenge", "retire"]
    assert one.serving == UNADAPTED
    assert play(one, [WIN] * 50, first=100, now=500 * MINUTE) == []
    assert one.fates[Fate.RETIRED] == 50
    assert verdicts(play(one, [WIN], NEWER, first=200, now=500 * MINUTE)) == ["challenge"]


def test_one_that_is_as_good_is_held_when_the_lists_that_are_left_would_hardly_promote_it() -> None:
    one = gate(chosen(min_sessions=20, max_sessions=1_000, per_item=0))
    made = play(one, [WIN, LOSS] * 500)
    assert verdicts(made) == ["challenge", "hold"]
    assert 200 < made[1].impressions < 800
    assert one.serving == UNADAPTED


def test_what_comparisons_have_lost_is_missing_to_the_next_until_one_is_promoted() -> None:
    one = gate(chosen(every_minutes=60.0, min_sessions=20, per_user=0, per_session=0, per_item=0))
    play(one, [WIN, LOSS] * 500)
    held = one.decided[-1]
    assert (held["verdict"], held["wins"]) == ("hold", held["losses"])
    bets = [0.1 * 9 ** (k / 5) for k in range(6)]
    ended = sum(((1 + b) * (1 - b)) ** held["wins"] for b in bets) / 6
    assert one.stake == pytest.approx((1 + ended) / 2) and one.stake < 0.6
    # Another generation does not forget it.
    new = gate(OPEN)
    new.inherit(one.state(), None)
    assert new.stake == one.stake
    needed = next(n for n in range(99) if one.stake * (1 + sum((1 + b) ** n for b in bets) / 6) / 2 >= 25)
    made = play(one, [WIN] * 60, NEWER, first=2_000, now=100 * MINUTE)
    assert verdicts(made) == ["challenge", "promote"]
    # What the lost comparison has shown of the tail is missing as well.
    assert made[1].evidence.wins >= max(needed, 20) > wins_needed(0.05)
    assert one.stake == 1.0


def test_a_comparison_ends_with_the_last_list() -> None:
    """Whatever the lists say: it is the last one that could have promoted."""
    for wins in range(8):
        one = gate(chosen(min_sessions=8, max_sessions=8, per_item=0))
        made = play(one, [WIN] * wins + [LOSS] * (8 - wins))
        assert verdicts(made)[1:] == ["hold"] and made[1].impressions == 8


def test_lists_that_are_the_same_for_both_end_a_comparison_early() -> None:
    """A first model that has hardly learned ranks as the un-adapted features do."""
    one = gate(chosen(min_sessions=100, max_sessions=3_000, per_item=0))
    made: list[Decision] = []
    for n in range(600):
        ranking = [f"i{k}" for k in range(10)]
        shown = show(
            KEYS, "docs", ((UNADAPTED, ranking), (MODEL, ranking)), 10, time_ms=n, nonce=n.to_bytes(6)
        )
        made += one.take(back(shown.list_id, 0), n)
        if len(made) == 2:
            break
    assert verdicts(made) == ["challenge", "hold"] and one.fates[Fate.TIED] == made[1].impressions < 400


def test_a_pause_follows_every_decision_by_the_time_of_the_log() -> None:
    one = gate()
    play(one, [WIN] * wins_needed(0.05), now=7 * MINUTE)
    assert one.serving == MODEL
    assert play(one, [WIN], NEWER, first=50, now=67 * MINUTE - 1) == []
    assert one.fates[Fate.PAUSED] == 1
    made = play(one, [WIN], NEWER, first=51, now=67 * MINUTE)
    assert verdicts(made) == ["challenge"]
    assert (made[0].challenger, made[0].serving) == (NEWER, MODEL)


def test_lists_of_another_pair_are_left_out_and_a_challenger_that_is_gone_is_given_up() -> None:
    one = gate()
    play(one, [WIN, WIN], now=0)
    assert play(one, [WIN] * 3, NEWER, first=10, now=59 * MINUTE) == []
    assert (one.fates[Fate.OTHER_PAIR], one.evidence.wins) == (3, 2)
    made = play(one, [WIN], NEWER, first=20, now=60 * MINUTE)
    assert verdicts(made) == ["hold", "challenge"]
    assert (one.challenger, one.evidence.wins) == (NEWER, 1)
    wrong = drafted(30, NEWER, MODEL, time_ms=60 * MINUTE)
    assert one.take(back(wrong, WIN), 60 * MINUTE) == []
    assert one.fates[Fate.OTHER_PAIR] == 4


def test_forged_late_early_and_repeated_ids_are_counted_and_left_out() -> None:
    one = gate()
    now = 200 * MINUTE
    play(one, [WIN], now=now)
    other = drafted(1, keys=Keys("not the secret at all"), time_ms=now)
    for list_id, fate in (
        (other, Fate.FORGED),
        ("ki1.AAAA", Fate.FORGED),
        (drafted(2, space="shop", time_ms=now), Fate.FORGED),
        (drafted(3, time_ms=now - 60 * MINUTE), Fate.LATE),
        (drafted(4, time_ms=now + SKEW_MS + 1), Fate.AHEAD),
        (drafted(0, time_ms=now), Fate.REPEATED),
        (drafted(5, Version(1, 7, 100), time_ms=now), Fate.OTHER_EPOCH),
        (drafted(6, MODEL, Version(1, 7, 50), time_ms=now), Fate.OTHER_EPOCH),
    ):
        before = one.fates[fate]
        assert one.take(back(list_id, WIN), now) == []
        assert one.fates[fate] == before + 1, fate
        assert (one.evidence.wins, one.impressions) == (1, 1)
    just = drafted(7, time_ms=now - 60 * MINUTE + 1)
    one.take(back(just, WIN), now)
    assert one.evidence.wins == 2


def test_a_list_in_many_spellings_is_one_list() -> None:
    one, taken = gate(), 0
    list_id = drafted(0)
    one.take(back(list_id, WIN), 0)
    for text in respelled(list_id, PREFIX):
        assert one.take(back(text, WIN), 0) == []
        assert one.take(back(text), 0) == []
        taken += 2
    assert taken > 64
    assert (one.evidence.wins, one.impressions, one.fates[Fate.FORGED]) == (1, 1, taken)


def test_a_list_that_is_reported_before_its_clicks_is_counted_once() -> None:
    one = gate()
    list_id = drafted(0)
    for places, fate in (((), Fate.SHOWN), ((), Fate.REPEATED), ((1,), Fate.WON), ((0,), Fate.REPEATED)):
        before = one.fates[fate]
        one.take(back(list_id, *places), 0)
        assert one.fates[fate] == before + 1
    assert (one.impressions, one.evidence.wins, one.evidence.losses) == (1, 1, 0)


def test_caps_of_users_sessions_and_items_hold_within_an_hour() -> None:
    one = gate(chosen(per_user=2, per_session=3, per_item=6, every_minutes=10_000))
    now = 60 * MINUTE

    def vote(n: int, at: int, **who: str) -> None:
        one.take(back(drafted(n, time_ms=at), 1, **who), at)

    for n in range(5):
        vote(n, now, user="u")
    assert (one.fates[Fate.WON], one.fates[Fate.CAPPED_USER]) == (2, 3)
    for n in range(5, 10):
        vote(n, now, session="s", user=f"u{n}")
    assert (one.fates[Fate.WON], one.fates[Fate.CAPPED_SESSION]) == (5, 2)
    for n in range(10, 14):
        vote(n, now)
    assert (one.fates[Fate.WON], one.fates[Fate.CAPPED_ITEM]) == (6, 3)
    assert one.evidence.wins == 6
    vote(20, now + 60 * MINUTE - 1, user="u")
    assert one.evidence.wins == 6
    vote(21, now + 60 * MINUTE, user="u")
    assert one.evidence.wins == 7


@pytest.mark.parametrize("check", ["coverage", "new-items", "empty"])
def test_a_winner_that_fails_a_check_does_not_serve(check: str) -> None:
    one, rng = gate(chosen(per_item=0, max_sessions=10_000)), np.random.default_rng(1)
    made: list[Decision] = []
    for n in range(400):
        items = [f"i{k}" for k in rng.permutation(1_000)[:10]]
        # Odd places are the candidate's.
        if check == "coverage":
            items[1::2] = [f"same{k}" for k in range(5)]
        list_id = drafted(
            n,
            items=items,
            fresh=frozenset({0, 2}) if check == "new-items" else frozenset(),
            empty=frozenset({Side.CANDIDATE}) if check == "empty" and n % 20 == 0 else frozenset(),
        )
        # Hardly better, so that there are enough lists for a check.
        place = 1 if n % 10 < 7 else 0
        made += one.take(back(list_id, place)._replace(clicked=(items[place],)), 0)
        if len(made) > 1:
            break
    assert verdicts(made) == ["challenge", "hold"]
    assert made[1].reason.endswith(f"failed the checks: {check}")
    assert made[1].evidence.better()
    assert one.serving == UNADAPTED
    assert set(made[1].checks) >= {
        "distinct_items_serving",
        "empty_share_candidate",
        "new_item_share_candidate",
    }


def test_coverage_is_counted_to_three_percent() -> None:
    one, rng = gate(chosen(min_sessions=1_000, per_item=0)), np.random.default_rng(2)
    shown: list[set[str]] = [set(), set()]
    for n in range(400):
        items = [f"i{k}" for k in rng.permutation(3_000)[:10]]
        one.take(back(drafted(n, items=items)), 0)
        shown[0] |= set(items[::2])
        shown[1] |= set(items[1::2])
    found = one.shares.measured()
    assert found["distinct_items_serving"] == pytest.approx(len(shown[0]), rel=0.03)
    assert found["distinct_items_candidate"] == pytest.approx(len(shown[1]), rel=0.03)


# ---- orders -----------------------------------------------------------------------------------------------------


def order(what: Order, version: Version | None = None) -> GateOrder:
    return GateOrder("docs", what, 0, version, "me")


def test_people_promote_pin_roll_back_and_resume() -> None:
    one = gate()
    with pytest.raises(BadRecord, match="no challenger"):
        one.order(order(Order.PROMOTE), 0)
    with pytest.raises(BadRecord, match="has served before"):
        one.order(order(Order.ROLLBACK), 0)
    with pytest.raises(BadRecord, match="pinned"):
        one.order(order(Order.RESUME), 0)
    with pytest.raises(BadRecord, match="another epoch"):
        one.order(order(Order.PIN, Version(1, 9, 5)), 0)
    play(one, [WIN])
    made = one.order(order(Order.PROMOTE), 0)
    assert verdicts(made) == ["promote"]
    assert (one.serving, made[0].reason) == (MODEL, "ordered: me")
    assert verdicts(one.order(order(Order.PIN, NEWER), 0)) == ["pin"]
    assert (one.serving, one.pinned) == (NEWER, True)
    newest = Version(1, 0, 300)
    assert play(one, [WIN], newest, first=10, now=900 * MINUTE) == []
    assert one.fates[Fate.PAUSED] == 1
    assert verdicts(one.order(order(Order.RESUME), 900 * MINUTE)) == ["resume"]
    assert verdicts(play(one, [WIN], newest, first=20, now=960 * MINUTE)) == ["challenge"]
    made = one.order(order(Order.ROLLBACK), 960 * MINUTE)
    assert (made[0].serving, made[0].before, made[0].challenger) == (MODEL, NEWER, None)
    # Neither the challenger of that moment nor the model that was taken back is tried again.
    assert play(one, [WIN], newest, first=30, now=2_000 * MINUTE) == []
    assert play(one, [WIN], NEWER, first=40, now=2_000 * MINUTE) == []
    assert one.order(order(Order.ROLLBACK), 2_000 * MINUTE)[0].serving == UNADAPTED


# ---- memory and state -------------------------------------------------------------------------------------------


def test_a_full_memory_accepts_nothing_as_old_as_what_it_forgot() -> None:
    seen = Seen(most=3)
    for key, time_ms in enumerate((10, 30, 20, 40)):
        seen.note(key, Entry(time_ms, ListState.COUNTED, 1.0), gone_ms=-1, now_ms=50)
    assert (len(seen), seen.horizon_ms, seen.look(0)) == (3, 10, None)
    seen.note(4, Entry(50, ListState.SHOWN, 1.0), gone_ms=-1, now_ms=50)
    assert (len(seen), seen.horizon_ms) == (3, 30)
    seen.note(5, Entry(60, ListState.SHOWN, 1.0), gone_ms=20, now_ms=60)
    assert (len(seen), seen.horizon_ms) == (3, 30)


def test_a_full_cap_counts_nobody_new() -> None:
    cap = Cap(5, most=2)
    for key in (1, 2):
        assert not cap.full(key, 0)
        cap.add(key)
    assert (cap.full(1, 0), cap.full(3, 0), cap.full(3, 3_600_000)) == (False, True, False)


STEPS = st.lists(
    st.tuples(
        st.integers(0, 40),
        st.sampled_from([MODEL, NEWER, Version(1, 0, 300), Version(1, 4, 1)]),
        st.sampled_from([(), (0,), (1,), (1,), (1,), (1, 3), (0, 1)]),
        st.sampled_from([None, "a", "b"]),
        st.sampled_from([0, 1, 30]),
        st.sampled_from([None] * 30 + list(Order)),
    ),
    max_size=120,
)


@settings(deadline=None, max_examples=60)
@given(STEPS, st.integers(0, 120))
def test_restored_anywhere_it_decides_the_same(steps: list[Any], cut: int) -> None:
    options = chosen(
        error=0.4, every_minutes=20, max_sessions=15, late_minutes=45, per_user=6, per_item=0, user_votes=2
    )
    whole, parts = gate(options), gate(options)
    now = 0
    for n, (number, candidate, places, user, minutes, what) in enumerate(steps):
        if n == cut:
            fresh = gate(options)
            fresh.restore(parts.state())
            parts = fresh
        now += minutes * MINUTE
        made: list[Any] = []
        for one in (whole, parts):
            try:
                if what is not None:
                    version = candidate if what is Order.PIN else None
                    made.append(one.order(order(what, version), now))
                else:
                    list_id = drafted(
                        number, candidate, one.serving, time_ms=now - number * MINUTE % now if now else 0
                    )
                    made.append(one.take(back(list_id, *places, user=user), now))
            except BadRecord as error:
                made.append([str(error)])
        assert made[0] == made[1]
    left, right = whole.state(), parts.state()
    assert left.keys() == right.keys()
    for name, value in left.items():
        np.testing.assert_array_equal(np.asarray(value), np.asarray(right[name]), err_msg=name)


def test_the_state_of_an_earlier_version_can_be_shown() -> None:
    """`kinstream gate status` reads it before the new generation begins."""
    old = gate()
    play(old, [WIN] * 5 + [LOSS] * 2)
    plain = json.loads(str(old.state()["gate"]))
    del plain["stake"]
    names = ("wins", "losses", "ties")
    plain["evidence"] = {name: plain["evidence"][name] for name in names} | {
        "for_peak": 3.1,
        "against_peak": 0.2,
    }
    new = gate()
    state = {name: value for name, value in old.state().items() if not name.startswith("votes.")}
    new.restore(state | {"gate": json.dumps(plain)})
    assert (new.evidence.wins, new.evidence.losses, new.stake) == (5, 2, 1.0)


def test_another_generation_keeps_who_serves_and_begins_comparisons_anew() -> None:
    old = gate()
    play(old, [WIN] * wins_needed(0.05))
    old.order(order(Order.PIN, NEWER), 0)
    play(old, [WIN] * 3, Version(1, 0, 300), first=100, now=90 * MINUTE)
    new = gate(chosen(error=0.01, per_user=0))
    new.inherit(old.state(), None)
    assert (new.serving, new.pinned, new.challenger, new.impressions) == (NEWER, True, None, 0)
    assert new.order(order(Order.ROLLBACK), 0)[0].serving == MODEL
    assert [one["verdict"] for one in new.decided][:3] == ["challenge", "promote", "pin"]


def test_verdicts_are_counted() -> None:
    one = gate()
    play(one, [WIN] * wins_needed(0.05))
    assert {name: n for name, n in one.verdicts.items() if n} == {Verdict.CHALLENGE: 1, Verdict.PROMOTE: 1}
