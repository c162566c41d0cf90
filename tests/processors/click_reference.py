"""Click preferences from docs/building.md, one pair at a time; nothing shared with the product."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kinstream.streams.records.values import Click

HOUR = 3_600_000


@dataclass
class Found:
    """Triplets and pairs as (rule, weight, names), and refused rows by reason."""

    triplets: list[tuple[str, float, tuple[str, ...]]] = field(default_factory=list)
    pairs: list[tuple[str, float, tuple[str, ...]]] = field(default_factory=list)
    refused: dict[str, list[int]] = field(default_factory=dict)


def stated(
    order: Sequence[int], clicked: dict[int, list[int]], short: set[int], rules: Sequence[str]
) -> list[tuple[int, int, str]]:
    """(preferred, other, rule) of one list.

    Parameters
    ----------
    order : impressions from the top down.
    clicked : impression -> times of the clicks that count.
    short : impressions with short clicks only.
    """
    rank = {at: r for r, at in enumerate(order)}
    skipped = [at for at in order if at not in clicked and at not in short]
    last = max(clicked, key=lambda at: (max(clicked[at]), rank[at])) if clicked else None
    made = []
    for a in order:
        if a not in clicked:
            continue
        for b in order:
            if a == b:
                continue
            says = {
                "click-skip-above": b in skipped and rank[b] < rank[a],
                "last-click-skip-above": b in skipped and rank[b] < rank[a] and a == last,
                "click-skip-previous": b in skipped and rank[b] == rank[a] - 1,
                "click-no-click-next": b in skipped and rank[b] == rank[a] + 1,
                "click-earlier-click": b in clicked and min(clicked[b]) < min(clicked[a]),
            }
            rule = next((rule for rule in rules if says.get(rule)), None)
            if rule is not None:
                made.append((a, b, rule))
    return made


class Reference:
    """The whole builder, with memories that forget nothing."""

    def __init__(self, **settings: Any) -> None:
        self.s: dict[str, Any] = {
            "rules": ["click-skip-above"],
            "min_dwell_ms": 0,
            "vote_window_ms": 24 * HOUR,
            "support": 1,
            "co_click_support": 2,
            "support_window_ms": 30 * 24 * HOUR,
            "max_per_session": 1000,
            "max_clicks_per_hour": 1000,
            "max_clicks_per_address": 5000,
            "max_lists_per_day": 0,
            "keep_capped": False,
            "max_list": 1000,
            "max_per_list": 1000,
            "max_ahead_ms": 300_000,
            "max_late_ms": 7 * 24 * HOUR,
            "bias": "none",
            "bias_exponent": 1.0,
            "max_weight": 10.0,
        } | settings
        self.known: set[str] = set()
        self.watermark = -1
        self.lists: dict[Hashable, list[int]] = {}
        self.hours: Counter[Hashable] = Counter()
        self.days: Counter[Hashable] = Counter()
        #: The newest time of each key of both: hours have an actor as well, or are of another number than days.
        self.last: dict[Hashable, int] = {}
        self.votes: dict[Hashable, list[int]] = {}
        self.counted: dict[Hashable, tuple[int, int]] = {}
        self.clicked: dict[Hashable, tuple[list[str], int]] = {}
        self.weights: list[float] = []
        self.counts: Counter[str] = Counter()

    def process(
        self,
        lists: Sequence[Click],
        *,
        append_ms: int,
        load: bool = False,
        rows: Sequence[int] | None = None,
        still: Sequence[int] = (),
    ) -> Found:
        found = Found()
        first = 0
        for click in lists:
            flat = range(first, first + len(click.items))
            first = flat.stop
            arriving = [r - flat.start for r in flat if rows is None or r in rows]
            if arriving:
                waiting = {r - flat.start for r in still if r in flat} - set(arriving)
                self._list(
                    click, flat.start, set(arriving), waiting, rows is not None, load, append_ms, found
                )
        return found

    # ---- one list -----------------------------------------------------------------------------------------------

    def _list(
        self,
        click: Click,
        first: int,
        arriving: set[int],
        waiting: set[int],
        again: bool,
        load: bool,
        append_ms: int,
        found: Found,
    ) -> None:
        s, count = self.s, self.counts
        if self.watermark > append_ms + s["max_ahead_ms"]:
            self.watermark = append_ms
            self._forget_after(append_ms + s["max_ahead_ms"])
        at_of: dict[str, int] = {}
        for at, name in enumerate(click.items):
            at_of.setdefault(name, at)
        clicks = [(at_of.get(c.item, -1), c.time_ms, c.dwell_ms) for c in click.clicks]
        here = [c for c in clicks if c[0] in arriving]
        count["lists"] += 1
        count["impressions"] += len(arriving)
        count["clicks"] += len(here)

        def whole(fate: str, unit: str, reason: str | None = None) -> None:
            count[fate] += 1
            count[f"impressions-{unit}"] += len(arriving)
            count[f"clicks-{unit}"] += len(here)
            if reason is not None:
                found.refused.setdefault(reason, []).extend(first + at for at in sorted(arriving))

        reason = self._bad(click, clicks)
        time = max([click.shown_at_ms, *(t for _, t, _ in clicks)])
        if reason is None and time > append_ms + s["max_ahead_ms"]:
            reason = "ahead-of-log"
        if reason is not None:
            return whole("lists-refused", "refused", reason)
        late = not again and time < self.watermark - s["max_late_ms"]
        self.watermark = max(self.watermark, time)
        if late:
            return whole("late", "left-out", "late-list")
        voter = ("user", click.user) if click.user is not None else ("session", click.session)
        named = click.user is not None or click.session is not None
        if click.list_id and not load and s["vote_window_ms"]:
            key = (click.list_id, voter, click.session)
            near = self._near(self.lists, key, time)
            if near and not again:
                return whole("duplicate-list", "left-out")
            if not near:
                self.lists.setdefault(key, []).append(time)
        capped = [(voter, s["max_clicks_per_hour"])] if named else []
        if click.address is not None:
            capped.append((("address", click.address), s["max_clicks_per_address"]))
        bot, hour = None, time // HOUR
        for actor, most in capped:
            if most and not again:
                self.hours[actor, hour] += len(clicks)
                if clicks:
                    self._seen_at((actor, hour), time)
            over = most and max(self.hours[actor, hour], self.hours[actor, hour - 1]) > most
            if over and not (again and s["keep_capped"]):
                bot = bot or f"capped-{actor[0]}"
        if named and s["max_lists_per_day"]:
            self.days[voter, time // (24 * HOUR)] += bool(clicks) and not again
            if not (again and s["keep_capped"]):
                self._seen_at((voter, time // (24 * HOUR)), time)
            over = self.days[voter, time // (24 * HOUR)] > s["max_lists_per_day"]
            if over and not (again and s["keep_capped"]):
                bot = f"capped-{voter[0]}"
        if bot is not None:
            return whole("bot", "left-out", bot if s["keep_capped"] else None)
        if click.query_item is not None and not click.query_vector and click.query_item not in self.known:
            return whole("lists-refused", "refused", "unknown-item")

        anchor = None
        if click.query_vector:
            anchor = f"q{click.query_vector[0].vectors[0, 0] - 100:.0f}"
        elif click.query_item is not None:
            anchor = click.query_item
        query = click.query_item or anchor
        joined = anchor is not None or "co-click" in s["rules"]
        unknown = {at for at, name in enumerate(click.items) if joined and name not in self.known}
        refused = unknown & arriving
        if refused:
            found.refused.setdefault("unknown-item", []).extend(first + at for at in sorted(refused))

        good: dict[int, list[int]] = {}
        short = set()
        for at, t, dwell in clicks:
            if dwell is not None and dwell < s["min_dwell_ms"]:
                short.add(at)
                if at in arriving:
                    count["clicks-refused" if at in unknown else "short-dwell"] += 1
                continue
            if at in arriving:
                fate = "clicks-repeated" if at in good else "clicks-used"
                count["clicks-refused" if at in unknown else fate] += 1
            good.setdefault(at, []).append(t)
        short -= set(good)
        order = sorted(range(len(click.items)), key=lambda at: click.positions[at])
        lowest = max((order.index(at) for at in good), default=-1)
        for at in arriving:
            if at in unknown:
                fate = "refused"
            elif at in good:
                fate = "clicked"
            elif at in short:
                fate = "short-dwell"
            else:
                fate = "skipped" if order.index(at) <= lowest else "unexamined"
            count[f"impressions-{fate}"] += 1

        rules = [rule for rule in s["rules"] if rule != "co-click"]
        touching = []
        if anchor is not None and good:
            all_stated = stated(order, good, short, rules)
            beyond = [p for p in all_stated[s["max_per_list"] :] if {p[0], p[1]} & arriving]
            touching = [p for p in all_stated[: s["max_per_list"]] if {p[0], p[1]} & arriving]
            count["preferences"] += len(touching) + len(beyond)
            count["list-cap"] += len(beyond)
        if anchor is None:
            count["no-query-vector"] += 1
        elif not good:
            count["no-click"] += 1
        elif rules and not touching:
            count["no-preference"] += 1
        else:
            count["lists-used"] += 1
        for a, b, rule in touching:
            assert anchor is not None
            fate, weight = self._judge(
                click, a, b, (query, voter, named, time), (waiting | refused, unknown - refused)
            )
            count[fate] += 1
            if fate == "preferences-emitted":
                found.triplets.append((rule, weight, (anchor, click.items[a], click.items[b])))
        if "co-click" in s["rules"] and good:
            usable = [at for at in order if at in good and at not in unknown and at not in waiting]
            self._co_click(click, usable, arriving, query, voter, named, time, found)

    def _bad(self, click: Click, clicks: list[tuple[int, int, int | None]]) -> str | None:
        if len(click.items) > self.s["max_list"]:
            return "too-large"
        times = [click.shown_at_ms, *(t for _, t, _ in clicks), *(d for _, _, d in clicks if d is not None)]
        shape = (
            len(set(click.items)) < len(click.items)
            or len(set(click.positions)) < len(click.positions)
            or min(click.positions) < 0
            or min(times) < 0
            or any(at < 0 for at, _, _ in clicks)
        )
        return "bad-shape" if shape else None

    # ---- preferences ----------------------------------------------------------------------------------------------

    def _judge(
        self,
        click: Click,
        a: int,
        b: int,
        who: tuple[Hashable, Hashable, bool, int],
        missing: tuple[set[int], set[int]],
    ) -> tuple[str, float]:
        s = self.s
        query, voter, named, time = who
        if {a, b} & missing[0]:
            return "held-back", 1.0
        if {a, b} & missing[1]:
            return "item-gone", 1.0
        if query in (click.items[a], click.items[b]):
            return "query-in-list", 1.0
        rank, above = click.positions[a], click.positions[b]
        clicked = {one.item for one in click.clicks}
        if s["bias"] == "fair-pairs" and (click.items[b] in clicked or rank != above + 1 or above % 2):
            return "not-fair-pair", 1.0
        what = (query, click.items[a], click.items[b])
        vote = ("vote", voter, what)
        if s["vote_window_ms"] and named and self._near(self.votes, vote, time):
            return "repeated-vote", 1.0
        session_window = s["vote_window_ms"] or 24 * HOUR
        if s["max_per_session"] and click.session is not None:
            session = ("session", click.session)
            if self._add(session, time, session_window, 0) >= s["max_per_session"]:
                return "session-cap", 1.0
            self._add(session, time, session_window, 1)
        if s["vote_window_ms"] and named:
            self.votes.setdefault(vote, []).append(time)
        if s["support"] > 1 and self._add(("support", what), time, s["support_window_ms"], 1) < s["support"]:
            return "below-support", 1.0
        if s["bias"] == "weights":
            self.weights.append(min((rank + 1) ** s["bias_exponent"], s["max_weight"]))
            mean = sum(self.weights) / len(self.weights)
            return "preferences-emitted", round(self.weights[-1] / mean, 5)
        return "preferences-emitted", 1.0

    def _near(self, memory: dict[Hashable, list[int]], key: Hashable, time: int) -> bool:
        return any(abs(time - seen) < self.s["vote_window_ms"] for seen in memory.get(key, []))

    def _add(self, key: Hashable, time: int, window: int, more: int) -> int:
        count, last = self.counted.get(key, (0, -1))
        if last >= 0 and time - last >= window:
            count = 0
        self.counted[key] = (count + more, max(last, time))
        return count + more

    def _seen_at(self, key: Hashable, time: int) -> None:
        self.last[key] = max(self.last.get(key, -1), time)

    def _forget_after(self, time: int) -> None:
        """The log's time was wrong: nothing of it counts any more."""
        for memory in (self.lists, self.votes):
            for key, seen in memory.items():
                memory[key] = [one for one in seen if one <= time]
        self.counted = {key: (n, last) for key, (n, last) in self.counted.items() if last <= time}
        self.clicked = {key: (names, last) for key, (names, last) in self.clicked.items() if last <= time}
        self.hours = Counter({key: n for key, n in self.hours.items() if self.last.get(key, -1) <= time})
        self.days = Counter({key: n for key, n in self.days.items() if self.last.get(key, -1) <= time})

    # ---- co-clicks ------------------------------------------------------------------------------------------------

    def _co_click(
        self,
        click: Click,
        usable: list[int],
        arriving: set[int],
        query: Hashable,
        voter: Hashable,
        named: bool,
        time: int,
        found: Found,
    ) -> None:
        s, count = self.s, self.counts
        scope = (click.session, query) if click.session is not None and query is not None else None
        before: list[str] = []
        last = -1
        if scope is not None and scope in self.clicked:
            before, last = self.clicked[scope]
            if time - last >= (s["vote_window_ms"] or 24 * HOUR):
                before = []
        before = list(before)
        before += [n for n in (click.items[at] for at in usable if at not in arriving) if n not in before]
        before = before[-8:]
        for at in usable:
            name = click.items[at]
            if at not in arriving or name in before:
                continue
            for other in before:
                count["co-clicks"] += 1
                pair = frozenset((name, other))
                vote = ("co-click", voter, pair)
                if s["vote_window_ms"] and named:
                    if self._near(self.votes, vote, time):
                        count["co-click-repeated"] += 1
                        continue
                    self.votes.setdefault(vote, []).append(time)
                votes = self._add(("co-click", pair), time, s["support_window_ms"], 1)
                if votes < s["co_click_support"]:
                    count["co-click-below-support"] += 1
                elif votes > s["co_click_support"]:
                    count["co-click-known"] += 1
                elif name in self.known and other in self.known:
                    count["co-clicks-emitted"] += 1
                    found.pairs.append(("co-click", 1.0, (other, name)))
                else:
                    count["co-click-gone"] += 1
            before = [*before, name][-8:]
        if scope is not None:
            self.clicked[scope] = (before, max(last, time))
