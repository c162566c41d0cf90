"""The state of a running system, from the brokers and the checkpoint store."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any, Final

from kinstream.gate.status import read_gates
from kinstream.monitoring.agent import read_tallies
from kinstream.streams import groups
from kinstream.streams.errors import AccessDenied
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.reader import ends
from kinstream.streams.operations.checkpoints import Agent, agents, birth_of, checkpoints
from kinstream.streams.operations.models import from_checkpoints
from kinstream.streams.records.held_out import LEARNED
from kinstream.streams.settings import Settings

#: Dead letters of so long are counted.
RECENT_SECONDS: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class AgentState:
    """One agent of the settings.

    Parameters
    ----------
    generation : None before its first start.
    members : consumers in its group; None if the brokers do not say so (the embedded broker).
    behind : the largest number of records of a partition that are not in a checkpoint yet.
    checkpoint_seconds : since the agent last wrote a checkpoint, of any partition; None without one. A partition
        without new records writes none.
    """

    agent: str
    generation: int | None
    members: int | None
    behind: int | None
    checkpoint_seconds: float | None


@dataclass(frozen=True, slots=True)
class ModelState:
    """The newest model of a space and learner.

    Parameters
    ----------
    age_seconds : since it was written.
    mistake_rate : of the metrics agent's window of constraints.
    withheld : a newer model that the learner withholds, and its figure; None if it does not.
    held_out, unlearned : rates of mistakes on held-out events, by the learned and by the best un-learned metric.
    verdict : which of the two is better, or that there are not enough events yet.
    """

    space: str
    learner: str
    step: int
    age_seconds: float
    mistake_rate: float | None
    held_out: float | None
    unlearned: float | None
    verdict: str | None = None
    withheld: str | None = None


@dataclass(frozen=True, slots=True)
class GateState:
    """Who serves a space."""

    space: str
    serving: str
    challenger: str | None
    lists: int


@dataclass(frozen=True, slots=True)
class Overview:
    """All of it, at one moment.

    Parameters
    ----------
    refused : dead letters of the last hour; of the embedded broker, all that it holds. None without the right to ask.
    """

    agents: list[AgentState]
    models: list[ModelState]
    gates: list[GateState]
    refused: int | None

    @property
    def complete(self) -> bool:
        """Whether every agent runs, as far as the brokers say so."""
        return all(one.members is None or one.members > 0 for one in self.agents)

    def as_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return {**asdict(self), "complete": self.complete}


def overview(settings: Settings) -> Overview:
    """Read everything once.

    Raises
    ------
    BrokerUnavailable, LoginRefused, AccessDenied : as every request to the brokers.
    CheckpointError : a checkpoint cannot be read.
    """
    now = time.time()
    cluster = Cluster(settings.kafka)
    try:
        # Agents that never ran are not looked for there.
        embedded = cluster.view([]).cluster_id is None
        states = [_agent(cluster, settings, one, now, embedded) for one in agents(settings)]
        refused = _refused(
            cluster, settings.topic("dead-letters"), None if embedded else now - RECENT_SECONDS
        )
    finally:
        cluster.close()
    gates = read_gates(settings).values() if settings.gate else ()
    return Overview(
        states,
        _models(settings, now),
        [GateState(one.space, one.serving, one.challenger, one.lists) for one in gates],
        refused,
    )


def _refused(cluster: Cluster, topic: str, since: float | None) -> int | None:
    """The records of a topic that are not older than a time, in seconds; None: all of them."""
    found = 0
    try:
        for partition, (start, end) in ends(cluster, topic).items():
            if since is not None:
                first = cluster.offset_at(topic, partition, int(since * 1000))
                start = end if first is None else first
            found += max(0, end - start)
    except AccessDenied:
        return None
    return found


def _agent(cluster: Cluster, settings: Settings, agent: Agent, now: float, embedded: bool) -> AgentState:
    birth = birth_of(settings, agent)
    if birth is None:
        return AgentState(agent.application, None, 0, None, None)
    manifests = {seen.manifest.partition: seen.manifest for seen in checkpoints(settings, agent)}
    behind = 0
    for partition in range(birth.input_partitions):
        start, end = cluster.bounds(birth.input_topic, partition)
        found = manifests.get(partition)
        read = birth.start_offsets.get(partition, start) if found is None else found.offset
        behind = max(behind, end - max(start, read))
    group = groups.name_of(settings.topics.prefix, agent.application, birth.generation)
    newest = max((one.written_ms for one in manifests.values()), default=None)
    return AgentState(
        agent.application,
        birth.generation,
        None if embedded else cluster.group_members(group),
        behind,
        None if newest is None else max(0.0, now - newest / 1000),
    )


def _models(settings: Settings, now: float) -> list[ModelState]:
    rows = {(row.space, row.learner): row for row in read_tallies(settings)}
    found, newest = [], from_checkpoints(settings)
    for (space, learner), version in newest.models().items():
        withheld = newest.withheld.get((space, learner))
        row = rows.get((space, learner))
        judged = row.held_out if row is not None and row.stands else None
        window = judged.window if judged is not None and judged.published else None
        found.append(
            ModelState(
                space,
                learner,
                version.step,
                max(0.0, now - version.time_ms / 1000),
                None if row is None else row.mistake_window.ratio,
                None if window is None else window.rate(LEARNED),
                None if window is None or judged is None else window.rate(judged.best),
                None if judged is None else judged.verdict,
                None if withheld is None else str(withheld),
            )
        )
    return found
