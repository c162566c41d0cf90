"""The gate of one space as a state machine: drafted lists and orders in, decisions out. It has no clock.

The un-adapted features serve until a model has won. One model at a time is the challenger: the candidate of the first
list that is counted when there is none and the pause since the last comparison is over. A comparison ends when the
challenger is shown to be better, also without the best `bought_votes` votes that there can be, and to lose little where
queries do not come again; or worse; from `min_sessions` lists on, or as soon as `max_sessions` lists could not show
it; or when the learner has moved on while nothing is decided; or nobody new comes. A version that has lost never comes
back.

Whatever ends a comparison is a sum over users and addresses in which each counts little, see `votes`, or a time of the
log or of a service.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Final

from kinstream.gate.checks import Shares
from kinstream.gate.exposure.counts import Exposure
from kinstream.gate.limits import LEFT_OUT, Actors, LimitKind, ListLimits
from kinstream.gate.lists.evidence import Evidence, decisive
from kinstream.gate.lists.hashing import hash_of
from kinstream.gate.lists.list_id import Impression, Keys, read
from kinstream.gate.memory import Entry, ListState, Seen
from kinstream.gate.tail import Tail
from kinstream.gate.values import Decision, Fate, List, Options
from kinstream.gate.votes import Growth, Sessions, Votes, voter
from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.gate import UNADAPTED, GateOrder, Order, Verdict, Version
from kinstream.streams.records.message import SKEW_MS as SKEW_MS
from kinstream.streams.records.message import log_time
from kinstream.streams.records.state import State, with_prefix, without_prefix

#: Changes whenever the same events give other decisions.
ALGORITHM: Final = "gate/8"
#: Decisions that the state keeps, for people who ask what happened.
KEPT: Final = 20
_MINUTE_MS: Final = 60_000
_EXPOSURE: Final = "exposure."
_UNCLICKED: Final = "unclicked."
_TAIL: Final = "tail."
#: The learner has moved on when its newest model has so many times the steps of the challenger.
MOVED_ON: Final = 2
_FATES: Final = {reason: Fate(reason.value.replace("-", "_")) for reason in LEFT_OUT}
#: Lists that a person may send again when clocks or keys are right.
_KEPT: Final = {
    Fate.FORGED: Reason.FORGED_LIST,
    Fate.AHEAD: Reason.AHEAD_OF_LOG,
    Fate.LATE: Reason.LATE_LIST,
}


class SpaceGate:
    """The state of the gate in one space.

    Parameters
    ----------
    space, keys : whose lists are credited.
    options : see there.
    epoch : of the space: models of another one are left out.
    """

    def __init__(self, space: str, keys: Keys, options: Options, epoch: int = 0) -> None:
        self._space, self._keys, self.options, self._epoch = space, keys, options, epoch
        self.serving = UNADAPTED
        self.challenger: Version | None = None
        self.pinned = False
        self.evidence = Evidence()
        #: What comparisons with the serving model have left to bet; see `evidence`.
        self.stake = 1.0
        #: Lists of the comparison that count, clicked or not.
        self.impressions = 0
        self.fates: Counter[str] = Counter(dict.fromkeys(Fate, 0))
        self.verdicts: Counter[str] = Counter(dict.fromkeys(Verdict, 0))
        #: The last decisions as JSON objects, the newest last.
        self.decided: list[dict[str, Any]] = []
        self.shares = Shares()
        #: What was shown in this epoch. No decision depends on it.
        self.exposure = Exposure()
        #: Models that served before, the newest last.
        self._history: list[Version] = []
        #: No model up to this one becomes the challenger.
        self._floor = UNADAPTED
        self._number = 0
        #: The newest time of the log, that of the end of the last comparison, and when the newest list of this one was
        #: shown.
        self._now_ms, self._since_ms, self._heard_ms = -1, -1, -1
        self._seen = Seen()
        caps = {kind: int(getattr(options, f"per_{kind}")) for kind in LimitKind}
        window_ms = int(options.burst_minutes * _MINUTE_MS)
        #: Of clicked lists, and of those that nobody clicked.
        self._limits, self._unclicked_limits = ListLimits(caps, window_ms), ListLimits(caps, window_ms)
        self._votes = Votes(options.user_votes, options.address_votes)
        #: What the lists of the comparison count together.
        self.sessions = Sessions(Votes(options.user_votes, options.address_votes))
        self._growth = Growth()
        #: Queries that do not come again.
        self.tail = Tail()
        #: Why the list that was taken last does not count, if a person may send it again.
        self.left_out: Reason | None = None

    # ---- lists --------------------------------------------------------------------------------------------------

    def take(self, one: List, log_ms: int, again: bool = False, vouched: bool = True) -> list[Decision]:
        """Credit a drafted list.

        Parameters
        ----------
        log_ms : time of its record in the log.
        again : a person has sent a list again that was `left_out`: neither the limits nor its age leave it out.
        vouched : it was left out by a limit, so that person says that it is honest: it counts whole.
        """
        made = self._take(one, log_ms, again, vouched)
        if not again:
            self.tail.note(one)
        return made

    def _take(self, one: List, log_ms: int, again: bool, vouched: bool) -> list[Decision]:
        self.left_out = None
        self._now_ms = log_time(self._now_ms, log_ms)
        shown = read(self._keys, self._space, one.list_id)
        if shown is None:
            return self._left_out(Fate.FORGED)
        if shown.time_ms > self._now_ms + SKEW_MS:
            return self._left_out(Fate.AHEAD)
        gone_ms = self._now_ms - int(self.options.late_minutes * _MINUTE_MS)
        if shown.time_ms > gone_ms:
            self._agree()
        late = shown.time_ms <= max(gone_ms, self._seen.horizon_ms)
        if late and not again:
            return self._left_out(Fate.LATE)
        if not self._of_epoch(shown.serving) or not self._of_epoch(shown.candidate):
            return self._left_out(Fate.OTHER_EPOCH)
        if shown.serving != self.serving:
            return self._left_out(Fate.OTHER_PAIR)
        if shown.candidate <= self._floor or shown.candidate == self.serving:
            return self._left_out(Fate.RETIRED)
        made: list[Decision] = []
        other = self.challenger is not None and shown.candidate != self.challenger
        if other and shown.time_ms - self._heard_ms >= self._pause_ms:
            made.append(self._end(Verdict.HOLD, "no list of it came back for a whole pause"))
            self._since_ms = self._heard_ms
        if self.challenger is None:
            few = self.tail.learned < self.options.min_learned
            if self.pinned or few or not self._pause_is_over():
                self._left_out(Fate.PAUSED)
                return made
            made.append(self._challenge(shown.candidate, "the newest model when the pause was over"))
        elif shown.candidate != self.challenger:
            self._left_out(Fate.OTHER_PAIR)
            return made
        self._heard_ms = max(self._heard_ms, shown.time_ms)
        credit, clicked = shown.outcome(self._space, one.clicked)
        key = hash_of(one.list_id)
        known = self._seen.look(key)
        if known is not None and (
            known.standing is ListState.COUNTED
            or not clicked
            or (known.standing is ListState.LEFT_OUT and not again)
        ):
            self._left_out(Fate.REPEATED)
            return made
        worth = 0.0 if known is None else known.worth
        entry = self._count(one, shown, credit, clicked, worth, limited=not again, whole=again and vouched)
        if entry is not None:
            self.impressions += not worth and entry.worth > 0.0
            # A late one is remembered as long as one that was shown now.
            entry = entry._replace(time_ms=self._now_ms if late else shown.time_ms)
            self._seen.note(key, entry, gone_ms, self._now_ms)
        made += self._judge()
        if shown.newest is not None and self._moved_on(shown.newest):
            made.append(self._end(Verdict.HOLD, "the learner has moved on, and nothing was decided"))
            made.append(self._challenge(shown.newest, "the learner has moved on"))
        return made

    def _count(
        self,
        one: List,
        shown: Impression,
        credit: float,
        clicked: frozenset[int],
        worth: float,
        *,
        limited: bool,
        whole: bool,
    ) -> Entry | None:
        """Count a list among the sessions, and its clicks as evidence, unless a limit leaves it out.

        What it shows is checked if it has a whole vote.

        Parameters
        ----------
        worth : what it counted up to now, when nobody had clicked it.

        Returns
        -------
        What is to be remembered of it. A list that nobody clicked and a limit leaves out is not remembered: who
        sends many of them fills no memory.
        """
        actors = Actors(one.user, one.session, one.address)
        limits = self._limits if clicked else self._unclicked_limits
        if limited:
            self.left_out = limits.check(actors, clicked, self._now_ms)
        if self.left_out is not None:
            self.fates[_FATES[self.left_out]] += 1
            return Entry(0, ListState.LEFT_OUT, worth) if clicked else None
        if not clicked:
            self.fates[Fate.SHOWN] += 1
            weight = self.sessions.show(actors, whole)
        else:
            weight = 1.0 if whole else self._votes.weigh(voter(actors, shown.firsts))
        if worth < 1.0 == weight:
            self.shares.add(shown)
        if not clicked:
            return Entry(0, ListState.SHOWN, weight)
        self.evidence = self.evidence.after(credit, weight)
        self.tail.count(credit, weight, self.tail.comes_again(one))
        self.fates[Fate.TIED if not credit else Fate.WON if credit > 0.0 else Fate.LOST] += 1
        return Entry(0, ListState.COUNTED, self.sessions.click(weight, credit, worth))

    def _left_out(self, fate: Fate) -> list[Decision]:
        self.fates[fate] += 1
        self.left_out = _KEPT.get(fate)
        return []

    def _agree(self) -> None:
        """A service's clock agrees with the log's: what is ahead of both is of a time at which the log was wrong."""
        self._since_ms = min(self._since_ms, self._now_ms)
        self._heard_ms = min(self._heard_ms, self._now_ms)
        self._seen.turn(self._now_ms)

    def _of_epoch(self, version: Version) -> bool:
        return version == UNADAPTED or version.epoch == self._epoch

    def _pause_is_over(self) -> bool:
        return self._since_ms < 0 or self._now_ms - self._since_ms >= self._pause_ms

    def _moved_on(self, newest: Version) -> bool:
        """Whether a model should take the challenger's place: of far more steps, while it is far from a promotion."""
        present = self.challenger
        if present is None or newest <= present or not self._of_epoch(newest):
            return False
        far = newest.generation > present.generation or newest.step >= MOVED_ON * present.step
        undecided = self.log_e_for < decisive(self.options.error, self.stake) / 2
        return far and undecided and self._many and self.sessions.total >= self.options.min_sessions

    @property
    def _many(self) -> bool:
        """Whether there are more votes than may be bought: fewer end no comparison."""
        return self.evidence.votes > self.options.bought_votes

    @property
    def log_e_for(self) -> float:
        """The log e-value for the challenger, without the votes that may be bought: what decides."""
        return self.evidence.log_e_without(self.options.bought_votes)

    @property
    def _pause_ms(self) -> int:
        return int(self.options.every_minutes * _MINUTE_MS)

    # ---- decisions ----------------------------------------------------------------------------------------------

    def _judge(self) -> list[Decision]:
        error, most, bought = self.options.error, self.options.max_sessions, self.options.bought_votes
        total, stalled = self.sessions.total, self._growth.ended(self._now_ms, self.evidence.votes)
        if not self._many:
            return []
        if stalled:
            return [self._end(Verdict.HOLD, "hardly anybody who had not voted has come for half of its time")]
        if total < self.options.min_sessions:
            return []
        better = self.evidence.better(error, self.stake, bought)
        if better and self.tail.passes(error):
            # A user has as many whole votes with clicks, and as many without.
            failed = self.shares.failed(2 * max(self.options.user_votes, self.options.address_votes))
            if failed:
                return [self._end(Verdict.HOLD, f"it won, and failed the checks: {', '.join(failed)}")]
            assert self.challenger is not None
            self._history = [*self._history, self.serving][-KEPT:]
            return [self._end(Verdict.PROMOTE, "users prefer it", self.challenger)]
        if self.evidence.worse(error):
            return [self._end(Verdict.RETIRE, "users prefer the serving model")]
        if self.tail.fails(error):
            return [self._end(Verdict.RETIRE, "it is worse for queries that do not come again")]
        if not better and self.evidence.hopeless(total, most, error, self.stake, bought):
            reason = f"after {self.impressions} lists, {most} would hardly show that it is better"
            return [self._end(Verdict.HOLD, reason)]
        if total >= most:
            return [self._end(Verdict.HOLD, "it may lose more for queries that do not come again")]
        return []

    def _challenge(self, candidate: Version, reason: str) -> Decision:
        self.challenger = candidate
        self._forget()
        self._growth.begin(self._now_ms)
        return self._decide(Verdict.CHALLENGE, reason, self.serving)

    def _end(self, verdict: Verdict, reason: str, serving: Version | None = None) -> Decision:
        """End the comparison; without `serving` the same model goes on to serve."""
        self._floor = max(self._floor, self.challenger or UNADAPTED)
        self._since_ms = self._now_ms
        before, self.serving = self.serving, self.serving if serving is None else serving
        # Comparisons with another serving model are others.
        self.stake = self.evidence.stake_after(self.stake) if self.serving == before else 1.0
        self.challenger = None
        made = self._decide(verdict, reason, before)
        self.tail.end(self.serving != before, self.options.error)
        self._forget()
        return made

    def _forget(self) -> None:
        """Of the comparison."""
        self.evidence, self.shares = Evidence(), Shares()
        self.impressions = 0
        self._seen.clear()
        self._votes.clear()
        self.sessions.clear()

    def _decide(self, verdict: Verdict, reason: str, before: Version) -> Decision:
        self._number += 1
        self.verdicts[verdict] += 1
        counted = {"votes": self.evidence.votes, "sessions": self.sessions.total} | self.tail.measured()
        measured = counted | self.shares.measured() if self.impressions else {}
        made = Decision(
            verdict,
            reason,
            self._number,
            self.serving,
            before,
            self.challenger,
            self.pinned,
            self.impressions,
            self.evidence,
            self.log_e_for,
            measured,
            self._floor,
        )
        plain = {
            "verdict": verdict.value,
            "reason": reason,
            "number": self._number,
            "serving": str(self.serving),
            "before": str(before),
            "challenger": None if self.challenger is None else str(self.challenger),
            "time_ms": self._now_ms,
            "impressions": self.impressions,
            "wins": self.evidence.wins,
            "losses": self.evidence.losses,
        }
        self.decided = [*self.decided, plain][-KEPT:]
        return made

    def begin(self, log_ms: int) -> Decision:
        """Note the beginning of an epoch after one in which something may have served."""
        self._now_ms = log_time(self._now_ms, log_ms)
        return self._decide(Verdict.BEGIN, "the space began anew", UNADAPTED)

    # ---- orders of people ---------------------------------------------------------------------------------------

    def order(self, order: GateOrder, log_ms: int) -> list[Decision]:
        """Obey an order.

        Raises
        ------
        BadRecord : there is nothing to promote or to return to, or the model is of another epoch.
        """
        version = order.version
        if version is not None and not self._of_epoch(version):
            raise BadRecord(
                Reason.BAD_SHAPE, f"model {version} is of another epoch than the space, {self._epoch}"
            )
        match order.order:
            case Order.PROMOTE:
                version = version or self.challenger
                if version is None:
                    raise BadRecord(
                        Reason.BAD_SHAPE, "an order to promote, and there is no challenger: name a model"
                    )
                verdict = Verdict.PROMOTE
            case Order.PIN:
                assert version is not None
                verdict = Verdict.PIN
            case Order.ROLLBACK:
                if not self._history:
                    raise BadRecord(
                        Reason.BAD_SHAPE, "an order to roll back, and no other model has served before"
                    )
                version, verdict = self._history[-1], Verdict.ROLLBACK
            case Order.RESUME:
                if not self.pinned:
                    raise BadRecord(Reason.BAD_SHAPE, "an order to resume, and no model is pinned")
                version, verdict = self.serving, Verdict.RESUME
        self._now_ms = log_time(self._now_ms, log_ms)
        if order.order is Order.ROLLBACK:
            self._history.pop()
            # The model that people took back does not challenge again.
            self._floor = max(self._floor, self.serving)
        elif version != self.serving:
            self._history = [*self._history, self.serving][-KEPT:]
        if order.order in (Order.PIN, Order.RESUME):
            self.pinned = order.order is Order.PIN
        return [self._end(verdict, f"ordered: {order.note}" if order.note else "ordered", version)]

    # ---- state --------------------------------------------------------------------------------------------------

    def state(self) -> State:
        plain = {
            "epoch": self._epoch,
            "serving": self.serving,
            "challenger": self.challenger,
            "pinned": self.pinned,
            "evidence": asdict(self.evidence),
            "stake": self.stake,
            "impressions": self.impressions,
            "fates": self.fates,
            "verdicts": self.verdicts,
            "decided": self.decided,
            "history": self._history,
            "floor": self._floor,
            "number": self._number,
            "times": [self._now_ms, self._since_ms, self._heard_ms],
            "tail": self.tail.plain(),
            "growth": self._growth.plain(),
        }
        state: State = {"gate": json.dumps(plain)}
        for name, part in self._parts():
            state |= with_prefix(f"{name}.", part.state())
        state |= self._limits.state() | with_prefix(_UNCLICKED, self._unclicked_limits.state())
        state |= with_prefix(_TAIL, self.tail.state())
        return state | with_prefix(_EXPOSURE, self.exposure.state())

    def restore(self, state: State) -> None:
        plain = json.loads(str(state["gate"]))
        self._take_over(plain)
        challenger = plain["challenger"]
        self.challenger = None if challenger is None else Version(*challenger)
        self.evidence = Evidence.of(plain["evidence"])
        self.impressions = int(plain["impressions"])
        self._growth.restore(plain.get("growth"))
        self.fates.update(plain["fates"])
        self._now_ms, self._since_ms, self._heard_ms = plain["times"]
        for name, part in self._parts():
            part.restore(without_prefix(f"{name}.", state))
        self._limits.restore(state)
        self._unclicked_limits.restore(without_prefix(_UNCLICKED, state))
        self.tail.restore(without_prefix(_TAIL, state), plain.get("tail"))
        self._restore_exposure(state)

    def inherit(self, state: State, load: Any) -> None:
        """Take over who serves from another generation; a comparison begins anew, perhaps with other settings."""
        plain = json.loads(str(state["gate"]))
        self._take_over(plain)
        self._now_ms, self._since_ms, _ = plain["times"]
        self.tail.inherit(without_prefix(_TAIL, state), plain.get("tail"))
        self._restore_exposure(state)

    def _restore_exposure(self, state: State) -> None:
        """A checkpoint of an earlier version has none: it begins anew."""
        found = without_prefix(_EXPOSURE, state)
        if found:
            self.exposure.restore(found)

    def _take_over(self, plain: dict[str, Any]) -> None:
        self._epoch = int(plain["epoch"])
        self.serving, self._floor = Version(*plain["serving"]), Version(*plain["floor"])
        self.pinned, self.decided = bool(plain["pinned"]), list(plain["decided"])
        self._history = [Version(*one) for one in plain["history"]]
        self._number = int(plain["number"])
        # Versions before `gate/4` had none.
        self.stake = float(plain.get("stake", 1.0))
        self.verdicts.update(plain["verdicts"])

    def _parts(self) -> Iterable[tuple[str, Seen | Sessions | Shares | Votes]]:
        yield "seen", self._seen
        yield "votes", self._votes
        yield "worth", self.sessions
        yield "shares", self.shares
