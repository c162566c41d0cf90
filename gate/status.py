"""Who serves each space, and the running evidence, from the newest checkpoints of the gate. It needs no brokers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from kinstream.gate.agent import options_of
from kinstream.gate.core import SpaceGate
from kinstream.gate.exposure.counts import Exposed
from kinstream.gate.lists.evidence import decisive, interval
from kinstream.gate.lists.list_id import keys_of
from kinstream.gate.tail import needed
from kinstream.streams.agents.space import core_state
from kinstream.streams.configuration.gate import GateSettings
from kinstream.streams.operations.checkpoints import Agent, checkpoints
from kinstream.streams.settings import Settings


@dataclass(frozen=True, slots=True)
class GateStatus:
    """The gate of a space at its newest checkpoint.

    Parameters
    ----------
    offset : of the checkpoint: the gate has applied all events of the partition before it.
    lists, wins, losses, ties, votes : of the comparison that runs; `votes` is what its clicked lists count together.
    share, low, high : share of the decided lists that the challenger won, with an interval that holds at all looks.
    tail : of the queries that do not come again: votes, wins, losses, ties, the log e-value that the challenger loses
        little there, and the one at which it passes.
    learned : clicked lists since the epoch began.
    log_e_for, log_e_against, needed : the log e-values, for the challenger without the votes that may be bought; and
        the one at which it is promoted.
    fates : records of drafted lists by what became of them, since the epoch began.
    decisions : the last ones, the newest last.
    exposure : what users were shown in this epoch, drafted or not.
    """

    space: str
    partition: int
    offset: int
    serving: str
    challenger: str | None
    pinned: bool
    lists: int
    wins: int
    losses: int
    ties: int
    votes: float
    share: float
    low: float
    high: float
    log_e_for: float
    log_e_against: float
    needed: float
    tail: dict[str, float]
    learned: int
    checks: dict[str, float]
    fates: dict[str, int]
    decisions: list[dict[str, Any]]
    exposure: Exposed

    def as_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return {**asdict(self), "exposure": self.exposure.as_json()}


def read_gates(settings: Settings) -> dict[str, GateStatus]:
    """By space. A space without drafted lists or orders up to now is missing.

    Raises
    ------
    CheckpointError : a checkpoint cannot be read.
    """
    keys = keys_of(settings)
    found = {}
    for seen in checkpoints(settings, Agent("gate", "gate")):
        for space, file in seen.manifest.spaces.items():
            state = core_state(seen.state(file))
            if state is None:
                continue
            section = settings.gate.get(space, GateSettings())
            gate = SpaceGate(space, keys, options_of(section))
            gate.restore(state)
            evidence = gate.evidence
            low, high = interval(evidence.wins, evidence.losses, section.error)
            found[space] = GateStatus(
                space=space,
                partition=seen.manifest.partition,
                offset=seen.manifest.offset,
                serving=str(gate.serving),
                challenger=None if gate.challenger is None else str(gate.challenger),
                pinned=gate.pinned,
                lists=gate.impressions,
                wins=evidence.wins,
                losses=evidence.losses,
                ties=evidence.ties,
                votes=evidence.votes,
                share=evidence.share,
                low=low,
                high=high,
                log_e_for=gate.log_e_for,
                log_e_against=evidence.log_e_against,
                needed=decisive(section.error, gate.stake),
                tail=gate.tail.measured() | {"tail_log_e_needed": needed(section.error)},
                learned=gate.tail.learned,
                checks=gate.shares.measured(),
                fates={str(name): count for name, count in gate.fates.items()},
                decisions=gate.decided,
                exposure=gate.exposure.exposed(),
            )
    return dict(sorted(found.items()))
