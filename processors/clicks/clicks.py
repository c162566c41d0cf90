"""Click preferences: result lists and their clicks become triplets and pairs (Joachims et al. 2005)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.processors.base.builder import MAX_BLOCK_BYTES, FromLists, Made, Origin, State
from kinstream.processors.base.catalogue import Catalogue
from kinstream.processors.base.draws import fractions, raw_draws
from kinstream.processors.base.packing import Packing, References
from kinstream.processors.base.validation import flag, number, whole
from kinstream.processors.base.watermark import Watermark
from kinstream.processors.clicks import co_clicks
from kinstream.processors.clicks import kernels as kernels
from kinstream.processors.clicks.co_clicks import CoClicks, Pairs
from kinstream.processors.clicks.counts import NAMES, FateCounts
from kinstream.processors.clicks.filters import BIASES, TAKEN, Gate, PreferenceVotes
from kinstream.processors.clicks.keys import Keys, keys_of
from kinstream.processors.clicks.list_scores import ScoreNames, action_weights, checked_weights
from kinstream.processors.clicks.lists import (
    Fault,
    Flags,
    Lists,
    named,
    partly,
    read_lists,
    refusals,
    rows_of,
    split_rows,
)
from kinstream.processors.clicks.output_blocks import ClickStatements, JudgedLists, packed
from kinstream.processors.clicks.retractions import Retractions
from kinstream.processors.clicks.rules import CLICKED, Reading, preferences, read_clicks
from kinstream.streams.errors import BadRecord, Reason, SettingsError
from kinstream.streams.records.state import with_prefix, without_prefix
from kinstream.streams.records.values import (
    LIST_RULE,
    PREFERENCE_RULES,
    Click,
    ClickBlock,
    Event,
    Feedback,
    ItemBlock,
    Kind,
)

RULES: Final = (*PREFERENCE_RULES, co_clicks.RULE)

_DRAWN_AS: Final = "clicks/1"
#: Prefix of the catalogue's entries in a state.
_CATALOGUE: Final = "catalogue."
_DAY_MS: Final = 86_400_000

#: How steeply examination falls with the place where no bias says it: the judge of whole lists needs one.
EXPONENT: Final = 0.5

#: Entries that full memories have dropped.
EVICTED: Final = "memory-evicted"
#: Actions that were taken back after their lists had become constraints, and removed items.
RETRACTED: Final = "retracted-later"


class Clicks:
    """Triplets (query, clicked, skipped) and co-clicked pairs, joined with the catalogue of the space.

    The join is a function of the log: it uses the items as of the list's place in the log. A shown item that is
    not in the catalogue is refused with its row (`unknown-item`); a redrive of the row gives the preferences that were
    held back for it, and no others.

    A list is an event: its constraints share a block if they fit, and are numbered as one event. If a redrive applies
    part of a list and another part came before, its constraints belong to an event that has begun.

    Parameters
    ----------
    rules : names in `RULES`, or "click-list". A preference that several rules state is emitted once, under the first of
        them. Preferences compare items of one list, so they say mostly where items stood if the list was ranked.

        - "click-skip-above": a clicked item over each unclicked one above it.
        - "last-click-skip-above": the same, only for the item clicked last (in time).
        - "click-skip-previous": a clicked item over the one directly above it, if that is unclicked.
        - "click-no-click-next": a clicked item over the one directly below it, if that is unclicked: the rule
          assumes that it was examined. No other rule uses items below the last click.
        - "click-earlier-click": a clicked item over those clicked before it.
        - "click-list": whole lists, for learners of lists such as `adapter`: pairs of the query with each clicked item,
          similar, and with each unclicked one above a clicked one, dissimilar. A list of which the first item alone was
          clicked says nothing by the other rules. With "co-click" at most.
        - "co-click": items clicked for the same query in one session are similar.
    min_dwell_ms : a click known to be shorter counts neither as a click nor as a skip; 0 uses all.
    action_weights : weights of actions by their kind, above 0 and up to 100, such as {"purchase": 5.0}; all others
        weigh 1. Actions without a kind have the kind "click". What was clicked weighs as the heaviest of its actions
        that count, times what `bias` says. Only learners with weights use it.
    co_click_support : a pair is emitted when it reaches this many votes.
    max_clicks_per_hour, max_clicks_per_address : a user, or an address, with more is ignored for that hour of event
        time and the next; 0 is no limit.
    max_lists_per_day : of a user's lists with clicks in a day of event time, those after so many are ignored; 0 is no
        limit.
    keep_capped : lists that were ignored so are refused (`capped-user`, `capped-session`, `capped-address`). A redrive
        of them is taken whatever the caps say.
    max_late_ms : a list further behind the newest one is refused (`late-list`). The default is a week: enough for logs
        that are loaded file by file, and for a source that was disconnected for some days.
    bias : the correction for users who examine the top first.

        - "none".
        - "weights": each preference weighs the inverse of the probability with which its clicked item is examined,
          rank^bias_exponent, at most max_weight, divided by the mean of all weights before it and its own. The learner
          `adapter` uses weights, no other one.
        - "thinning": instead of weights, clicks are kept with a probability in proportion to that weight, for
          learners without weights.
        - "fair-pairs": only a clicked item over the unclicked one directly above it, in pairs of ranks (0, 1), (2, 3),
          ...: sound where the presentation swaps each of these pairs with probability 1/2.
        - "randomised": the same within the pairs of places that a service of Kinstream has swapped with probability 1/2
          (`[randomise.SPACE]`), as the id of each list says. Lists without such an id state nothing. Each order of a
          pair was as likely, so all weights are 1.
    bias_exponent : as above.
    seed : of the thinning.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A setting is out of range.

    Notes
    -----
    `counts()` adds up: each arriving list, impression, click, preference and co-click has exactly one fate
    (`kinstream.processors.clicks.counts.FATES`).
    Redriven rows arrive again. Filters come before the join: no row of a list that they drop is refused.

    References
    ----------
    Joachims, Granka, Pan, Hembrooke, Gay: Accurately interpreting clickthrough data as implicit feedback. SIGIR 2005.
    Joachims, Swaminathan, Schnabel: Unbiased learning-to-rank with biased feedback. WSDM 2017. (propensities)
    Radlinski, Joachims: Minimally invasive randomization for collecting unbiased preferences from clickthrough logs.
    AAAI 2006. (FairPairs)

    Examples
    --------
    >>> import numpy as np
    >>> from kinstream.processors.base.builder import Origin
    >>> from kinstream.processors.clicks.clicks import Clicks
    >>> from kinstream.streams.records.values import Click, ItemBlock, ItemClick, Table
    >>> builder = Clicks(["click-skip-above"])
    >>> items = ItemBlock("shop", ("tea", "cup", "hat"), (Table("x", np.eye(3, dtype=np.float32)),), time_ms=0)
    >>> builder.process(items, Origin(offset=0)).blocks
    []
    >>> shown = Click("shop", "list 1", ("hat", "cup"), (0, 1), (ItemClick("cup", 2000),), 1000, query_item="tea")
    >>> (block,) = builder.process(shown, Origin(offset=1, append_ms=2500)).blocks
    >>> [block.tables[0].vectors[i].argmax().item() for i in block.index[0]]
    [0, 1, 2]
    """

    #: Version 2 records which constraints come from one list, and counts votes once in their window in any order of
    #: arrival. Version 3 refuses late lists, a wrong time of the log makes no others late, and an id of a drawn
    #: list has one spelling. Version 4 sends what was shown along with the constraints, and states whole lists where no
    #: rules are set. Version 5 forgets what a wrong time of the log has left. Version 6 gives each row of a whole
    #: list its own vector where a vote on what was clicked came before. Version 7 sends the weights of actions along
    #: with what was shown, and version 8 the hashes of its items' names. Version 9 sends hashes of lists' ids, and what
    #: is to be forgotten of earlier lists. The random draws are those of version 1.
    algorithm: ClassVar[str] = "clicks/9"

    #: Within it each user (or session, or list) has one vote for a preference, and a list id without a load counts
    #: once; 0 turns both off.
    vote_window_ms: ClassVar[int] = _DAY_MS
    #: A preference is emitted from this vote on.
    support: ClassVar[int] = 1
    #: Support without a vote for this time is dropped.
    support_window_ms: ClassVar[int] = 30 * _DAY_MS
    #: Preferences of one session; 0 is no limit.
    max_per_session: ClassVar[int] = 1_000
    #: Items in a list, and preferences from it.
    max_list: ClassVar[int] = 1_000
    max_per_list: ClassVar[int] = 1_000
    #: A list further ahead of its place in the log is refused.
    max_ahead_ms: ClassVar[int] = 300_000
    #: Largest weight of a preference before division by the mean.
    max_weight: ClassVar[float] = 10.0
    #: Entries of each memory (votes, lists, sessions, hours, support); above it the oldest are dropped.
    max_remembered: ClassVar[int] = 250_000
    #: No encoded block is larger.
    max_bytes: ClassVar[int] = MAX_BLOCK_BYTES

    def __init__(
        self,
        rules: Sequence[str] = (LIST_RULE,),
        min_dwell_ms: int = 0,
        action_weights: Mapping[str, float] = MappingProxyType({}),
        co_click_support: int = 2,
        max_clicks_per_hour: int = 1_000,
        max_clicks_per_address: int = 5_000,
        max_lists_per_day: int = 0,
        keep_capped: bool = False,
        max_late_ms: int = 7 * _DAY_MS,
        bias: str = "none",
        bias_exponent: float = 1.0,
        seed: int = 0,
    ) -> None:
        self.rules = _rules(rules)
        self.min_dwell_ms = whole("min_dwell_ms", min_dwell_ms, 0, 10 * _DAY_MS)
        self.action_weights = checked_weights(action_weights)
        self.co_click_support = whole("co_click_support", co_click_support, 1, 1_000_000)
        self.max_clicks_per_hour = whole("max_clicks_per_hour", max_clicks_per_hour, 0, 1_000_000)
        self.max_clicks_per_address = whole("max_clicks_per_address", max_clicks_per_address, 0, 1_000_000)
        self.max_lists_per_day = whole("max_lists_per_day", max_lists_per_day, 0, 1_000_000)
        self.keep_capped = flag("keep_capped", keep_capped)
        self.max_late_ms = whole("max_late_ms", max_late_ms, 0, 10_000 * _DAY_MS)
        if bias not in BIASES:
            raise SettingsError(f"bias must be one of {', '.join(BIASES)}, not {bias!r}")
        if LIST_RULE in self.rules and bias in ("fair-pairs", "randomised"):
            raise SettingsError(
                f"bias {bias} compares two items, and the rule {LIST_RULE} whole lists: set rules, such as "
                f'["{PREFERENCE_RULES[0]}"]'
            )
        self.bias = bias
        self.bias_exponent = number("bias_exponent", bias_exponent, 0.0, 4.0)
        self.seed = whole("seed", seed, 0, 2**63 - 1)
        self._preference_rules = tuple(rule for rule in self.rules if rule != co_clicks.RULE)
        self._lists_whole = LIST_RULE in self.rules
        self._catalogue = Catalogue()
        watermark = Watermark(self.max_ahead_ms, self.max_late_ms)
        caps = self.max_clicks_per_hour, self.max_clicks_per_address
        self._gate = Gate(
            watermark,
            self.vote_window_ms,
            *caps,
            self.max_remembered,
            keep_capped=self.keep_capped,
            max_lists_per_day=self.max_lists_per_day,
        )
        self._votes = PreferenceVotes(
            vote_window_ms=self.vote_window_ms,
            max_per_session=self.max_per_session,
            support=self.support,
            support_window_ms=self.support_window_ms,
            bias=self.bias,
            exponent=self.bias_exponent,
            max_weight=self.max_weight,
            most=self.max_remembered,
        )
        self._co_clicks = (
            CoClicks(self.co_click_support, self.support_window_ms, self.vote_window_ms, self.max_remembered)
            if co_clicks.RULE in self.rules
            else None
        )
        self._counts = FateCounts()
        self._score_names = ScoreNames()
        self._retractions = Retractions(self.max_bytes)

    @property
    def follows(self) -> tuple[type, ...]:
        return ItemBlock, Click, ClickBlock, Feedback

    @property
    def emits(self) -> frozenset[Kind]:
        if not self._preference_rules or self._lists_whole:
            return frozenset({Kind.PAIR})
        return frozenset({Kind.TRIPLET} | ({Kind.PAIR} if self._co_clicks is not None else set()))

    @property
    def lists(self) -> FromLists | None:
        """What the constraints say of ranked lists; None for co-clicks alone."""
        if self._lists_whole:
            return FromLists.WHOLE
        return FromLists.RANKED if self._preference_rules else None

    def counts(self) -> dict[str, int]:
        evicted = self._gate.evicted + self._votes.evicted
        evicted += self._co_clicks.evicted if self._co_clicks is not None else 0
        evicted += self._retractions.evicted
        return {**self._counts.as_dict(), RETRACTED: self._retractions.taken, EVICTED: evicted}

    def process(self, event: Event, origin: Origin) -> Made:
        if isinstance(event, ItemBlock):
            self._items(event)
            return Made()
        if isinstance(event, Feedback):
            self._take_back(event)
            return Made()
        if not isinstance(event, Click | ClickBlock):
            raise TypeError(f"clicks does not follow {type(event).__name__}")
        return self._lists(event, origin)

    def space_bytes(self, event: Event) -> int:
        return self._catalogue.bytes_with(event)

    def _items(self, block: ItemBlock) -> None:
        sizes = tuple((t.name, t.vectors.shape[1]) for t in block.tables)
        if block.ids and not Packing(block.space, sizes, self._room).fits(
            Kind.TRIPLET, *self.rules, weighted=self._weighted, grouped=True
        ):
            raise BadRecord(Reason.TOO_LARGE, f"three of these vectors do not fit into {self._room} bytes")
        self._catalogue.put(block)
        self._retractions.erase(block.tombstones)

    def _take_back(self, event: Feedback) -> None:
        if event.item is None or not event.retract:
            raise BadRecord(Reason.BAD_SHAPE, "feedback on events takes back an action on an item")
        self._retractions.take_back(event.list_id, event.item)

    def _lists(self, event: Click | ClickBlock, origin: Origin) -> Made:
        lists = read_lists(event, self.max_list)
        arriving, waiting = rows_of(origin, len(lists.of))
        self._check_queries(lists)
        keys = keys_of(lists)
        fate = self._gate.admit(lists, keys, None if origin.rows is None else arriving, origin.append_ms)
        if self._gate.turned_ms is not None:
            self._votes.forget_after(self._gate.turned_ms)
            if self._co_clicks is not None:
                self._co_clicks.forget_after(self._gate.turned_ms)
        references = self._catalogue.find(lists.keys)
        anchors, has_anchor = _anchors(lists, references, fate)
        self._score_names.admit(lists, fate)
        taken = (fate == TAKEN) & (lists.faults == Fault.NONE)
        reading = read_clicks(lists, self.min_dwell_ms)

        looked_at = taken if self._co_clicks is not None else taken & has_anchor
        unknown = looked_at[lists.of] & (references[lists.block.item] < 0)
        presence = np.where(unknown, kernels.ITEM_GONE, kernels.EMITTED).astype(np.int8)
        presence[(unknown & arriving) | waiting] = kernels.HELD_BACK
        refused = refusals(lists, arriving) + _unknown_items(lists, unknown & arriving)
        refused += self._gate.left_out(lists, fate)

        stated = preferences(
            lists, reading, self._preference_rules, taken & has_anchor, arriving, self.max_per_list
        )
        draws = (
            fractions(raw_draws(_DRAWN_AS, self.seed, event, origin.offset, len(lists.of)))
            if self._votes.wants_draws
            else np.empty(0, np.float64)
        )
        verdict, weights = self._votes.judge(
            lists, keys, stated, reading.mark, presence, draws, self._gate.gone_ms
        )
        pairs = self._pair(lists, keys, reading, taken, presence, arriving)
        pair_references = self._catalogue.find(pairs.keys.reshape(-1, 2)).reshape(-1, 2)
        held = (pair_references >= 0).all(axis=1)

        self._counts.count(
            lists,
            reading,
            stated,
            verdict,
            fate,
            has_anchor,
            unknown,
            arriving,
            with_preferences=bool(self._preference_rules),
        )
        self._counts.count_pairs(pairs, int(held.sum()))
        chosen = verdict == kernels.EMITTED
        triplets = np.column_stack(
            [
                anchors[lists.of[stated.clicked[chosen]]],
                references[lists.block.item[stated.clicked[chosen]]],
                references[lists.block.item[stated.other[chosen]]],
            ]
        )
        weighted, worth = self._weighted or lists.block.weight is not None, None
        if self.action_weights or lists.block.weight is not None:
            worth = action_weights(lists.block, reading, self.action_weights)
            # In whole lists, only what was clicked has had any action.
            weights = weights * worth[stated.other if self._lists_whole else stated.clicked]
        found = ClickStatements(
            triplets,
            stated.rule[chosen],
            weights[chosen],
            lists.of[stated.clicked[chosen]],
            pair_references[held],
            pairs.lists[held],
            stated.other[chosen],
        )
        time_ms = int(lists.time_ms[taken].max(initial=0))
        shown = JudgedLists(
            anchors,
            np.where(presence == kernels.EMITTED, references[lists.block.item], -1),
            reading.mark == CLICKED,
            taken & has_anchor,
            np.where(keys.has_voter, keys.voters[:, 0] | np.uint64(1), np.uint64(0)),
            self.bias_exponent if self.bias in ("weights", "thinning") else EXPONENT,
            worth,
        )
        blocks = packed(
            found,
            lists,
            self._catalogue,
            shown,
            rules=self._preference_rules,
            weighted=weighted,
            max_bytes=self._room,
            begun=partly(lists, arriving),
            time_ms=time_ms,
        )
        return Made(self._retractions.send(blocks), refused)

    @property
    def _room(self) -> int:
        """Bytes of a block without what it takes along."""
        return self.max_bytes - self._retractions.room

    @property
    def _weighted(self) -> bool:
        """Whether weights may differ from 1 where actions have none of their own."""
        return self._votes.weighted or bool(self.action_weights)

    def _check_queries(self, lists: Lists) -> None:
        """Set the fault of lists whose query vector has another dimension."""
        sizes = {t.name: t.vectors.shape[1] for t in lists.block.query_vectors}
        if sizes and self._catalogue.modalities and sizes != dict(self._catalogue.modalities):
            bad = (lists.block.query_row >= 0) & (lists.faults == Fault.NONE)
            lists.faults[bad] = Fault.QUERY_DIMENSION

    def _pair(
        self,
        lists: Lists,
        keys: Keys,
        reading: Reading,
        taken: Flags,
        presence: NDArray[np.int8],
        arriving: Flags,
    ) -> Pairs:
        if self._co_clicks is None:
            return Pairs(np.empty((0, 2, 2), np.uint64), np.empty(0, np.int32), 0, 0, 0)
        usable = presence == kernels.EMITTED
        return self._co_clicks.pairs(lists, keys, reading, taken, usable, arriving, self._gate.gone_ms)

    # ---- state --------------------------------------------------------------------------------------------------

    def state(self) -> State:
        state: State = {f"count.{name}": number for name, number in self._counts.as_dict().items()}
        state |= with_prefix(_CATALOGUE, self._catalogue.state())
        state |= self._gate.state() | self._votes.state() | self._score_names.state()
        state |= self._retractions.state()
        return state | (self._co_clicks.state() if self._co_clicks is not None else {})

    def restore(self, state: State) -> None:
        self._counts.restore({name: int(state[f"count.{name}"]) for name in NAMES})
        self._catalogue.restore(without_prefix(_CATALOGUE, state))
        self._gate.restore(state)
        self._votes.restore(state)
        self._score_names.restore(state)
        self._retractions.restore(state)
        if self._co_clicks is not None:
            self._co_clicks.restore(state)

    def segments(self) -> tuple[str, ...]:
        return self._catalogue.segments()

    def segment(self, name: str) -> State:
        return self._catalogue.segment(name)

    def restore_segments(self, load: Callable[[str], State]) -> None:
        self._catalogue.restore_segments(load)

    def inherit(self, state: State, load: Callable[[str], State]) -> None:
        """Take the catalogue over from a builder of other settings; votes and filters start empty."""
        self._catalogue.restore(without_prefix(_CATALOGUE, state))
        self._catalogue.restore_segments(load)


def _anchors(lists: Lists, references: References, fate: NDArray[np.int8]) -> tuple[References, Flags]:
    """Reference of each list's query, and whether it has one; accepted lists with an unknown query get their fault."""
    block = lists.block
    anchors = np.full(len(lists), -1, np.int64)
    item = block.query >= 0
    anchors[item] = references[block.query[item]]
    vector = block.query_row >= 0
    unknown = item & ~vector & (anchors < 0) & (fate == TAKEN)
    lists.faults[unknown] = Fault.UNKNOWN_QUERY
    anchors[vector] = ~block.query_row[vector].astype(np.int64)
    return anchors, item | vector


