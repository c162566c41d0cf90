"""A what-if: production constraints through a changed setting, compared with the running learners' records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kinstream.replay.log.agents import Agent, open_learner, other_log
from kinstream.replay.log.guarantees import Origin
from kinstream.replay.log.run import Beside, Replay, Request, Result
from kinstream.replay.log.sources import Point, TopicRange, topic_range
from kinstream.replay.what_if.outcomes import Outcomes, SideBySide, Tap, read_recorded, side_by_side
from kinstream.replay.what_if.saved_state import SavedState, StateFolder
from kinstream.replay.what_if.settings import section_of
from kinstream.streams.agents.generations.birth import read_birth
from kinstream.streams.agents.generations.open_generation import birth_at, view_of
from kinstream.streams.errors import SettingsError
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.settings import Settings
from kinstream.streams.topics import partition_of

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class WhatIfRequest:
    """What to replay, and what to compare with.

    Parameters
    ----------
    learner : the learner to replay.
    against : running learners, by name; by default the learner itself, or all running ones if it does not run.
    space : only this one; its partition is read.
    until_checkpoint : stop at the newest checkpoints of the running learner.
    save : folder or URL to keep the state in.
    """

    learner: str
    against: tuple[str, ...] = ()
    start: Point | None = None
    end: Point | None = None
    space: str | None = None
    partitions: tuple[int, ...] = ()
    until_checkpoint: bool = False
    save: str | None = None


@dataclass(frozen=True, slots=True)
class RecordedOutcomes:
    """The outcomes found of a running learner.

    Parameters
    ----------
    generation : the running one, or None if no birth record has it.
    outcomes : about constraints of the range, each once.
    again : repeated outcomes with the same identity, which a crashed worker sends twice.
    unreadable : records without a readable outcome.
    by_generation : outcomes that are compared.
    """

    learner: str
    generation: int | None
    outcomes: int
    again: int
    unreadable: int
    by_generation: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class WhatIfResult:
    """The result of a what-if.

    Parameters
    ----------
    section : the settings that were replayed, as in a settings file.
    replayed : the replay itself: models, counts, dead letters.
    sides : by running learner and space.
    notes : for the user: the meaning of the state, and limits of the comparison.
    """

    learner: str
    section: Mapping[str, Any]
    settings_digest: str
    replayed: Result
    recorded: tuple[RecordedOutcomes, ...]
    sides: tuple[SideBySide, ...]
    notes: tuple[str, ...]
    saved: SavedState | None = None
    saved_in: str | None = None


class WhatIf:
    """A what-if, opened: `size` messages at most are to come, and `run` applies them.

    Parameters
    ----------
    running : the settings of the running system.
    changed : the same with the section to be tried (`kinstream.replay.what_if.settings`).

    Raises
    ------
    SettingsError : an unknown learner, topic or partition, or a folder for the state that is not empty.
    GenerationMismatch : there are no checkpoints to stop at.
    BrokerUnavailable : the brokers do not answer.
    """

    def __init__(
        self, request: WhatIfRequest, running: Settings, changed: Settings, cluster: Cluster
    ) -> None:
        if request.save is not None and request.space is not None:
            raise SettingsError("--save keeps whole partitions: leave out --space")
        self._request = request
        self._running = running
        self._settings = changed
        self._cluster = cluster
        self._against = self._running_learners()
        wanted = Request(
            learners=(request.learner,),
            origin=Origin.CONSTRAINTS,
            start=request.start,
            end=request.end,
            space=request.space,
            partitions=request.partitions,
            until_checkpoint=request.until_checkpoint,
            aloud=True,
        )
        self._replay = Replay(wanted, changed, cluster)
        self._agent = self._replay.learners[0]
        self._birth = birth_at(
            self._agent.spec, view_of(self._agent.spec, changed, cluster), 0, {}, self._inherits()
        )
        self._folder = None if request.save is None else StateFolder(request.save)
        if self._folder is not None:
            self._folder.check_free(changed, self._birth)
        self.size = self._replay.size

    # ---- preparing ----------------------------------------------------------------------------------------------

    def _running_learners(self) -> list[Agent]:
        request, running = self._request, self._running
        names = request.against or ((request.learner,) if request.learner in running.learners else ())
        agents = [open_learner(running, name, self._cluster) for name in names]
        if request.against or any(agent.generation is not None for agent in agents):
            return agents
        others = [open_learner(running, n, self._cluster) for n in running.learners if n != request.learner]
        return [agent for agent in others if agent.generation is not None] or agents

    def _inherits(self) -> int | None:
        """The generation whose declarations the replay takes over, if it begins at the learner's birth."""
        return None if self._agent.generation is None else self._agent.generation.birth.inherits

    # ---- running ------------------------------------------------------------------------------------------------

    def run(
        self,
        progress: Progress = lambda done: None,
        beside: Beside = lambda learners, messages: messages,
    ) -> WhatIfResult:
        """Replay, compare, save.

        Parameters
        ----------
        progress : called with the number of offsets of `constraints` passed.
        beside : sees each message before it is applied.

        Raises
        ------
        BrokerUnavailable : the brokers stopped answering.
        LogGap : the log has lost outputs that the learner follows.
        CheckpointError : the state cannot be saved.
        """
        ranges = self._replay.range.ranges
        topic = self._replay.range.topic
        what_if = Outcomes(topic, ranges)
        replayed = self._replay.run(progress, Tap(what_if, self._settings.topic("outcomes")), beside)
        # Read after the replay, so that it includes outcomes recorded meanwhile.
        found = {a.spec.name: Outcomes(topic, ranges, self._confirmed(a)) for a in self._against}
        written = self._outcomes_topic()
        if written is not None:
            read_recorded(written.messages(self._running.kafka), found)
        sides: list[SideBySide] = []
        recorded: list[RecordedOutcomes] = []
        for agent in self._against:
            outcomes = found[agent.spec.name]
            births = {} if agent.generation is None else agent.generation.birth.start_offsets
            spaces = {model.space for model in replayed.models}
            sides += side_by_side(
                agent.spec.name,
                outcomes,
                what_if,
                births=births,
                trimmed={} if written is None else {space: _trimmed(written, space) for space in spaces},
                space=self._request.space,
            )
            recorded.append(
                RecordedOutcomes(
                    agent.spec.name,
                    None if agent.generation is None else agent.number,
                    len(outcomes),
                    outcomes.again,
                    outcomes.unreadable,
                    {number: n for number, n in sorted(outcomes.by_generation.items()) if n},
                )
            )
        saved = self._save()
        return WhatIfResult(
            self._request.learner,
            section_of(self._settings.learners[self._request.learner]),
            self._birth.settings_digest,
            replayed,
            tuple(recorded),
            tuple(sides),
            tuple(self._notes(recorded)),
            saved,
            None if self._folder is None else self._folder.url,
        )

    def _outcomes_topic(self) -> TopicRange | None:
        topic = self._running.topic("outcomes")
        return topic_range(self._cluster, topic) if self._against else None

    def _confirmed(self, agent: Agent) -> frozenset[int] | None:
        """Generations of a learner that read this very log; None if there is no birth record."""
        if agent.generation is None:
            return None
        view = self._cluster.view([self._replay.range.topic])
        found = set()
        for number in range(1, agent.number + 1):
            birth = read_birth(self._running.checkpoints.url, agent.spec.application, number)
            if birth is not None and other_log(birth, view) is None:
                found.add(number)
        return frozenset(found)

    def _save(self) -> SavedState | None:
        if self._folder is None:
            return None
        pipeline, agent = self._replay.pipeline, self._agent
        assert pipeline is not None
        starts = self._replay.range.starts
        return self._folder.write(
            self._birth,
            [pipeline.learners[0].machine(partition) for partition in sorted(starts)],
            learner=self._request.learner,
            learned_from=starts,
            inherited=[p for p in starts if self._birth.inherits is not None and self._inherits_on(p)],
            beside=None if agent.generation is None else agent.number,
            section=section_of(self._settings.learners[self._request.learner]),
        )

    def _inherits_on(self, partition: int) -> bool:
        generation = self._agent.generation
        begun = self._replay.begins_at_birth(self._agent, partition)
        return begun and generation is not None and bool(generation.inherited(partition))

    # ---- notes for the user -----------------------------------------------------------------------------------

    def _notes(self, recorded: list[RecordedOutcomes]) -> list[str]:
        agent, starts = self._agent, self._replay.range.starts
        where = _places(starts)
        if agent.generation is not None and all(self._replay.begins_at_birth(agent, p) for p in starts):
            where = f"where generation {agent.number} of {agent.name} began to learn"
        notes = [
            f"The what-if began {where}, with nothing learned. It ends in the state, bit for bit, of a learner with "
            "these settings that began there, for the same versions and kind of CPU."
        ]
        for other in self._against:
            if other.unconfirmed:
                notes.append(
                    f"Nothing here confirms that the outcomes of {other.name} belong to this log: {other.unconfirmed}."
                )
            early = [p for p in starts if _began_before(other, p, starts[p])]
            if early:
                notes.append(
                    f"{other.name} had learned before this range began (on {len(early)} of {len(starts)} partitions), "
                    "and the what-if had not: its mistakes at the beginning are those of a new model."
                )
        if not any(found.outcomes for found in recorded):
            notes.append(
                "No recorded outcomes were found for these constraints: there is nothing to compare with."
            )
        return notes


def _began_before(agent: Agent, partition: int, start: int) -> bool:
    began = agent.birth_offset(partition)
    # Moved states were learned from the old partitions, for any range of the new ones.
    moved = agent.generation is not None and agent.generation.birth.repartition is not None
    return moved or (began is not None and began < start)


def _trimmed(outcomes: TopicRange, space: str) -> bool:
    return outcomes.log_starts.get(partition_of(space, len(outcomes.log_starts)), 0) > 0


def _places(starts: Mapping[int, int]) -> str:
    places = [f"at offset {offset} of partition {p}" for p, offset in sorted(starts.items())]
    more = f" and {len(places) - 3} more" if len(places) > 3 else ""
    return ", ".join(places[:3]) + more
