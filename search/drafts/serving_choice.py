"""Who serves a space with a gate: the model that the newest decision names, and the candidates of drafted lists."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kinstream.search.models.decisions import may_challenge
from kinstream.search.models.feed import ModelFeed
from kinstream.search.models.model import Model
from kinstream.search.models.models_of_gate import Held
from kinstream.streams.records.gate import UNADAPTED, GateDecision, Version


@dataclass(frozen=True, slots=True)
class Decided:
    """The models of one moment. It never changes, so everything in an answer comes from one.

    Parameters
    ----------
    serving : the model that serves by decision, un-learned before the first; None if it is not available.
    candidates : the models that may pick in drafted lists, in the order in which they are to be tried.
    version : what the newest decision lets serve.
    decision : the newest one; None before the first.
    kept : whether the model that serves outlives the learner's checkpoints.
    newest : a newer model than the challenger, that could take its place; None without one.
    """

    serving: Model | None
    candidates: tuple[Model, ...] = ()
    version: Version = UNADAPTED
    decision: GateDecision | None = None
    kept: bool = True
    newest: Version | None = None

    @property
    def missing(self) -> bool:
        """Whether the model that serves by decision is not available."""
        return self.serving is None

    def named(self) -> dict[str, Any]:
        """What an answer says of it, as JSON."""
        challenger = None if self.decision is None else self.decision.challenger
        return {
            "decided": str(self.version),
            "missing": self.missing,
            "challenger": None if challenger is None else str(challenger),
            "pinned": self.decision is not None and self.decision.pinned,
        }


class Deciding:
    """Obeys the gate of a space. Any thread may call it.

    Parameters
    ----------
    space, learner : whose models are decided on.
    feed : of models and decisions; not started yet.
    """

    def __init__(self, space: str, learner: str, feed: ModelFeed) -> None:
        self._space = space
        self._feed = feed
        self._held: Held = feed.hold(space, learner)
        self._none = Model()
        #: The newest whose model was available.
        self._last = Decided(self._none)

    @property
    def tried(self) -> bool:
        """Whether every model that was decided on before the start is loaded, or was tried."""
        return self._held.tried

    def now(self) -> Decided:
        """Who serves now, and who may be compared."""
        decision, floor = self._feed.decided(self._space)
        version = UNADAPTED if decision is None else decision.serving
        serving = self._none if version == UNADAPTED else self._held.get(version)
        # A list with another serving model than the decided one would be left out by the gate.
        if serving is None and not self._held.failed(version):
            return replace(
                self._last, candidates=()
            )  # while the model is being loaded, the one before serves
        if serving is None:
            return Decided(None, (), version, decision, False)
        kept = version == UNADAPTED or self._held.copied(version)
        candidates = self._candidates(decision, floor)
        self._last = Decided(serving, candidates, version, decision, kept, self._newer(decision))
        return self._last

    def _newer(self, decision: GateDecision | None) -> Version | None:
        """The candidate of this service, if the gate has another challenger, which is older."""
        present, own = None if decision is None else decision.challenger, self._held.candidate
        if present is None or own is None or Version(*own.name) <= present:
            return None
        return Version(*own.name)

    def _candidates(self, decision: GateDecision | None, floor: Version) -> tuple[Model, ...]:
        """The challenger, and a model that may become the challenger."""
        found = []
        if decision is not None and decision.challenger is not None:
            found.append(self._held.get(decision.challenger))
        others = (self._held.candidate, self._held.subscription.serving)
        found.append(next((one for one in others if _may(one, decision, floor)), None))
        return tuple(one for one in found if one is not None)


def _may(model: Model | None, decision: GateDecision | None, floor: Version) -> bool:
    return model is not None and model.learned and may_challenge(Version(*model.name), decision, floor)