def _unknown_items(lists: Lists, refused: Flags) -> list[BadRecord]:
    rows = np.flatnonzero(refused)
    if not len(rows):
        return []
    names = [lists.block.ids[i] for i in dict.fromkeys(lists.block.item[rows].tolist())]
    detail = f"not in the catalogue: {named(names, 'item')}"
    return [BadRecord(Reason.UNKNOWN_ITEM, detail, part) for part in split_rows(rows)]


def _rules(rules: Sequence[str]) -> tuple[str, ...]:
    known = f"rules must be names among {', '.join((*RULES, LIST_RULE))}, each once"
    if isinstance(rules, str) or not isinstance(rules, Sequence) or not rules:
        raise SettingsError(f"{known}, not {rules!r}")
    if any(rule not in (*RULES, LIST_RULE) for rule in rules) or len(set(rules)) != len(rules):
        raise SettingsError(f"{known}, not {list(rules)!r}")
    if LIST_RULE in rules and set(rules) - {LIST_RULE, co_clicks.RULE}:
        raise SettingsError(
            f"{LIST_RULE} says all that the rules of preferences say: it goes with {co_clicks.RULE} alone, not with "
            f"{', '.join(rule for rule in rules if rule not in (LIST_RULE, co_clicks.RULE))}"
        )
    return tuple(rules)
