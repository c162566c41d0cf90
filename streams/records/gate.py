"""Records of the gate, which decides who serves: orders of people, and decisions."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple


class Version(NamedTuple):
    """A model of a space: generation of its learner, epoch of the space, step. Compared as a tuple."""

    generation: int
    epoch: int
    step: int

    def __str__(self) -> str:
        return "un-adapted" if self == UNADAPTED else ".".join(str(number) for number in self)

    @classmethod
    def parse(cls, text: str) -> Version:
        """The inverse of `str`.

        Raises
        ------
        ValueError : it is neither `un-adapted` nor three numbers.
        """
        if text == "un-adapted":
            return UNADAPTED
        numbers = text.split(".")
        if len(numbers) != len(cls._fields) or not all(n.isascii() and n.isdigit() for n in numbers):
            raise ValueError(
                f"{text!r} is not a model: write un-adapted, or GENERATION.EPOCH.STEP such as 1.0.5200"
            )
        return cls(*(int(number) for number in numbers))


#: No model: features as they are.
UNADAPTED: Final = Version(0, -1, 0)


class Order(StrEnum):
    """What a person orders the gate of a space to do."""

    PROMOTE = "promote"
    PIN = "pin"
    ROLLBACK = "rollback"
    RESUME = "resume"


@dataclass(frozen=True, slots=True)
class GateOrder:
    """An order, on `events`, so that a replay repeats it.

    Parameters
    ----------
    version : of `pin` and of `promote`; None promotes the challenger.
    note : who ordered it, and why.
    """

    space: str
    order: Order
    time_ms: int
    version: Version | None = None
    note: str = ""


class Verdict(StrEnum):
    """The kind of a decision.

    `challenge`: a model is compared with the serving one from now on. `promote`: the challenger serves. `hold`: it
    was not shown to be better in time, or a check failed. `retire`: it was shown to be worse. `pin`, `rollback`,
    `resume`: orders. `begin`: a new epoch, in which the un-adapted features serve.
    """

    CHALLENGE = "challenge"
    PROMOTE = "promote"
    HOLD = "hold"
    RETIRE = "retire"
    PIN = "pin"
    ROLLBACK = "rollback"
    RESUME = "resume"
    BEGIN = "begin"


@dataclass(frozen=True, slots=True)
class GateDecision:
    """Who serves a space from an offset of the log on, and why. The newest has the highest (generation, epoch, number).

    Parameters
    ----------
    generation, epoch : of the gate, and of the space.
    number : of the decision in the epoch, from 1.
    topic, partition, offset : of the event that caused it.
    serving, before : who serves from now on, and who did until now.
    challenger : who is compared with the serving model from now on; None for nobody.
    pinned : whether a person has ordered that nothing else is to serve.
    impressions, wins, losses, ties : of the comparison that it ends; of a challenge, zeros.
    log_e_for, log_e_against : log e-values for and against the challenger; before `gate/5` the largest ones.
    checks : what the checks beside the test have measured, by name, and the votes of the comparison.
    floor : no model up to this one challenges from now on; None in a record of a version that did not write it.
    """

    space: str
    verdict: Verdict
    reason: str
    generation: int
    epoch: int
    number: int
    topic: str
    partition: int
    offset: int
    time_ms: int
    serving: Version
    before: Version
    challenger: Version | None = None
    pinned: bool = False
    impressions: int = 0
    wins: int = 0
    losses: int = 0
    ties: int = 0
    log_e_for: float = 0.0
    log_e_against: float = 0.0
    checks: dict[str, float] = field(default_factory=dict)
    floor: Version | None = None

    @property
    def rank(self) -> tuple[int, int, int]:
        """The order of the decisions of a space."""
        return self.generation, self.epoch, self.number
