"""The loops that use the memories, list by list and preference by preference.

A loop sees the effects of earlier lists of the same block, so a block of lists has the same effect as the lists one by
one.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.processors.base.id_table import Hashes
from kinstream.processors.base.recent_keys import Parts
from kinstream.processors.clicks.lists import Flags, Numbers, Times
from kinstream.streams.compute.compilation import compiled

Fates = NDArray[np.int8]

# ---- keys -------------------------------------------------------------------------------------------------------

_A: Final = np.uint64(0x9E3779B97F4A7C15)
_B: Final = np.uint64(0xBF58476D1CE4E5B9)
_C: Final = np.uint64(0x94D049BB133111EB)


@compiled
def _mixed(x: np.uint64) -> np.uint64:
    """The finaliser of splitmix64: every bit of the result depends on every bit of x."""
    x = (x ^ (x >> np.uint64(30))) * _B
    x = (x ^ (x >> np.uint64(27))) * _C
    return x ^ (x >> np.uint64(31))


@compiled
def _joined(a: np.uint64, b: np.uint64, c: np.uint64, d: np.uint64) -> tuple[np.uint64, np.uint64]:
    """One key of 128 bits from two; their order matters."""
    high = _mixed(a + _A) + _mixed(c ^ _mixed(b + _B))
    low = _mixed(b ^ _C) + _mixed(d ^ _mixed(a ^ _B))
    return _mixed(high ^ (low << np.uint64(1))), _mixed(low + high)


@compiled
def join(left: Hashes, right: Hashes) -> Hashes:
    """One key from two, row by row."""
    made = np.empty_like(left)
    for i in range(len(left)):
        a, b = _joined(left[i, 0], left[i, 1], right[i, 0], right[i, 1])
        made[i, 0], made[i, 1] = a, b
    return made


@compiled
def _entry(memory: Parts, a: np.uint64, b: np.uint64) -> int:
    """Number of the entry of a key, or -1 - (the slot where it would go)."""
    keys, _, _, _, slots, _ = memory
    mask = len(slots) - 1
    at = int(np.int64(a & np.uint64(mask)))
    while slots[at] >= 0:
        entry = slots[at]
        if keys[entry, 0] == a and keys[entry, 1] == b:
            return int(entry)
        at = (at + 1) & mask
    return -1 - at


@compiled
def _append(memory: Parts, slot: int, a: np.uint64, b: np.uint64) -> int:
    """A new entry in the slot that `_entry` found; its time and count are to be set."""
    keys, times, counts, _, slots, used = memory
    entry = used[0]
    used[0] += 1
    slots[-1 - slot] = entry
    keys[entry, 0], keys[entry, 1] = a, b
    times[entry], counts[entry] = -1, 0
    return int(entry)


@compiled
def _count(memory: Parts, a: np.uint64, b: np.uint64, time: int, window: int, more: int) -> int:
    """Add to the count of a key; it restarts if the key was not seen for a window."""
    _, times, counts, _, _, _ = memory
    entry = _entry(memory, a, b)
    if entry < 0:
        entry = _append(memory, entry, a, b)
    if times[entry] >= 0 and time - times[entry] >= window:
        counts[entry] = 0
    counts[entry] = min(int(counts[entry]) + more, 2**30)
    times[entry] = max(times[entry], time)
    return int(counts[entry])


@compiled
def _near(memory: Parts, a: np.uint64, b: np.uint64, time: int, window: int) -> bool:
    """Whether the key was noted less than a window before or after a time."""
    span = time // window
    for other in range(span - 1, span + 2):
        c, d = _joined(a, b, np.uint64(np.int64(other)), np.uint64(2))
        entry = _entry(memory, c, d)
        if entry >= 0 and abs(time - memory[1][entry]) < window:
            return True
    return False


@compiled
def _note(memory: Parts, a: np.uint64, b: np.uint64, time: int, window: int) -> None:
    """Note the key at a time that is not near any of its noted times.

    Times of a key are at least a window apart, so each span of that length holds at most one, under its own key. An
    entry that comes out of order finds the times before and after it.
    """
    c, d = _joined(a, b, np.uint64(np.int64(time // window)), np.uint64(2))
    memory[1][_append(memory, _entry(memory, c, d), c, d)] = time


# ---- lists ------------------------------------------------------------------------------------------------------

LIST_TAKEN: Final = 0
LIST_AGAIN: Final = 1
LIST_BOT: Final = 2
#: Of an address above its cap, and of no user or session above theirs.
LIST_OF_BOT_ADDRESS: Final = 6
HOUR_MS: Final = 3_600_000


_DAY_MS: Final = 86_400_000
_VOTER: Final = 1
_ADDRESS: Final = 3


@compiled
def _clicks_of(hours: Parts, a: np.uint64, b: np.uint64, kind: int, time: int, more: int) -> int:
    """The larger of the clicks in the hour of a time, after adding some, and in the hour before."""
    hour = time // 3_600_000
    c, d = _joined(a, b, np.uint64(np.int64(hour)), np.uint64(kind))
    now = 0
    if more > 0:
        now = _count(hours, c, d, time, 2**62, more)
    else:
        entry = _entry(hours, c, d)
        if entry >= 0:
            now = int(hours[2][entry])
    c, d = _joined(a, b, np.uint64(np.int64(hour - 1)), np.uint64(kind))
    entry = _entry(hours, c, d)
    before = int(hours[2][entry]) if entry >= 0 else 0
    return max(now, before)


@compiled
def admit(
    candidates: Flags,
    first_time: bool,
    time_ms: Times,
    list_keys: Hashes,
    has_id: Flags,
    clicks: Times,
    voters: Hashes,
    has_voter: Flags,
    addresses: Hashes,
    has_address: Flags,
    window: int,
    max_clicks: int,
    max_address_clicks: int,
    max_lists: int,
    seen: Parts,
    hours: Parts,
    days: Parts,
    fate: Fates,
) -> None:
    """Decide whether candidate lists were seen before, or come from a bot.

    Parameters
    ----------
    first_time : false in a redrive, which is not counted again.
    list_keys, has_id : (n, 2), and (n,) which of them to check.
    clicks : (n,) number of clicks.
    window : within which a repeated list is left out.
    max_clicks, max_address_clicks : in an hour, of a voter and of an address; 0 for no limit.
    max_lists : with clicks in a day, of a voter; 0 for no limit.
    seen, hours, days : memories of lists, of clicks by voter or address and hour, and of lists by voter and day.
    fate : (n,) filled for the candidates.
    """
    for i in range(len(candidates)):
        if not candidates[i]:
            continue
        fate[i] = 0
        time = time_ms[i]
        if has_id[i]:
            a, b = list_keys[i, 0], list_keys[i, 1]
            near = _near(seen, a, b, time, window)
            if near and first_time:
                fate[i] = 1
                continue
            if not near:
                _note(seen, a, b, time, window)
        more = clicks[i] if first_time else 0
        if max_clicks > 0 and has_voter[i]:
            a, b = voters[i, 0], voters[i, 1]
            if _clicks_of(hours, a, b, _VOTER, time, more) > max_clicks:
                fate[i] = 2
        if max_lists > 0 and has_voter[i]:
            c, d = _joined(
                voters[i, 0], voters[i, 1], np.uint64(np.int64(time // _DAY_MS)), np.uint64(_VOTER)
            )
            if _count(days, c, d, time, 2**62, int(more > 0)) > max_lists:
                fate[i] = 2
        if max_address_clicks > 0 and has_address[i]:
            a, b = addresses[i, 0], addresses[i, 1]
            if _clicks_of(hours, a, b, _ADDRESS, time, more) > max_address_clicks and fate[i] == 0:
                fate[i] = 6


# ---- preferences ------------------------------------------------------------------------------------------------

EMITTED: Final = 0
HELD_BACK: Final = 1
ITEM_GONE: Final = 2
QUERY_IN_LIST: Final = 3
NOT_FAIR_PAIR: Final = 4
REPEATED_VOTE: Final = 5
SESSION_CAP: Final = 6
BELOW_SUPPORT: Final = 7
THINNED: Final = 8

NO_BIAS: Final = 0
WEIGHTS: Final = 1
THINNING: Final = 2
FAIR_PAIRS: Final = 3
RANDOMISED: Final = 4


@compiled
def judge(
    clicked: Numbers,
    other: Numbers,
    of: Numbers,
    item: Numbers,
    position: Numbers,
    keys: Hashes,
    mark: NDArray[np.int8],
    presence: NDArray[np.int8],
    time_ms: Times,
    queries: Hashes,
    voters: Hashes,
    has_voter: Flags,
    sessions: Hashes,
    has_session: Flags,
    limits: Times,
    bias: int,
    propensity: NDArray[np.float64],
    draws: NDArray[np.float64],
    uppers: Numbers,
    mean: NDArray[np.float64],
    votes: Parts,
    capped: Parts,
    supported: Parts,
    fate: Fates,
    weight: NDArray[np.float32],
) -> None:
    """Decide the fate of each preference, in order.

    Parameters
    ----------
    clicked, other : (p,) impressions.
    mark : (m,) 0 for an impression that was not clicked.
    presence : (m,) 0 for an item that can be used, else HELD_BACK or ITEM_GONE.
    queries, voters, sessions : (n, 2) keys of each list's.
    limits : vote window, cap of a session, session window, support, support window.
    propensity : exponent of the examination, and largest weight.
    draws : (m,) in [0, 1), for thinning.
    uppers : (m,) the upper impression of the drawn pair of each lower one, or -1; for randomised lists.
    mean : sum and number of the weights so far.
    votes, capped, supported : memories.
    fate, weight : (p,) filled.
    """
    vote_window, session_cap, session_window = limits[0], limits[1], limits[2]
    support, support_window = limits[3], limits[4]
    exponent, largest = propensity[0], propensity[1]
    for p in range(len(clicked)):
        winner, loser = clicked[p], other[p]
        i = of[winner]
        weight[p] = 1.0
        kw, kl = keys[item[winner]], keys[item[loser]]
        if presence[winner] != 0 or presence[loser] != 0:
            fate[p] = 1 if presence[winner] == 1 or presence[loser] == 1 else 2
            continue
        qa, qb = queries[i, 0], queries[i, 1]
        if (qa == kw[0] and qb == kw[1]) or (qa == kl[0] and qb == kl[1]):
            fate[p] = 3
            continue
        if bias == 3 and (
            mark[loser] != 0 or position[winner] != position[loser] + 1 or position[loser] % 2 != 0
        ):
            fate[p] = 4
            continue
        if bias == 4 and (mark[loser] != 0 or uppers[winner] != loser):
            fate[p] = 4
            continue
        time = time_ms[i]
        a, b = _joined(kw[0], kw[1], kl[0], kl[1])
        a, b = _joined(qa, qb, a, b)
        va, vb = _joined(voters[i, 0], voters[i, 1], a, b)
        voting = vote_window > 0 and has_voter[i]
        if voting and _near(votes, va, vb, time, vote_window):
            fate[p] = 5
            continue
        if session_cap > 0 and has_session[i]:
            sa, sb = sessions[i, 0], sessions[i, 1]
            if _count(capped, sa, sb, time, session_window, 0) >= session_cap:
                fate[p] = 6
                continue
            _count(capped, sa, sb, time, session_window, 1)
        if voting:
            _note(votes, va, vb, time, vote_window)
        if support > 1 and _count(supported, a, b, time, support_window, 1) < support:
            fate[p] = 7
            continue
        if bias == 1 or bias == 2:
            w = min((position[winner] + 1.0) ** exponent, largest)
            if bias == 2:
                if draws[winner] * largest >= w:
                    fate[p] = 8
                    continue
            else:
                mean[0] += w
                mean[1] += 1.0
                weight[p] = np.float32(w * mean[1] / mean[0])
        fate[p] = 0


# ---- co-clicks --------------------------------------------------------------------------------------------------

PAIR_EMITTED: Final = 0
PAIR_REPEATED: Final = 1
PAIR_BELOW_SUPPORT: Final = 2
PAIR_KNOWN: Final = 3


@compiled
def pair_up(
    use: Flags,
    starts: Numbers,
    order: Numbers,
    item: Numbers,
    mark: NDArray[np.int8],
    usable: Flags,
    arriving: Flags,
    keys: Hashes,
    time_ms: Times,
    scopes: Hashes,
    has_scope: Flags,
    voters: Hashes,
    has_voter: Flags,
    limits: Times,
    clicked: Parts,
    votes: Parts,
    supported: Parts,
    pairs: NDArray[np.uint64],
    lists: Numbers,
    tally: Times,
) -> int:
    """Pair every clicked item that arrives with those clicked before it for the same query in the same session.

    Parameters
    ----------
    use : (n,) lists to use.
    mark : (m,) 2 for a clicked impression.
    usable : (m,) impressions that take part.
    scopes : (n, 2) keys of session and query; a list without one is its own.
    limits : vote window, support, support window, session window.
    clicked : memory of scopes, with the last items clicked in each.
    votes, supported : memories of (voter, pair), and of pairs.
    pairs, lists : filled: keys of both items (r, 2, 2), and the list that brought them.
    tally : (4,) numbers of pairs by fate; incremented.

    Returns
    -------
    The number of pairs filled in.
    """
    vote_window, support, support_window, session_window = limits[0], limits[1], limits[2], limits[3]
    width = clicked[3].shape[1]
    ring = np.zeros((width, 2), np.uint64)
    made = 0
    for i in range(len(use)):
        if not use[i]:
            continue
        time = time_ms[i]
        entry = -1
        count = 0
        if has_scope[i]:
            entry = _entry(clicked, scopes[i, 0], scopes[i, 1])
            if entry < 0:
                entry = _append(clicked, entry, scopes[i, 0], scopes[i, 1])
            elif time - clicked[1][entry] < session_window:
                count = int(clicked[2][entry])
                for h in range(width):
                    ring[h, 0], ring[h, 1] = clicked[3][entry, h, 0], clicked[3][entry, h, 1]
        for again in range(2):
            for place in range(starts[i], starts[i + 1]):
                at = order[place]
                # Impressions applied before a redrive are in its list again, as context.
                if mark[at] != 2 or not usable[at] or arriving[at] != (again == 1):
                    continue
                a, b = keys[item[at], 0], keys[item[at], 1]
                held = min(count, width)
                there = False
                for h in range(held):
                    there = there or (ring[h, 0] == a and ring[h, 1] == b)
                if there:
                    continue
                for h in range(held if again == 1 else 0):
                    # From the one clicked first to the one clicked last.
                    spot = (count - held + h) % width
                    c, d = ring[spot, 0], ring[spot, 1]
                    if c < a or (c == a and d < b):
                        x, y = _joined(c, d, a, b)
                    else:
                        x, y = _joined(a, b, c, d)
                    if vote_window > 0 and has_voter[i]:
                        u, v = _joined(voters[i, 0], voters[i, 1], x, y)
                        if _near(votes, u, v, time, vote_window):
                            tally[1] += 1
                            continue
                        _note(votes, u, v, time, vote_window)
                    found = _count(supported, x, y, time, support_window, 1)
                    if found != support:
                        tally[2 if found < support else 3] += 1
                        continue
                    tally[0] += 1
                    pairs[made, 0, 0], pairs[made, 0, 1] = c, d
                    pairs[made, 1, 0], pairs[made, 1, 1] = a, b
                    lists[made] = i
                    made += 1
                ring[count % width, 0], ring[count % width, 1] = a, b
                count += 1
        if entry >= 0:
            clicked[1][entry] = max(clicked[1][entry], time)
            clicked[2][entry] = count
            for h in range(width):
                clicked[3][entry, h, 0], clicked[3][entry, h, 1] = ring[h, 0], ring[h, 1]
    return made
