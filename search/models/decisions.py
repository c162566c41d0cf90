"""The decisions of the gate as a service has read them: the newest of each space, and which models have lost."""

from __future__ import annotations

from kinstream.streams.records.gate import UNADAPTED, GateDecision, Verdict, Version


class Decisions:
    """The newest decision of every space. One thread takes decisions, any thread asks."""

    def __init__(self) -> None:
        # One reference for both: a reader never gets the decision of one moment and the floor of another.
        self._found: dict[str, tuple[GateDecision, Version]] = {}

    def take(self, decision: GateDecision) -> None:
        """Take a decision; an older one than the newest, or the same again, changes nothing."""
        space = decision.space
        before = self._found.get(space)
        if before is not None and decision.rank <= before[0].rank:
            return
        self._found[space] = decision, _floor(before, decision)

    def of(self, space: str) -> tuple[GateDecision | None, Version]:
        """The newest decision of a space, and its floor: no model up to that one can become the challenger.

        A decision without its floor is of an earlier version of the gate. Then the floor follows from the decisions
        that were read, and may be lower than the gate's own, since those before the newest may be compacted away.
        """
        return self._found.get(space, (None, UNADAPTED))


def _floor(before: tuple[GateDecision, Version] | None, decision: GateDecision) -> Version:
    """That of the decision; without one, as `kinstream.gate.core` raises it at the end of a comparison, and when
    people take a model back."""
    if decision.floor is not None:
        return decision.floor
    floor = UNADAPTED
    if before is not None and before[0].epoch == decision.epoch:
        last, floor = before
        ended = last.challenger is not None and decision.challenger != last.challenger
        if ended and last.generation == decision.generation:
            assert last.challenger is not None
            floor = max(floor, last.challenger)
    if decision.verdict is Verdict.ROLLBACK:
        floor = max(floor, decision.before)
    return floor


def may_challenge(version: Version, decision: GateDecision | None, floor: Version) -> bool:
    """Whether the gate would take that model as the challenger, if the first list that comes back were of it."""
    if version <= floor:
        return False
    if decision is None:
        return version != UNADAPTED
    return not decision.pinned and version != decision.serving and version.epoch == decision.epoch
